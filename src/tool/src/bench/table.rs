//! What was measured, as text for people and for other programs.

use std::fmt::Write as _;

use super::{Measured, Row, Scenario};
use crate::core::Core;

/// The table, and what of it is not as it should be.
pub(super) fn text(measured: &Measured) -> String {
    let mut text = format!(
        "{:<9} {:>9} {:>7} {:>9} {:>9} {:>6}  {:<12} {:>6}\n",
        "scenario", "mappings", "threads", "stock ns", "rust ns", "ratio", "quartiles", "target"
    );
    for row in &measured.rows {
        let cost = |core| row.cost(core).map_or("-".to_owned(), |cost| format!("{cost:.0}"));
        let ratio = |part| row.ratio(part).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let quartiles = row.ratio(0.5).map_or(String::new(), |_| format!("{} to {}", ratio(0.25), ratio(0.75)));
        let target = row.target().filter(|_| row.ratio(0.5).is_some()).map_or(String::new(), |t| t.to_string());
        let line = format!(
            "{:<9} {:>9} {:>7} {:>9} {:>9} {:>6}  {quartiles:<12} {target:>6}",
            row.scenario,
            grouped(row.size),
            row.threads,
            cost(Core::Stock),
            cost(Core::Rust),
            ratio(0.5),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text += "\nns: an operation's, median; one thread's by its processor time. ratio: stock / rust, median of the pairs'.\n";
    if let Some(others) = measured.others {
        let _ = writeln!(text, "Other programs had {:.0} % of the machine's processor time meanwhile.", others * 100.0);
    }
    text += &threads(measured);
    text += &memory(measured);
    text += &verdict(measured);
    text
}

/// How much more two threads do than one.
fn threads(measured: &Measured) -> String {
    let mut text = String::new();
    for row in measured.rows.iter().filter(|row| row.threads == 2) {
        let speed_ups = measured.cores().into_iter().filter_map(|core| Some((core, measured.speed_up(core, row)?)));
        let speed_ups = speed_ups.map(|(core, times)| format!("{core} {times:.2}")).collect::<Vec<_>>();
        if !speed_ups.is_empty() {
            let _ = writeln!(text, "    {:<9} {:>9}  {}", row.scenario, grouped(row.size), speed_ups.join(", "));
        }
    }
    if text.is_empty() { text } else { format!("\nWork that two threads do, in times that of one:\n{text}") }
}

/// What a mapping takes, where there are most.
fn memory(measured: &Measured) -> String {
    let most = measured.fillings.iter().map(|filling| filling.size).max().unwrap_or(0);
    let mut text = format!("\nMemory a mapping at its peak, and time to make it, with {}:\n", grouped(most));
    for filling in measured.fillings.iter().filter(|filling| filling.size == most) {
        let _ = writeln!(text, "    {:<9} {:.0} bytes, {:.0} ns", filling.core.name(), filling.bytes, filling.time);
    }
    text
}

/// What is not as it should be; nothing can be said of one core alone.
fn verdict(measured: &Measured) -> String {
    let compared = || measured.rows.iter().filter_map(|row| Some((row, row.ratio(0.5)?)));
    if compared().next().is_none() {
        return String::new();
    }
    let place = |row: &Row| {
        let plural = if row.threads == 1 { "" } else { "s" };
        format!("    {:<9} {:>9} mappings, {} thread{plural}", row.scenario, grouped(row.size), row.threads)
    };
    let with_target = compared().filter_map(|(row, ratio)| Some((row, ratio, row.target()?))).collect::<Vec<_>>();
    let missed = with_target.iter().filter(|(_, ratio, target)| ratio < target);
    let missed = missed.map(|(row, ratio, target)| format!("{}: {ratio:.2}, target {target}\n", place(row)));
    let missed = missed.collect::<Vec<_>>();
    let slower = compared().filter(|(_, ratio)| *ratio < 1.0);
    let slower = slower.map(|(row, ratio)| format!("{}: {ratio:.2}\n", place(row))).collect::<Vec<_>>();
    let no_gain = measured.rows.iter().filter(|row| row.threads == 2).filter_map(|row| {
        let times = measured.speed_up(Core::Rust, row).filter(|times| *times <= 1.0)?;
        Some(format!("{}: {times:.2} times the work of one\n", place(row)))
    });
    let no_gain = no_gain.collect::<Vec<_>>();
    [
        (format!("Targets missed: {} of {}", missed.len(), with_target.len()), missed),
        (format!("Slower than LLVM's core: {} of {}", slower.len(), compared().count()), slower),
        (format!("Two Rust threads do no more than one: {}", no_gain.len()), no_gain),
    ]
    .iter()
    .map(|(heading, lines)| format!("\n{heading}\n{}", lines.concat()))
    .collect()
}

/// A number with commas.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One line for each row of the table.
pub(super) fn csv(measured: &Measured) -> String {
    let mut text =
        "scenario,mappings,threads,pairs,stock_ns,rust_ns,ratio,lower_quartile,upper_quartile,least,largest,\
                    target\n"
            .to_owned();
    for row in &measured.rows {
        let pairs = row.stock.len().max(row.rust.len());
        let _ = write!(text, "{},{},{},{pairs}", row.scenario, row.size, row.threads);
        let costs = [Core::Stock, Core::Rust].map(|core| row.cost(core).map(|cost| format!("{cost:.1}")));
        let ratios = [0.5, 0.25, 0.75, 0.0, 1.0].map(|part| row.ratio(part).map(|ratio| format!("{ratio:.3}")));
        for value in costs.into_iter().chain(ratios).chain([row.target().map(|target| target.to_string())]) {
            let _ = write!(text, ",{}", value.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

/// One line for each core and number of mappings.
pub(super) fn memory_csv(measured: &Measured) -> String {
    let mut text = "core,mappings,peak_bytes_a_mapping,fill_ns_a_mapping\n".to_owned();
    for filling in &measured.fillings {
        let _ = writeln!(text, "{},{},{:.1},{:.1}", filling.core, filling.size, filling.bytes, filling.time);
    }
    text
}

/// What of a scenario has been measured.
pub(super) fn rows_of(measured: &Measured, scenario: Scenario) -> Vec<&Row> {
    measured.rows.iter().filter(|row| row.scenario == scenario).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Filling, Piece};
    use super::*;

    fn measured() -> Measured {
        let piece = |cost| vec![Piece { wall: cost, cpu: cost }; 3];
        let row = |threads, stock, rust| Row {
            scenario: Scenario::New,
            size: 10_000,
            threads,
            stock: piece(stock),
            rust: piece(rust),
        };
        let filling = |core, bytes| Filling { core, size: 10_000, bytes, time: 900.0 };
        Measured {
            rows: vec![row(1, 600.0, 400.0), row(2, 600.0, 800.0)],
            fillings: vec![filling(Core::Stock, 176.0), filling(Core::Rust, 180.0)],
            others: Some(0.018),
        }
    }

    #[test]
    fn the_text_says_what_is_not_as_it_should_be() {
        let expected = "\
scenario   mappings threads  stock ns   rust ns  ratio  quartiles    target
new          10,000       1       600       400   1.50  1.50 to 1.50    1.2
new          10,000       2       600       800   0.75  0.75 to 0.75      2

ns: an operation's, median; one thread's by its processor time. ratio: stock / rust, median of the pairs'.
Other programs had 2 % of the machine's processor time meanwhile.

Work that two threads do, in times that of one:
    new          10,000  stock 1.00, rust 0.50

Memory a mapping at its peak, and time to make it, with 10,000:
    stock     176 bytes, 900 ns
    rust      180 bytes, 900 ns

Targets missed: 1 of 2
    new          10,000 mappings, 2 threads: 0.75, target 2

Slower than LLVM's core: 1 of 2
    new          10,000 mappings, 2 threads: 0.75

Two Rust threads do no more than one: 1
    new          10,000 mappings, 2 threads: 0.50 times the work of one
";
        assert_eq!(text(&measured()), expected);
    }

    #[test]
    fn one_core_has_no_ratio() {
        let mut measured = measured();
        measured.rows.iter_mut().for_each(|row| row.stock.clear());
        measured.fillings.remove(0);
        let text = text(&measured);
        assert!(text.contains("\nnew          10,000       1         -       400      -\n"), "{text}");
        assert!(text.ends_with("with 10,000:\n    rust      180 bytes, 900 ns\n"), "{text}");
        assert_eq!(csv(&measured).lines().nth(1), Some("new,10000,1,3,,400.0,,,,,,1.2"));
    }

    #[test]
    fn files_have_a_line_a_row() {
        let measured = measured();
        assert_eq!(csv(&measured).lines().nth(2), Some("new,10000,2,3,600.0,800.0,0.750,0.750,0.750,0.750,0.750,2"));
        assert_eq!(memory_csv(&measured).lines().nth(1), Some("stock,10000,176.0,900.0"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([7, 999, 1000, 1_000_000].map(grouped), ["7", "999", "1,000", "1,000,000"]);
    }
}

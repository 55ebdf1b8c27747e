//! The bench on both cores with little work: that it measures everything it is asked for and says so in all forms. What
//! the figures are is no test's business.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_omptarget");
    Command::new(command).args(["bench", "--millis", "1"]).args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// What it prints, and its files.
fn measured(args: &[&str]) -> (String, [String; 3]) {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let output = bench(&[args, &["--out", path(&out)]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = ["results.csv", "memory.csv", "plot.svg"].map(|name| fs::read_to_string(out.join(name)));
    (text(&output.stdout), files.map(|file| file.expect("a file")))
}

/// The lines of a table without its head, each with its columns.
fn rows(csv: &str) -> Vec<Vec<&str>> {
    csv.lines().skip(1).map(|line| line.split(',').collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is a number"))
}

#[test]
fn every_scenario_size_and_number_of_threads_is_in_the_table_the_files_and_the_plot() {
    let (table, [results, memory, plot]) = measured(&["--pairs", "2", "--size", "100,5000", "--threads", "1,2"]);
    let scenarios = ["new", "between", "reuse", "present", "launch", "attach"];
    let mut expected = Vec::new();
    for size in ["100", "5000"] {
        for scenario in scenarios {
            expected.extend(["1", "2"].map(|threads| [scenario, size, threads, "2"]));
        }
    }
    let rows = self::rows(&results);
    assert!(rows.iter().map(|row| &row[..4]).eq(expected.iter().map(|place| &place[..])), "{results}");
    for row in &rows {
        let [stock, rust, ratio, lower, upper, least, most] = [4, 5, 6, 7, 8, 9, 10].map(|column| number(row[column]));
        assert!(stock > 0.0 && rust > 0.0, "{row:?}");
        assert!(least > 0.0 && least <= lower && lower <= ratio && ratio <= upper && upper <= most, "{row:?}");
        let has_target = row[1] == "100" && row[2] == "1" && row[0] != "between" && row[0] != "attach";
        assert_eq!(!row[11].is_empty(), has_target, "{row:?}");
    }
    let shown = |line: &&str| scenarios.iter().any(|scenario| line.starts_with(scenario));
    assert_eq!(table.lines().filter(shown).count(), rows.len(), "{table}");
    assert!(table.contains("\nTargets missed: ") && table.contains(" of 4\n"), "{table}");
    assert!(table.contains("\nSlower than LLVM's core: ") && table.contains(" of 24\n"), "{table}");

    let memory = self::rows(&memory);
    let places = [["stock", "100"], ["rust", "100"], ["stock", "5000"], ["rust", "5000"]];
    assert!(memory.iter().map(|row| &row[..2]).eq(places.iter().map(|place| &place[..])), "{memory:?}");
    // No core does with less than a host range, a device address and counts.
    assert!(memory.iter().skip(2).all(|row| number(row[2]) > 40.0 && number(row[3]) > 0.0), "{memory:?}");

    for scenario in scenarios {
        assert_eq!(plot.matches(&format!("{scenario}: ns an operation")).count(), 1, "{scenario}");
    }
    // Two cores, with one thread and two, in each panel; a point for each row and core.
    assert_eq!(plot.matches("rust, 2 threads").count(), scenarios.len());
    assert_eq!(plot.matches("<circle").count(), 2 * rows.len());
}

#[test]
fn one_core_alone_has_no_ratios() {
    for (core, measured_column, empty_column) in [("rust", 5, 4), ("stock", 4, 5)] {
        let args = ["--core", core, "--pairs", "1", "--size", "64", "--threads", "1,8", "--scenario", "attach,new"];
        let (table, [results, memory, plot]) = measured(&args);
        let rows = self::rows(&results);
        let places = [["attach", "64", "1"], ["attach", "64", "8"], ["new", "64", "1"], ["new", "64", "8"]];
        assert!(rows.iter().map(|row| &row[..3]).eq(places.iter().map(|place| &place[..])), "{results}");
        for row in rows {
            assert!(number(row[measured_column]) > 0.0, "{row:?}");
            assert!(row[empty_column].is_empty() && row[6..11].iter().all(|ratio| ratio.is_empty()), "{row:?}");
        }
        assert!(!table.contains("Targets missed"), "{table}");
        assert!(memory.lines().skip(1).all(|line| line.starts_with(core)), "{memory}");
        assert_eq!(plot.matches("<circle").count(), 4);
    }
}

#[test]
fn what_cannot_be_measured_is_one_line_and_leaves_nothing() {
    for args in [
        &["--size", "10"][..],
        &["--size", "many"],
        &["--threads", "0"],
        &["--threads", "65"],
        &["--pairs", "0"],
        &["--scenario", "other"],
        &["--instructions", "--pairs", "3"],
        &["--record", "--millis", "1"],
    ] {
        let refused = bench(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(text(&refused.stderr).starts_with("error: "), "{}", text(&refused.stderr));
    }
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("file"), "").expect("a file");
    let refused = bench(&["--out", path(&dir.path().join("file/out"))]);
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("error: cannot create "), "{said}");

    let out = dir.path().join("out");
    let without_tools = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_omptarget"));
        command.args(["bench", "--out", path(&out)]).env("PATH", dir.path());
        command.output().expect("the command starts")
    };
    let refused = without_tools();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("error: clang"), "{}", text(&refused.stderr));
    assert!(!out.exists());
}

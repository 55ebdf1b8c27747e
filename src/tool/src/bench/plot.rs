//! What was measured as a picture: cost against size, a panel a scenario.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::table::{grouped, rows_of};
use super::{Measured, Scenario};
use crate::core::Core;

const PANEL: (u32, u32) = (420, 320);
const COLUMNS: usize = 3;

/// Draws all panels into one file.
pub(super) fn draw(measured: &Measured, file: &Path) -> Result<()> {
    let scenarios =
        Scenario::ALL.into_iter().filter(|scenario| !rows_of(measured, *scenario).is_empty()).collect::<Vec<_>>();
    let (columns, rows) = (scenarios.len().clamp(1, COLUMNS), scenarios.len().div_ceil(COLUMNS));
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let area = SVGBackend::new(file, size).into_drawing_area();
    let drawn = || -> Result<()> {
        area.fill(&WHITE)?;
        for (panel, scenario) in area.split_evenly((rows, columns)).iter().zip(&scenarios) {
            draw_panel(measured, *scenario, panel)?;
        }
        area.present()?;
        Ok(())
    };
    drawn().with_context(|| format!("cannot draw {}", file.display()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(measured: &Measured, scenario: Scenario, area: &Area<'_>) -> Result<()> {
    let rows = rows_of(measured, scenario);
    let lines = lines(measured, scenario);
    let sizes = range(rows.iter().map(|row| row.size as f64), 2.0, 2.0);
    // Room for the legend above.
    let costs = range(lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)), 1.5, 8.0);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{scenario}: ns an operation"), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(58)
        .build_cartesian_2d(sizes.log_scale(), costs.log_scale())?;
    let whole = |number: &f64| grouped(*number as usize);
    chart
        .configure_mesh()
        .x_desc("live mappings")
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .y_labels(5)
        .light_line_style(WHITE)
        .draw()?;
    for line in lines {
        // The more threads, the paler.
        let colour = if line.core == Core::Rust { RGBColor(200, 70, 20) } else { RGBColor(30, 90, 170) };
        let colour = colour.mix(1.0 / (1.0 + 0.6 * line.rank as f64));
        let style = colour.stroke_width(2);
        let plural = if line.threads == 1 { "" } else { "s" };
        chart
            .draw_series(LineSeries::new(line.points.clone(), style))?
            .label(format!("{}, {} thread{plural}", line.core, line.threads))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.7))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}

/// The cost on one core with one number of threads.
struct Line {
    core: Core,
    threads: usize,
    /// Which of the numbers of threads it is.
    rank: usize,
    /// Size and cost.
    points: Vec<(f64, f64)>,
}

fn lines(measured: &Measured, scenario: Scenario) -> Vec<Line> {
    let rows = rows_of(measured, scenario);
    let mut threads = rows.iter().map(|row| row.threads).collect::<Vec<_>>();
    threads.sort_unstable();
    threads.dedup();
    let mut lines = Vec::new();
    for core in measured.cores() {
        for (rank, &threads) in threads.iter().enumerate() {
            let rows = rows.iter().filter(|row| row.threads == threads);
            let mut points = rows.filter_map(|row| Some((row.size as f64, row.cost(core)?))).collect::<Vec<_>>();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            lines.push(Line { core, threads, rank, points });
        }
    }
    lines
}

/// From the least to the largest value, and beyond by factors.
fn range(values: impl Iterator<Item = f64>, below: f64, above: f64) -> Range<f64> {
    let (least, largest) =
        values.fold((f64::MAX, 1.0), |(least, largest), value| (value.min(least), value.max(largest)));
    (least.min(largest) / below)..(largest * above)
}

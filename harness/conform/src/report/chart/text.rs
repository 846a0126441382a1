//! Charts for terminals.

use std::fmt::{self, Write};

use super::super::block::Palette;
use super::super::text;
use super::layout::{Chart, ChartRow, RowShape};
use pmi_judge::Severity;

/// Maximum number of lanes with full names. In a chart with more lanes, ranks are named by their numbers.
const MAX_NAMED_LANES: usize = 8;

/// Draws a chart.
///
/// # Errors
///
/// Returns an error if writing to `out` fails.
pub(in super::super) fn write(chart: &Chart<'_>, palette: Palette, out: &mut impl Write) -> fmt::Result {
    let short = |name: &String| name.strip_prefix("rank ").unwrap_or(name).to_owned();
    let names: Vec<String> = match chart.lanes.len() {
        0..=MAX_NAMED_LANES => chart.lanes.clone(),
        _ => chart.lanes.iter().map(short).collect(),
    };
    let width = names.iter().map(|name| name.chars().count() + 2).max().unwrap_or(0);
    let dim = palette.dim();
    let heads: Vec<String> = names.iter().map(|name| format!("{name:^width$}")).collect();
    writeln!(out, "  {dim}{:>5} {:>9}{dim:#}  {}", "event", "time", heads.concat().trim_end())?;
    for (index, row) in chart.rows.iter().enumerate() {
        let lanes = drawn(chart, row, index, width);
        let (mark, style) = match row.breaks.is_empty() {
            true => (' ', palette.dim()),
            false => ('>', palette.severity(Severity::Fail)),
        };
        match row.seq {
            Some(seq) => {
                let time = text::time(row.time_us);
                write!(out, "{style}{mark}{style:#} {dim}{seq:>5} {time:>9}{dim:#}  {lanes}  {}", row.what)?;
            }
            None => write!(out, "{:17}  {lanes}  {dim}{}{dim:#}", "", row.what)?,
        }
        if !row.breaks.is_empty() {
            let ids: Vec<String> = row.breaks.iter().map(|id| text::clean(id)).collect();
            write!(out, "  {style}breaks {}{style:#}", ids.join(", "))?;
        }
        writeln!(out)?;
    }
    if chart.others > 0 {
        let are = if chart.others == 1 { "process is" } else { "processes are" };
        writeln!(out, "  {} more {are} not shown", chart.others)?;
    }
    Ok(())
}

/// Draws the lanes of a row.
fn drawn(chart: &Chart<'_>, row: &ChartRow<'_>, index: usize, width: usize) -> String {
    let at = |lane: usize| lane * width + width / 2;
    let mut line = vec![' '; chart.lanes.len() * width];
    for lane in 0..chart.lanes.len() {
        line[at(lane)] = match row.shape {
            RowShape::Gap => '⋮',
            _ if chart.waits_at(lane, index) => '┃',
            _ => '│',
        };
    }
    match row.shape {
        RowShape::Arrow { from, to } | RowShape::Missing { from, to } => {
            let missing = matches!(row.shape, RowShape::Missing { .. });
            let (left, right) = (at(from.min(to)), at(from.max(to)));
            line[left + 1..right].fill(if missing { '╌' } else { '─' });
            for lane in from.min(to) + 1..from.max(to) {
                line[at(lane)] = if chart.waits_at(lane, index) { '╂' } else { '┼' };
            }
            line[at(from)] = if from < to { '├' } else { '┤' };
            line[at(to)] = match missing {
                true => '✗',
                false if from < to => '▶',
                false => '◀',
            };
        }
        RowShape::Point(lane) => line[at(lane)] = '●',
        RowShape::Job | RowShape::Gap => {}
    }
    line.into_iter().collect()
}

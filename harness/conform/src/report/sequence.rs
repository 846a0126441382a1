//! The sequence charts of a run, for terminals.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::block::Palette;
use super::chart::{self, Chart};
use super::run::Run;
use super::{tally, text};

pub(super) fn write(run: &Run, palette: Palette, out: &mut dyn Write) -> io::Result<()> {
    let (bold, dim) = (palette.bold(), palette.dim());
    for result in &run.results {
        let chart = match run.events.get(&result.scenario) {
            Some(events) => {
                Chart::of_events(events, run.left_out.get(&result.scenario).copied().unwrap_or(0), result)
            }
            None => Chart::of_result(result),
        };
        let style = palette.result(result, run.header.strict);
        let mut shown = format!(
            "{bold}{}{bold:#}  {style}{}{style:#}\n",
            text::clean(&result.scenario),
            tally::label(result, run.header.strict)
        );
        for line in [&result.summary, result.reason.as_ref().unwrap_or(&String::new())] {
            if !line.is_empty() {
                let _ = writeln!(shown, "  {dim}{}{dim:#}", text::clean(line));
            }
        }
        if chart.is_empty() {
            let _ = writeln!(shown, "  its events were not kept");
        } else {
            chart::write(&chart, palette, &mut shown).map_err(io::Error::other)?;
        }
        writeln!(out, "{shown}")?;
    }
    Ok(())
}

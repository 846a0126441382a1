//! Reports: renderings of a run's log, for human readers and for CI.
//!
//! Every name, line and message in a run may come from the implementation under test. Therefore each format escapes characters that would
//! control a terminal, end a row or break the document.

mod block;
mod campaign;
mod catalogue;
mod chart;
mod code_quality;
mod compare;
mod compatibility;
mod doctor;
mod event_text;
mod github;
mod history;
mod html;
mod junit;
mod log;
mod markdown;
mod matrix;
mod measure;
mod page;
mod pcapng;
mod plot;
mod python;
mod run;
mod sarif;
mod sequence;
mod standing;
mod tally;
mod tap;
mod terminal;
mod text;
mod versions;
mod wireshark;

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

use block::Palette;
use pmi_judge::verdict::{LogLine, RunEnd, RunHeader, ScenarioResult};

pub(crate) use block::LOG_OPTION;
pub(crate) use campaign::{CampaignFormat, campaign_text, progress_line};
pub(crate) use catalogue::pages as catalogue_pages;
pub(crate) use compare::Comparison;
pub(crate) use compatibility::write_compatibility;
pub(crate) use doctor::doctor_text;
pub(crate) use history::VersionHistory;
pub(crate) use log::{KeptEvents, LogPart, LogWriter, read_log, read_parts};
pub(crate) use matrix::{ExtraPages, write_matrix};
pub(crate) use measure::{measure_page, measure_text, soak_page, soak_text};
pub(crate) use python::write_reproducers;
pub(crate) use run::{NamedRun, RELAYED_NOTE, Run};
pub(crate) use tally::counts_text;
pub(crate) use terminal::{Terminal, TerminalOptions, Verbosity};
pub(crate) use text::{count, first_sentence, times};
pub(crate) use versions::versions_text;
pub(crate) use wireshark::wireshark_plugin;

/// A report format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Format {
    /// The log itself: one JSON object per line.
    Ndjson,
    /// One JSON document.
    Json,
    /// JUnit XML, for CI systems.
    Junit,
    /// Test Anything Protocol, version 14.
    Tap,
    /// Markdown, for the summary of a CI step or a comment.
    Markdown,
    /// The terminal output without colours.
    Terminal,
    /// An HTML page.
    Html,
    /// Sequence charts of the messages of each scenario, as text.
    Sequence,
    /// Annotations of GitHub Actions.
    Github,
    /// GitLab's code quality report.
    CodeQuality,
    /// SARIF, for code scanning.
    Sarif,
    /// A folder with a standalone program for each red finding.
    Python,
    /// A capture file for Wireshark.
    Pcapng,
}

impl Format {
    fn named(name: &str) -> Result<Self, SpecError> {
        Self::from_str(name, false).map_err(|_| SpecError::Format(text::clean(name)))
    }

    /// Returns the format, or an error if it cannot be written to standard output.
    fn to_standard_output(self) -> Result<Self, SpecError> {
        if self == Self::Python { Err(SpecError::Folder) } else { Ok(self) }
    }

    /// Returns whether the report needs the events of scenarios with findings.
    pub(crate) fn needs_events(self) -> bool {
        matches!(self, Self::Html | Self::Python | Self::Pcapng)
    }
}

/// An error in the value of `--report`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpecError {
    #[error(
        "unknown format `{0}`: use ndjson, json, junit, tap, markdown, terminal, html, sequence, github, codequality, sarif, pcapng or python"
    )]
    Format(String),
    /// The file is missing after `FORMAT=`.
    #[error("no file after `{0}=`: name a file, or leave out the `=` to write to standard output")]
    File(String),
    /// The report consists of several files, but no folder is given.
    #[error("`python` writes several programs: name a folder for them, as in python=DIR")]
    Folder,
}

/// A requested report: `junit=FILE`, or `junit` for standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportSpec {
    pub(crate) format: Format,
    /// File of the report; `None` for standard output.
    pub(crate) file: Option<PathBuf>,
}

impl ReportSpec {
    /// Returns the file or `standard output`, for messages.
    pub(crate) fn destination(&self) -> String {
        self.file.as_ref().map_or_else(|| "standard output".to_owned(), |file| file.display().to_string())
    }
}

impl FromStr for ReportSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        match spec.split_once('=') {
            None => Ok(Self { format: Format::named(spec)?.to_standard_output()?, file: None }),
            Some((name, "")) => Err(SpecError::File(text::clean(name))),
            Some((name, file)) => Ok(Self { format: Format::named(name)?, file: Some(file.into()) }),
        }
    }
}

/// Writes a report of a run. `verbosity` is that of the terminal report.
///
/// # Errors
///
/// Returns an error if writing to `out` fails.
pub(crate) fn render(run: &Run, format: Format, verbosity: Verbosity, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Ndjson => ndjson(run, out),
        Format::Json => json(run, out),
        Format::Junit => junit::write(run, out),
        Format::Tap => tap::write(run, out),
        Format::Markdown => markdown::write(run, out),
        Format::Html => html::write(run, out),
        Format::Github => github::write(run, out),
        Format::CodeQuality => code_quality::write(run, out),
        Format::Sarif => sarif::write(run, out),
        Format::Python => Err(io::Error::other(SpecError::Folder)),
        Format::Pcapng => pcapng::write(run, out),
        Format::Sequence => sequence::write(run, Palette::PLAIN, out),
        Format::Terminal => {
            let look = TerminalOptions { color: false, progress: false, verbosity, log: LOG_OPTION };
            Terminal::new(out, look).whole(run)
        }
    }
}

/// Returns the JSON schema of a line of the log.
pub(crate) fn log_schema() -> serde_json::Value {
    schemars::schema_for!(LogLine).to_value()
}

fn ndjson(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut log = LogWriter::new(out);
    log.write(&LogLine::Run(run.header.clone()))?;
    let events = |log: &mut LogWriter<_>, scenario: &String| {
        for event in run.events.get(scenario).into_iter().flatten() {
            log.event(scenario, event)?;
        }
        io::Result::Ok(())
    };
    for result in &run.results {
        events(&mut log, &result.scenario)?;
        log.write(&LogLine::Result(result.clone()))?;
    }
    run.cut.iter().try_for_each(|scenario| events(&mut log, scenario))?;
    run.end.iter().try_for_each(|end| log.write(&LogLine::End(end.clone())))
}

fn json(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        header: &'a RunHeader,
        results: &'a [ScenarioResult],
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        cut: &'a [String],
        end: &'a Option<RunEnd>,
    }
    let document = Document { header: &run.header, results: &run.results, cut: &run.cut, end: &run.end };
    writeln!(out, "{}", text::safe_json(&serde_json::to_string_pretty(&document)?))
}

#[cfg(test)]
mod tests;

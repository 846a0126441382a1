//! Reports: renderings of a run's log, for people and for CI.
//!
//! Every name, line and text may come from the implementation under test, so each format escapes what would
//! act on a terminal, end a row or break the document.

mod block;
mod campaign;
mod catalogue;
mod chart;
mod code_quality;
mod compare;
mod compatibility;
mod doctor;
mod github;
mod history;
mod html;
mod junit;
mod log;
mod markdown;
mod matrix;
mod measure;
mod page;
mod sarif;
mod sequence;
mod standing;
mod tally;
mod tap;
mod terminal;
mod text;
mod told;
mod versions;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use block::Palette;
use pmi_judge::event::Event;
use pmi_judge::result::end_at;
use pmi_judge::verdict::{LogLine, RunEnd, RunHeader, ScenarioResult, Strictness};
use pmi_wire::WayIn;

pub(crate) use campaign::campaign_page;
pub(crate) use catalogue::pages as catalogue_pages;
pub(crate) use compare::Comparison;
pub(crate) use compatibility::write_compatibility;
pub(crate) use doctor::doctor_text;
pub(crate) use history::History;
pub(crate) use log::{Keep, LogWriter, Part, read_log, read_parts};
pub(crate) use matrix::{Entry, Extra, write_matrix};
pub(crate) use measure::{measure_page, measure_text};
pub(crate) use terminal::{Look, Terminal, Verbosity};
pub(crate) use versions::versions_text;

/// How many scenarios came to what.
pub(crate) fn counts_text(run: &Run) -> String {
    let counts = tally::counts(&run.results);
    counts.iter().map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
}

/// A form of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// The log itself, a line for each fact.
    Ndjson,
    /// One JSON document.
    Json,
    /// JUnit XML, which CI systems read.
    Junit,
    /// Test Anything Protocol, version 14.
    Tap,
    /// For the summary of a CI step or a comment.
    Markdown,
    /// What the terminal shows, without colours.
    Terminal,
    /// A page for a browser.
    Html,
    /// Who said what to whom in each scenario, as charts of text.
    Sequence,
    /// Annotations of GitHub Actions.
    Github,
    /// The code quality report of GitLab.
    CodeQuality,
    /// SARIF, for code scanning.
    Sarif,
}

impl Format {
    /// All, with the names that users give.
    const NAMES: [(&'static str, Self); 11] = [
        ("ndjson", Self::Ndjson),
        ("json", Self::Json),
        ("junit", Self::Junit),
        ("tap", Self::Tap),
        ("markdown", Self::Markdown),
        ("terminal", Self::Terminal),
        ("html", Self::Html),
        ("sequence", Self::Sequence),
        ("github", Self::Github),
        ("codequality", Self::CodeQuality),
        ("sarif", Self::Sarif),
    ];
}

/// Why the value of an option names no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpecError {
    /// There is no such format.
    #[error(
        "unknown format `{0}`: use ndjson, json, junit, tap, markdown, terminal, html, sequence, github, codequality or sarif"
    )]
    Format(String),
    /// `FORMAT=` without a file.
    #[error("no file after `{0}=`: name one, or leave out the `=` to write to standard output")]
    File(String),
}

impl FromStr for Format {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| SpecError::Format(text::clean(name)))
    }
}

/// A report that the user asks for: `junit=FILE`, or `junit` for standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportSpec {
    /// In which form.
    pub(crate) format: Format,
    /// Where to; `None` for standard output.
    pub(crate) file: Option<PathBuf>,
}

impl FromStr for ReportSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        match spec.split_once('=') {
            None => Ok(Self { format: spec.parse()?, file: None }),
            Some((name, "")) => Err(SpecError::File(text::clean(name))),
            Some((name, file)) => Ok(Self { format: name.parse()?, file: Some(file.into()) }),
        }
    }
}

/// A run, whole or cut short.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// What was run.
    pub(crate) header: RunHeader,
    /// The results, in the order of the suite.
    pub(crate) results: Vec<ScenarioResult>,
    /// Events by scenario, if they were kept.
    pub(crate) events: BTreeMap<String, Vec<Event>>,
    /// How many of these are left out behind the first, by scenario, where that is so.
    pub(crate) left_out: BTreeMap<String, usize>,
    /// Scenarios that began and have no result.
    pub(crate) cut: Vec<String>,
    /// How it ended; `None` if the command itself was cut off.
    pub(crate) end: Option<RunEnd>,
}

/// What makes a run red although no scenario's result says so.
struct Complaint {
    name: String,
    text: String,
}

impl Run {
    /// Makes it what it would be by another strictness.
    pub(crate) fn set_strict(&mut self, strict: Strictness) {
        self.header.strict = strict;
        self.results = std::mem::take(&mut self.results).into_iter().map(|r| r.at(strict)).collect();
        self.end = self.end.take().map(|end| end_at(end, &self.results, strict));
    }

    /// Number of selected scenarios without a result.
    fn unfinished(&self) -> usize {
        let missing = self.header.selected.saturating_sub(self.results.len());
        self.end.as_ref().map_or(missing, |end| end.unfinished.max(missing)).max(self.cut.len())
    }

    /// Formats whose readers count test cases need a case for each of these, else CI shows a red run as green.
    fn complaints(&self) -> Vec<Complaint> {
        let mut all = Vec::new();
        for stale in self.end.iter().flat_map(|end| &end.stale) {
            all.push(Complaint { name: "stale deviation".to_owned(), text: text::clean(stale) });
        }
        for name in &self.cut {
            all.push(Complaint { name: text::clean(name), text: "began and has no result".to_owned() });
        }
        let others = self.unfinished().saturating_sub(self.cut.len());
        if others > 0 {
            let text = format!("{} without a result: the run was cut short", text::count(others, "scenario"));
            all.push(Complaint { name: "unfinished scenarios".to_owned(), text });
        } else if self.results.is_empty() && all.is_empty() {
            all.push(Complaint { name: "empty run".to_owned(), text: "no scenario was played".to_owned() });
        }
        all
    }

    /// What the report says of itself at its top.
    fn title(&self) -> String {
        let RunHeader { version, server, .. } = &self.header;
        format!("pmi-conform {}, {}: {}", text::clean(version), protocol(&self.header), text::clean(server))
    }
}

/// What is not seen where connections are relayed.
pub(crate) const RELAYED: &str = "the processes relay their connections: whoever stays or grows on their machines is not seen, nor \
     who dies there but those they are connected to, and that an answer does not come is known by waiting alone";

/// What was spoken, and over what where that is not usual.
fn protocol(header: &RunHeader) -> String {
    let dialect = text::clean(&header.dialect);
    let by = match header.connection {
        WayIn::Fd => "",
        WayIn::Port => " by PMI_PORT",
        WayIn::Singleton => " by singleton init",
    };
    format!("{dialect}{by}{}", if header.relayed { ", relayed" } else { "" })
}

/// Writes a run as a report.
///
/// # Errors
///
/// Those of `out`.
pub(crate) fn render(run: &Run, format: Format, out: &mut dyn Write) -> io::Result<()> {
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
        Format::Sequence => sequence::write(run, Palette::PLAIN, out),
        Format::Terminal => {
            let look = Look { color: false, progress: false, verbosity: Verbosity::Normal };
            Terminal::new(out, look).whole(run)
        }
    }
}

/// The JSON schema of a line of the log.
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

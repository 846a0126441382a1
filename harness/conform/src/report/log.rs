//! The log of a run. It is written during the run, and can be read even if it is incomplete.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;

use super::run::Run;
use super::text;
use pmi_judge::event::Event;
use pmi_judge::verdict::{LOG_FORMAT, LogLine, RunHeader, ScenarioResult};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Size of the write buffer, in bytes. A large buffer keeps writes rare while the job of a large session is running.
const BUFFER_SIZE: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct LogWriter<W: Write> {
    out: W,
}

impl LogWriter<BufWriter<File>> {
    /// Creates a log file, or truncates an existing one.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created.
    pub(crate) fn create(file: &Path) -> io::Result<Self> {
        File::create(file).map(|file| Self::new(BufWriter::with_capacity(BUFFER_SIZE, file)))
    }
}

impl<W: Write> LogWriter<W> {
    /// Creates a log that is written to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }

    /// Appends the line of an event. The event is not copied into a [`LogLine`], because most lines of a log are events.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub(crate) fn event(&mut self, scenario: &str, event: &Event) -> io::Result<()> {
        let line = WrittenEvent { kind: "event", scenario, event };
        writeln!(self.out, "{}", text::safe_json(&serde_json::to_string(&line)?))
    }

    /// Appends a line that is not an event, and flushes the log, so that no result is lost in a crash.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub(crate) fn write(&mut self, line: &LogLine) -> io::Result<()> {
        writeln!(self.out, "{}", text::safe_json(&serde_json::to_string(line)?))?;
        self.out.flush()
    }
}

/// An error that makes a log unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error("cannot read {name}")]
    Read { name: String, source: io::Error },
    /// The log has no complete first line.
    #[error(
        "{name} is empty: the run ended before it wrote its first line, or this is not a log; run it again"
    )]
    Empty { name: String },
    /// A different version of this program wrote the log.
    #[error(
        "{name} has format {format}, but this pmi-conform reads {LOG_FORMAT}: use the version that wrote it"
    )]
    Format { name: String, format: u64 },
    /// A line is invalid or out of place.
    #[error("{name}:{line}: {why}")]
    Line {
        name: String,
        /// Line number, from 1.
        line: usize,
        why: String,
    },
}

/// The events to keep in memory when a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptEvents {
    Nothing,
    All,
    /// The first and the last events of each scenario: at least [`FIRST_EVENTS`] and [`LAST_EVENTS`].
    FirstAndLast,
    /// The first and the last events of each scenario with findings.
    FirstAndLastOfFindings,
}

/// Number of events at the start of a scenario that [`KeptEvents::FirstAndLast`] keeps.
const FIRST_EVENTS: usize = 1000;
/// Minimum number of events at the end of a scenario that [`KeptEvents::FirstAndLast`] keeps.
const LAST_EVENTS: usize = 4000;

impl KeptEvents {
    /// Shortens a scenario's events: if there are too many, removes some from the middle. Returns the number of removed events.
    fn cut(self, events: &mut Vec<Event>) -> usize {
        if self == Self::All || events.len() < FIRST_EVENTS + 2 * LAST_EVENTS {
            return 0;
        }
        events.drain(FIRST_EVENTS..FIRST_EVENTS + LAST_EVENTS).count()
    }
}

/// Reads a log. `name` is its name in error messages. If a crash left the final line incomplete, that line is ignored. Scenarios without a
/// result count as unfinished.
///
/// # Errors
///
/// Returns an error if the log cannot be read, is empty or has a different format, or if a line is invalid or out of place.
pub(crate) fn read_log(name: &str, from: impl BufRead, keep: KeptEvents) -> Result<Run, LogError> {
    let (mut events, mut left_out) = (BTreeMap::<String, Vec<Event>>::new(), BTreeMap::new());
    let mut run = read_parts(name, from, keep != KeptEvents::Nothing, &mut |part| match part {
        LogPart::Event(scenario, event) => {
            let events = events.entry(scenario.to_owned()).or_default();
            events.push(event);
            match keep.cut(events) {
                0 => {}
                dropped => *left_out.entry(scenario.to_owned()).or_default() += dropped,
            }
        }
        // A result follows its events. If it has no findings, the events are dropped here, so they do not accumulate.
        LogPart::Result(result)
            if keep == KeptEvents::FirstAndLastOfFindings && result.findings.is_empty() =>
        {
            events.remove(&result.scenario);
            left_out.remove(&result.scenario);
        }
        LogPart::Header(_) | LogPart::Result(_) => {}
    })?;
    (run.events, run.left_out) = (events, left_out);
    Ok(run)
}

pub(crate) enum LogPart<'a> {
    /// The first line of the log.
    Header(&'a RunHeader),
    Event(&'a str, Event),
    Result(&'a ScenarioResult),
}

/// The beginning of an event's line as [`LogWriter`] writes it.
const EVENT_PREFIX: &[u8] = br#"{"type":"event","#;

/// The line of an event, as [`LogWriter::event`] writes it.
#[derive(Serialize)]
struct WrittenEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    scenario: &'a str,
    event: &'a Event,
}

/// The line of an event, without its type, which the reader has already checked with [`EVENT_PREFIX`].
#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(borrow)]
    scenario: Cow<'a, str>,
    event: Event,
}

/// The line of an event whose contents are skipped.
#[derive(Deserialize)]
struct SkippedEvent<'a> {
    #[serde(borrow)]
    scenario: Cow<'a, str>,
    #[serde(rename = "event")]
    _event: IgnoredAny,
}

/// Reads a log as [`read_log`] does, and passes each part to `receive`. Events are passed only if `wanted` is true, and the returned run
/// does not contain them.
pub(crate) fn read_parts(
    name: &str,
    mut from: impl BufRead,
    wanted: bool,
    receive: &mut dyn FnMut(LogPart<'_>),
) -> Result<Run, LogError> {
    let name = text::clean(name);
    let mut run: Option<Run> = None;
    let mut begun = BTreeSet::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = from.read_until(b'\n', &mut bytes);
        if read.map_err(|source| LogError::Read { name: name.clone(), source })? == 0 {
            break;
        }
        let wrong = |why: String| LogError::Line { name: name.clone(), line, why: text::clean(&why) };
        if let Some(Run { end: None, .. }) = run
            && bytes.starts_with(EVENT_PREFIX)
            && let Some(scenario) = event_of(&bytes, wanted, receive)
        {
            if !begun.contains(&*scenario) {
                begun.insert(scenario.into_owned());
            }
            continue;
        }
        let parsed = match &run {
            None => first(&name, &bytes),
            Some(_) => serde_json::from_slice(&bytes).map_err(|e| {
                wrong(format!("invalid line: {}; delete this line to read the rest", reason(&e)))
            }),
        };
        let parsed = match parsed {
            Err(LogError::Line { .. }) if !bytes.ends_with(b"\n") => break,
            other => other?,
        };
        match (&mut run, parsed) {
            (None, LogLine::Run(header)) => {
                receive(LogPart::Header(&header));
                let (results, events, cut) = (Vec::new(), BTreeMap::new(), Vec::new());
                let left_out = BTreeMap::new();
                run = Some(Run { header, results, events, left_out, cut, end: None });
            }
            (None, _) => {
                return Err(wrong(
                    "the first line of a log has the type `run`: is the beginning of this log missing?"
                        .to_owned(),
                ));
            }
            (Some(_), LogLine::Run(_)) => {
                return Err(wrong(
                    "a second run begins: split the file, because a log contains one run".to_owned(),
                ));
            }
            (Some(Run { end: Some(_), .. }), _) => {
                return Err(wrong("unexpected line after the line of type `end`: delete it".to_owned()));
            }
            (Some(_), LogLine::Event { scenario, event }) => {
                if wanted {
                    receive(LogPart::Event(&scenario, event));
                }
                begun.insert(scenario);
            }
            (Some(run), LogLine::Result(result)) => {
                receive(LogPart::Result(&result));
                run.results.push(result);
            }
            (Some(run), LogLine::End(end)) => run.end = Some(end),
        }
    }
    let mut run = run.ok_or(LogError::Empty { name })?;
    for result in &run.results {
        begun.remove(&result.scenario);
    }
    run.cut = begun.into_iter().collect();
    Ok(run)
}

/// If `wanted` is true, passes the event in a line to `receive`. Returns the scenario of the event, or `None` if the line is not an event
/// that [`LogWriter`] wrote.
fn event_of<'a>(bytes: &'a [u8], wanted: bool, receive: &mut dyn FnMut(LogPart<'_>)) -> Option<Cow<'a, str>> {
    if !wanted {
        return serde_json::from_slice::<SkippedEvent<'_>>(bytes).ok().map(|line| line.scenario);
    }
    let line = serde_json::from_slice::<EventLine<'_>>(bytes).ok()?;
    receive(LogPart::Event(&line.scenario, line.event));
    Some(line.scenario)
}

/// Parses the first line. The format number is checked before anything else, because other formats may have different fields.
fn first(name: &str, bytes: &[u8]) -> Result<LogLine, LogError> {
    let wrong = |e: serde_json::Error| LogError::Line {
        name: name.to_owned(),
        line: 1,
        why: text::clean(&format!("not a pmi-conform log: {}; name a different file", reason(&e))),
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    match value["format"].as_u64() {
        Some(format) if format != u64::from(LOG_FORMAT) => {
            Err(LogError::Format { name: name.to_owned(), format })
        }
        _ => serde_json::from_value(value).map_err(wrong),
    }
}

/// Formats a JSON error without its line number, which is always 1 within a single line.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

//! The log: written as things happen, read back whole or torn.

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

/// So much is written at once: the log of a large session is written while its job runs.
const BUFFER: usize = 64 * 1024;

/// Writes a log as things happen.
#[derive(Debug)]
pub(crate) struct LogWriter<W: Write> {
    out: W,
}

impl LogWriter<BufWriter<File>> {
    /// Starts a log in a file, which is emptied if it is there.
    ///
    /// # Errors
    ///
    /// Those of creating the file.
    pub(crate) fn create(file: &Path) -> io::Result<Self> {
        File::create(file).map(|file| Self::new(BufWriter::with_capacity(BUFFER, file)))
    }
}

impl<W: Write> LogWriter<W> {
    /// Writes to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }

    /// Appends the line of an event, which is not copied for that as one of [`LogLine`] would be.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn event(&mut self, scenario: &str, event: &Event) -> io::Result<()> {
        let line = EventWritten { kind: "event", scenario, event };
        writeln!(self.out, "{}", text::safe_json(&serde_json::to_string(&line)?))
    }

    /// Appends another line, and flushes what was written, so that a crash costs no result.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn write(&mut self, line: &LogLine) -> io::Result<()> {
        writeln!(self.out, "{}", text::safe_json(&serde_json::to_string(line)?))?;
        self.out.flush()
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// It cannot be read at all.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The log.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Not even its first line is whole.
    #[error("{name} is empty: the run ended before it began, or this is no log; run it again")]
    Empty {
        /// The log.
        name: String,
    },
    /// Another version of this program wrote it.
    #[error("{name} has format {format}, this pmi-conform reads {LOG_FORMAT}: use the version that wrote it")]
    Format {
        /// The log.
        name: String,
        /// Its format.
        format: u64,
    },
    /// A line does not belong there.
    #[error("{name}:{line}: {why}")]
    Line {
        /// The log.
        name: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Which events of a log are kept when it is read: they are most of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// None.
    Nothing,
    /// All.
    All,
    /// Of each scenario the first and the last, as many as anybody looks at.
    Edges,
    /// The same of those scenarios in which something was found.
    EdgesOfFindings,
}

/// The first of a scenario that [`Keep::Edges`] keeps.
const FIRST: usize = 1000;
/// The last, at least.
const LAST: usize = 4000;

impl Keep {
    /// Leaves out of a scenario's events what is too much; returns how many.
    fn cut(self, events: &mut Vec<Event>) -> usize {
        if self == Self::All || events.len() < FIRST + 2 * LAST {
            return 0;
        }
        events.drain(FIRST..FIRST + LAST).count()
    }
}

/// Reads a log; `name` is what errors call it. A last line that a crash has torn is left out, and scenarios
/// without a result count as unfinished.
///
/// # Errors
///
/// If it cannot be read, is empty or of another format, or a line does not belong there.
pub(crate) fn read_log(name: &str, from: impl BufRead, keep: Keep) -> Result<Run, LogError> {
    let (mut events, mut left_out) = (BTreeMap::<String, Vec<Event>>::new(), BTreeMap::new());
    let mut run = read_parts(name, from, keep != Keep::Nothing, &mut |part| match part {
        LogPart::Event(scenario, event) => {
            let events = events.entry(scenario.to_owned()).or_default();
            events.push(event);
            match keep.cut(events) {
                0 => {}
                dropped => *left_out.entry(scenario.to_owned()).or_default() += dropped,
            }
        }
        // Behind its events, so that those of a run of any length are not all kept at once.
        LogPart::Result(result) if keep == Keep::EdgesOfFindings && result.findings.is_empty() => {
            events.remove(&result.scenario);
            left_out.remove(&result.scenario);
        }
        LogPart::Header(_) | LogPart::Result(_) => {}
    })?;
    (run.events, run.left_out) = (events, left_out);
    Ok(run)
}

/// What is told of while a log is read.
pub(crate) enum LogPart<'a> {
    /// Its first line.
    Header(&'a RunHeader),
    /// An event of a scenario.
    Event(&'a str, Event),
    /// A scenario's result.
    Result(&'a ScenarioResult),
}

/// How our own logs begin the line of an event.
const EVENT: &[u8] = br#"{"type":"event","#;

/// What [`LogLine::Event`] is written as.
#[derive(Serialize)]
struct EventWritten<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    scenario: &'a str,
    event: &'a Event,
}

/// The line of an event, read without looking for its type first: most of a log are such lines.
#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(borrow)]
    scenario: Cow<'a, str>,
    event: Event,
}

/// The same where the event does not matter.
#[derive(Deserialize)]
struct EventPassed<'a> {
    #[serde(borrow)]
    scenario: Cow<'a, str>,
    #[serde(rename = "event")]
    _event: IgnoredAny,
}

/// See [`read_log`]. Tells of each part as it is read, of events only if they are `wanted`; none are kept.
pub(crate) fn read_parts(
    name: &str,
    mut from: impl BufRead,
    wanted: bool,
    tell: &mut dyn FnMut(LogPart<'_>),
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
            && bytes.starts_with(EVENT)
            && let Some(scenario) = event_of(&bytes, wanted, tell)
        {
            if !begun.contains(&*scenario) {
                begun.insert(scenario.into_owned());
            }
            continue;
        }
        let parsed = match &run {
            None => first(&name, &bytes),
            Some(_) => serde_json::from_slice(&bytes)
                .map_err(|e| wrong(format!("no line of a log, {}: delete it to read the rest", reason(&e)))),
        };
        let parsed = match parsed {
            Err(LogError::Line { .. }) if !bytes.ends_with(b"\n") => break,
            other => other?,
        };
        match (&mut run, parsed) {
            (None, LogLine::Run(header)) => {
                tell(LogPart::Header(&header));
                let (results, events, cut) = (Vec::new(), BTreeMap::new(), Vec::new());
                let left_out = BTreeMap::new();
                run = Some(Run { header, results, events, left_out, cut, end: None });
            }
            (None, _) => {
                return Err(wrong(
                    "not the first line of a log, which has the type `run`: is a part of it missing?"
                        .to_owned(),
                ));
            }
            (Some(_), LogLine::Run(_)) => {
                return Err(wrong("a second run begins: split the file, a log holds one".to_owned()));
            }
            (Some(Run { end: Some(_), .. }), _) => {
                return Err(wrong("more after the line of type `end`: delete it".to_owned()));
            }
            (Some(_), LogLine::Event { scenario, event }) => {
                if wanted {
                    tell(LogPart::Event(&scenario, event));
                }
                begun.insert(scenario);
            }
            (Some(run), LogLine::Result(result)) => {
                tell(LogPart::Result(&result));
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

/// Tells of the event of a line; its scenario, if the line can be read.
fn event_of<'a>(bytes: &'a [u8], wanted: bool, tell: &mut dyn FnMut(LogPart<'_>)) -> Option<Cow<'a, str>> {
    if !wanted {
        return serde_json::from_slice::<EventPassed<'_>>(bytes).ok().map(|line| line.scenario);
    }
    let line = serde_json::from_slice::<EventLine<'_>>(bytes).ok()?;
    tell(LogPart::Event(&line.scenario, line.event));
    Some(line.scenario)
}

/// The first line. Its format comes first: with another one, nothing else need be as we know it.
fn first(name: &str, bytes: &[u8]) -> Result<LogLine, LogError> {
    let wrong = |e: serde_json::Error| LogError::Line {
        name: name.to_owned(),
        line: 1,
        why: text::clean(&format!("no log of pmi-conform, {}: name another file", reason(&e))),
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(wrong)?;
    match value["format"].as_u64() {
        Some(format) if format != u64::from(LOG_FORMAT) => {
            Err(LogError::Format { name: name.to_owned(), format })
        }
        _ => serde_json::from_value(value).map_err(wrong),
    }
}

/// Without the line, which is always the first of its text.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

//! Stores findings as self-contained folders with the scenario, a reproducer that does not need pmi-conform, and the transcript.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pmi_judge::backtrace::{Backtrace, CrashLocation};
use pmi_judge::event::Event;
use pmi_scenario::Diagnostic;
use serde::{Deserialize, Serialize};

use super::reproducer::{FindingSummary, NotReproducible, Reproducer, Symptom, reproducer};
use crate::observe::failure::{Failure, FailureKind};
use crate::session::case::Case;
use crate::session::statement::ServerStep;
use crate::target::command::output_of;

/// The name of the file that describes a finding.
pub const FINDING: &str = "finding.json";
/// The name of the file with the case as a scenario.
pub const SCENARIO: &str = "scenario.pmi";
/// The name of the file with the earlier job, if the finding needs one.
pub const EARLIER: &str = "earlier.pmi";

/// A finding, as stored in `finding.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFinding {
    /// The failure's key as displayed, which is also the name of the folder.
    pub bucket: String,
    /// A description of the failure for the user.
    #[serde(rename = "what")]
    pub description: String,
    /// The broken requirement, if the judge reported one.
    pub requirement: Option<String>,
    /// The kind of failure. Folders of earlier versions do not contain this field.
    #[serde(default)]
    pub kind: FailureKind,
    /// True if the stored session contains only valid input, so any client may encounter the failure.
    #[serde(default)]
    pub valid: bool,
    /// True if the failure occurs only after an earlier job, which the folder contains as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_earlier_job: bool,
    /// The backtrace of the crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<Backtrace>,
    /// The reason why the backtrace is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untraced: Option<String>,
    /// The name of the implementation that showed the failure.
    pub server: String,
    /// The seed of the campaign, which together with `number` determines the case.
    pub seed: u64,
    /// The number of the case.
    pub number: u64,
    /// The ingredients of the original case. See [`Case::ingredients`].
    pub ingredients: Vec<String>,
    /// The number of runs that showed the failure, out of five further runs of the original case.
    #[serde(rename = "again")]
    pub repetitions: u32,
    /// The number of runs that showed the failure, out of five runs of the stored case.
    #[serde(rename = "again_minimal")]
    pub repetitions_minimal: u32,
    /// For a failure that was found with a free schedule, the number of runs of the stored case that showed the failure, and the total
    /// number of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<[u32; 2]>,
    /// True if the stored case was minimized completely. Folders of earlier versions do not contain this field.
    #[serde(default)]
    pub minimized: bool,
    /// Number of steps of the original case and of the stored case.
    pub steps: [usize; 2],
    /// Number of cases played to minimize the original case.
    #[serde(rename = "shrinking")]
    pub minimizing_cases: usize,
}

/// The input that leads to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredInput {
    /// Valid input.
    Valid,
    /// Unknown: the stored case contains invalid input, but was not minimized, so valid input may be enough.
    Unknown,
    /// Invalid input only.
    Invalid,
}

/// The common cause of several findings: the location of a crash, the broken requirement, or otherwise the bucket. The most serious causes
/// sort first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootCause {
    input: RequiredInput,
    kind: FailureKind,
    description: CommonCauseKey,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CommonCauseKey {
    Place(CrashLocation),
    Requirement(String),
    Bucket(String),
}

impl RootCause {
    /// Returns the input that leads to all findings with this cause.
    pub fn input(&self) -> RequiredInput {
        self.input
    }
}

impl fmt::Display for RootCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            CommonCauseKey::Place(place) => write!(f, "{} in {place}", self.kind),
            CommonCauseKey::Requirement(requirement) => write!(f, "{}: {requirement}", self.kind),
            CommonCauseKey::Bucket(_) => write!(f, "{}", self.kind),
        }
    }
}

/// Number of times that the case of a failure is played again to confirm the failure.
pub const CONFIRMATION_RUNS: u32 = 5;
/// Maximum number of runs that measure the frequency of a finding with a free schedule.
pub const FREQUENCY_RUNS: u32 = 100;

impl StoredFinding {
    /// Returns the cause that the finding shares with similar findings.
    pub fn root(&self) -> RootCause {
        let place = self.backtrace.as_ref().and_then(Backtrace::place).map(CommonCauseKey::Place);
        let requirement = || self.requirement.clone().map(CommonCauseKey::Requirement);
        let cause = place.or_else(requirement).unwrap_or_else(|| CommonCauseKey::Bucket(self.bucket.clone()));
        let input = match (self.valid, self.minimized) {
            (true, _) => RequiredInput::Valid,
            (false, false) => RequiredInput::Unknown,
            (false, true) => RequiredInput::Invalid,
        };
        RootCause { input, kind: self.kind, description: cause }
    }

    /// Returns whether a failure and this finding are crashes of the same program with the same signal, regardless of the location.
    pub fn is_same_crash(&self, failure: &Failure) -> bool {
        match (&self.backtrace, &failure.backtrace) {
            (Some(of), Some(other)) => (&of.name, of.signal) == (&other.name, other.signal),
            _ => false,
        }
    }

    /// Returns `deterministic` or the frequency, with notes if the finding needs an earlier job or if its case was not minimized.
    pub fn label(&self) -> String {
        let mut label = match (self.frequency, self.repetitions_minimal) {
            (Some([shown, runs]), _) => format!("in {shown} of {runs} runs"),
            (None, CONFIRMATION_RUNS) => "deterministic".into(),
            (None, n) => format!("flaky {n}/{CONFIRMATION_RUNS}"),
        };
        if self.needs_earlier_job {
            label += ", after an earlier job";
        }
        if !self.minimized && self.steps[0] == self.steps[1] {
            label += ", not minimized";
        }
        label
    }
}

/// The implementation that shows a finding, and the command that replays it.
#[derive(Debug)]
pub struct FindingOrigin<'a> {
    /// The command that starts the implementation, with placeholders.
    pub command: &'a [String],
    /// A text that describes the version of the implementation.
    pub version: &'a str,
    /// The command line that replays a finding, up to the name of its folder.
    pub replay: &'a str,
}

/// Writes a finding's folder below `out`, and returns its path.
///
/// # Errors
///
/// Returns an error if a file cannot be written.
pub fn store(
    out: &Path,
    found: &StoredFinding,
    case: &Case,
    events: &[Event],
    symptom: Option<&Symptom>,
    origin: &FindingOrigin<'_>,
) -> io::Result<PathBuf> {
    let folder = out.join(&found.bucket);
    fs::create_dir_all(&folder)?;
    let write = |name: &str, text: &str| fs::write(folder.join(name), text);
    let quoted = shell_words::quote(&folder.to_string_lossy()).into_owned();
    let replay = format!("{} --replay {quoted}", origin.replay);
    write(SCENARIO, &case.text())?;
    if let Some(earlier) = &case.earlier {
        write(EARLIER, &earlier.text())?;
    }
    match script(found, case, events, symptom) {
        Ok(program) => write(&format!("reproducer.{}", program.suffix), &program.text)?,
        Err(why) => write(
            "no-reproducer.txt",
            &format!("{why}, so there is no standalone reproducer. Replay with pmi-conform: {replay}\n"),
        )?,
    }
    let mut transcript = io::BufWriter::new(fs::File::create(folder.join("transcript.ndjson"))?);
    for event in events {
        serde_json::to_writer(&mut transcript, event)?;
        transcript.write_all(b"\n")?;
    }
    transcript.flush()?;
    let system = output_of("uname", &["-srm"]);
    write(
        "versions.txt",
        &format!("pmi-conform {}\n{system}\n{}", env!("CARGO_PKG_VERSION"), origin.version),
    )?;
    write("command.txt", &format!("{}\n{replay}\n", shell_words::join(origin.command)))?;
    // This file is written last: if it exists, the folder is complete.
    write(FINDING, &format!("{:#}\n", serde_json::to_value(found)?))?;
    Ok(folder)
}

/// Returns the program that reproduces a finding.
fn script(
    found: &StoredFinding,
    case: &Case,
    events: &[Event],
    symptom: Option<&Symptom>,
) -> Result<Reproducer, NotReproducible> {
    if case.earlier.is_some() {
        return Err(NotReproducible::EarlierJob);
    }
    // The events of a case contain the number of a statement instead of a line number.
    let quote = |number: usize| {
        let statement = number.checked_sub(1).and_then(|at| case.scenario.body.get(at));
        match statement.and_then(ServerStep::of) {
            Some(ServerStep::Exit { status, .. }) => format!("exit {status}"),
            Some(ServerStep::Kill { signal, .. }) => format!("kill {signal}"),
            _ => String::new(),
        }
    };
    let symptom = symptom.ok_or(NotReproducible::Symptom)?;
    let (expected, seen) =
        found.description.split_once("; seen: ").unwrap_or(("no such failure", &found.description));
    let about = FindingSummary {
        title: &found.bucket,
        expected,
        seen,
        run_counts: found.frequency.map(|[shown, runs]| (shown, runs)),
    };
    reproducer(about, events, symptom, &quote)
}

/// An error while reading a stored finding or case.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file is missing or cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The metadata of a finding or case is invalid.
    #[error("{}: {error}", file.display())]
    Metadata {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: serde_json::Error,
    },
    /// A scenario is invalid.
    #[error("{}", .0.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n"))]
    Scenario(Vec<Diagnostic>),
    /// A scenario has a step that campaigns do not support.
    #[error("{}:{line}: fuzz --replay does not support this step; play the scenario with pmi-conform {}", file.display(), file.display())]
    Step {
        /// The file.
        file: PathBuf,
        /// The line of the step.
        line: usize,
    },
}

pub(crate) fn read_text(file: &Path) -> Result<String, ReadError> {
    fs::read_to_string(file).map_err(|error| ReadError::File { file: file.to_owned(), error })
}

/// Reads the finding and the case in a folder.
///
/// # Errors
///
/// Returns an error if a file is missing or invalid.
pub fn read(folder: &Path) -> Result<(StoredFinding, Case), ReadError> {
    let file = folder.join(FINDING);
    let found: StoredFinding =
        serde_json::from_str(&read_text(&file)?).map_err(|error| ReadError::Metadata { file, error })?;
    let mut case = read_case(&folder.join(SCENARIO))?;
    if found.needs_earlier_job {
        case.earlier = Some(Box::new(read_case(&folder.join(EARLIER))?));
    }
    Ok((found, case))
}

/// Reads a case from a scenario file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or has a step that cannot occur in a case.
pub fn read_case(file: &Path) -> Result<Case, ReadError> {
    let source = pmi_scenario::ast::SourceFile { path: file.display().to_string(), text: read_text(file)? };
    let scenario = pmi_scenario::parse(source.into(), "replayed").map_err(ReadError::Scenario)?;
    Case::from_scenario(scenario).map_err(|line| ReadError::Step { file: file.to_owned(), line })
}

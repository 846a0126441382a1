//! Findings as folders that others can use: the scenario, a script that needs nothing of ours, the transcript.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pmi_judge::backtrace::{Backtrace, Place};
use pmi_judge::event::Event;
use pmi_scenario::Diagnostic;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::command::output_of;
use super::failure::{Failure, Kind};
use super::reproducer::{About, NotReproducible, Reproducer, Symptom, reproducer};
use super::statement::ServerStep;

/// The file that tells what a finding's folder holds.
pub const FINDING: &str = "finding.json";
/// The case as a scenario.
pub const SCENARIO: &str = "scenario.pmi";
/// The job before it, if the finding needs one.
pub const EARLIER: &str = "earlier.pmi";

/// Something found, as `finding.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The failure's key as it is shown, which is what the folder is called.
    pub bucket: String,
    /// In words.
    pub what: String,
    /// The requirement that is broken, if the judge knows it.
    pub requirement: Option<String>,
    /// What kind of failure it is. Folders of earlier versions do not say.
    #[serde(default)]
    pub kind: Kind,
    /// Only valid input leads to it in the session as it is stored, so that any client may meet it.
    #[serde(default)]
    pub valid: bool,
    /// It only shows in the job after another, which the folder has as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_earlier_job: bool,
    /// Where it crashes, as a debugger sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<Backtrace>,
    /// Why no debugger may see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untraced: Option<String>,
    /// The implementation.
    pub server: String,
    /// Seed and number of the case in which it was found.
    pub seed: u64,
    /// See `seed`.
    pub number: u64,
    /// What the generator had put into that case.
    pub ingredients: Vec<String>,
    /// Of five more runs of that case, those that showed it.
    pub again: u32,
    /// The same of the case as it is stored.
    pub again_minimal: u32,
    /// Steps found with and stored.
    pub steps: [usize; 2],
    /// Cases that shrinking played.
    pub shrinking: usize,
}

/// What findings have in common that probably come of one mistake: where a process dies, or the requirement that is broken, or else
/// the finding alone. The most serious come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Root {
    needs_invalid_input: bool,
    kind: Kind,
    what: Common,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Common {
    Place(Place),
    Requirement(String),
    Bucket(String),
}

impl Root {
    /// Whether no session with only valid input has met it.
    pub fn needs_invalid_input(&self) -> bool {
        self.needs_invalid_input
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Common::Place(place) => write!(f, "{} in {place}", self.kind),
            Common::Requirement(requirement) => write!(f, "{}: {requirement}", self.kind),
            Common::Bucket(_) => write!(f, "{}", self.kind),
        }
    }
}

/// How often a finding is tried again.
pub const TRIES: u32 = 5;

impl Found {
    /// What it has in common with others.
    pub fn root(&self) -> Root {
        let place = self.backtrace.as_ref().and_then(Backtrace::place).map(Common::Place);
        let requirement = || self.requirement.clone().map(Common::Requirement);
        let what = place.or_else(requirement).unwrap_or_else(|| Common::Bucket(self.bucket.clone()));
        Root { needs_invalid_input: !self.valid, kind: self.kind, what }
    }

    /// Whether a failure is a crash of the same process by the same signal, wherever that was seen.
    pub fn is_same_crash(&self, failure: &Failure) -> bool {
        match (&self.backtrace, &failure.backtrace) {
            (Some(of), Some(other)) => (&of.name, of.signal) == (&other.name, other.signal),
            _ => false,
        }
    }

    /// `deterministic`, or how often it shows, and whether it needs an earlier job.
    pub fn label(&self) -> String {
        let often = match self.again_minimal {
            TRIES => "deterministic".into(),
            n => format!("flaky {n}/{TRIES}"),
        };
        if self.needs_earlier_job { format!("{often}, after an earlier job") } else { often }
    }
}

/// What a finding is about, and how it is reached again.
#[derive(Debug)]
pub struct Origin<'a> {
    /// The command that starts the implementation, with placeholders.
    pub command: &'a [String],
    /// What is known of its version, in words.
    pub version: &'a str,
    /// The command line that plays a finding again, up to the name of its folder.
    pub replay: &'a str,
}

/// Writes a finding's folder below `out`, and says which.
///
/// # Errors
///
/// Whatever writing files brings.
pub fn store(
    out: &Path,
    found: &Found,
    case: &Case,
    events: &[Event],
    symptom: Option<&Symptom>,
    origin: &Origin<'_>,
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
        Err(why) => write("no-reproducer.txt", &format!("{why}. With pmi-conform: {replay}\n"))?,
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
    // Last, so that a folder that has it is whole.
    write(FINDING, &format!("{:#}\n", serde_json::to_value(found)?))?;
    Ok(folder)
}

/// Returns the program that shows a finding again.
fn script(
    found: &Found,
    case: &Case,
    events: &[Event],
    symptom: Option<&Symptom>,
) -> Result<Reproducer, NotReproducible> {
    if case.earlier.is_some() {
        return Err(NotReproducible::EarlierJob);
    }
    // Events of a case have the number of its statement in the place of a line.
    let quote = |number: usize| {
        let stmt = number.checked_sub(1).and_then(|at| case.scenario.body.get(at));
        match stmt.and_then(ServerStep::of) {
            Some(ServerStep::Exit { status, .. }) => format!("exit {status}"),
            Some(ServerStep::Kill { signal, .. }) => format!("kill {signal}"),
            _ => String::new(),
        }
    };
    let symptom = symptom.ok_or(NotReproducible::Symptom)?;
    let (expected, seen) = found.what.split_once("; seen: ").unwrap_or(("no such end", &found.what));
    let about = About { title: &found.bucket, expected, seen, shown: None };
    reproducer(about, events, symptom, &quote)
}

/// Something cannot be written down.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", file.display())]
pub struct WriteError {
    /// Where.
    pub file: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// Why something that was stored cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file is missing or cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What is told of a finding or case says something else.
    #[error("{}: {error}", file.display())]
    Metadata {
        /// Which.
        file: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A scenario is none.
    #[error("{}", .0.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n"))]
    Scenario(Vec<Diagnostic>),
    /// A scenario has a step that campaigns do not have.
    #[error("{}:{line}: fuzz --replay does not know such a step; play it with pmi-conform {}", file.display(), file.display())]
    Step {
        /// Which.
        file: PathBuf,
        /// Where.
        line: usize,
    },
}

/// Reads the text of a file.
pub(crate) fn read_text(file: &Path) -> Result<String, ReadError> {
    fs::read_to_string(file).map_err(|error| ReadError::File { file: file.to_owned(), error })
}

/// Reads what a folder holds.
///
/// # Errors
///
/// A file is missing or says something else.
pub fn read(folder: &Path) -> Result<(Found, Case), ReadError> {
    let file = folder.join(FINDING);
    let found: Found =
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
/// It cannot be read, or has steps that cases do not have.
pub fn read_case(file: &Path) -> Result<Case, ReadError> {
    let source = pmi_scenario::ast::Source { path: file.display().to_string(), text: read_text(file)? };
    let scenario = pmi_scenario::parse(source.into(), "replayed").map_err(ReadError::Scenario)?;
    Case::from_scenario(scenario).map_err(|line| ReadError::Step { file: file.to_owned(), line })
}

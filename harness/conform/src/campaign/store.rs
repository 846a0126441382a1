//! Findings as folders that others can use: the scenario, a script that needs nothing of ours, the transcript.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arena::Stage;
use super::input::Input;
use super::session::{Base, Limit, Line, Piece, Session, Step};
use crate::event::Event;

/// The file that tells what a finding's folder holds.
pub const FINDING: &str = "finding.json";
/// The session as a scenario.
pub const SCENARIO: &str = "scenario.pmi";
/// Plays the session without us.
const SCRIPT: &str = include_str!("replay.py");
/// Cited where the monitor knows no requirement: what a server has to do about what is no message.
pub(super) const NO_CRASH: &str = "rfc13.error.close";
/// The same where we were a proxy's upstream: what a proxy has to do about what it cannot read, ...
const UPSTREAM_TEXT: &str = "hydra.upstream.bad-text";
/// ... and about an upstream that is gone.
const UPSTREAM_LOST: &str = "hydra.upstream.lost";

/// Something found, as `finding.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What the folder is called.
    pub bucket: String,
    /// In words.
    pub what: String,
    /// The requirement that is broken, if the monitor knows it.
    pub requirement: Option<String>,
    /// The implementation.
    pub server: String,
    /// Seed and number of the session in which it was found.
    pub seed: u64,
    /// See `seed`.
    pub number: u64,
    /// What the generator had put into that session.
    pub ingredients: Vec<String>,
    /// Of five more runs of that session, those that showed it.
    pub again: u32,
    /// The same of the session as it is stored.
    pub again_minimal: u32,
    /// Steps found with and stored.
    pub steps: [usize; 2],
    /// Sessions that shrinking played.
    pub shrinking: usize,
}

/// How often a finding is tried again.
pub const TRIES: u32 = 5;

impl Found {
    /// `deterministic`, or how often it shows.
    pub fn label(&self) -> String {
        match self.again_minimal {
            TRIES => "deterministic".into(),
            n => format!("flaky {n}/{TRIES}"),
        }
    }
}

/// Writes a finding's folder.
///
/// # Errors
///
/// Whatever writing files brings.
pub fn store<I: Input>(
    folder: &Path,
    found: &Found,
    session: &I,
    events: &[Event],
    stage: &dyn Stage<I>,
    replay: &str,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let write = |name: &str, text: &str| fs::write(folder.join(name), text);
    let command = stage.command();
    write(SCENARIO, &scenario(found, session))?;
    session.store_script(folder, &found.bucket, command, replay)?;
    let mut transcript = io::BufWriter::new(fs::File::create(folder.join("transcript.ndjson"))?);
    for event in events {
        serde_json::to_writer(&mut transcript, event)?;
        transcript.write_all(b"\n")?;
    }
    transcript.flush()?;
    write("versions.txt", &versions(&stage.version()))?;
    write("command.txt", &format!("{}\n{replay}\n", shell_words::join(command)))?;
    // Last, so that a folder that has it is whole.
    write(FINDING, &format!("{:#}\n", serde_json::to_value(found)?))
}

/// The session as a scenario of the suite.
pub fn scenario<I: Input>(found: &Found, session: &I) -> String {
    let summary = format!("Found by fuzzing: {}.", found.what.trim_end_matches('.'));
    let summary: String = summary.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let broken = found.requirement.as_deref().unwrap_or_else(|| session.cited(&found.bucket));
    session.to_scenario(&summary, &[broken])
}

/// What a session against a server that crashes it cites.
pub(super) fn cited(session: &Session, bucket: &str) -> &'static str {
    match session.needs_upstream() {
        true if bucket.ends_with("--upstream-close") => UPSTREAM_LOST,
        true => UPSTREAM_TEXT,
        false => NO_CRASH,
    }
}

/// Writes a script that plays a session against a server and needs nothing of ours, if that is possible.
pub(super) fn store_script(
    session: &Session,
    folder: &Path,
    bucket: &str,
    command: &[String],
    replay: &str,
) -> io::Result<()> {
    let Some(json) = session_json(session) else {
        return store_our_script(folder, bucket, "we speak as the upstream of the proxy", replay);
    };
    fs::write(folder.join("session.json"), format!("{json:#}\n"))?;
    let launch = shell_words::join(plain_command(command));
    let play = format!(
        "cd \"$(dirname \"$0\")\" || exit 2\n[ $# -gt 0 ] || set -- {launch}\nexec python3 replay.py session.json \"$@\"\n"
    );
    store_free_script(folder, bucket, SCRIPT, &play)
}

/// Writes a script that is a Python program and how to start it.
pub(super) fn store_free_script(folder: &Path, bucket: &str, program: &str, play: &str) -> io::Result<()> {
    fs::write(folder.join("replay.py"), program)?;
    let about = "Plays the session without pmi-conform: python3 is all it needs. Another command may be given instead.";
    write_script(folder, &format!("# {bucket}\n# {about}\n{play}"))
}

/// Writes a script that needs us, since `what` is done in the session.
pub(super) fn store_our_script(folder: &Path, bucket: &str, what: &str, replay: &str) -> io::Result<()> {
    let about = format!("In this session {what}, and only pmi-conform can do that: this script needs it.");
    let replay = replay.replace(&*shell_words::quote(&folder.to_string_lossy()), "\"$(dirname \"$0\")\"");
    write_script(folder, &format!("# {bucket}\n# {about}\nexec {replay}\n"))
}

fn write_script(folder: &Path, text: &str) -> io::Result<()> {
    fs::write(folder.join("replay.sh"), format!("#!/bin/sh\n{text}"))?;
    fs::set_permissions(folder.join("replay.sh"), fs::Permissions::from_mode(0o755))
}

/// The command as a script can use it. A bare proxy is started by the mpiexec that belongs to it.
fn plain_command(command: &[String]) -> Vec<String> {
    let option = |name: &str| {
        let at = command.iter().position(|w| w == name)?;
        command.get(at + 1)
    };
    match option("--proxy").filter(|_| command.iter().any(|w| w == "hydra-upstream")) {
        Some(proxy) => {
            let launcher = Path::new(proxy).with_file_name("mpiexec.hydra");
            [&*launcher.to_string_lossy(), "-n", "{ranks}", "{agent}"].map(String::from).to_vec()
        }
        None => command.to_vec(),
    }
}

/// What a program says, its first lines.
pub(super) fn ask(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).lines().take(8).collect::<Vec<_>>().join("\n")
    })
}

/// What the launcher of a command says of its version.
pub(super) fn version_of(command: &[String]) -> String {
    let launcher = plain_command(command).first().cloned().unwrap_or_default();
    format!("{launcher}: {}\n", ask(&launcher, &["--version"]))
}

fn versions(implementation: &str) -> String {
    format!("pmi-conform {}\n{}\n{implementation}", env!("CARGO_PKG_VERSION"), ask("uname", &["-srm"]))
}

/// The session for the script; `None` if it has what the script cannot do.
fn session_json(session: &Session) -> Option<Value> {
    let steps = session.steps.iter().map(|step| {
        Some(match step {
            Step::Passed { .. } | Step::Upstream { .. } => return None,
            Step::Join => json!({"step": "join"}),
            Step::Leave => json!({"step": "leave"}),
            Step::Write { rank, lines, partial } => {
                let lines: Vec<Value> = lines.iter().map(line_json).collect();
                json!({"step": "write", "rank": rank, "lines": lines, "partial": partial})
            }
            Step::Await { rank, .. } => json!({"step": "await", "rank": rank}),
            Step::Close { rank } => json!({"step": "close", "rank": rank}),
            Step::Exit { rank, status } => json!({"step": "exit", "rank": rank, "number": status}),
            Step::Kill { rank, signal } => json!({"step": "kill", "rank": rank, "number": signal}),
        })
    });
    let steps: Vec<Value> = steps.collect::<Option<_>>()?;
    Some(json!({"ranks": session.ranks, "steps": steps}))
}

fn line_json(line: &Line) -> Value {
    let piece = |piece: &Piece| match piece {
        Piece::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => json!({"text": text}),
            _ => json!({"hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()}),
        },
        Piece::Kvs => json!({"name": "kvs"}),
        Piece::Agent => json!({"name": "agent"}),
        Piece::Fill(length) => {
            let base = match length.base {
                Base::Zero => None,
                Base::Limit(Limit::Kvsname) => Some("kvsname_max"),
                Base::Limit(Limit::Key) => Some("keylen_max"),
                Base::Limit(Limit::Value) => Some("vallen_max"),
            };
            json!({"fill": [base, length.plus]})
        }
    };
    Value::Array(line.iter().map(piece).collect())
}

/// Reads what a folder holds.
///
/// # Errors
///
/// A file is missing or says something else; the message names it.
pub fn read<I: Input>(folder: &Path) -> Result<(Found, I), String> {
    let at = |name: &str, e: &dyn std::fmt::Display| format!("{}: {e}", folder.join(name).display());
    let text = fs::read_to_string(folder.join(FINDING)).map_err(|e| at(FINDING, &e))?;
    let found: Found = serde_json::from_str(&text).map_err(|e| at(FINDING, &e))?;
    Ok((found, read_session(&folder.join(SCENARIO))?))
}

/// Reads a session from a scenario file.
///
/// # Errors
///
/// It cannot be read, tests somebody else, or has steps that sessions do not have.
pub fn read_session<I: Input>(path: &Path) -> Result<I, String> {
    Ok(read_scenario(path)?.0)
}

/// The same, with the scenario's summary.
pub(super) fn read_scenario<I: Input>(path: &Path) -> Result<(I, String), String> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    let source = std::sync::Arc::new(crate::lang::ast::Source { path: name.clone(), text });
    let scenario = crate::lang::parse(source, "replayed")
        .map_err(|errors| errors.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n"))?;
    let session = I::from_scenario(&scenario).map_err(|line| {
        format!("{name}:{line}: fuzz --replay does not know such a step; play it with pmi-conform {name}")
    })?;
    Ok((session, scenario.summary))
}

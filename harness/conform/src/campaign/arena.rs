//! Where sessions are played: a fresh launch for each, and the oracles.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pmi_reference::Config;

use super::drive::{Played, drive};
use super::session::Session;
use super::symptom::{Symptom, consequence, leak, symptoms};
use super::witness::{self, Witness};
use crate::event::What;
use crate::launch::proctree::left_over;
use crate::launch::{Environment, Implementation, Patience, ProcessPeer};
use crate::play::MemoryPeer;
use crate::requirement::Catalogue;

/// How long a proven silence lasts in a campaign. Whatever it leads to is tried again with the usual patience.
const HASTE: Patience = Patience { idle: Duration::ZERO, starved: Duration::from_millis(6) };

/// A job may take so many times as long to end as a step may take, before it is said to stay: launchers sleep.
const ENDINGS: u32 = 8;

/// A silence is believed after so many times the slowest answer, and not before this.
const ANSWERS: u32 = 30;
/// See [`ANSWERS`].
const LEAST: Duration = Duration::from_millis(60);

/// How thorough a session is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Silence is believed at once.
    Hasty,
    /// Silence is believed as in the suite, and processes get twice the time.
    Calm,
}

/// A server under test.
pub enum Target {
    /// The reference server in memory.
    Memory(Config),
    /// Real processes.
    Processes(Box<Implementation>, Environment),
}

/// A server under test with the oracles.
pub struct Arena {
    target: Target,
    /// As the user would write it.
    command: Vec<String>,
    catalogue: Catalogue,
    wait: Duration,
    /// The slowest answer of late, in microseconds.
    slowest: AtomicU64,
    /// Tells how Hydra's proxies ended where the kernel does not.
    witness: Option<Witness>,
}

/// Where sessions are played.
pub trait Stage<I = Session>: Sync {
    /// Plays a session.
    ///
    /// # Errors
    ///
    /// The implementation cannot be started.
    fn play(&self, session: &I, pace: Pace) -> io::Result<Verdict>;
    /// The implementation in words.
    fn label(&self) -> String;
    /// The command that starts the implementation, with placeholders.
    fn command(&self) -> &[String];
    /// What is known of the implementation's version, in words.
    fn version(&self) -> String;
}

/// A session that was played, and what is wrong with it.
pub struct Verdict {
    /// What happened.
    pub played: Played,
    /// What is wrong, the worst first.
    pub symptoms: Vec<Symptom>,
}

impl Arena {
    /// Prepares a target. No step of a session takes longer than `wait`.
    ///
    /// # Errors
    ///
    /// The scratch folder of the witness cannot be made.
    pub fn new(mut target: Target, catalogue: Catalogue, wait: Duration) -> io::Result<Self> {
        let command = match &target {
            Target::Memory(_) => Vec::new(),
            Target::Processes(implementation, _) => implementation.template().to_vec(),
        };
        let witness = match &mut target {
            Target::Processes(implementation, environment) if !environment.deaths_are_told => {
                witness::install(implementation)?
            }
            Target::Memory(_) | Target::Processes(..) => None,
        };
        Ok(Self { target, command, catalogue, wait, slowest: AtomicU64::new(0), witness })
    }

    /// Where a server's state shows nothing, a silence is believed after many times what answers take.
    fn hasty_wait(&self) -> Duration {
        let slowest = Duration::from_micros(self.slowest.load(Ordering::Relaxed));
        (slowest * ANSWERS).max(LEAST).min(self.wait)
    }
}

impl Stage for Arena {
    fn play(&self, session: &Session, pace: Pace) -> io::Result<Verdict> {
        let (wait, ending) = match pace {
            Pace::Calm => (2 * self.wait, ENDINGS * self.wait),
            Pace::Hasty => (self.hasty_wait(), self.hasty_wait()),
        };
        let upstream = match &self.target {
            Target::Memory(_) => false,
            Target::Processes(implementation, _) => implementation.has_upstream(),
        };
        if session.needs_upstream() && !upstream {
            return Err(io::Error::other(
                "the session speaks as the upstream of a proxy, so the server must be a bare hydra_pmi_proxy",
            ));
        }
        let (played, left) = match &self.target {
            Target::Memory(config) => {
                let mut peer = MemoryPeer::launch(config.clone(), session.ranks);
                (drive(session, &mut peer, Vec::new(), wait, ending), Vec::new())
            }
            Target::Processes(implementation, environment) => {
                let (mut peer, command) = ProcessPeer::launch(implementation, session.ranks, 1, environment)?;
                if pace == Pace::Hasty {
                    peer.set_patience(HASTE);
                }
                let mut played = drive(session, &mut peer, command, wait, ending);
                // Who was told to end, or wrote to one that had died, did not die first.
                played.crashed = peer.deaths().into_iter().chain(played.crashed).min_by_key(consequence);
                // A launcher that ends its proxies by force ends the witness instead.
                let looks = played.exit.is_some() && self.witness.is_none();
                let left = if looks { left_over(|| peer.leftovers()) } else { Vec::new() };
                (played, left)
            }
        };
        let slowest = played.slowest.as_micros() as u64;
        // Falls slowly, so that a slow moment of the machine is remembered for a while.
        let _ = self
            .slowest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |s| Some(slowest.max(s - s / 64)));
        let mut symptoms = symptoms(&played, &self.catalogue);
        if !left.is_empty() && played.crashed.is_none() {
            symptoms.push(leak("the launcher", &left));
        }
        Ok(Verdict { played, symptoms })
    }

    fn command(&self) -> &[String] {
        &self.command
    }

    fn version(&self) -> String {
        super::store::version_of(&self.command)
    }

    fn label(&self) -> String {
        match &self.target {
            Target::Memory(_) => "the reference server in memory".into(),
            Target::Processes(implementation, _) => implementation.label.clone(),
        }
    }
}

/// What the session reached of the model: for every request, what its process had been answered last, how many others
/// were waiting, what it asked and what came.
pub fn transitions(played: &Played) -> Vec<String> {
    use std::collections::HashMap;
    let mut last: HashMap<crate::event::Proc, String> = HashMap::new();
    let mut asked: HashMap<crate::event::Proc, String> = HashMap::new();
    let mut all = Vec::new();
    for event in &played.events {
        let (proc, came) = match &event.what {
            What::ToServer { proc, bytes } => {
                asked.insert(*proc, super::symptom::kind(&bytes.0));
                continue;
            }
            What::FromServer { proc, bytes } => (*proc, outcome(&bytes.0)),
            What::ClosedByServer { proc } => (*proc, "close"),
            What::NoAnswer { proc, .. } => (*proc, "silence"),
            _ => continue,
        };
        let Some(request) = asked.remove(&proc) else { continue };
        let others = match asked.len() {
            0 => "alone",
            1 => "one waits",
            _ => "several wait",
        };
        let before = last.get(&proc).map_or("start", String::as_str);
        all.push(format!("{before} | {others} | {request} | {came}"));
        last.insert(proc, format!("{request} {came}"));
    }
    all
}

fn outcome(bytes: &[u8]) -> &'static str {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    match pmi_wire::Response::parse(line, pmi_wire::ValueReading::ToEndOfLine) {
        Ok(response) if response.is_success() => "ok",
        Ok(_) => "refused",
        Err(_) => "unreadable",
    }
}

//! Where ordeals are played: a fresh launch for each, under a server that is ours.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::super::arena::{Pace, Stage, Verdict};
use super::super::drive::Played;
use super::super::store::ask;
use super::super::symptom::leak;
use super::program::Trace;
use super::symptom::symptoms;
use super::{Ordeal, library};
use crate::client::{self, NO_SUCH_REQUEST, Program};
use crate::event::{Event, Exit, Proc, What};
use crate::lang::UnderTest;
use crate::library::Library;
use crate::play::library::play as play_library;
use crate::play::{Limits, Outcome};
use crate::suite::Suite;

/// Where a symptom is tried again, nothing must have happened for so long before a process is said to hang.
const CALM: Duration = Duration::from_secs(5);
/// A process hangs that does nothing for so many times as long as a plain run takes.
const PLAIN: u32 = 4;

/// Who is under test.
pub enum Subject {
    /// A program that speaks PMI.
    Program(Box<Program>),
    /// A library with the API of PMI-1.
    Library(Box<Library>),
}

/// A program or a library under test, with the oracles.
pub struct Trial {
    subject: Subject,
    suite: Suite,
    command: Vec<String>,
    wait: Duration,
    /// Whether it leaves processes behind where nothing is unusual, once that was asked.
    leaves: OnceLock<bool>,
    interrupted: Arc<AtomicBool>,
}

impl Trial {
    /// Prepares it. A process that does nothing that can be seen for `wait` hangs.
    pub fn new(mut subject: Subject, suite: Suite, wait: Duration, interrupted: Arc<AtomicBool>) -> Self {
        if let Subject::Program(program) = &mut subject {
            program.find_left();
        }
        let command = match &subject {
            Subject::Program(program) => shell_words::split(&program.label).unwrap_or_default(),
            Subject::Library(library) => vec![library.path.display().to_string()],
        };
        Self { subject, suite, command, wait, leaves: OnceLock::new(), interrupted }
    }

    /// Looks what a program asks in plain runs of one to so many ranks. Those that do not end well are left out.
    ///
    /// # Errors
    ///
    /// None does, and what one came to.
    pub fn traces(&mut self, ranks: u32) -> Result<Vec<Trace>, String> {
        let mut traces = Vec::new();
        let mut why = "it is no program".to_owned();
        for ranks in 1..=ranks {
            let plain = Ordeal { tests: UnderTest::Client, ranks, steps: Vec::new() };
            let begin = Instant::now();
            match self.outcome(&plain, CALM.max(self.wait)) {
                Err(what) => return Err(what),
                Ok(outcome) => match bad_end(&outcome.events, ranks).or(outcome.unjudged) {
                    Some(what) => why = format!("with {ranks} processes, {what}"),
                    None => traces.extend(Trace::read(&outcome.events, ranks)),
                },
            }
            self.wait = self.wait.max(begin.elapsed() * PLAIN);
        }
        match traces.is_empty() {
            true => Err(format!("it must end well where nothing is unusual: {why}")),
            false => Ok(traces),
        }
    }

    /// Whether a library asks us for something.
    ///
    /// # Errors
    ///
    /// It cannot be loaded; the message says why.
    pub fn asks(&self) -> Result<bool, String> {
        let outcome = self.outcome(&library::sign_of_life(), CALM.max(self.wait))?;
        match outcome.unjudged {
            Some(why) => Err(why),
            None => Ok(outcome.events.iter().any(|e| matches!(e.what, What::ToServer { .. }))),
        }
    }

    /// Whether it leaves processes behind in a plain run, too.
    fn leaves(&self, ranks: u32) -> bool {
        *self.leaves.get_or_init(|| {
            let plain = Ordeal { tests: UnderTest::Client, ranks, steps: Vec::new() };
            self.outcome(&plain, CALM.max(self.wait)).is_ok_and(|outcome| !outcome.left.is_empty())
        })
    }

    fn outcome(&self, ordeal: &Ordeal, step: Duration) -> Result<Outcome, String> {
        let scenario = ordeal.scenario().ok_or("it cannot be written as a scenario")?;
        let fragment = |name: &str| self.suite.fragment(name);
        let limits = Limits { step, ..Limits::default() };
        let interrupted = &*self.interrupted;
        let outcome = match &self.subject {
            Subject::Program(program) => {
                client::play(program, &scenario, &fragment, limits, interrupted, &mut ())
                    .map_err(|(_, why)| why)?
            }
            Subject::Library(library) => {
                play_library(&scenario, &fragment, library, limits, interrupted, &mut ())
            }
        };
        match outcome.scenario_error {
            Some((line, what)) => Err(format!("line {line} of the scenario: {what}")),
            None => Ok(outcome),
        }
    }
}

impl Stage<Ordeal> for Trial {
    fn play(&self, ordeal: &Ordeal, pace: Pace) -> io::Result<Verdict> {
        let step = match pace {
            Pace::Hasty => self.wait,
            Pace::Calm => CALM.max(2 * self.wait),
        };
        let mut played = Played::default();
        let outcome = match self.outcome(ordeal, step) {
            Ok(outcome) => outcome,
            Err(why) => {
                // A program that does not ask is not answered.
                played.unjudged = (!why.starts_with(NO_SUCH_REQUEST)).then_some(why);
                return Ok(Verdict { played, symptoms: Vec::new() });
            }
        };
        let mut symptoms = symptoms(ordeal, &outcome, &self.suite.catalogue);
        if !outcome.left.is_empty() && outcome.crashed.is_none() && !self.leaves(ordeal.ranks) {
            symptoms.push(leak("the program", &outcome.left));
        }
        played.unjudged = outcome.unjudged;
        played.requests = outcome.events.iter().filter(|e| matches!(e.what, What::ToServer { .. })).count();
        played.events = outcome.events;
        Ok(Verdict { played, symptoms })
    }

    fn label(&self) -> String {
        match &self.subject {
            Subject::Program(program) => program.label.clone(),
            Subject::Library(library) => format!("the library {}", library.path.display()),
        }
    }

    fn command(&self) -> &[String] {
        &self.command
    }

    fn version(&self) -> String {
        let file = match &self.subject {
            Subject::Program(program) => program.path().unwrap_or_default(),
            Subject::Library(library) => library.path.clone(),
        };
        let size = std::fs::metadata(&file).map_or(0, |m| m.len());
        let path = file.display().to_string();
        // Which MPI library it is, for example.
        format!("{path}: {size} bytes\n{}\n", ask("ldd", &[&path]))
    }
}

/// How the first process ended that did not end well.
fn bad_end(events: &[Event], ranks: u32) -> Option<String> {
    (0..ranks).find_map(|rank| {
        let proc = Proc { group: 0, rank };
        let exit = events.iter().find_map(|e| match e.what {
            What::Exited { proc: p, exit } if p == proc => Some(exit),
            _ => None,
        });
        let ended = events.iter().any(|e| matches!(e.what, What::Ended { proc: p, .. } if p == proc));
        match exit {
            Some(Exit::Code(0)) if !ended => None,
            Some(exit) => Some(format!("rank {rank} ended with {exit}")),
            None => Some(format!("rank {rank} did not end")),
        }
    })
}

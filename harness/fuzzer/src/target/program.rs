//! A program or a library under test, which is started afresh for each case, with the harness as its server.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pmi_judge::event::{Event, EventKind, PlainRun};
use pmi_judge::verdict::Verdict;
use pmi_judge::{Judge, PartyKind, ScenarioOutcome};
use pmi_runner::interpret::library::play as play_library;
use pmi_runner::interpret::program;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::Library;
use pmi_runner::party::program::Program;
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::Dialect;
use pmi_scenario::suite::Suite;

use super::command::output_of;
use super::{CaseRun, Target, Thoroughness, Tracing, append_events, traced};
use crate::generate::library::probe_case;
use crate::generate::trace::Trace;
use crate::observe::failure::Failure;
use crate::observe::observation::Observation;
use crate::observe::oracle::client::failures;
use crate::session::case::Case;

/// Minimum time without activity before a process counts as hanging, both in confirmations and in plain runs, in which the server does
/// nothing unusual.
const MIN_HANG_TIME: Duration = Duration::from_secs(5);
/// A process counts as hanging only if it has been inactive for at least `HANG_FACTOR` times the duration of the longest plain run.
const HANG_FACTOR: u32 = 4;
/// The start of a client may take `START_FACTOR` times as long as a step.
const START_FACTOR: u32 = 4;

/// The client under test.
pub enum ClientKind {
    /// A program that uses PMI.
    Program(Box<Program>),
    /// A library with the API of PMI-1 or PMI-2.
    Library(Box<Library>),
}

/// A program or a library under test.
pub struct ClientTarget {
    subject: ClientKind,
    suite: Suite,
    command: Vec<String>,
    wait: Duration,
    /// True if the client also leaves processes behind in a plain run. The value is unset until the first check.
    leaves_processes: OnceLock<bool>,
    /// The only dialect that the server supports in a plain run. If `None`, the server supports all dialects.
    dialect: Option<Dialect>,
    /// The path of this binary, which can act as a debugger.
    tracer: PathBuf,
    interrupted: Arc<AtomicBool>,
}

/// The reason why a case was not played to its end, or why its failures prove nothing.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The case does not apply to the program.
    #[error("{0}")]
    NotApplicable(String),
    /// The case could not be judged.
    #[error("{0}")]
    Unjudged(String),
    /// The case is invalid, with the line number and the error.
    #[error("line {0} of the scenario: {1}")]
    Case(usize, String),
    /// The program fails even in a plain run, so its failures prove nothing.
    #[error("the program fails although its server does nothing unusual: {0}")]
    FailsPlainRun(String),
}

impl ClientTarget {
    /// Prepares the client. A process without visible activity for `wait` counts as hanging. `tracer` is the path of this binary.
    pub fn new(
        mut subject: ClientKind,
        dialect: Option<Dialect>,
        suite: Suite,
        wait: Duration,
        tracer: PathBuf,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        if let ClientKind::Program(program) = &mut subject {
            program.find_leftover_processes();
        }
        let command = match &subject {
            ClientKind::Program(program) => shell_words::split(&program.label).unwrap_or_default(),
            ClientKind::Library(library) => vec![library.path.display().to_string()],
        };
        Self {
            subject,
            suite,
            command,
            wait,
            leaves_processes: OnceLock::new(),
            dialect,
            tracer,
            interrupted,
        }
    }

    /// Records the program's requests in plain runs of one to `ranks` ranks. Skips runs that fail, and runs in a dialect other than the
    /// campaign's.
    ///
    /// # Errors
    ///
    /// Returns an error if all runs were skipped. The error states the reason for the last run.
    pub fn traces(&mut self, ranks: u32) -> Result<Vec<Trace>, CaseError> {
        let mut traces = Vec::new();
        let mut why = "not a program".to_owned();
        for ranks in 1..=ranks {
            let begin = Instant::now();
            let outcome = self.outcome(&self.plain(ranks), MIN_HANG_TIME.max(self.wait))?;
            match (plain_run(&outcome.events), outcome.unjudged) {
                (PlainRun::ProcessFailed(end), _) => why = format!("with {ranks} processes, {end}"),
                (_, Some(what)) => why = format!("with {ranks} processes, {what}"),
                (_, None) => match Trace::read(&outcome.events, ranks) {
                    Some(trace) if self.dialect.is_none_or(|wanted| wanted == trace.dialect) => {
                        traces.push(trace);
                    }
                    Some(trace) => {
                        why = format!("the program uses {}, not the selected dialect", trace.dialect.title())
                    }
                    None => why = "the program sends no requests".to_owned(),
                },
            }
            self.wait = self.wait.max(begin.elapsed() * HANG_FACTOR);
        }
        if traces.is_empty() { Err(CaseError::FailsPlainRun(why)) } else { Ok(traces) }
    }

    /// Returns whether a library sends requests to the harness.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot be loaded, or if the case that tests this cannot be judged.
    pub fn has_requests(&self, dialect: Dialect) -> Result<bool, CaseError> {
        let outcome = self.outcome(&probe_case(dialect), MIN_HANG_TIME.max(self.wait))?;
        match outcome.unjudged {
            Some(why) => Err(CaseError::Unjudged(why.to_string())),
            None => Ok(outcome.events.iter().any(|e| matches!(e.kind, EventKind::ToServer { .. }))),
        }
    }

    /// Returns a case in which the server does nothing unusual. If no dialect is selected, the case is in PMI-2, because a PMI-2 server
    /// also accepts an offer of PMI-1.
    fn plain(&self, ranks: u32) -> Case {
        let dialect = self.dialect.unwrap_or(Dialect::Pmi2);
        Case::in_dialect(dialect, ImplementationKind::Client, ranks, Vec::new())
    }

    fn leaves_processes(&self, ranks: u32) -> bool {
        *self.leaves_processes.get_or_init(|| {
            self.outcome(&self.plain(ranks), MIN_HANG_TIME.max(self.wait))
                .is_ok_and(|outcome| !outcome.leftover_processes.is_empty())
        })
    }

    fn outcome(&self, case: &Case, step: Duration) -> Result<ScenarioOutcome, CaseError> {
        let fragment = |name: &str| self.suite.fragment(name);
        let limits = ScenarioLimits { step, start: Some(step * START_FACTOR), ..ScenarioLimits::default() };
        let interrupted = &*self.interrupted;
        let outcome = match &self.subject {
            ClientKind::Program(program) => {
                program::play(program, &case.scenario, &fragment, limits, interrupted, &mut ())
            }
            ClientKind::Library(library) => {
                play_library(&case.scenario, &fragment, library, limits, interrupted, &mut ())
                    .map_err(CaseError::NotApplicable)?
            }
        };
        match (outcome.scenario_error, &outcome.unjudged) {
            (Some((line, what)), _) => Err(CaseError::Case(line, what)),
            (None, Some(why)) if why.verdict() == Verdict::NotApplicable => {
                Err(CaseError::NotApplicable(why.to_string()))
            }
            (None, _) => Ok(ScenarioOutcome { scenario_error: None, ..outcome }),
        }
    }
}

impl Target for ClientTarget {
    fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> io::Result<CaseRun> {
        let step = match pace {
            Thoroughness::Fast => self.wait,
            Thoroughness::Thorough => MIN_HANG_TIME.max(2 * self.wait),
        };
        let mut seen = Observation { dialect: case.scenario.dialect, ..Observation::default() };
        let (played, traces) = traced(tracing, &self.tracer, || self.outcome(case, step));
        let outcome = match played {
            Ok(mut outcome) => {
                append_events(&mut outcome.events, traces);
                outcome
            }
            // The case does not apply, because the program did not make the request that the case answers.
            Err(CaseError::NotApplicable(_)) => {
                return Ok(CaseRun { observation: seen, failures: Vec::new() });
            }
            Err(why) => {
                seen.unjudged = Some(why.to_string());
                return Ok(CaseRun { observation: seen, failures: Vec::new() });
            }
        };
        let mut failures = failures(case, &outcome, &self.suite.catalogue);
        if !outcome.leftover_processes.is_empty()
            && outcome.crashed.is_none()
            && !self.leaves_processes(case.ranks())
        {
            failures.push(Failure::leak("the program", &outcome.leftover_processes));
        }
        seen.unjudged = outcome.unjudged.map(|why| why.to_string());
        seen.requests =
            outcome.events.iter().filter(|e| matches!(e.kind, EventKind::ToServer { .. })).count();
        seen.events = outcome.events;
        Ok(CaseRun { observation: seen, failures })
    }

    fn label(&self) -> String {
        match &self.subject {
            ClientKind::Program(program) => program.label.clone(),
            ClientKind::Library(library) => format!("the library {}", library.path.display()),
        }
    }

    fn command(&self) -> &[String] {
        &self.command
    }

    fn version(&self) -> String {
        let file = match &self.subject {
            ClientKind::Program(program) => program.path().unwrap_or_default(),
            ClientKind::Library(library) => library.path.clone(),
        };
        let size = std::fs::metadata(&file).map_or(0, |m| m.len());
        let path = file.display().to_string();
        // The linked libraries show, for example, which MPI library the program uses.
        format!("{path}: {size} bytes\n{}\n", output_of("ldd", &[&path]))
    }
}

fn plain_run(events: &[Event]) -> PlainRun {
    let mut judge = Judge::without_scenario(PartyKind::Client);
    events.iter().for_each(|event| judge.observe(event));
    judge.plain_run()
}

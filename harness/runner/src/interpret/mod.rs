//! Plays the steps of a scenario, in the order of the file, for every rank. The runner carries out its own actions when it reaches their
//! steps. It passes expectations to the judge, and waits until they are met.
//!
//! - `walk`: visits the statements in order
//! - `recorder`: numbers the events, passes them to the judge, and stores them
//! - `interpreter`: contains the code that all runs share. The meaning of a step is defined in `server`, in `library`, and in `watch` for
//!   runs without expectations
//! - `free`: plays schedules without an order across ranks
//! - `program`: compiles the script of the server under which a program is started

mod free;
mod interpreter;
pub mod library;
mod manager;
pub mod program;
mod recorder;
mod server;
pub mod walk;
mod watch;

use pmi_judge::expectation::ExpectationKind;
use pmi_scenario::ast::{Step, StepTarget};
use pmi_scenario::scope::Scope;
use pmi_wire::Proc;

use interpreter::{Interpreter, WalkEnd};
use walk::{Position, StepReceiver};

pub use recorder::{EventSink, MAX_KEPT_MESSAGE, Recorder, RunWatcher};
pub use server::play;
pub use watch::{WatchedRun, watch};

impl StepReceiver for Interpreter<'_> {
    type Stop = WalkEnd;

    fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn set_line(&mut self, line: usize) {
        self.recorder.line = line;
    }

    fn skip(&mut self, line: usize) {
        self.skipped_lines.push(line);
    }

    fn step(&mut self, step: &Step, place: Position<'_>) -> Result<(), WalkEnd> {
        if self.is_deferred(step, place) {
            return Ok(());
        }
        self.play_deferred()?;
        self.scope.begin_step();
        self.cite(step);
        if self.manager.is_some() {
            return self.library_step(step, place);
        }
        let (group, set) = match &step.target {
            StepTarget::Job => return self.job_step(&step.action),
            StepTarget::Ranks { group, set } => (*group, set),
            // Not reached, because the walk replaces the group's name with its number.
            StepTarget::Spawned { .. } => {
                return Err(WalkEnd::Mistake("the number of the spawned group is unknown".into()));
            }
        };
        for rank in self.members(group, set) {
            let p = Proc { group, rank };
            if self.recorder.judge.is_refused(group) {
                return Ok(());
            }
            if group == Proc::STRAY_GROUP {
                self.party.connect(p);
            } else if group != 0 && group != Proc::PROXY_GROUP {
                self.expect(Some(p), ExpectationKind::Started)?;
            }
            self.step_of_rank(p, step)?;
        }
        Ok(())
    }
}

impl Interpreter<'_> {
    /// Sets the cited requirement: that of the step or, if the step cites none, the scenario's first requirement.
    fn cite(&mut self, step: &Step) {
        let first = self.scenario.requires.first().map(|r| r.value.as_str()).unwrap_or_default();
        self.cited = step.cites.as_ref().map_or(first, |c| &c.value).to_owned();
    }

    fn step_of_rank(&mut self, p: Proc, step: &Step) -> Result<(), WalkEnd> {
        self.scope.enter(p.rank, self.recorder.judge.size(p.group));
        self.scope.set_job_id(self.recorder.judge.job_id(p));
        match self.has_watcher {
            true => self.watched_step(p, step),
            false => self.step_of(p, step),
        }
    }
}

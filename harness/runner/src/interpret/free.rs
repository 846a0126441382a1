//! Free schedules: each rank plays its steps as soon as its own responses have arrived, without an order across ranks.
//!
//! A single thread plays all ranks, so the order of the recorded events is the order in which they happened: if the response to an
//! operation was recorded before the request for another operation, the first operation ended before the other began.

use std::time::Instant;

use pmi_judge::Judge;
use pmi_scenario::ast::{ProcessAction, Role, Step, StepAction, StepTarget};
use pmi_wire::Proc;

use super::interpreter::{DeferredStep, Interpreter, WalkEnd};
use super::walk::Position;
use crate::party::SilenceMeaning;

impl Interpreter<'_> {
    /// Returns whether the schedule is free and the step must wait for its rank. If so, stores the step.
    pub(super) fn is_deferred(&mut self, step: &Step, place: Position<'_>) -> bool {
        let StepTarget::Ranks { group, set } = &step.target else { return false };
        let is_message = match (&step.action, step.role) {
            (StepAction::Process(action), _) => {
                matches!(action, ProcessAction::Exit(_) | ProcessAction::Kill(_))
            }
            (_, role) => matches!(role, Role::Client | Role::Server),
        };
        // Ranks of another group exist only after the response to their spawn, which is itself deferred.
        let exists = self.recorder.judge.size(*group) > 0 && *group < Proc::STRAY_GROUP;
        if !self.scenario.is_free || place.is_in_fragment || !is_message || !exists {
            return false;
        }
        for rank in self.members(*group, set) {
            let deferred = DeferredStep { step: step.clone(), line: place.line };
            self.deferred.entry(Proc { group: *group, rank }).or_default().push_back(deferred);
        }
        true
    }

    /// Plays the stored steps of all ranks.
    pub(super) fn play_deferred(&mut self) -> Result<(), WalkEnd> {
        while !self.deferred.is_empty() {
            let ranks: Vec<Proc> = self.deferred.keys().copied().collect();
            let mut is_waiting = true;
            for p in ranks {
                while self.can_continue(p) {
                    self.play_next(p)?;
                    is_waiting = false;
                }
            }
            if !is_waiting {
                continue;
            }
            let waiting: Vec<Proc> = self.deferred.keys().copied().collect();
            let over = |judge: &Judge| waiting.iter().any(|p| judge.has_input(*p));
            let deadline = Instant::now() + self.limits.step;
            if self.process_events(deadline, SilenceMeaning::ResponseDue, &over)?.is_some()
                && let Some(first) = waiting.first()
            {
                // No response will arrive. The step reports this.
                self.play_next(*first)?;
            }
        }
        Ok(())
    }

    /// Returns whether the next step of a rank need not wait for a message.
    fn can_continue(&self, p: Proc) -> bool {
        let next = self.deferred.get(&p).and_then(|steps| steps.front());
        next.is_some_and(|next| next.step.role != Role::Server || self.recorder.judge.has_input(p))
    }

    fn play_next(&mut self, p: Proc) -> Result<(), WalkEnd> {
        let Some(steps) = self.deferred.get_mut(&p) else { return Ok(()) };
        let next = steps.pop_front();
        if steps.is_empty() {
            self.deferred.remove(&p);
        }
        let Some(DeferredStep { step, line }) = next else { return Ok(()) };
        self.recorder.line = line;
        self.scope.begin_step();
        self.cite(&step);
        self.step_of_rank(p, &step)
    }
}

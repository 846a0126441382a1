//! Free schedules: each rank plays its steps as soon as its own responses have arrived, without an order across ranks.
//!
//! A single thread plays all ranks, so events are recorded in the order in which they happen. If the response to an operation was recorded
//! before the request for another operation, the first operation ended before the other began.
//!
//! Between two writes of one message (separated by `<|>` in a scenario), the other ranks continue. So a message whose last byte is held
//! back overlaps with the messages of the other ranks.

use std::time::{Duration, Instant};

use pmi_judge::Judge;
use pmi_judge::event::SilenceProof;
use pmi_scenario::ast::{ProcessAction, Role, Step, StepAction, StepTarget};
use pmi_wire::Proc;

use super::interpreter::{DeferredStep, Interpreter, WalkEnd};
use super::walk::Position;
use crate::party::SilenceMeaning;

/// Maximum time for which a message is held back until another rank can continue.
const HOLD_TIME: Duration = Duration::from_millis(1);

/// Time without a response after which a stopped process continues.
const PAUSE_TIME: Duration = Duration::from_millis(20);

impl Interpreter<'_> {
    /// In a free schedule, stores a step for each of its ranks, to be played later. Returns false if the step was not stored and must
    /// be played now.
    pub(super) fn is_deferred(&mut self, step: &Step, place: Position<'_>) -> bool {
        let StepTarget::Ranks { group, set } = &step.target else { return false };
        let is_message = match (&step.action, step.role) {
            (StepAction::Process(action), _) => {
                use ProcessAction::{Exit, Kill, Pause, PauseParent};
                matches!(action, Exit(_) | Kill(_) | Pause | PauseParent)
            }
            (_, role) => matches!(role, Role::Client | Role::Server),
        };
        // The steps of a spawned group are not deferred until the group exists. The deferred steps, including the one that expects the
        // response to the spawn request, must be played first.
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
            if self.play_ready()? {
                continue;
            }
            let waiting: Vec<Proc> = self.deferred.keys().copied().collect();
            let over = |judge: &Judge| waiting.iter().any(|p| judge.has_input(*p));
            let deadline = Instant::now() + self.limits.step;
            if let Some(proof) = self.process_events(deadline, SilenceMeaning::ResponseDue, &over)?
                && let Some(first) = waiting.first()
            {
                // No response will arrive. The first waiting step reports this, and need not wait again.
                self.is_overdue = proof == SilenceProof::Timeout;
                self.play_next(*first)?;
                self.is_overdue = false;
            }
        }
        Ok(())
    }

    /// Plays the steps of the ranks that need not wait, and returns whether any step was played.
    fn play_ready(&mut self) -> Result<bool, WalkEnd> {
        let ranks: Vec<Proc> = self.deferred.keys().copied().collect();
        let mut has_played = false;
        for p in ranks {
            while self.can_continue(p) {
                self.play_next(p)?;
                has_played = true;
            }
        }
        Ok(has_played)
    }

    /// Plays the next steps of the other ranks while a rank holds back the rest of its message.
    pub(super) fn hold_back(&mut self, p: Proc) -> Result<(), WalkEnd> {
        self.without(p, |others| {
            if !others.play_ready()? {
                others.await_input(HOLD_TIME)?;
                others.play_ready()?;
            }
            Ok(())
        })
    }

    /// Plays the steps of the other ranks until all of them are waiting.
    pub(super) fn play_others(&mut self, p: Proc) -> Result<(), WalkEnd> {
        self.without(p, |others| {
            while others.play_ready()? || others.await_input(PAUSE_TIME)? {}
            Ok(())
        })
    }

    /// Calls `play` while the steps of one rank are set aside. In a fixed schedule, does not call `play`.
    fn without(
        &mut self,
        p: Proc,
        play: impl FnOnce(&mut Self) -> Result<(), WalkEnd>,
    ) -> Result<(), WalkEnd> {
        let Some(steps) = self.deferred.remove(&p) else { return Ok(()) };
        let line = self.recorder.line;
        play(self)?;
        self.recorder.line = line;
        self.deferred.insert(p, steps);
        Ok(())
    }

    /// Waits until a rank can continue; returns false if no rank can continue within `time`.
    fn await_input(&mut self, time: Duration) -> Result<bool, WalkEnd> {
        let waiting: Vec<Proc> = self.deferred.keys().copied().collect();
        let over = |judge: &Judge| waiting.iter().any(|p| judge.has_input(*p));
        Ok(self.process_events(Instant::now() + time, SilenceMeaning::Expected, &over)?.is_none())
    }

    /// Returns whether a rank can play its next step without waiting for a message.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmi_faults::Config;
    use pmi_judge::event::EventKind;
    use pmi_scenario::ast::SourceFile;

    use crate::interpret::play;
    use crate::party::{MemoryParty, ScenarioLimits};

    /// Plays `steps` with two ranks after the fragment `joined`. Returns the writes from the first put until finalize, each as the rank and
    /// the last four characters.
    fn writes(head: &str, steps: &str) -> Vec<(u32, String)> {
        let suite = crate::suite::embedded().unwrap();
        let text =
            format!("# Test.\nrequires rfc13.get.value\nranks 2\n{head}\nuse joined\n{steps}use finalized\n");
        let source = Arc::new(SourceFile { path: "free.pmi".into(), text });
        let scenario = pmi_scenario::parse(source, "free").unwrap();
        let mut party = MemoryParty::launch(Config::default(), 2);
        let fragment = |name: &str| suite.fragment(name);
        let outcome = play(&scenario, &fragment, Vec::new(), &mut party, ScenarioLimits::default(), &mut ());
        assert_eq!((outcome.findings, outcome.scenario_error), (Vec::new(), None));
        let sent = outcome.events.iter().filter_map(|event| match &event.kind {
            EventKind::ToServer { proc, bytes } => {
                Some((proc.rank, String::from_utf8_lossy(&bytes.0).into_owned()))
            }
            _ => None,
        });
        let own = sent.skip_while(|(_, bytes)| !bytes.contains("cmd=put"));
        let end = |bytes: String| bytes.chars().skip(bytes.len().saturating_sub(4)).collect();
        own.take_while(|(_, bytes)| !bytes.contains("finalize"))
            .map(|(rank, bytes)| (rank, end(bytes)))
            .collect()
    }

    const PUTS: &str = "\
0  send    cmd=put kvsname=$kvs key=a value=1a
0  expect  cmd=put_result rc=ok
0  send    cmd=put kvsname=$kvs key=b value=1b
0  expect  cmd=put_result rc=ok
1  send    cmd=put kvsname=$kvs key=c value=1c
1  expect  cmd=put_result rc=ok
";

    #[test]
    fn free_schedule_lets_ranks_proceed_independently() {
        let ranks = |head| writes(head, PUTS).into_iter().map(|(rank, _)| rank).collect::<Vec<_>>();
        assert_eq!(ranks(""), [0, 0, 1]);
        assert_eq!(ranks("schedule free"), [0, 1, 0]);
    }

    #[test]
    fn other_ranks_send_between_the_pieces_of_a_message() {
        let steps = PUTS.replace("value=1a", "value=1a<|>");
        let all = writes("schedule free", &steps);
        assert_eq!(all.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 0, 0], "{all:?}");
        assert_eq!((&*all[0].1, &*all[2].1), ("e=1a", "\n"), "{all:?}");
        // Now each rank sends one of its messages in two pieces.
        let all = writes("schedule free", &steps.replace("value=1c", "value=1c<|>"));
        assert_eq!(all.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 1, 0, 0], "{all:?}");
    }

    #[test]
    fn fragment_starts_after_the_preceding_steps() {
        let put = "0  send    cmd=put kvsname=$kvs key=d value=1d\n0  expect  cmd=put_result rc=ok\n";
        let all = writes("schedule free", &format!("{PUTS}use barrier\n{put}"));
        let ends: Vec<&str> = all.iter().map(|(_, end)| &**end).collect();
        assert_eq!(ends, ["=1a\n", "=1c\n", "=1b\n", "_in\n", "_in\n", "=1d\n"]);
    }
}

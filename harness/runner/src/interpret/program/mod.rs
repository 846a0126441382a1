//! Plays a scenario against a program under test. The program's processes run independently, so the scenario is compiled into the server's
//! reactions to each process's requests, and into expectations for each process.

mod script;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interpret::walk::Fragments;
use crate::interpret::{EventSink, Recorder};
use crate::party::ScenarioLimits;
use crate::party::program::{FinishedJob, PlainBehavior, Program};
use pmi_judge::event::{AbandonReason, Difference, EventKind, PlainRun, ReceivedValues};
use pmi_judge::{Judge, LINE_LIMIT, PartyKind, ScenarioOutcome};
use pmi_scenario::ast::{Dialect, Scenario};
use pmi_wire::{Connection, Decoded, Direction, Proc, Version};
use script::Script;

/// Plays a scenario against a program.
pub fn play(
    program: &Program,
    scenario: &Scenario,
    fragments: Fragments<'_>,
    limits: ScenarioLimits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> ScenarioOutcome {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let mut recorder = Recorder::new(sink, Judge::new(PartyKind::Client, requires));
    let ranks = if scenario.server_setup.has_rank_count { scenario.ranks } else { program.ranks };
    match Script::new(scenario, fragments) {
        Ok(script) => ProgramRun { program, ranks, limits, interrupted }.play(&script, &mut recorder),
        Err(mistake) => {
            recorder.line = mistake.line;
            recorder.record(EventKind::Abandoned(AbandonReason::Mistake(mistake.message.to_string())));
        }
    }
    let Recorder { mut events, judge, .. } = recorder;
    events.shrink_to_fit();
    judge.finish(events)
}

/// Returns the dialect that a program uses: PMI-1 unless it offers version 2.
pub fn offered_dialect(program: &Program, limits: ScenarioLimits, interrupted: &AtomicBool) -> Dialect {
    let mut dialect = Dialect::default();
    // The connection of each process; `None` once its first line, the version offer, has arrived.
    let mut connections: BTreeMap<Proc, Option<Connection>> = BTreeMap::new();
    let mut record = |_, kind: EventKind| {
        let EventKind::ToServer { proc, bytes } = kind else { return };
        let open = connections.entry(proc).or_insert_with(|| Some(Connection::new(LINE_LIMIT)));
        let Some(connection) = open else { return };
        let arrivals = connection.read(Direction::ToServer, &bytes.0);
        let Some(first) = arrivals.first() else { return };
        let is_offer = |offer: &Decoded<'_>| offer.command() == Some(b"init");
        if let Some(version) =
            first.decode().ok().filter(is_offer).and_then(|offer| offer.number("pmi_version"))
        {
            dialect = dialect.max(Version { version, subversion: 0 }.dialect());
        }
        *open = None;
    };
    program.start(&Script::plain(), program.ranks, limits, interrupted, &mut record);
    dialect
}

struct ProgramRun<'a> {
    program: &'a Program,
    ranks: u32,
    limits: ScenarioLimits,
    interrupted: &'a AtomicBool,
}

impl ProgramRun<'_> {
    fn play(&self, script: &Script, recorder: &mut Recorder<'_>) {
        let measure = script.is_unusual() || script.needs_plain_output();
        let plain = measure.then(|| self.program.plain_runs(self.ranks, || self.plain()));
        if let Some(plain) = &plain {
            // The result of an interrupted plain run is not used.
            recorder.record(match self.interrupted.load(Ordering::Relaxed) {
                true => EventKind::Abandoned(AbandonReason::Interrupted),
                false => EventKind::PlainRun(plain.run.clone()),
            });
            if !plain.run.is_comparable() {
                return;
            }
        }
        if let Some((line, request)) = script.first_request() {
            recorder.line = line;
            recorder.record(EventKind::Expected(Box::new(request)));
        }
        let over = self.start(script, recorder);
        if let Err(error) = over.result {
            recorder.record(EventKind::Abandoned(AbandonReason::Unplayable(error.to_string())));
        } else if self.interrupted.load(Ordering::Relaxed) {
            recorder.record(EventKind::Abandoned(AbandonReason::Interrupted));
        }
        let Some(plain) = plain.as_ref().filter(|_| script.needs_plain_output()) else { return };
        let received_values = recorder.judge.received_values();
        let nothing = ReceivedValues::new();
        for (proc, seen) in over.output {
            if let Some(usual) = plain.output.as_ref().and_then(|output| output.get(&proc)) {
                let [before, now] = [&plain.received_values, &received_values]
                    .map(|received_values| received_values.get(&proc).unwrap_or(&nothing));
                let difference = Difference::between((usual, before), (&seen, now));
                recorder.record(EventKind::OutputCompared { proc, difference });
            }
        }
    }

    fn start(&self, script: &Script, recorder: &mut Recorder<'_>) -> FinishedJob {
        let mut record = |line, kind| {
            recorder.line = line;
            recorder.record(kind);
        };
        self.program.start(script, self.ranks, self.limits, self.interrupted, &mut record)
    }

    /// Returns the result of a plain run, in which the server behaves normally. Omits the output if it differs in a second plain run,
    /// because such output cannot be compared.
    fn plain(&self) -> PlainBehavior {
        let first = self.plain_once();
        let again = || self.plain_once();
        let same = first.run.is_comparable()
            && matches!(again(), PlainBehavior { run, output, .. } if run.is_comparable() && output == first.output);
        PlainBehavior { output: first.output.filter(|_| same), ..first }
    }

    /// Returns the result of one plain run. Includes the output if all of it was kept.
    fn plain_once(&self) -> PlainBehavior {
        let mut sink = ();
        let mut recorder = Recorder::new(&mut sink, Judge::without_scenario(PartyKind::Client));
        let over = self.start(&Script::plain(), &mut recorder);
        let run = match over.result {
            Ok(()) => recorder.judge.plain_run(),
            Err(error) => PlainRun::Failed(error.to_string()),
        };
        let output = Some(over.output).filter(|_| !over.output_cut);
        PlainBehavior { run, output, received_values: recorder.judge.received_values() }
    }
}

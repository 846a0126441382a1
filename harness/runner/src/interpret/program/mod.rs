//! What a scenario means for a program under test: it is written out into what the server does at the requests of each process,
//! since processes go their ways independently of each other, and into what each must come to.

mod script;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::interpret::walk::Fragments;
use crate::interpret::{EventSink, Recorder};
use crate::party::Limits;
use crate::party::program::{Output, Over, Plain, Program};
use pmi_judge::event::{Abandoned, Difference, PlainRun, What};
use pmi_judge::{Judge, Outcome, Side};
use pmi_scenario::ast::Scenario;
use script::Script;

/// Plays a scenario against a program.
pub fn play(
    program: &Program,
    scenario: &Scenario,
    fragments: Fragments<'_>,
    limits: Limits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Outcome {
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let mut recorder = Recorder::new(sink, Judge::new(Side::Client, requires));
    match Script::new(scenario, fragments) {
        Ok(script) => {
            let ranks = if scenario.serving.sized { scenario.ranks } else { program.ranks };
            play_script(program, &script, ranks, limits, interrupted, &mut recorder);
        }
        Err(mistake) => {
            recorder.line = mistake.line;
            recorder.record(What::Abandoned(Abandoned::Mistake(mistake.what.0)));
        }
    }
    let Recorder { mut events, judge, .. } = recorder;
    events.shrink_to_fit();
    judge.finish(events)
}

fn play_script(
    program: &Program,
    script: &Script,
    ranks: u32,
    limits: Limits,
    interrupted: &AtomicBool,
    recorder: &mut Recorder<'_>,
) {
    let measure = script.is_unusual() || script.compares();
    let runs = || plain_runs(program, ranks, limits, interrupted);
    let plain = measure.then(|| program.plain(ranks, runs));
    if let Some(plain) = &plain {
        recorder.record(What::PlainRun(plain.run.clone()));
        if plain.run != PlainRun::EndedWell {
            return;
        }
    }
    if let Some((line, request)) = script.first_request() {
        recorder.line = line;
        recorder.record(What::Expected(Box::new(request)));
    }
    let over = start(program, script, ranks, limits, interrupted, recorder);
    if let Err(error) = over.done {
        recorder.record(What::Abandoned(Abandoned::Unplayable(error.to_string())));
    } else if interrupted.load(Ordering::Relaxed) {
        recorder.record(What::Abandoned(Abandoned::Interrupted));
    }
    let Some(expected) = plain.as_ref().and_then(|plain| plain.output.as_ref()).filter(|_| script.compares())
    else {
        return;
    };
    for (proc, seen) in over.output {
        if let Some(expected) = expected.get(&proc) {
            let difference = Difference::between(expected, &seen);
            recorder.record(What::OutputCompared { proc, difference });
        }
    }
}

fn start(
    program: &Program,
    script: &Script,
    ranks: u32,
    limits: Limits,
    interrupted: &AtomicBool,
    recorder: &mut Recorder<'_>,
) -> Over {
    let mut record = |line, what| {
        recorder.line = line;
        recorder.record(what);
    };
    let part = |p, size| script.part(p, size);
    program.start(script.serving(&part), ranks, limits, interrupted, &mut record)
}

/// What plain runs come to; two are made, since output that changes from run to run is no measure.
fn plain_runs(program: &Program, ranks: u32, limits: Limits, interrupted: &AtomicBool) -> Plain {
    let (run, first) = plain_run(program, ranks, limits, interrupted);
    let again = (run == PlainRun::EndedWell).then(|| plain_run(program, ranks, limits, interrupted));
    let same = again.is_some_and(|(run, again)| run == PlainRun::EndedWell && again == first);
    Plain { run, output: first.filter(|_| same) }
}

/// What it came to, and its output if all of it was kept.
fn plain_run(
    program: &Program,
    ranks: u32,
    limits: Limits,
    interrupted: &AtomicBool,
) -> (PlainRun, Option<Output>) {
    let mut sink = ();
    let mut recorder = Recorder::new(&mut sink, Judge::watching(Side::Client));
    let over = start(program, &Script::plain(), ranks, limits, interrupted, &mut recorder);
    let run = match over.done {
        Ok(()) => recorder.judge.plain_run(),
        Err(error) => PlainRun::Failed(error.to_string()),
    };
    (run, Some(over.output).filter(|_| !over.output_cut))
}

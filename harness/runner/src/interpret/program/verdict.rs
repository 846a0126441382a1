//! What a program came to, held against what the scenario says.

use std::collections::BTreeMap;

use super::actor::Actor;
use super::script::{Expected, Script};
use super::{Plain, Played, Why, silent};
use pmi_judge::crash::Cause;
use pmi_judge::event::Exit;
use pmi_judge::own::{ENDS_WELL, HANG};
use pmi_judge::{Finding, Outcome, Side, Unjudged};
use pmi_scenario::ast::ExitPattern;
use pmi_wire::Proc;

/// Cited where a process that could not go on died of a signal that it sent itself or that a closed connection sent.
const EXITS: &str = "de-facto.client.exits";

/// A process and how it ended.
pub(super) fn end_of(p: Proc, actor: &Actor) -> String {
    let how = match (actor.ended, actor.exit) {
        (Some(Why::Abort), _) => "was ended with its program".to_owned(),
        (Some(Why::Script), _) => "was killed".to_owned(),
        (Some(Why::Stuck), _) => {
            format!("did not end: {}", actor.hung.as_deref().unwrap_or("it waited for another process"))
        }
        (None, Some(exit)) => format!("ended with {exit}"),
        (None, None) => "was not waited for".to_owned(),
    };
    format!("rank {p} {how}")
}

/// The outcome of a scenario with a mistake.
pub(super) fn wrong(error: (usize, String)) -> Outcome {
    Outcome {
        events: Vec::new(),
        findings: Vec::new(),
        under_test: Side::Client,
        hung: false,
        lifeless: false,
        crashed: None,
        left: Vec::new(),
        unjudged: None,
        scenario_error: Some(error),
    }
}

struct Judging<'a> {
    script: &'a Script,
    plain: Option<&'a Plain>,
    seq: u64,
    findings: Vec<Finding>,
}

pub(super) fn outcome(
    script: &Script,
    played: Played<'_>,
    plain: Option<&Plain>,
    interrupted: bool,
) -> Outcome {
    let Played { actors, aborts, spoke, mut recorder, done, left } = played;
    let mut findings = recorder.judge.take_watched();
    // Who ends badly need not finalize: that is how a client aborts.
    let badly = |p: Proc| actors.get(&p).is_none_or(|actor| actor.exit != Some(Exit::Code(0)));
    let leaves = |f: &Finding| f.requirement == "rfc13.abnf.c-finalize" && f.proc.is_none_or(badly);
    // Whoever was told names and limits that RFC 13 does not allow need not make sense of them.
    let misled = |f: &Finding| {
        const OF_WHAT_IT_WAS_TOLD: [&str; 3] =
            ["rfc13.kvs.name-used", "rfc13.put.length", "rfc13.get.key-length"];
        let reached = |p: Proc| actors.get(&p).is_some_and(|actor| actor.fired > 0);
        script.is_hostile()
            && OF_WHAT_IT_WAS_TOLD.contains(&f.requirement.as_str())
            && f.proc.is_some_and(reached)
    };
    findings.retain(|f| f.party == Side::Client && !leaves(f) && !misled(f));
    let seq = recorder.events.len() as u64;
    let mut judging = Judging { script, plain, seq, findings };
    let mut crashed = None;
    for (p, actor) in &actors {
        if let Some(found) = crash(actor) {
            let said = actor.broken_memory.as_ref().map(|said| format!(" ({said})")).unwrap_or_default();
            crashed.get_or_insert((format!("rank {p}{said}"), found));
        }
        judging.process(*p, actor, &actors, &aborts);
    }
    let hung = actors.values().any(|actor| actor.hung.is_some());
    let unjudged = match done {
        Err(error) => Some(Unjudged::Unplayable(error.to_string())),
        Ok(()) if interrupted => Some(Unjudged::Interrupted),
        // Where plain runs are a measure, it has spoken in them.
        Ok(()) if !spoke && plain.is_none() => Some(Unjudged::Unplayable(silent(&actors))),
        Ok(()) => None,
    };
    let mut events = recorder.events;
    events.shrink_to_fit();
    let mut findings = judging.findings;
    findings.sort_by_key(|f| f.seq);
    Outcome {
        events,
        findings,
        under_test: Side::Client,
        hung,
        lifeless: !spoke && plain.is_none(),
        crashed,
        left,
        unjudged,
        scenario_error: None,
    }
}

/// The signal of which it crashed.
fn crash(actor: &Actor) -> Option<i32> {
    match actor.exit {
        Some(Exit::Signal(signal)) if !actor.was_ended() => {
            (Cause::of(signal) == Cause::Fault || actor.broken_memory.is_some()).then_some(signal)
        }
        _ => None,
    }
}

impl Judging<'_> {
    fn find(&mut self, p: Proc, id: &str, line: usize, expected: &str, seen: String) {
        self.findings.push(Finding {
            requirement: id.to_owned(),
            party: Side::Client,
            proc: Some(p),
            seq: self.seq,
            line,
            at_most: None,
            expected: expected.to_owned(),
            seen,
            kind: None,
        });
    }

    fn process(&mut self, p: Proc, actor: &Actor, actors: &BTreeMap<Proc, Actor>, aborts: &[(Proc, String)]) {
        if let Some(how) = &actor.hung {
            let line = actor.rules.iter().rev().map(|rule| rule.line).find(|_| actor.fired > 0).unwrap_or(0);
            return self.find(p, HANG, line, "the process ends", how.clone());
        }
        // What it was to go through never came to it.
        if !actor.rules.is_empty() && actor.fired == 0 {
            return;
        }
        let script = self.script;
        for expectation in script.expectations(p) {
            let cites = expectation.cites.as_str();
            let (line, id) = (expectation.line, if script.is_unusual() { cites } else { ENDS_WELL });
            match expectation.what {
                Expected::SameOutput => self.same(p, actor, id, line),
                // That processes do not end is looked for always.
                Expected::Over => {}
                Expected::Copes => self.copes(p, actor, id, line),
                Expected::Exit(pattern) => self.exit(p, actor, pattern, id, line, actors, aborts),
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, and each is a different thing")]
    fn exit(
        &mut self,
        p: Proc,
        actor: &Actor,
        pattern: ExitPattern,
        id: &str,
        line: usize,
        actors: &BTreeMap<Proc, Actor>,
        aborts: &[(Proc, String)],
    ) {
        if pattern == ExitPattern::NonZero && actor.wants_abort {
            return;
        }
        if actor.was_ended() {
            // A program that is aborted is told of once, at the process that brought it about.
            let by = aborts.iter().find(|(by, _)| *by == p);
            let others =
                actors.values().any(|a| a.exit.is_some() && !a.was_ended() && a.exit != Some(Exit::Code(0)));
            if let (ExitPattern::Code(_), Some((_, reason)), false) = (pattern, by, others) {
                self.find(p, id, line, "exit status 0", format!("its program was aborted: {reason}"));
            }
            return;
        }
        let Some(exit) = actor.exit else { return };
        let (fits, expected) = match pattern {
            ExitPattern::Any => (true, "an end".to_owned()),
            ExitPattern::NonZero => (exit != Exit::Code(0), "an exit status that is not 0".to_owned()),
            ExitPattern::Code(code) => (exit == Exit::Code(code.into()), format!("exit status {code}")),
        };
        if !fits {
            self.find(p, id, line, &expected, exit.to_string());
        } else {
            self.signal(p, actor, line);
        }
    }

    /// A process that ends is to say so by an exit status.
    fn signal(&mut self, p: Proc, actor: &Actor, line: usize) {
        if let Some(exit @ Exit::Signal(_)) = actor.exit
            && crash(actor).is_none()
        {
            self.find(p, EXITS, line, "an exit status", exit.to_string());
        }
    }

    fn copes(&mut self, p: Proc, actor: &Actor, id: &str, line: usize) {
        match actor.exit {
            _ if actor.was_ended() => {}
            Some(Exit::Code(0)) => self.same(p, actor, id, line),
            _ => self.signal(p, actor, line),
        }
    }

    fn same(&mut self, p: Proc, actor: &Actor, id: &str, line: usize) {
        let Some(output) = self.plain.and_then(|plain| plain.output.as_ref()) else { return };
        let Some(expected) = output.get(&p) else { return };
        // How it ended is told elsewhere; what was cut short cannot be the same.
        if actor.was_ended() || actor.exit != Some(Exit::Code(0)) || *expected == actor.output {
            return;
        }
        let (expected, seen) = difference(expected, &actor.output);
        self.find(p, id, line, &format!("the output of a plain run, {expected}"), seen);
    }
}

/// The first lines that differ.
fn difference(expected: &[u8], seen: &[u8]) -> (String, String) {
    let mut pairs = expected.split(|b| *b == b'\n').zip(seen.split(|b| *b == b'\n'));
    let show = |line: &[u8]| format!("\"{}\"", line[..line.len().min(200)].escape_ascii());
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => (show(a), show(b)),
        None => (format!("{} bytes", expected.len()), format!("{} bytes", seen.len())),
    }
}

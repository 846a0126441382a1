//! What is wrong with what a program or a library did.
//!
//! Whoever has been told nonsense may fail as it likes. It must not crash, it must end, and what it still says must be PMI. A
//! process that waits for something that we owe it does not hang, nor does one that waits for a process that we have misled.

use pmi_judge::event::{Event, Exit, What};
use pmi_judge::own::HANG;
use pmi_judge::{Finding, LINE_LIMIT, Outcome, SeenKind, Severity};
use pmi_runner::interpret::KEPT;
use pmi_scenario::ast::{Action, Piece, Role, Step, Stmt, Template, UnderTest};
use pmi_scenario::requirement::Catalogue;
use pmi_wire::{Body, Framer, Operation, Proc, Request, Response, ValueReading};

use super::distinct;
use crate::case::{Case, sent};
use crate::failure::{After, AnswerKind, Asked, CrashCause, Failure, FailureKey, MessageKind, signal_name};

/// Everything that is wrong, the worst first, each once.
pub(crate) fn failures(case: &Case, outcome: &Outcome, catalogue: &Catalogue) -> Vec<Failure> {
    let who = if case.tests() == UnderTest::Client { "client" } else { "library" };
    let events = &outcome.events;
    let mut all = Vec::new();
    if let Some((name, signal)) = &outcome.crashed {
        let dead = events.iter().find_map(|e| match e.what {
            What::Exited { proc, exit: Exit::Signal(s) } if s == *signal => Some((proc, e.seq)),
            _ => None,
        });
        let after = dead.map_or(After::NoRequest, |(proc, seq)| concerned(events, proc, seq));
        let call = dead.and_then(|(proc, seq)| in_call(events, proc, seq)).map(|(_, name)| name.to_owned());
        let of = signal_name(*signal);
        all.push(Failure {
            what: format!("{name} died of signal {signal} ({of}); last out of the ordinary was {after}"),
            key: FailureKey::Crash {
                who: who.to_owned(),
                cause: CrashCause::Signal(*signal),
                call,
                after: Some(after),
            },
            requirement: None,
        });
    }
    // What a process does after it has broken a rule follows from that.
    let mut first = std::collections::HashSet::new();
    for finding in &outcome.findings {
        let hang = finding.requirement == HANG || outcome.hung && is_hang(finding, outcome);
        if hang && is_excused(finding, case, events) || !hang && is_ours(finding, case, events) {
            continue;
        }
        let severity = catalogue.get(&finding.requirement).map_or(Severity::Fail, |r| r.severity());
        if finding.at_most.map_or(severity, |most| severity.min(most)) < Severity::Fail {
            continue;
        }
        if !hang && finding.proc.is_some_and(|p| !first.insert(p)) {
            continue;
        }
        let after = finding.proc.map_or(After::NoRequest, |p| concerned(events, p, finding.seq));
        let what = format!(
            "{}: expected {}; seen: {}; last out of the ordinary was {after}",
            finding.requirement, finding.expected, finding.seen
        );
        let who = Some(who);
        let key = if hang {
            let call = finding.proc.and_then(|p| in_call(events, p, finding.seq));
            let call = call.map(|(_, function)| function.to_owned());
            FailureKey::Hang { who, requirement: None, call, after }
        } else {
            FailureKey::Rule { who, requirement: finding.requirement.clone(), after }
        };
        let requirement = catalogue.get(&finding.requirement).map(|r| r.id.clone());
        all.push(Failure { key, what, requirement });
    }
    distinct(all)
}

/// The call of a library that a process was in, and when it began.
fn in_call(events: &[Event], proc: Proc, until: u64) -> Option<(u64, &str)> {
    events.iter().rev().filter(|e| e.seq <= until).find_map(|e| match &e.what {
        What::Called { proc: by, function, .. } if *by == proc => Some((e.seq, function.as_str())),
        _ => None,
    })
}

/// The answer that a process had last, of those in the call that it was in.
fn concerned(events: &[Event], proc: Proc, until: u64) -> After {
    let began = in_call(events, proc, until).map_or(0, |(seq, _)| seq);
    Trail::of(events.iter().filter(|e| e.seq >= began && e.seq <= until), proc).concerned()
}

/// Of a library, what it did not come back from is the last thing that its scenario found.
fn is_hang(finding: &Finding, outcome: &Outcome) -> bool {
    finding.line > 0 && outcome.findings.iter().rfind(|f| f.line > 0) == Some(finding)
}

/// Whether what somebody waits for is for us to do, or for a process that we have kept from doing it.
fn is_excused(finding: &Finding, case: &Case, events: &[Event]) -> bool {
    let killed = events.iter().any(|e| matches!(e.what, What::Ended { ours: true, .. }));
    if killed || misleads(case) {
        return true;
    }
    let mut procs: Vec<Proc> = events
        .iter()
        .filter_map(|e| match e.what {
            What::Started { proc, .. } => Some(proc),
            _ => None,
        })
        .collect();
    procs.retain(|p| !events.iter().any(|e| matches!(e.what, What::Exited { proc, .. } if proc == *p)));
    let trail = |p: Proc| Trail::of(events, p);
    let Some(own) = finding.proc.map(trail) else { return false };
    own.is_owed() || !own.cut_off && procs.iter().any(|p| Some(*p) != finding.proc && trail(*p).is_owed())
}

/// A request that a case answers, as it names it.
fn answered(stmt: &Stmt) -> Option<&Template> {
    match stmt {
        Stmt::Step(Step { role: Role::Client, action: Action::Message { lines, .. }, .. }) => lines.first(),
        _ => None,
    }
}

/// Whether a named request has this value of a key.
fn names(pattern: &Template, key: &str, value: &str) -> bool {
    pattern.message_fields().iter().any(|f| f.key == key && f.value.literal().as_deref() == Some(value))
}

/// Whether something is told that looks right and is not: nobody can know better.
fn misleads(case: &Case) -> bool {
    let mut mapping = false;
    case.scenario.body.iter().any(|stmt| {
        if let Some(pattern) = answered(stmt) {
            mapping = names(pattern, "key", "PMI_process_mapping");
        }
        sent(stmt, case.tests()).into_iter().flatten().any(|line| is_plausible(line, mapping))
    })
}

fn is_plausible(line: &Template, mapping: bool) -> bool {
    let mut text = Vec::new();
    for piece in &line.pieces {
        match piece {
            Piece::Literal { bytes, .. } => text.extend_from_slice(bytes),
            // Any letters will do.
            _ => text.push(b'x'),
        }
    }
    let Ok(response) = Response::parse(&text, ValueReading::ToEndOfLine) else { return false };
    response.is_success()
        && match response.body {
            Body::Get(Some(_)) => !mapping,
            Body::Kvsname(Some(_)) | Body::Barrier => true,
            _ => false,
        }
}

/// Whether a rule is broken by what we have said: it is our answer that lets somebody out of a barrier, and whoever is told
/// another name uses it. Whoever gets what it has not asked for may have it unread while it makes the next request, or takes
/// it for the answer to that. And what a protocol error is RFC 13 leaves open: an answer that has the command which is due may
/// be taken for one.
fn is_ours(finding: &Finding, case: &Case, events: &[Event]) -> bool {
    let answers = |op: Operation| {
        case.scenario.body.iter().filter_map(answered).any(|pattern| names(pattern, "cmd", op.request_cmd()))
    };
    if finding.kind == Some(SeenKind::EarlyBarrierExit) && answers(Operation::Barrier) {
        return true;
    }
    let id = finding.requirement.as_str();
    if follows_from_names(id) && answers(Operation::Kvsname) {
        return true;
    }
    let Some(proc) = finding.proc else { return false };
    let trail = Trail::of(events.iter().filter(|e| e.seq <= finding.seq), proc);
    let detects = ["rfc13.error.close", "rfc13.error.abort", "rfc13.init.complete-before-others"];
    let wrong = [AnswerKind::Unreadable, AnswerKind::Other, AnswerKind::Refused];
    trail.has(&[AnswerKind::Surplus]) || detects.contains(&id) && !trail.has(&wrong)
}

/// What a request breaks that carries the name that we have told.
fn follows_from_names(id: &str) -> bool {
    ["rfc13.kvs.name-used", "rfc13.wire.tuples", "rfc13.wire.newline"].contains(&id)
        || id.starts_with("rfc13.abnf.")
}

/// What a process asked and was answered.
#[derive(Default)]
struct Trail {
    pairs: Vec<(Asked, AnswerKind)>,
    /// A request without an answer.
    open: Option<(MessageKind, Option<Operation>)>,
    /// The connection is over.
    closed: bool,
    /// It was over when the process wanted something of it.
    cut_off: bool,
}

impl Trail {
    fn of<'a>(events: impl IntoIterator<Item = &'a Event>, proc: Proc) -> Self {
        let mut trail = Self::default();
        let mut framer = Framer::new(LINE_LIMIT);
        for event in events {
            match &event.what {
                What::ToServer { proc: by, bytes } if *by == proc => {
                    let last = bytes.0.strip_suffix(b"\n").unwrap_or(&bytes.0);
                    let last = last.rsplit(|b| *b == b'\n').next().unwrap_or_default();
                    let spawns = last == b"endcmd" || last.starts_with(b"mcmd=");
                    let request = Request::parse(last, ValueReading::ToEndOfLine).ok();
                    let op = request.map(|r| r.operation()).or(spawns.then_some(Operation::Spawn));
                    trail.open = Some((MessageKind::of(&bytes.0), op));
                    trail.cut_off |= trail.closed;
                }
                What::FromServer { proc: to, bytes } if *to == proc => {
                    framer.push(&bytes.0);
                    while let Some(line) = framer.next_line() {
                        trail.answered(line.ok());
                    }
                    // Of a very long write the end is not in the transcript.
                    if framer.partial().len() >= KEPT {
                        framer = Framer::new(LINE_LIMIT);
                        trail.answered(None);
                    }
                }
                What::ClosedByServer { proc: of } if *of == proc => {
                    trail.closed = true;
                    let how = if framer.partial().is_empty() { AnswerKind::Close } else { AnswerKind::Half };
                    trail.cut_off |= trail.open.is_some();
                    let asked =
                        trail.open.take().map_or(Asked::NothingMore, |(kind, _)| Asked::Request(kind));
                    trail.pairs.push((asked, how));
                }
                What::ClosedByClient { proc: by } | What::Ended { proc: by, .. } if *by == proc => {
                    trail.closed = true;
                }
                _ => {}
            }
        }
        trail
    }

    /// A line has come, which may be too long to be looked at.
    fn answered(&mut self, line: Option<&[u8]>) {
        let pair = match self.open.take() {
            Some((asked, op)) => {
                (Asked::Request(asked), line.map_or(AnswerKind::Long, |line| answer(op, line)))
            }
            None => (Asked::Nothing, AnswerKind::Surplus),
        };
        self.pairs.push(pair);
    }

    /// Whether some answer was of these kinds.
    fn has(&self, kinds: &[AnswerKind]) -> bool {
        self.pairs.iter().any(|(_, answer)| kinds.contains(answer))
    }

    /// Whether it has asked, and is still to be answered by us.
    fn is_owed(&self) -> bool {
        self.open.is_some() && !self.closed
    }

    /// The last answer that was out of the ordinary, else the last one.
    fn concerned(&self) -> After {
        let unusual = self.pairs.iter().rfind(|(_, answer)| *answer != AnswerKind::Proper);
        unusual.or(self.pairs.last()).map_or(After::NoRequest, |(asked, answer)| After::Answered {
            asked: asked.clone(),
            answer: *answer,
        })
    }
}

/// What kind of answer a line is.
fn answer(op: Option<Operation>, line: &[u8]) -> AnswerKind {
    let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) else {
        let due = op.and_then(Operation::response_cmd).map(|cmd| format!("cmd={cmd}"));
        let has = |due: String| line.split(u8::is_ascii_whitespace).any(|word| word == due.as_bytes());
        return if due.is_some_and(has) { AnswerKind::Garbled } else { AnswerKind::Unreadable };
    };
    if Some(response.operation()) != op {
        return AnswerKind::Other;
    }
    if !response.is_success() {
        return AnswerKind::Refused;
    }
    match response.body {
        Body::Init(None)
        | Body::Maxes(None)
        | Body::Universe(None)
        | Body::Appnum(None)
        | Body::Kvsname(None)
        | Body::Get(None)
        | Body::Lookup(None)
        | Body::Spawn(None) => AnswerKind::Bare,
        Body::Maxes(Some(maxes)) if is_unusual(&maxes) => AnswerKind::UnusualLimits,
        _ => AnswerKind::Proper,
    }
}

/// Limits below what any process manager has, or far beyond.
fn is_unusual(maxes: &pmi_wire::Maxes) -> bool {
    [maxes.kvsname_max, maxes.keylen_max, maxes.vallen_max].iter().any(|n| !(16..=1 << 20).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_steps::{asks as answers, says};
    use crate::fields::text;
    use crate::mutate::Said;
    use pmi_judge::Side;
    use pmi_judge::event::Bytes;

    const ZERO: Proc = Proc { group: 0, rank: 0 };
    const ONE: Proc = Proc { group: 0, rank: 1 };

    fn asks(proc: Proc, line: &str) -> What {
        What::ToServer { proc, bytes: Bytes(format!("{line}\n").into_bytes()) }
    }

    fn told(proc: Proc, line: &str) -> What {
        What::FromServer { proc, bytes: Bytes(format!("{line}\n").into_bytes()) }
    }

    fn events(all: Vec<What>) -> Vec<Event> {
        let started = [ZERO, ONE].map(|proc| What::Started {
            proc,
            env: Default::default(),
            args: Vec::new(),
            bad_fd: None,
        });
        (0..).zip(started.into_iter().chain(all)).map(|(seq, what)| Event::new(seq, what)).collect()
    }

    fn case(pattern: &str, said: &str) -> Case {
        let said = Said::Write(vec![text(said)], Default::default());
        Case::new(UnderTest::Client, 2, vec![answers(None, text(pattern), false), says(None, said)])
    }

    fn hang(proc: Proc, events: &[Event]) -> Finding {
        Finding {
            requirement: HANG.to_owned(),
            party: Side::Client,
            proc: Some(proc),
            seq: events.len() as u64,
            line: 1,
            at_most: None,
            expected: String::new(),
            seen: String::new(),
            kind: None,
        }
    }

    #[test]
    fn a_process_that_waits_for_us_does_not_hang() {
        let excused = |says: &str, all: Vec<What>| {
            let events = events(all);
            is_excused(&hang(ZERO, &events), &case("cmd=get", says), &events)
        };
        let get = || asks(ZERO, "cmd=get kvsname=k key=a");
        let half = What::FromServer { proc: ZERO, bytes: Bytes(b"cmd=get_res".to_vec()) };
        // It waits for the rest of the answer; once the connection has ended, it waits for nothing.
        assert!(excused("cmd=get_res", vec![get(), half.clone()]));
        assert!(!excused("cmd=get_res", vec![get(), half, What::ClosedByServer { proc: ZERO }]));
        // It has its answer, and does nothing more; unless another process is kept by us from whatever it waits for.
        assert!(!excused("no", vec![get(), told(ZERO, "no")]));
        let other = vec![get(), told(ZERO, "no"), asks(ONE, "cmd=barrier_in")];
        assert!(excused("no", other));
        // A wrong value that looks right misleads, a mapping is for the program to read with care.
        let found = "cmd=get_result rc=0 value=x";
        assert!(excused(found, vec![get(), told(ZERO, found)]));
        let all = events(vec![get(), told(ZERO, found)]);
        assert!(!is_excused(&hang(ZERO, &all), &case("cmd=get key=PMI_process_mapping", found), &all));
    }

    #[test]
    fn a_key_tells_the_request_and_its_answer() {
        for (answer, expected) in [
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=0", "get_maxes-unusual"),
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024", "get_maxes-ok"),
            ("cmd=maxes rc=0", "get_maxes-bare"),
            ("cmd=maxes rc=-1", "get_maxes-refused"),
            ("cmd=appnum rc=0 appnum=0", "get_maxes-other"),
            ("= cmd=maxes rc=0", "get_maxes-garbled"),
            ("no", "get_maxes-unreadable"),
        ] {
            let all = events(vec![asks(ZERO, "cmd=get_maxes"), told(ZERO, answer)]);
            assert_eq!(Trail::of(&all, ZERO).concerned().to_string(), expected, "{answer}");
        }
        let all = events(vec![told(ZERO, "no"), asks(ZERO, "cmd=get_maxes")]);
        let trail = Trail::of(&all, ZERO);
        assert!(trail.has(&[AnswerKind::Surplus]) && trail.is_owed());
    }
}

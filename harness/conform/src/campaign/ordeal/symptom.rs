//! What is wrong with what a program or a library did, and the bucket it belongs in: who, what, after which answer to which
//! request.
//!
//! Whoever has been told nonsense may fail as it likes. It must not crash, it must end, and what it still says must be PMI. Who
//! waits for what we owe does not hang, nor does who waits for a process that we have led astray.

use pmi_wire::{Body, LineFramer, Operation, Request, Response, ValueReading};

use super::super::session::{Line, Piece};
use super::super::symptom::{Symptom, kind, slug, symptom};
use super::{Ordeal, Step};
use crate::event::{Event, Exit, Proc, What};
use crate::judge::{Finding, Severity};
use crate::lang::UnderTest;
use crate::play::{KEPT, Outcome};
use crate::requirement::Catalogue;
use crate::run::HANG;

/// Longest line that is read.
const LINE_LIMIT: usize = 1 << 20;
/// A line that came without having been asked for.
const SURPLUS: &str = "surplus";

/// Everything that is wrong, the worst first, one of each bucket.
pub(super) fn symptoms(ordeal: &Ordeal, outcome: &Outcome, catalogue: &Catalogue) -> Vec<Symptom> {
    let who = if ordeal.tests == UnderTest::Client { "client" } else { "library" };
    let events = &outcome.events;
    let mut all = Vec::new();
    if let Some((name, signal)) = &outcome.crashed {
        let signal_name = signal_hook::low_level::signal_name(*signal).unwrap_or("signal");
        let dead = events.iter().find_map(|e| match e.what {
            What::Exited { proc, exit: Exit::Signal(s) } if s == *signal => Some((proc, e.seq)),
            _ => None,
        });
        let after = dead.map_or("no-request".to_owned(), |(proc, seq)| concerned(events, proc, seq));
        let call = dead.and_then(|(proc, seq)| in_call(events, proc, seq)).map(|(_, function)| function);
        let parts: Vec<&str> = ["crash", who, signal_name].into_iter().chain(call).chain([&*after]).collect();
        all.push(symptom(
            &parts,
            format!("{name} died of signal {signal} ({signal_name}); last out of the ordinary was {after}"),
        ));
    }
    // What a process does after it has broken a rule follows from that.
    let mut first = std::collections::HashSet::new();
    for finding in &outcome.findings {
        let hang = finding.requirement == HANG || outcome.hung && is_hang(finding, outcome);
        if hang && is_excused(finding, ordeal, events) || !hang && is_ours(finding, ordeal, events) {
            continue;
        }
        let severity = catalogue.get(&finding.requirement).map_or(Severity::Fail, |r| r.severity());
        if finding.at_most.map_or(severity, |most| severity.min(most)) < Severity::Fail {
            continue;
        }
        if !hang && finding.proc.is_some_and(|p| !first.insert(p)) {
            continue;
        }
        let after = finding.proc.map_or("no-request".to_owned(), |p| concerned(events, p, finding.seq));
        let call = finding
            .proc
            .filter(|_| hang)
            .and_then(|p| in_call(events, p, finding.seq))
            .map(|(_, function)| function);
        let requirement = catalogue.get(&finding.requirement).map(|r| r.id.clone());
        let what = format!(
            "{}: expected {}; seen: {}; last out of the ordinary was {after}",
            finding.requirement, finding.expected, finding.seen
        );
        let sort = if hang { "hang" } else { "rule" };
        let id = requirement.as_deref().filter(|_| !hang);
        let parts: Vec<&str> = [sort, who].into_iter().chain(id).chain(call).chain([&*after]).collect();
        let mut found = symptom(&parts, what);
        found.requirement = requirement;
        all.push(found);
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|s| seen.insert(s.bucket.clone()));
    all
}

/// The call of a library that a process was in, and when it began.
fn in_call(events: &[Event], proc: Proc, until: u64) -> Option<(u64, &str)> {
    events.iter().rev().filter(|e| e.seq <= until).find_map(|e| match &e.what {
        What::Called { proc: by, function, .. } if *by == proc => Some((e.seq, function.as_str())),
        _ => None,
    })
}

/// The answer that a process had last, of those in the call that it was in.
fn concerned(events: &[Event], proc: Proc, until: u64) -> String {
    let began = in_call(events, proc, until).map_or(0, |(seq, _)| seq);
    let since: Vec<Event> = events.iter().filter(|e| e.seq >= began).cloned().collect();
    Trail::of(&since, proc, until).concerned()
}

/// Of a library, what it did not come back from is the last thing that its scenario found.
fn is_hang(finding: &Finding, outcome: &Outcome) -> bool {
    finding.line > 0 && outcome.findings.iter().rfind(|f| f.line > 0) == Some(finding)
}

/// Whether what somebody waits for is for us to do, or for a process that we have kept from doing it.
fn is_excused(finding: &Finding, ordeal: &Ordeal, events: &[Event]) -> bool {
    let killed = events.iter().any(|e| matches!(e.what, What::Ended { ours: true, .. }));
    if killed || misleads(ordeal) {
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
    let trail = |p: Proc| Trail::of(events, p, u64::MAX);
    let Some(own) = finding.proc.map(trail) else { return false };
    own.is_owed() || !own.cut_off && procs.iter().any(|p| Some(*p) != finding.proc && trail(*p).is_owed())
}

/// Whether something is told that looks right and is not: nobody can know better.
fn misleads(ordeal: &Ordeal) -> bool {
    let mut mapping = false;
    ordeal.steps.iter().any(|step| match step {
        Step::Else { text, .. } => {
            if text.starts_with("C:") {
                mapping = text.contains("PMI_process_mapping");
            }
            false
        }
        Step::Say { lines, .. } => lines.iter().any(|line| is_plausible(line, mapping)),
        Step::Head(_) => false,
    })
}

fn is_plausible(line: &Line, mapping: bool) -> bool {
    let mut text = Vec::new();
    for piece in line {
        match piece {
            Piece::Bytes(bytes) => text.extend_from_slice(bytes),
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
fn is_ours(finding: &Finding, ordeal: &Ordeal, events: &[Event]) -> bool {
    let answers = |cmd: &str| {
        let names = |step: &Step| matches!(step, Step::Else { text, .. } if text.starts_with("C:") && text.contains(cmd));
        ordeal.steps.iter().any(names)
    };
    match finding.requirement.as_str() {
        "rfc13.api.barrier" | "rfc13.barrier.all-in-before-any-out" => {
            finding.seen.contains("before rank") && answers("barrier_in")
        }
        id if follows_from_names(id) && answers("get_my_kvsname") => true,
        id => {
            let Some(trail) = finding.proc.map(|p| Trail::of(events, p, finding.seq)) else { return false };
            let detects = ["rfc13.error.close", "rfc13.error.abort", "rfc13.init.complete-before-others"];
            trail.has(&[SURPLUS]) || detects.contains(&id) && !trail.has(&["unreadable", "other", "refused"])
        }
    }
}

/// What a request breaks that carries the name that we have told.
fn follows_from_names(id: &str) -> bool {
    ["rfc13.kvs.name-used", "rfc13.wire.tuples", "rfc13.wire.newline"].contains(&id)
        || id.starts_with("rfc13.abnf.")
}

/// What a process asked and was answered.
#[derive(Default)]
struct Trail {
    pairs: Vec<(String, &'static str)>,
    /// A request without an answer.
    open: Option<(String, Option<Operation>)>,
    /// The connection is over.
    closed: bool,
    /// It was over when the process wanted something of it.
    cut_off: bool,
}

impl Trail {
    fn of(events: &[Event], proc: Proc, until: u64) -> Self {
        let mut trail = Self::default();
        let mut framer = LineFramer::new(LINE_LIMIT);
        for event in events.iter().filter(|e| e.seq <= until) {
            match &event.what {
                What::ToServer { proc: by, bytes } if *by == proc => {
                    let last = bytes.0.strip_suffix(b"\n").unwrap_or(&bytes.0);
                    let last = last.rsplit(|b| *b == b'\n').next().unwrap_or_default();
                    let spawns = last == b"endcmd" || last.starts_with(b"mcmd=");
                    let request = Request::parse(last, ValueReading::ToEndOfLine).ok();
                    let op = request.map(|r| r.operation()).or(spawns.then_some(Operation::Spawn));
                    trail.open = Some((kind(&bytes.0), op));
                    trail.cut_off |= trail.closed;
                }
                What::FromServer { proc: to, bytes } if *to == proc => {
                    framer.push(&bytes.0);
                    while let Some(line) = framer.next_line() {
                        trail.answered(line.ok());
                    }
                    // Of a very long write the end is not in the transcript.
                    if framer.partial().len() >= KEPT {
                        framer = LineFramer::new(LINE_LIMIT);
                        trail.answered(None);
                    }
                }
                What::ClosedByServer { proc: of } if *of == proc => {
                    trail.closed = true;
                    let half = if framer.partial().is_empty() { "close" } else { "half" };
                    let (asked, cut) =
                        trail.open.take().map_or(("between".to_owned(), false), |(asked, _)| (asked, true));
                    trail.pairs.push((asked, half));
                    trail.cut_off |= cut;
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
            Some((asked, op)) => (asked, line.map_or("long", |line| answer(op, line))),
            None => ("start".to_owned(), SURPLUS),
        };
        self.pairs.push(pair);
    }

    /// Whether some answer was of these kinds.
    fn has(&self, kinds: &[&str]) -> bool {
        self.pairs.iter().any(|(_, answer)| kinds.contains(answer))
    }

    /// Whether it has asked, and is still to be answered by us.
    fn is_owed(&self) -> bool {
        self.open.is_some() && !self.closed
    }

    /// The last answer that was out of the ordinary, else the last one.
    fn concerned(&self) -> String {
        let odd = self.pairs.iter().rfind(|(_, answer)| *answer != "ok");
        let pair = odd.or(self.pairs.last());
        pair.map_or("no-request".to_owned(), |(asked, answer)| slug(&format!("{asked}-{answer}")))
    }
}

/// What kind of answer a line is.
fn answer(op: Option<Operation>, line: &[u8]) -> &'static str {
    let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) else {
        let due = op.and_then(Operation::response_cmd).map(|cmd| format!("cmd={cmd}"));
        let has = |due: String| line.split(u8::is_ascii_whitespace).any(|word| word == due.as_bytes());
        return if due.is_some_and(has) { "garbled" } else { "unreadable" };
    };
    if Some(response.operation()) != op {
        return "other";
    }
    if !response.is_success() {
        return "refused";
    }
    match response.body {
        Body::Init(None)
        | Body::Maxes(None)
        | Body::Universe(None)
        | Body::Appnum(None)
        | Body::Kvsname(None)
        | Body::Get(None)
        | Body::Lookup(None)
        | Body::Spawn(None) => "bare",
        Body::Maxes(Some(maxes)) if is_odd(&maxes) => "odd",
        _ => "ok",
    }
}

/// Limits below what any process manager has, or far beyond.
fn is_odd(maxes: &pmi_wire::Maxes) -> bool {
    [maxes.kvsname_max, maxes.keylen_max, maxes.vallen_max].iter().any(|n| !(16..=1 << 20).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;
    use crate::judge::Party;

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
        (0..).zip(started.into_iter().chain(all)).map(|(seq, what)| Event { seq, time_us: 0, what }).collect()
    }

    fn ordeal(says: &str) -> Ordeal {
        let steps = vec![
            Step::Else { whom: None, text: "C: cmd=get".into() },
            Step::Say { whom: None, lines: vec![vec![says.into()]], mode: Default::default() },
        ];
        Ordeal { tests: UnderTest::Client, ranks: 2, steps }
    }

    fn hang(proc: Proc, events: &[Event]) -> Finding {
        Finding {
            requirement: HANG.to_owned(),
            party: Party::Client,
            proc: Some(proc),
            seq: events.len() as u64,
            line: 1,
            at_most: None,
            expected: String::new(),
            seen: String::new(),
        }
    }

    #[test]
    fn who_waits_for_us_does_not_hang() {
        let excused = |says: &str, all: Vec<What>| {
            let events = events(all);
            is_excused(&hang(ZERO, &events), &ordeal(says), &events)
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
        // A wrong value that looks right leads astray, a mapping is for the program to read with care.
        assert!(excused(
            "cmd=get_result rc=0 value=x",
            vec![get(), told(ZERO, "cmd=get_result rc=0 value=x")]
        ));
        let mut mapping = ordeal("cmd=get_result rc=0 value=x");
        mapping.steps[0] = Step::Else { whom: None, text: "C: cmd=get key=PMI_process_mapping".into() };
        let all = events(vec![get(), told(ZERO, "cmd=get_result rc=0 value=x")]);
        assert!(!is_excused(&hang(ZERO, &all), &mapping, &all));
    }

    #[test]
    fn a_bucket_tells_the_request_and_its_answer() {
        for (answer, expected) in [
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=0", "get_maxes-odd"),
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024", "get_maxes-ok"),
            ("cmd=maxes rc=0", "get_maxes-bare"),
            ("cmd=maxes rc=-1", "get_maxes-refused"),
            ("cmd=appnum rc=0 appnum=0", "get_maxes-other"),
            ("= cmd=maxes rc=0", "get_maxes-garbled"),
            ("no", "get_maxes-unreadable"),
        ] {
            let all = events(vec![asks(ZERO, "cmd=get_maxes"), told(ZERO, answer)]);
            assert_eq!(Trail::of(&all, ZERO, u64::MAX).concerned(), expected, "{answer}");
        }
        let all = events(vec![told(ZERO, "no"), asks(ZERO, "cmd=get_maxes")]);
        let trail = Trail::of(&all, ZERO, u64::MAX);
        assert!(trail.has(&[SURPLUS]) && trail.is_owed());
    }
}

//! Helpers for tests that write conversations as lines of text.

use pmi_wire::Proc;

use crate::event::{Bytes, Event, EventKind, Exit, SilenceProof};
use crate::expectation::{Expectation, ExpectationKind, ReturnCode};
use crate::finding::Finding;
use crate::verdict::JudgedFinding;

/// Rank 0 of the first group.
pub(crate) const P: Proc = Proc { group: 0, rank: 0 };

/// Returns the event that reports the start of a job.
pub(crate) fn launched(ranks: u32, nodes: u32) -> EventKind {
    EventKind::Launched { command: Vec::new(), ranks, nodes }
}

/// Returns the event that reports the start of a process with these variables in its environment.
pub(crate) fn started(proc: Proc, env: &[(&str, &str)]) -> EventKind {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    EventKind::Started { proc, env, args: Vec::new(), bad_fd: None }
}

/// Returns a frame with this body: the length, then the body.
pub(crate) fn framed(body: &str) -> String {
    format!("{:>6}{body}", body.len())
}

/// Returns the event that a line describes. The line begins with `RANK` or `GROUP:RANK`. `0 > text` is a line from rank 0, and `0 < text`
/// is a line to rank 0. `>>` and `<<` denote a frame, and `>|` and `<|` denote bytes without a newline. `closed` means that the server
/// closes the connection, and `leaves` means that the client closes it. `silence` is a missing response. `exits STATUS` and `dies SIGNAL`
/// mean that the process ends.
pub(crate) fn event(line: &str) -> EventKind {
    let (rank, rest) = line.split_once(' ').expect("a rank");
    let (group, rank) = rank.split_once(':').unwrap_or(("0", rank));
    let proc = Proc { group: group.parse().expect("a group"), rank: rank.parse().expect("a rank") };
    let (mark, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = || text.parse().expect("a number");
    let bytes = Bytes(match mark {
        ">>" | "<<" => framed(text).into(),
        ">|" | "<|" => text.into(),
        _ => format!("{text}\n").into(),
    });
    match mark {
        ">" | ">>" | ">|" => EventKind::ToServer { proc, bytes },
        "<" | "<<" | "<|" => EventKind::FromServer { proc, bytes },
        "closed" => EventKind::ClosedByServer { proc },
        "leaves" => EventKind::ClosedByClient { proc },
        "silence" => EventKind::NoResponse { proc, proof: SilenceProof::Idle },
        "exits" => EventKind::Exited { proc, exit: Exit::Code(number()) },
        "dies" => EventKind::Exited { proc, exit: Exit::Signal(number()) },
        other => panic!("{other}"),
    }
}

/// Returns the events that these lines describe.
pub(crate) fn events<S: AsRef<str>>(lines: &[S]) -> Vec<EventKind> {
    lines.iter().map(|line| event(line.as_ref())).collect()
}

/// The init requests of two ranks, each with its response.
pub(crate) const INITS: [[&str; 2]; 2] = [
    [
        "0 > cmd=init pmi_version=1 pmi_subversion=1",
        "0 < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    ],
    [
        "1 > cmd=init pmi_version=1 pmi_subversion=1",
        "1 < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    ],
];
/// The requests of two ranks for the name of the keyval space, each with its response.
pub(crate) const NAMES: [[&str; 2]; 2] = [
    ["0 > cmd=get_my_kvsname", "0 < cmd=my_kvsname rc=0 kvsname=k"],
    ["1 > cmd=get_my_kvsname", "1 < cmd=my_kvsname rc=0 kvsname=k"],
];

/// Returns the lines in which `ranks` ranks initialize and request the name of the keyval space, followed by the lines
/// `rest`.
pub(crate) fn joined<'a>(ranks: usize, rest: &[&'a str]) -> Vec<&'a str> {
    let each = INITS.iter().zip(&NAMES).take(ranks);
    each.flat_map(|(init, name)| [&init[..], name].concat()).chain(rest.iter().copied()).collect()
}

/// Returns a spawn request for one program with `nprocs` processes. The request ends with the text `end`.
pub(crate) fn spawn(nprocs: u32, end: &str) -> String {
    format!("mcmd=spawn\nnprocs={nprocs}\nexecname=x\ntotspawns=1\nspawnssofar=1\n{end}")
}

/// Returns the event that reports a line on the job's standard error.
pub(crate) fn printed(line: &str) -> EventKind {
    EventKind::Output { proc: None, stderr: true, line: Bytes(line.into()) }
}

/// Creates events of these kinds, with consecutive numbers.
pub(crate) fn numbered(kinds: impl IntoIterator<Item = EventKind>) -> Vec<Event> {
    kinds.into_iter().zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect()
}

/// Returns the requirements that findings cite.
pub(crate) fn cited(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.requirement).collect()
}

/// Returns the requirements that judged findings cite.
pub(crate) fn cited_by(findings: &[JudgedFinding]) -> Vec<&str> {
    findings.iter().map(|judged| &*judged.finding.requirement).collect()
}

/// Returns the event that reports a proved silence.
pub(crate) fn silence() -> EventKind {
    EventKind::Silence { proof: SilenceProof::Idle, waited_ms: 0 }
}

/// Returns the event that reports a call by rank 0.
pub(crate) fn called(function: &str) -> EventKind {
    EventKind::Called { proc: P, function: function.into(), arguments: Vec::new(), held: false }
}

/// Returns the event that records an expectation about the return code of rank 0's call.
pub(crate) fn returns(cites: &str, code: &str) -> EventKind {
    let code = ReturnCode::new(code).expect("a code");
    expected(P, cites, ExpectationKind::Returns { code, outs: Vec::new() })
}

/// Returns the event that records an expectation about a process.
pub(crate) fn expected(proc: Proc, cites: &str, kind: ExpectationKind) -> EventKind {
    EventKind::Expected(Box::new(Expectation { proc: Some(proc), cites: cites.into(), kind }))
}

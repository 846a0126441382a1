//! The events that explain a finding: the requests that led to it, and the first sign of a crash.

use std::collections::{BTreeMap, BTreeSet};

use pmi_scenario::ids;
use pmi_wire::{Direction, Operation, Proc};

use crate::builtin_requirements::{NO_CRASH, NO_HANG};
use crate::crash::SignalCause;
use crate::event::{Event, EventKind, Exit};
use crate::observation::ObservationKind;
use crate::verdict::JudgedFinding;
use crate::{Finding, PartyKind};

/// Maximum number of findings to explain in a result.
pub(crate) const MAX_EXPLAINED_FINDINGS: usize = 10;

/// Maximum number of events to keep for a message, which may consist of several writes. It also limits the number of processes whose last
/// request is considered a possible cause of a crash.
const MAX_EVENTS_PER_MESSAGE: usize = 20;

/// Prefixes of requests that start processes. A spawn request may cause a crash later and in other processes, so it counts as a possible
/// cause even if it was answered.
const SPAWN_PREFIXES: [&[u8]; 2] = [b"mcmd=spawn", b"cmd=spawn"];

/// The side that wrote to a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritingSide {
    Client,
    Server,
}

/// Returns the process and the writing side of an event that is a message or a call.
fn message(event: &Event) -> Option<(Proc, WritingSide)> {
    match &event.kind {
        EventKind::ToServer { proc, .. } | EventKind::Called { proc, .. } => {
            Some((*proc, WritingSide::Client))
        }
        EventKind::FromServer { proc, .. } => Some((*proc, WritingSide::Server)),
        _ => None,
    }
}

/// Returns whether this event is a message from the party under test.
fn is_from_implementation(under_test: PartyKind, event: &Event) -> bool {
    match under_test {
        PartyKind::Server => matches!(event.kind, EventKind::FromServer { .. } | EventKind::FromProxy { .. }),
        PartyKind::Client => matches!(event.kind, EventKind::ToServer { .. }),
        PartyKind::Library => matches!(event.kind, EventKind::ToServer { .. } | EventKind::Returned { .. }),
    }
}

/// Returns the process that has crashed, if this event reports its death by a signal that no other process sent.
fn crashed_process(event: &Event) -> Option<Proc> {
    match &event.kind {
        EventKind::Exited { proc, exit: Exit::Signal(signal) }
            if !SignalCause::of(*signal).is_from_outside() =>
        {
            Some(*proc)
        }
        _ => None,
    }
}

/// Returns the command of the last request that a finding's process sent before the finding. The request may consist of several writes.
pub(crate) fn command(finding: &Finding, events: &[Event]) -> Option<Vec<u8>> {
    let before = events.iter().rev().filter(|event| event.seq <= finding.seq);
    let writes = before.filter_map(|event| match &event.kind {
        EventKind::ToServer { proc, bytes } if Some(*proc) == finding.proc => Some(&bytes.0[..]),
        _ => None,
    });
    let mut request = Vec::new();
    for write in writes {
        request.splice(..0, write.iter().copied());
        if let Some(at) = memchr::memmem::find(&request, b"cmd=") {
            let ends = |byte: &u8| matches!(byte, b' ' | b';' | b'\n');
            return request[at + 4..].split(ends).next().map(<[u8]>::to_vec);
        }
    }
    None
}

/// Returns true if, before the finding, another process closed its connection while its last message was incomplete or unanswered. Whether
/// the server reads that message before the next request from a different process then depends on timing.
pub fn follows_a_race(finding: &Finding, events: &[Event]) -> bool {
    let before = || events.iter().filter(|event| event.seq < finding.seq);
    let leaves = |event: &Event| {
        let EventKind::ClosedByClient { proc } = event.kind else { return false };
        let last = before().rev().filter(|e| e.seq < event.seq).filter_map(message).find(|m| m.0 == proc);
        finding.proc != Some(proc) && last.is_some_and(|(_, writer)| writer == WritingSide::Client)
    };
    before().any(leaves)
}

pub(crate) fn find_event(events: &[Event], seq: u64) -> Option<&Event> {
    events.binary_search_by_key(&seq, |event| event.seq).ok().map(|index| &events[index])
}

/// Returns the number of the first event that a crash may have caused: the end of a connection, a process or the job, or a missing
/// response.
pub(crate) fn first_loss(events: &[Event], under_test: PartyKind) -> Option<u64> {
    let of_server = || {
        let mut over: BTreeSet<Proc> = BTreeSet::new();
        events.iter().find(|event| match &event.kind {
            EventKind::ToServer { proc, bytes } if bytes.0.starts_with(b"cmd=finalize") => {
                over.insert(*proc);
                false
            }
            EventKind::ClosedByClient { proc } | EventKind::Ended { proc, ours: true } => {
                over.insert(*proc);
                false
            }
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false } => {
                !over.contains(proc)
            }
            EventKind::NoResponse { .. }
            | EventKind::ProxyEnded { .. }
            | EventKind::Crashed { .. }
            | EventKind::JobExited { .. }
            | EventKind::JobKeepsRunning { .. } => true,
            _ => false,
        })
    };
    let of_process = || {
        let died = events.iter().find_map(crashed_process);
        events.iter().find(|event| match &event.kind {
            EventKind::ClosedByClient { proc } | EventKind::Exited { proc, .. } => Some(*proc) == died,
            EventKind::Crashed { .. } => true,
            _ => false,
        })
    };
    let loss = if under_test == PartyKind::Server { of_server() } else { of_process() };
    loss.map(|event| event.seq)
}

/// Returns the number of the first event that reports a crash.
pub(crate) fn crash_event(events: &[Event]) -> Option<u64> {
    let is_crash =
        |event: &&Event| matches!(event.kind, EventKind::Crashed { .. }) || crashed_process(event).is_some();
    events.iter().find(is_crash).map(|event| event.seq)
}

/// Returns whether the event shows that a client has left. The server may then end the job.
fn client_left(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::ClosedByClient { .. } | EventKind::Ended { ours: true, .. } | EventKind::Exited { .. }
    )
}

/// Returns true if the server closed a connection at event `loss`, and no client had left before this event. The close then cannot be a
/// reaction to a client that left.
pub(crate) fn server_closed_first(events: &[Event], loss: u64) -> bool {
    let closes = find_event(events, loss).is_some_and(|event| {
        matches!(event.kind, EventKind::ClosedByServer { .. } | EventKind::Ended { ours: false, .. })
    });
    closes && !events.iter().take_while(|event| event.seq < loss).any(client_left)
}

/// Returns the numbers of the events in which the server closes a connection with an unanswered request. Requests that were sent before a
/// client left do not count. No request counts while an abort is unanswered.
pub(crate) fn closes_before_response(events: &[Event]) -> impl Iterator<Item = u64> {
    let mut unanswered: BTreeMap<Proc, Vec<&[u8]>> = BTreeMap::new();
    events.iter().filter_map(move |event| {
        match &event.kind {
            EventKind::ToServer { proc, bytes } => unanswered.entry(*proc).or_default().push(&bytes.0),
            EventKind::FromServer { proc, .. } => drop(unanswered.remove(proc)),
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false } => {
                let aborts =
                    |writes: &Vec<&[u8]>| memchr::memmem::find(&writes.concat(), b"cmd=abort").is_some();
                let is_due = unanswered.contains_key(proc) && !unanswered.values().any(aborts);
                return is_due.then_some(event.seq);
            }
            _ if client_left(event) => unanswered.clear(),
            _ => {}
        }
        None
    })
}

/// Returns whether a finding is a consequence of a crash whose first sign is event `loss`. `event` is the event of the
/// finding. A finding about a message from the implementation is not a consequence.
pub(crate) fn is_consequence(finding: &Finding, event: Option<&Event>, loss: u64) -> bool {
    finding.requirement != NO_CRASH
        && finding.seq >= loss
        && !event.is_some_and(|event| is_from_implementation(finding.party, event))
}

/// Returns whether the behaviour that `cause` reports leads to the behaviour that `effect` reports.
fn explains(cause: &Finding, effect: &Finding) -> bool {
    let leads = match cause.requirement.as_str() {
        // A single sentence of RFC 13 requires the client to close the connection and to abort, so both violations have the same cause.
        ids::RFC13_ERROR_CLOSE => effect.requirement == ids::RFC13_ERROR_ABORT && effect.proc == cause.proc,
        // Once a wrong version has been chosen, the server and the client use different versions. A hang is reported
        // only for the first process, which may not be the one with the wrong version.
        ids::RFC13_INIT_HIGHEST_MUTUAL => {
            let is_own = effect.proc == cause.proc || effect.requirement == NO_HANG;
            cause.party != PartyKind::Server && cause.max_severity.is_none() && is_own
        }
        // The server answered the process as if it belonged to a different group.
        ids::PMI_PORT_SIZE | ids::PMI_PORT_RANK => {
            let of_group = [ids::RFC13_KVSNAME_COMMON, ids::RFC13_KVSNAME_DISTINCT, ids::RFC13_SPAWN_PREPUT];
            let group = |finding: &Finding| finding.proc.map(|proc| proc.group);
            of_group.contains(&effect.requirement.as_str()) && group(effect) == group(cause)
        }
        // The proxy reported a barrier wrongly, so the upstream may release the processes too early.
        ids::HYDRA_UPSTREAM_BARRIER_ONCE => {
            let is_about_barrier = ids::rules::BARRIER_HOLDS.contains(&effect.requirement.as_str());
            is_about_barrier || effect.kind == Some(ObservationKind::EarlyBarrierExit)
        }
        // The proxy altered the request, so the upstream answers the altered request.
        ids::HYDRA_UPSTREAM_REQUESTS_KEPT => {
            let request = |operation: Operation| operation.exchange().command(Direction::ToServer);
            matches!(effect.kind, Some(ObservationKind::Response(operation))
                if request(operation).is_some_and(|command| cause.seen.contains(&format!("cmd={command} "))))
        }
        _ => false,
    };
    leads && cause.requirement != effect.requirement && cause.party == effect.party && cause.seq <= effect.seq
}

/// Removes and returns the findings that a different finding of the same or a higher severity explains.
pub(crate) fn extract_explained(findings: &mut Vec<JudgedFinding>) -> Vec<JudgedFinding> {
    let causes: Vec<_> = findings.iter().map(|judged| (judged.severity, judged.finding.clone())).collect();
    let is_explained = |judged: &mut JudgedFinding| {
        causes
            .iter()
            .any(|(severity, cause)| *severity >= judged.severity && explains(cause, &judged.finding))
    };
    findings.extract_if(.., is_explained).collect()
}

/// Returns the numbers of the events that explain the first `MAX_EXPLAINED_FINDINGS` findings: the events that show the findings, and the
/// requests before these events.
pub fn evidence<'a>(findings: impl Iterator<Item = &'a Finding>, events: &[Event]) -> BTreeSet<u64> {
    let mut kept = BTreeSet::new();
    for finding in findings.take(MAX_EXPLAINED_FINDINGS) {
        kept.insert(finding.seq);
        kept.extend(&finding.related);
        if finding.requirement == NO_CRASH {
            let loss = first_loss(events, finding.party).unwrap_or(u64::MAX);
            kept.extend(requests_before_crash(events, loss));
        } else if let Some(proc) = finding.proc {
            kept.extend(exchange(events, proc, finding.seq));
            kept.extend(scripted_answers(events, proc, finding.seq));
        }
    }
    kept
}

/// Returns the event numbers of a process's last message up to event `seq`, and of the preceding message from the other side.
fn exchange(events: &[Event], proc: Proc, seq: u64) -> Vec<u64> {
    let messages = events.iter().rev().filter(|event| event.seq <= seq);
    let of_process =
        messages.filter_map(|event| Some((event.seq, message(event).filter(|m| m.0 == proc)?.1)));
    let (mut last, mut turns) = (None, 0);
    let within = of_process.take_while(|(_, writer)| {
        turns += usize::from(last.is_some_and(|last| last != *writer));
        last = Some(*writer);
        turns < 2
    });
    within.take(MAX_EVENTS_PER_MESSAGE).map(|(seq, _)| seq).collect()
}

/// Returns the event numbers of the messages that the scenario sent to a process in place of correct answers, and of the requests before
/// these messages. Events after `seq` are ignored.
fn scripted_answers(events: &[Event], proc: Proc, seq: u64) -> Vec<u64> {
    let events = &events[..events.partition_point(|event| event.seq <= seq)];
    let mut kept = Vec::new();
    for (index, event) in events.iter().enumerate() {
        if event.kind != (EventKind::SituationReached { proc }) {
            continue;
        }
        let answers = |event: &&Event| message(event) == Some((proc, WritingSide::Server));
        if let Some(answer) = events[index..].iter().find(answers) {
            kept.push(event.seq);
            kept.extend(exchange(events, proc, answer.seq));
        }
    }
    kept.truncate(MAX_EVENTS_PER_MESSAGE);
    kept
}

/// Returns the event numbers of the requests that may have caused a crash: the unanswered requests, the last request, and all requests that
/// start processes.
fn requests_before_crash(events: &[Event], loss: u64) -> BTreeSet<u64> {
    let events = &events[..events.partition_point(|event| event.seq < loss)];
    let requests = || {
        events.iter().rev().filter_map(|event| match message(event)? {
            (proc, WritingSide::Client) => Some((proc, event)),
            _ => None,
        })
    };
    let mut seen = BTreeSet::new();
    let messages = events.iter().rev().filter_map(|event| Some((message(event)?, event)));
    let last_of_each = messages.filter(|((proc, _), _)| seen.insert(*proc));
    let unanswered = last_of_each
        .filter_map(|((proc, writer), event)| (writer == WritingSide::Client).then_some((proc, event)));
    let last = unanswered.take(MAX_EVENTS_PER_MESSAGE).chain(requests().next());
    let mut kept: BTreeSet<u64> = last.flat_map(|(proc, event)| request(events, proc, event.seq)).collect();
    for (proc, event) in requests() {
        let starts = match &event.kind {
            EventKind::ToServer { bytes, .. } => {
                SPAWN_PREFIXES.iter().any(|begin| bytes.0.trim_ascii_start().starts_with(begin))
            }
            _ => false,
        };
        if starts {
            kept.extend(request(events, proc, event.seq));
        }
    }
    kept
}

/// Returns the numbers of the events that make up the request to which event `seq` belongs.
fn request(events: &[Event], proc: Proc, seq: u64) -> Vec<u64> {
    let is_of = |event: &&Event| message(event).is_some_and(|(of, _)| of == proc);
    let writes = |event: &&Event| message(event).is_some_and(|(_, writer)| writer == WritingSide::Client);
    let split = events.partition_point(|event| event.seq <= seq);
    let before = events[..split].iter().rev().filter(is_of).take_while(writes).take(MAX_EVENTS_PER_MESSAGE);
    let after = events[split..].iter().filter(is_of).take_while(writes).take(MAX_EVENTS_PER_MESSAGE);
    before.chain(after).map(|event| event.seq).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::{P, events, numbered};

    fn crash() -> Finding {
        Finding::new(NO_CRASH, PartyKind::Server, "", "")
    }

    #[test]
    fn crash_evidence_includes_last_requests_and_spawns() {
        let events = numbered(events(&[
            "0 > mcmd=spawn\nnprocs=1",
            "0 > endcmd",
            "0 < cmd=spawn_result rc=0",
            "0 > cmd=get_appnum",
            "0 < cmd=appnum rc=0 appnum=0",
            "0 > cmd=barrier_in",
            "1 > cmd=barrier_in",
            "1 < cmd=barrier_out rc=-1",
            "1 closed",
            "0 > cmd=finalize",
        ]));
        assert_eq!(first_loss(&events, PartyKind::Server), Some(8));
        let seqs = evidence([&crash()].into_iter(), &events);
        assert_eq!(seqs.into_iter().collect::<Vec<_>>(), [0, 1, 5, 6]);
    }

    #[test]
    fn close_after_finalize_does_not_indicate_a_crash() {
        let crash = EventKind::Crashed { name: "pm".into(), signal: 11 };
        let lines = ["0 > cmd=finalize", "0 < cmd=finalize_ack", "0 closed", "1 > cmd=get_appnum"];
        let events = numbered(events(&lines).into_iter().chain([crash]));
        assert_eq!(first_loss(&events, PartyKind::Server), Some(4));
    }

    #[test]
    fn evidence_includes_the_wrong_response() {
        let rest = ["0 < cmd=put_result rc=0", "0 > cmd=finalize", "0 < cmd=finalize_ack", "0 exits 0"];
        let mut kinds = events(&["0 > cmd=get_maxes", "0 < cmd=maxes", "0 > cmd=get kvsname=k key=a"]);
        kinds.push(EventKind::SituationReached { proc: P });
        let events = numbered(kinds.into_iter().chain(events(&rest)));
        let finding =
            Finding { proc: Some(P), seq: 7, ..Finding::new("rfc13.error.abort", PartyKind::Client, "", "") };
        let seqs = evidence([&finding].into_iter(), &events);
        assert_eq!(seqs.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    }

    /// A server that mistakes a process for a member of a different group also sends it the keyval space name and the pairs of that group.
    #[rstest]
    #[case::other_process_of_the_group(1, 1, true)]
    #[case::other_group(2, 0, false)]
    fn wrong_group_explains_a_wrong_kvsname(
        #[case] group: u32,
        #[case] rank: u32,
        #[case] is_explained: bool,
    ) {
        let of = |id: &str, group, rank| Finding {
            proc: Some(Proc { group, rank }),
            ..Finding::new(id, PartyKind::Server, "", "")
        };
        let cause = of(ids::PMI_PORT_SIZE, 1, 0);
        assert_eq!(explains(&cause, &of(ids::RFC13_KVSNAME_COMMON, group, rank)), is_explained);
    }

    #[test]
    fn evidence_includes_all_writes_of_a_request() {
        let events = numbered(events(&[
            "0 > cmd=get_appnum",
            "0 < cmd=appnum appnum=0",
            "0 >| cmd=get kvsname=k ",
            "0 > key=a",
            "1 > cmd=get_appnum",
            "0 < cmd=get_result rc=0 value=b",
        ]));
        let finding =
            Finding { proc: Some(P), seq: 5, ..Finding::new("rfc13.get.value", PartyKind::Server, "", "") };
        assert_eq!(evidence([&finding].into_iter(), &events).into_iter().collect::<Vec<_>>(), [2, 3, 5]);
    }
}

//! The upstream connection of a bare proxy in a case: the requests that the proxy has passed on, the responses from the harness, and the
//! point after which the proxy can no longer be judged.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pmi_wire::{Decoded, Direction, Framing, Operation};

use pmi_judge::Finding;
use pmi_judge::event::EventKind;
use pmi_wire::Proc;

/// Maximum length of a response that every proxy can process.
const MAX_SAFE_REPLY: usize = 256;

/// Maximum number of requests that are stored.
const MAX_REQUESTS: usize = 10_000;

/// The state of the connection between a proxy and its upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamState {
    /// Requests that wait for a response from the case, with their operations.
    held: BTreeMap<u64, Option<Operation>>,
    /// Requests that the case has answered.
    answered: BTreeSet<u64>,
    /// Processes that wait for a response.
    waiting: HashSet<Proc>,
    /// The number of the first event whose findings no longer count. At this event, the harness sent a message that no real upstream sends,
    /// or a process continued without the response that the harness owed it.
    invalid_since: Option<u64>,
}

impl UpstreamState {
    /// Returns whether a request waits for a response that only a step of the case can send.
    pub(crate) fn awaits_step(&self) -> bool {
        !self.held.is_empty()
    }

    /// Records that a request gets the harness's normal response, so that no step has to answer the request.
    pub(crate) fn record_default(&mut self, id: u64) {
        self.held.remove(&id);
    }

    pub(crate) fn observe(&mut self, seq: u64, kind: &EventKind) {
        match kind {
            EventKind::ToServer { proc, .. } => {
                let goes_on = !self.waiting.insert(*proc);
                if goes_on && self.awaits_step() {
                    self.invalid_since.get_or_insert(seq);
                }
            }
            EventKind::FromServer { proc, .. } => drop(self.waiting.remove(proc)),
            EventKind::FromProxy { group: 0, proxy: 0, id, text, held: true }
                if self.held.len() < MAX_REQUESTS =>
            {
                self.held.insert(*id, operation(&text.0));
            }
            EventKind::ToProxy { answers, text, scripted: true, .. } => {
                let requested = answers.and_then(|id| self.held.remove(&id)).flatten();
                // A response to all processes answers every pending barrier.
                if text.0.starts_with(b"cmd=barrier_out") {
                    self.held.retain(|_, op| *op != Some(Operation::Barrier));
                }
                let again = answers.is_some_and(|id| !self.answered.insert(id));
                if again || !is_proper(requested, &text.0) {
                    self.invalid_since.get_or_insert(seq);
                }
            }
            EventKind::ClosedByUpstream { .. } => drop(self.invalid_since.get_or_insert(seq)),
            _ => {}
        }
    }

    /// Returns whether a finding counts against the proxy.
    pub(crate) fn counts_against_proxy(&self, finding: &Finding) -> bool {
        self.invalid_since.is_none_or(|seq| finding.seq < seq)
    }
}

/// Returns the operation of a request that a proxy passes on.
fn operation(text: &[u8]) -> Option<Operation> {
    let word = text.split(|b| matches!(b, b' ' | b'\n')).next()?;
    Operation::from_request_cmd(word.strip_prefix(b"mcmd=").or(word.strip_prefix(b"cmd="))?)
}

/// Returns whether a real upstream could send this response.
fn is_proper(requested: Option<Operation>, text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\n") else { return false };
    let plain = line.iter().all(|b| (b' '..=b'~').contains(b)) && !line.windows(2).any(|two| two == b"  ");
    let whole = plain && line.len() <= MAX_SAFE_REPLY && !line.ends_with(b" ");
    let answered = Decoded::new(Direction::FromServer, Framing::Lines, line).operation();
    whole && requested.is_some() && answered == requested
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::PartyKind;
    use pmi_judge::event::Bytes;

    fn passed(id: u64, text: &str) -> EventKind {
        EventKind::FromProxy { group: 0, proxy: 0, id, text: Bytes(text.into()), held: true }
    }

    fn reply(answers: Option<u64>, text: &str) -> EventKind {
        EventKind::ToProxy { group: 0, proxy: 0, answers, text: Bytes(text.into()), scripted: true }
    }

    fn finding(seq: u64) -> Finding {
        let broken = Finding::new("hydra.upstream.replies-kept", PartyKind::Server, "", "");
        Finding { proc: Some(Proc::proxy(0)), seq, ..broken }
    }

    #[test]
    fn judges_proxy_only_after_valid_responses() {
        let request = "cmd=get kvsname=k key=a";
        let proper = "cmd=get_result rc=0 msg=success value=x\n";
        for (valid, kind) in [
            (true, reply(Some(0), proper)),
            (true, reply(Some(0), "cmd=get_result rc=-1 msg=none\n")),
            (false, reply(None, proper)),
            (false, reply(Some(0), "cmd=lookup_result rc=0 port=x\n")),
            (false, reply(Some(0), "cmd=get_result rc=0 value=x\0y\n")),
            (false, reply(Some(0), "cmd=get_result rc=0  value=x\n")),
            (false, reply(Some(0), "rc=0 value=x\n")),
            (false, reply(Some(0), "cmd=get_result rc=0 value=x")),
            (false, reply(Some(0), &format!("cmd=get_result rc=0 value={}\n", "x".repeat(300)))),
            (false, reply(None, "cmd=keyval_cache a=1\n")),
            (false, EventKind::ClosedByUpstream { proxy: 0 }),
        ] {
            let mut state = UpstreamState::default();
            state.observe(3, &passed(0, request));
            assert!(state.awaits_step());
            state.observe(4, &kind);
            assert!(state.counts_against_proxy(&finding(3)));
            assert_eq!(state.counts_against_proxy(&finding(5)), valid, "{kind:?}");
        }
        let mut state = UpstreamState::default();
        state.observe(3, &passed(0, request));
        state.observe(4, &reply(Some(0), proper));
        assert!(state.counts_against_proxy(&finding(5)) && !state.awaits_step());
        state.observe(6, &reply(Some(0), proper));
        assert!(!state.counts_against_proxy(&finding(6)), "twice");
    }

    #[test]
    fn stops_judging_proxy_if_process_does_not_wait() {
        let wrote = |rank, text: &str| EventKind::ToServer {
            proc: Proc { group: 0, rank },
            bytes: Bytes(text.into()),
        };
        for (rank, valid) in [(0, false), (1, true)] {
            let mut state = UpstreamState::default();
            state.observe(0, &wrote(0, "cmd=get kvsname=k key=a\n"));
            state.observe(1, &passed(0, "cmd=get kvsname=k key=a"));
            state.observe(2, &wrote(rank, "cmd=get_maxes\n"));
            assert_eq!(state.counts_against_proxy(&finding(3)), valid);
        }
    }

    #[test]
    fn default_response_needs_no_scenario_step() {
        let mut state = UpstreamState::default();
        for id in [7, 9] {
            state.observe(id, &passed(id, "cmd=get key=a"));
        }
        state.record_default(7);
        assert!(state.awaits_step());
        state.observe(10, &reply(Some(9), "x"));
        assert!(!state.awaits_step());
    }
}

//! The other side of a bare proxy in a case: what it has passed on, what we have answered in its upstream's place,
//! and how far it may be held to that.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pmi_wire::{Decoded, Direction, Framing, Operation};

use pmi_judge::Finding;
use pmi_judge::event::What;
use pmi_wire::Proc;

/// An answer of ours that is longer than this may be more than a proxy can take.
const MODEST: usize = 256;

/// Most requests that are remembered.
const REQUESTS: usize = 10_000;

/// Where a case stands at the upstream's side of its proxy.
#[derive(Debug, Default)]
pub(super) struct UpstreamState {
    /// Requests that wait for an answer of ours, and what they are.
    held: BTreeMap<u64, Option<Operation>>,
    /// Requests that we have answered in our own words.
    answered: BTreeSet<u64>,
    /// Processes that have asked and heard nothing since.
    waiting: HashSet<Proc>,
    /// The event since which a proxy is held to nothing that it passes on or tells: we have said what no upstream says, or
    /// a process has gone on without the answer that we owe it.
    unlawful: Option<u64>,
}

impl UpstreamState {
    /// Whether a request waits for an answer that only a step could give.
    pub(super) fn owes(&self) -> bool {
        !self.held.is_empty()
    }

    /// A request is answered as usual. What that leads to is the proxy's business: in a barrier, perhaps nothing.
    pub(super) fn leave(&mut self, id: u64) {
        self.held.remove(&id);
    }

    /// Takes note of an event.
    pub(super) fn observe(&mut self, seq: u64, what: &What) {
        match what {
            What::ToServer { proc, .. } => {
                let goes_on = !self.waiting.insert(*proc);
                if goes_on && self.owes() {
                    self.unlawful.get_or_insert(seq);
                }
            }
            What::FromServer { proc, .. } => drop(self.waiting.remove(proc)),
            What::FromProxy { group: 0, proxy: 0, id, text, held: true } if self.held.len() < REQUESTS => {
                self.held.insert(*id, operation(&text.0));
            }
            What::ToProxy { answers, text, scripted: true, .. } => {
                let asked = answers.and_then(|id| self.held.remove(&id)).flatten();
                // What is for all of its processes answers whatever they wait for.
                if text.0.starts_with(b"cmd=barrier_out") {
                    self.held.retain(|_, op| *op != Some(Operation::Barrier));
                }
                let again = answers.is_some_and(|id| !self.answered.insert(id));
                if again || !is_proper(asked, &text.0) {
                    self.unlawful.get_or_insert(seq);
                }
            }
            What::ClosedByUpstream { .. } => drop(self.unlawful.get_or_insert(seq)),
            _ => {}
        }
    }

    /// Whether the proxy may be blamed for a finding.
    pub(super) fn judges(&self, finding: &Finding) -> bool {
        self.unlawful.is_none_or(|seq| finding.seq < seq)
    }
}

/// The kind of a request as a proxy passes it on.
fn operation(text: &[u8]) -> Option<Operation> {
    let word = text.split(|b| matches!(b, b' ' | b'\n')).next()?;
    Operation::from_request_cmd(word.strip_prefix(b"mcmd=").or(word.strip_prefix(b"cmd="))?)
}

/// Whether an upstream may answer so.
fn is_proper(asked: Option<Operation>, text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\n") else { return false };
    let plain = line.iter().all(|b| (b' '..=b'~').contains(b)) && !line.windows(2).any(|two| two == b"  ");
    let whole = plain && line.len() <= MODEST && !line.ends_with(b" ");
    let answered = Decoded::new(Direction::FromServer, Framing::Lines, line).operation();
    whole && asked.is_some() && answered == asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::Side;
    use pmi_judge::event::Bytes;

    fn passed(id: u64, text: &str) -> What {
        What::FromProxy { group: 0, proxy: 0, id, text: Bytes(text.into()), held: true }
    }

    fn told(answers: Option<u64>, text: &str) -> What {
        What::ToProxy { group: 0, proxy: 0, answers, text: Bytes(text.into()), scripted: true }
    }

    fn finding(seq: u64) -> Finding {
        let broken = Finding::new("hydra.upstream.replies-kept", Side::Server, "", "");
        Finding { proc: Some(Proc::proxy(0)), seq, ..broken }
    }

    #[test]
    fn a_proxy_is_held_to_proper_answers_and_to_no_others() {
        let request = "cmd=get kvsname=k key=a";
        let proper = "cmd=get_result rc=0 msg=success value=x\n";
        for (lawful, what) in [
            (true, told(Some(0), proper)),
            (true, told(Some(0), "cmd=get_result rc=-1 msg=none\n")),
            (false, told(None, proper)),
            (false, told(Some(0), "cmd=lookup_result rc=0 port=x\n")),
            (false, told(Some(0), "cmd=get_result rc=0 value=x\0y\n")),
            (false, told(Some(0), "cmd=get_result rc=0  value=x\n")),
            (false, told(Some(0), "rc=0 value=x\n")),
            (false, told(Some(0), "cmd=get_result rc=0 value=x")),
            (false, told(Some(0), &format!("cmd=get_result rc=0 value={}\n", "x".repeat(300)))),
            (false, told(None, "cmd=keyval_cache a=1\n")),
            (false, What::ClosedByUpstream { proxy: 0 }),
        ] {
            let mut state = UpstreamState::default();
            state.observe(3, &passed(0, request));
            assert!(state.owes());
            state.observe(4, &what);
            assert!(state.judges(&finding(3)));
            assert_eq!(state.judges(&finding(5)), lawful, "{what:?}");
        }
        let mut state = UpstreamState::default();
        state.observe(3, &passed(0, request));
        state.observe(4, &told(Some(0), proper));
        assert!(state.judges(&finding(5)) && !state.owes());
        state.observe(6, &told(Some(0), proper));
        assert!(!state.judges(&finding(6)), "twice");
    }

    #[test]
    fn who_goes_on_without_our_answer_is_not_judged_and_others_are() {
        let wrote =
            |rank, text: &str| What::ToServer { proc: Proc { group: 0, rank }, bytes: Bytes(text.into()) };
        for (rank, lawful) in [(0, false), (1, true)] {
            let mut state = UpstreamState::default();
            state.observe(0, &wrote(0, "cmd=get kvsname=k key=a\n"));
            state.observe(1, &passed(0, "cmd=get kvsname=k key=a"));
            state.observe(2, &wrote(rank, "cmd=get_maxes\n"));
            assert_eq!(state.judges(&finding(3)), lawful);
        }
    }

    #[test]
    fn what_is_left_to_the_upstream_is_not_owed() {
        let mut state = UpstreamState::default();
        for id in [7, 9] {
            state.observe(id, &passed(id, "cmd=get key=a"));
        }
        state.leave(7);
        assert!(state.owes());
        state.observe(10, &told(Some(9), "x"));
        assert!(!state.owes());
    }
}

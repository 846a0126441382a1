//! The other side of a bare proxy in a session: what it has passed on, what we have answered in its upstream's place,
//! and how far it may be held to that.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use pmi_wire::{Operation, Response, ValueReading};

use super::session::Says;
use crate::event::{Bytes, Proc, What};
use crate::hydra::UpstreamCommand;
use crate::judge::Finding;

/// An answer of ours that is longer than this may be more than a proxy can take.
const MODEST: usize = 256;

/// Most requests that are remembered.
const REQUESTS: usize = 10_000;

/// Where a session stands at the upstream's side of its proxy.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// What was passed on and no step has taken.
    passed: VecDeque<u64>,
    /// What steps have taken.
    taken: Vec<u64>,
    /// Requests that wait for an answer of ours, and what they are.
    held: BTreeMap<u64, Option<Operation>>,
    /// Requests that we have answered in our own words.
    answered: BTreeSet<u64>,
    over: bool,
    /// Processes that have asked and heard nothing since.
    waiting: HashSet<Proc>,
    /// The event since which a proxy is held to nothing that it passes on or tells: we have said what no upstream says, or
    /// a process has gone on without the answer that we owe it.
    unlawful: Option<u64>,
}

impl Side {
    /// Takes what was passed on first. False if there is nothing.
    pub(super) fn take_passed(&mut self) -> bool {
        let first = self.passed.pop_front();
        self.taken.extend(first);
        first.is_some()
    }

    /// The connection to the proxy is no more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a request waits for an answer that only a step could give.
    pub(super) fn owes(&self) -> bool {
        !self.held.is_empty()
    }

    /// The order for a step; `None` if there is nobody or nothing left that it could be about.
    pub(super) fn command(&mut self, to: Option<u32>, says: &Says, text: Vec<u8>) -> Option<UpstreamCommand> {
        if self.over {
            return None;
        }
        let at = to.map_or(self.taken.len(), |n| n as usize).checked_sub(1);
        let id = at.and_then(|at| self.taken.get(at)).copied();
        if to.is_some() && id.is_none() {
            return None;
        }
        Some(match says {
            Says::Usual => {
                self.held.remove(&id?);
                // What it leads to is the proxy's business: in a barrier, perhaps nothing.
                UpstreamCommand::Usual(id?)
            }
            Says::Close => UpstreamCommand::Close(0),
            Says::Words { .. } => UpstreamCommand::Answer { proxy: 0, to: id, text: Bytes(text) },
        })
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
            What::FromProxy { group: 0, proxy: 0, id, text, held } => {
                if self.passed.len() < REQUESTS {
                    self.passed.push_back(*id);
                }
                if *held && self.held.len() < REQUESTS {
                    self.held.insert(*id, operation(&text.0));
                }
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
            What::ClosedByUpstream { .. } => {
                self.unlawful.get_or_insert(seq);
                self.over = true;
            }
            What::ProxyEnded { group: 0, .. } | What::JobExited { .. } => self.over = true,
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
    let fits = |r: Response<'_>| Some(r.operation()) == asked;
    whole && asked.is_some() && Response::parse(line, ValueReading::ToEndOfLine).is_ok_and(fits)
}

/// What kind of thing the upstream has said, for buckets: `upstream-get_result`, `upstream-no-command`.
pub(super) fn kind(text: &[u8]) -> String {
    let sort = || {
        let Some(lines) = text.strip_suffix(b"\n") else { return "partial".to_owned() };
        let first = lines.split(|b| *b == b'\n').next().unwrap_or_default();
        let mut words = first.split(|b| *b == b' ');
        let cmd = match words.next().and_then(|word| word.strip_prefix(b"cmd=")) {
            Some(b"keyval_cache") => {
                let bare = words.any(|word| !word.is_empty() && !word.contains(&b'='));
                return if bare { "bad-keyval_cache" } else { "keyval_cache" }.to_owned();
            }
            Some(cmd) => cmd,
            None => return "no-command".to_owned(),
        };
        let Some(name) = Operation::from_response_cmd(cmd).and_then(Operation::response_cmd) else {
            return "unknown-command".to_owned();
        };
        match Response::parse(first, ValueReading::ToEndOfLine) {
            Ok(_) => name.to_owned(),
            Err(_) => format!("bad-{name}"),
        }
    };
    format!("upstream-{}", sort())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Party;

    #[test]
    fn kinds_of_words() {
        for (text, expected) in [
            ("cmd=get_result rc=0 value=x\n", "upstream-get_result"),
            ("cmd=get_result rc=0 value=x", "upstream-partial"),
            ("rc=0 value=x\n", "upstream-no-command"),
            ("\n", "upstream-no-command"),
            ("\ncmd=barrier_out\n", "upstream-no-command"),
            ("cmd=frob\n", "upstream-unknown-command"),
            ("cmd=keyval_cache a=1 b=2\n", "upstream-keyval_cache"),
            ("cmd=keyval_cache a=1 b\n", "upstream-bad-keyval_cache"),
            ("cmd=get_result rc=x\n", "upstream-bad-get_result"),
        ] {
            assert_eq!(kind(text.as_bytes()), expected, "{text}");
        }
    }

    fn passed(id: u64, text: &str) -> What {
        What::FromProxy { group: 0, proxy: 0, id, text: Bytes(text.into()), held: true }
    }

    fn told(answers: Option<u64>, text: &str) -> What {
        What::ToProxy { group: 0, proxy: 0, answers, text: Bytes(text.into()), scripted: true }
    }

    fn finding(seq: u64) -> Finding {
        Finding {
            requirement: "hydra.upstream.replies-kept".into(),
            party: Party::Server,
            proc: Some(Proc::proxy(0)),
            seq,
            line: 0,
            at_most: None,
            expected: String::new(),
            seen: String::new(),
        }
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
            let mut side = Side::default();
            side.observe(3, &passed(0, request));
            assert!(side.owes());
            side.observe(4, &what);
            assert!(side.judges(&finding(3)));
            assert_eq!(side.judges(&finding(5)), lawful, "{what:?}");
        }
        let mut side = Side::default();
        side.observe(3, &passed(0, request));
        side.observe(4, &told(Some(0), proper));
        assert!(side.judges(&finding(5)) && !side.owes());
        side.observe(6, &told(Some(0), proper));
        assert!(!side.judges(&finding(6)), "twice");
    }

    #[test]
    fn who_goes_on_without_our_answer_is_not_judged_and_others_are() {
        let wrote =
            |rank, text: &str| What::ToServer { proc: Proc { group: 0, rank }, bytes: Bytes(text.into()) };
        for (rank, lawful) in [(0, false), (1, true)] {
            let mut side = Side::default();
            side.observe(0, &wrote(0, "cmd=get kvsname=k key=a\n"));
            side.observe(1, &passed(0, "cmd=get kvsname=k key=a"));
            side.observe(2, &wrote(rank, "cmd=get_maxes\n"));
            assert_eq!(side.judges(&finding(3)), lawful);
        }
    }

    #[test]
    fn steps_take_what_comes_first_and_answer_what_they_have_taken() {
        let mut side = Side::default();
        let words = Says::Words { lines: Vec::new(), partial: false };
        assert!(!side.take_passed());
        assert_eq!(side.command(None, &Says::Usual, Vec::new()), None);
        assert_eq!(side.command(Some(1), &words, Vec::new()), None);
        side.observe(0, &passed(7, "cmd=get key=a"));
        side.observe(1, &passed(9, "cmd=get key=b"));
        assert!(side.take_passed() && side.take_passed() && !side.take_passed());
        assert_eq!(side.command(Some(1), &Says::Usual, Vec::new()), Some(UpstreamCommand::Usual(7)));
        let answer = UpstreamCommand::Answer { proxy: 0, to: Some(9), text: Bytes(b"x".to_vec()) };
        assert_eq!(side.command(None, &words, b"x".to_vec()), Some(answer));
        assert!(side.owes());
        side.observe(2, &told(Some(9), "x"));
        assert!(!side.owes());
        side.observe(3, &What::ProxyEnded { group: 0, proxy: 0, exit: crate::event::Exit::Code(0) });
        assert_eq!(side.command(None, &Says::Close, Vec::new()), None);
    }
}

//! Requests that rare faults change or answer.

use pmi_reference::server::{ProcessPhase, ServerRequest};
use pmi_reference::{OperationResult, ResponseHeader};
use pmi_wire::{Framer, Framing, Proc};

use super::rare_state::EarlierJob;
use super::{Server, is_own_key};
use crate::edit::{RequestDraft, RequestOutcome, RequestSituation};
use crate::effect::{BarrierEffect, Effect, PieceEffect};

impl Server {
    /// Sets the state that the previous job passed on.
    pub fn remember(&mut self, before: EarlierJob) {
        if let Some(state) = &mut self.state {
            state.rare.before = before;
        }
    }

    /// Returns the state that this job passes to the next job.
    pub fn left(&self) -> EarlierJob {
        let Some((group, state)) = self.server.groups.first().zip(self.state.as_ref()) else {
            return EarlierJob::default();
        };
        let pairs = group.kvs.iter().filter(|(key, _)| !is_own_key(key));
        EarlierJob {
            pairs: pairs.map(|(key, value)| (key.clone(), value.clone())).collect(),
            names: self.server.names.iter().map(|(name, port)| (name.clone(), port.clone())).collect(),
            withdrawn: state.rare.withdrawn.clone(),
            aborted: state.rare.aborted,
            waiting: group.entered_count,
        }
    }

    /// Changes a request as the effects specify. Returns whether an effect has handled the request.
    ///
    /// # Aborts
    ///
    /// Aborts this process if an effect makes the server crash.
    pub(super) fn affect_request(
        &mut self,
        from: Proc,
        header: &ResponseHeader,
        request: &mut ServerRequest<'_>,
    ) -> bool {
        self.state().rare.aborted |= matches!(request, ServerRequest::Abort { .. });
        if !self.state().has(|e| matches!(e, Effect::Request(..))) {
            return false;
        }
        let situation = self.situation(from, header, request);
        if let ServerRequest::Put { value, .. } = &*request {
            self.state().rare.last_values.insert(from.group, value.to_vec());
        }
        let pick = |e: &Effect| match e {
            Effect::Request(which, edit) if which.names(header, header.framing == Framing::Frames) => {
                Some(*edit)
            }
            _ => None,
        };
        let mut draft = RequestDraft::new(request.clone(), situation);
        self.edit(from, pick, &mut draft);
        let RequestDraft { request: changed, outcome, clears_attributes, .. } = draft;
        *request = changed;
        if clears_attributes {
            let node = self.server.node(from);
            self.server.groups[from.group as usize].node.retain(|(of, _), _| *of != node);
        }
        let answer = match outcome {
            None => return false,
            Some(RequestOutcome::Crashed) => std::process::abort(),
            Some(RequestOutcome::Ignored) => return true,
            Some(RequestOutcome::Forgotten) => Some(OperationResult::done()),
            Some(RequestOutcome::Missed) => Some(OperationResult::miss("key not found")),
            Some(RequestOutcome::Repeated) => self.state().rare.last_gets.get(&from).cloned(),
        };
        let Some(answer) = answer else { return false };
        self.server.reply(from, header.clone(), answer);
        true
    }

    fn situation(
        &mut self,
        from: Proc,
        header: &ResponseHeader,
        request: &ServerRequest<'_>,
    ) -> RequestSituation {
        let is_put = matches!(request, ServerRequest::Put { .. });
        let waits = self.server.process(from).is_in_barrier();
        let group = &self.server.groups[from.group as usize];
        let value_exists = match request {
            ServerRequest::Put { value, .. } => group.kvs.values().any(|known| known[..] == value[..]),
            _ => false,
        };
        let first_finalized = matches!(group.procs[0].phase, ProcessPhase::Finalized | ProcessPhase::Closed);
        let rare = &mut self.state().rare;
        let counts = rare.counts.entry(from).or_default();
        let thread = header.thrid.as_ref().map(|_| "thread");
        for name in thread.into_iter().chain([header.operation()]) {
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        let counts = counts.clone();
        let puts_in_round = rare.puts_in_round.entry(from).or_default();
        *puts_in_round += u64::from(is_put);
        RequestSituation {
            counts,
            puts_in_round: *puts_in_round,
            waits,
            first_finalized,
            others_miss: rare.missed.get(&from.group).is_some_and(|rank| *rank != from.rank),
            value_exists,
            last_value: rare.last_values.get(&from.group).cloned().unwrap_or_default(),
        }
    }

    /// Removes and returns the incomplete request of a process.
    fn take_partial(&mut self, from: Proc) -> Vec<u8> {
        let framer: Framer = self.server.take_framer(from);
        framer.partial_in(self.server.process(from).framing).to_vec()
    }

    /// Changes the bytes of a read if a request from this process or from another process is incomplete.
    pub(super) fn affect_pieces(&mut self, from: Proc, bytes: &mut Vec<u8>) {
        let is_of_pieces =
            |e: &Effect| matches!(e, Effect::Piece(_) | Effect::Barrier(BarrierEffect::NeverAfterPieces));
        if !self.state().has(is_of_pieces) {
            return;
        }
        let others = (0..self.size(from.group)).filter(|rank| *rank != from.rank);
        let others: Vec<Proc> = others.map(|rank| Proc { rank, ..from }).collect();
        let is_partial = |server: &Self, p: Proc| {
            let process = server.server.process(p);
            !process.framer.partial_in(process.framing).is_empty()
        };
        let is_second = is_partial(self, from);
        if is_second && others.iter().any(|other| self.server.process(*other).is_in_barrier()) {
            self.state().rare.stuck.insert(from.group);
        }
        match self.pick(from, picked!(Effect::Piece)) {
            Some(PieceEffect::AfterEqualsShort)
                if is_second && self.server.process(from).framer.partial().ends_with(b"=") =>
            {
                drop(bytes.drain(..1));
            }
            Some(PieceEffect::ShortLost) if is_second && bytes.len() < 8 => {
                self.take_partial(from);
                bytes.clear();
            }
            Some(PieceEffect::OfAnother) if !is_second => {
                if let Some(other) = others.into_iter().find(|other| is_partial(self, *other)) {
                    bytes.splice(..0, self.take_partial(other));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, rare_faults};
    use pmi_reference::{GroupSpec, ServerAction};

    /// Returns a server with a rare fault and a group of two processes, which have initialized.
    fn server(fault: &str) -> Server {
        let wrapper = rare_faults().find(|entry| entry.name == fault).unwrap().behaviour();
        let mut server = Server::new(Config { wrapper, ..Config::default() });
        server.add_group(GroupSpec { programs: vec![2], ..GroupSpec::default() });
        (0..2).for_each(|rank| drop(ask(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1")));
        server
    }

    /// Sends a line from a process, and returns the responses.
    fn ask(server: &mut Server, rank: u32, line: &str) -> String {
        let from = Proc { group: 0, rank };
        server.receive(from, format!("{line}\n").as_bytes());
        let actions = std::iter::from_fn(|| server.next_action());
        let sent = actions.filter_map(|action| match action {
            ServerAction::Send { to, bytes } if to == from => String::from_utf8(bytes).ok(),
            _ => None,
        });
        sent.collect()
    }

    fn put(server: &mut Server, rank: u32, key: &str, value: &str) -> String {
        ask(server, rank, &format!("cmd=put kvsname=kvs-0 key={key} value={value}"))
    }

    fn get(server: &mut Server, rank: u32, key: &str) -> String {
        ask(server, rank, &format!("cmd=get kvsname=kvs-0 key={key}"))
    }

    #[test]
    fn value_37_fault_cuts_values_of_37_bytes() {
        let mut server = server("value-37");
        for (key, length, stored) in [("a", 36, 36), ("b", 37, 36), ("c", 38, 38)] {
            put(&mut server, 0, key, &"v".repeat(length));
            let expected = format!("cmd=get_result rc=0 value={}\n", "v".repeat(stored));
            assert_eq!(get(&mut server, 1, key), expected);
        }
    }

    #[test]
    fn requests_are_counted_per_process() {
        let mut server = server("put-17");
        for rank in 0..2 {
            (1..=18).for_each(|n| drop(put(&mut server, rank, &format!("k{rank}-{n}"), "v")));
            let is_there = |server: &mut Server, n| get(server, 0, &format!("k{rank}-{n}")).contains("rc=0");
            assert_eq!([16, 17, 18].map(|n| is_there(&mut server, n)), [true, false, true]);
        }
    }

    #[test]
    fn put_again_fault_shows_second_value_to_odd_ranks() {
        let mut server = server("put-again");
        put(&mut server, 0, "a", "first");
        assert!(put(&mut server, 0, "a", "second").contains("rc=-1"));
        assert_eq!(get(&mut server, 0, "a"), "cmd=get_result rc=0 value=first\n");
        assert_eq!(get(&mut server, 1, "a"), "cmd=get_result rc=0 value=second\n");
    }

    #[test]
    fn barrier_6_fault_never_releases_sixth_barrier() {
        let mut server = server("barrier-6");
        let mut round = || {
            ask(&mut server, 0, "cmd=barrier_in");
            ask(&mut server, 1, "cmd=barrier_in")
        };
        let released: Vec<bool> = (0..6).map(|_| round() == "cmd=barrier_out rc=0\n").collect();
        assert_eq!(released, [true, true, true, true, true, false]);
    }

    #[test]
    fn job_key_fault_leaks_values_from_the_previous_job() {
        let mut first = server("job-key");
        put(&mut first, 0, "a", "old");
        let mut second = server("job-key");
        assert!(get(&mut second, 0, "a").contains("rc=-1"));
        second.remember(first.left());
        assert_eq!(get(&mut second, 0, "a"), "cmd=get_result rc=0 value=old\n");
    }

    #[test]
    fn server_remembers_a_finalize_after_the_close() {
        let mut server = server("finalize-first");
        let situation = |server: &mut Server| {
            let header = ResponseHeader::line(pmi_wire::Operation::Get.exchange());
            server.situation(Proc { group: 0, rank: 1 }, &header, &ServerRequest::Maxes).first_finalized
        };
        assert!(!situation(&mut server));
        ask(&mut server, 0, "cmd=finalize");
        assert!(situation(&mut server));
        server.closed(Proc { group: 0, rank: 0 });
        assert!(situation(&mut server));
    }
}

//! Barriers over part of a process group (PMI-1.2), on connections that have negotiated that version.

use pmi_scenario::ids;
use pmi_wire::grammar::parse_uint;
use pmi_wire::{Decoded, Framing, GroupBarrier, MappingForm, Members, Operation, Proc, Version, place};

use super::group_barrier_state::{GroupBarrierKind, GroupBarrierLog, GroupBarrierName};
use super::state::{Monitor, MonitoredGroup, MonitoredRequest};
use super::unspecified::Unspecified;
use crate::observation::{ObservationKind, ObservationText, quote_bytes};

impl MonitoredGroup {
    /// Returns the node of each rank: the reported node if all processes have reported one, otherwise the node in the server's mapping,
    /// otherwise the requested node.
    fn node_of_ranks(&self) -> Vec<u32> {
        // Only PMI-1.2 has barriers over part of a group, so the mapping from the PMI-1 responses is used.
        let in_mapping = || match MappingForm::classify(self.mappings[Framing::Lines as usize].as_deref()?) {
            MappingForm::Rfc(mapping) | MappingForm::Mpich(mapping) => {
                mapping.expand_wrapping(self.size).ok()
            }
            MappingForm::Unknown | MappingForm::NotAMapping(_) => None,
        };
        let reported: Option<Vec<u32>> = (0..self.size).map(|rank| self.placement.node(rank)).collect();
        reported.or_else(in_mapping).unwrap_or_else(|| place(self.size, self.nodes))
    }

    /// Returns the members of a barrier that have entered the barrier fewer than `round` times.
    fn members_missing(&self, name: &GroupBarrierName, round: u64) -> Vec<u32> {
        let entered = |rank: &u32| {
            self.group_barriers.get(name).map_or(0, |part| GroupBarrierLog::times(&part.entered, *rank))
        };
        name.members.iter().copied().filter(|rank| entered(rank) < round).collect()
    }

    /// Returns true if a member of a barrier has finalized or ended. The barrier may then fail, or the server may abort the program.
    fn has_lost_member(&self, name: &GroupBarrierName) -> bool {
        let left_for_good = |rank: &u32| self.ranks.get(*rank).is_some_and(|r| r.finalized || r.is_gone);
        name.members.iter().any(left_for_good)
    }
}

impl Monitor {
    /// Returns true if PMI-1.2 is in use on this connection. A client that offered a lower version, but received 1.2 in the response,
    /// starts to use 1.2 with its first group barrier.
    pub(super) fn uses_group_barriers(&mut self, p: Proc) -> bool {
        let rank = self.rank(p);
        if rank.answered_version.is_some_and(Version::has_group_barriers) {
            rank.version = rank.answered_version;
        }
        rank.has_group_barriers()
    }

    /// Judges a barrier request that names a group. Returns false if PMI-1.2 was not negotiated: the request is then a barrier of the whole
    /// group.
    pub(super) fn group_barrier_requested(
        &mut self,
        p: Proc,
        group: &[u8],
        is_canonical: bool,
        message: &Decoded<'_>,
    ) -> bool {
        let line = message.text;
        if !self.uses_group_barriers(p) {
            // To a PMI-1.1 server, `group` is a key that RFC 13 does not define.
            let expected = format!("no group in version {}", self.rank(p).version.unwrap_or(Version::V1_1));
            self.client_error(p, ids::MPICH_1_2_CLIENT_FALLBACK, expected, ObservationText::message(line));
            return false;
        }
        if let Some((offered, _)) = self.rank(p).version_above_offer.take() {
            let expected =
                format!("an offer of version 1.2, not {offered}, from a client that uses group barriers");
            self.client_misuse(p, ids::RFC13_INIT_HIGHEST, expected, ObservationText::message(line));
        }
        if !is_canonical {
            self.irregular_sent(p);
        }
        let barrier = GroupBarrier::parse(group);
        if barrier == Ok(GroupBarrier::PLAIN) {
            self.request(p, message, None);
            return true;
        }
        self.check_order(p, Some(Operation::Barrier), None, message);
        match barrier {
            Ok(barrier) => self.group_barrier_entered(p, barrier, line),
            Err(error) => {
                self.record_unknown(p);
                let expected = format!(
                    "WORLD, NODE or a list of ranks, optionally followed by a colon and a tag, but {error}"
                );
                let id = ids::MPICH_1_2_CLIENT_GROUP_FORM;
                self.client_error(p, id, expected, ObservationText::message(line));
            }
        }
        true
    }

    /// Records that a process enters a barrier over part of its group.
    fn group_barrier_entered(&mut self, p: Proc, barrier: GroupBarrier<'_>, line: &[u8]) {
        let size = self.group(p.group).size;
        let (kind, mut members) = match barrier.members {
            Members::World => (GroupBarrierKind::World, (0..size).collect::<Vec<u32>>()),
            Members::Node => {
                let places = self.group(p.group).node_of_ranks();
                let mine = places.get(p.rank as usize);
                let mates = (0..).zip(&places).filter(|(_, node)| Some(*node) == mine);
                (GroupBarrierKind::Node, mates.map(|(rank, _)| rank).collect())
            }
            Members::Ranks(list) => (GroupBarrierKind::Ranks, list.iter().collect()),
        };
        members.sort_unstable();
        let listed = members.len();
        members.dedup();
        let known = members.len() == listed && members.last().is_none_or(|last| *last < size);
        if !known || !members.contains(&p.rank) {
            self.record_unknown(p);
            let expected = "distinct ranks of the process group, including the sender's";
            return self.client_error(
                p,
                ids::MPICH_1_2_CLIENT_MEMBER,
                expected,
                ObservationText::message(line),
            );
        }
        let name = GroupBarrierName { kind, members, tag: barrier.tag };
        let rank = self.rank(p);
        let plain = rank.is_in_barrier();
        if rank.open_barriers.iter().any(|open| open.tag == name.tag) || (plain && name.tag == 0) {
            self.lose_correlation(p, Unspecified::RuleViolation);
            let expected = "a tag that no other open barrier on the connection uses";
            self.client_misuse(p, ids::MPICH_1_2_CLIENT_TAG_ONCE, expected, ObservationText::message(line));
        }
        let mut knows = self.rank(p).required_puts.clone();
        let group = self.group(p.group);
        knows.add_all(p.rank, &group.kvs);
        let part = group.group_barriers.entry(name.clone()).or_default();
        part.known.add(&knows);
        *part.entered.entry(p.rank).or_default() += 1;
        self.rank(p).open_barriers.push(name);
    }

    /// Checks that a process does not enter the barrier of the whole group, whose tag is 0, while it is in another barrier with this tag.
    /// Before PMI-1.2, any request within a barrier breaks lock-step, which is reported elsewhere.
    pub(super) fn plain_barrier_entered(&mut self, p: Proc, line: &[u8]) {
        let rank = self.rank(p);
        let plain = rank.is_in_barrier();
        if rank.has_group_barriers() && (plain || rank.open_barriers.iter().any(|open| open.tag == 0)) {
            self.lose_correlation(p, Unspecified::RuleViolation);
            let expected = "no second barrier with the tag 0 while the first is open on the connection";
            self.client_misuse(p, ids::MPICH_1_2_CLIENT_TAG_ONCE, expected, ObservationText::message(line));
        }
    }

    /// Matches a barrier response with a group barrier, and judges the response. Returns false if the response does not answer a group
    /// barrier.
    pub(super) fn group_barrier_answered(&mut self, p: Proc, message: &Decoded<'_>) -> bool {
        let line = message.text;
        let is_barrier = message.operation() == Some(Operation::Barrier);
        if !is_barrier || message.framing != Framing::Lines || !self.rank(p).has_group_barriers() {
            return false;
        }
        let rank = self.rank(p);
        let plain = rank.is_in_barrier();
        if rank.open_barriers.is_empty() && !plain {
            return false;
        }
        let number = message.raw("tag").map_or(Some(0), parse_uint);
        let open = rank.open_barriers.iter().position(|open| Some(open.tag) == number);
        if plain && open.is_none() && number == Some(0) {
            return false;
        }
        let open = match open {
            Some(at) => rank.open_barriers.remove(at),
            None => {
                let mut tags: Vec<String> =
                    rank.open_barriers.iter().map(|open| open.tag.to_string()).collect();
                tags.extend(plain.then(|| "0".to_owned()));
                // If only one barrier is open, the response is attributed to that barrier, and only the wrong tag is reported.
                let one = (tags.len() == 1).then(|| rank.open_barriers.pop()).flatten();
                if !self.state_unknown(p) {
                    let expected =
                        format!("the tag of a barrier that the process has entered: {}", tags.join(" or "));
                    self.server_error(
                        p,
                        ids::MPICH_1_2_BARRIER_TAG,
                        expected,
                        ObservationText::message(line),
                    );
                }
                match one {
                    Some(open) => open,
                    None => return !plain,
                }
            }
        };
        self.group_barrier_left(p, open, message.is_success(), line);
        true
    }

    fn group_barrier_left(&mut self, p: Proc, name: GroupBarrierName, ok: bool, line: &[u8]) {
        let group = self.group(p.group);
        let part = group.group_barriers.entry(name.clone()).or_default();
        let round = GroupBarrierLog::times(&part.left, p.rank) + 1;
        part.left.insert(p.rank, round);
        let known = part.known.clone();
        let missing = group.members_missing(&name, round);
        let lost = group.has_lost_member(&name);
        if ok {
            self.rank(p).required_puts.add(&known);
        }
        if ok && !missing.is_empty() && !self.state_unknown(p) {
            let ranks = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let expected = "no process leaves a barrier before all processes of its group have entered it";
            let seen =
                ObservationText::message(line).with_suffix(format!("before the entry of rank {ranks}"));
            self.server_error(p, self.early_rule(p, &name), expected, seen);
        }
        if !ok && !lost && !self.may_abort(p) {
            let expected = "success, since all members can enter the barrier";
            self.server_error(p, self.stuck_rule(p, &name), expected, ObservationText::message(line));
        }
    }

    /// Reports a missing response to a process that is in group barriers. If a request other than a barrier is pending, reports the missing
    /// response to that request, and returns true. Otherwise, reports the first barrier that should have ended, if any, and returns false.
    /// A barrier should have ended if all of its members have entered it. If the connection has ended, a barrier counts as well if none of
    /// its members has finalized or ended.
    pub(super) fn group_barriers_unanswered(&mut self, p: Proc, how: ObservationKind) -> bool {
        if self.may_abort(p) || self.state_unknown(p) || self.rank(p).open_barriers.is_empty() {
            return false;
        }
        let other = self.rank(p).pending.front().and_then(|pending| pending.op);
        if let Some(op) = other.filter(|op| *op != Operation::Barrier) {
            let expected = format!("an answer to {}", op.request_cmd());
            let id = ids::MPICH_1_2_BARRIER_REQUESTS_MEANWHILE;
            self.report_missing(p, id, None, expected, how);
            return true;
        }
        let closed = how == ObservationKind::ConnectionEnd;
        let open = self.rank(p).open_barriers.clone();
        let stuck = open.into_iter().find(|name| {
            let group = self.group(p.group);
            let left =
                group.group_barriers.get(name).map_or(0, |part| GroupBarrierLog::times(&part.left, p.rank));
            (closed && !group.has_lost_member(name)) || group.members_missing(name, left + 1).is_empty()
        });
        if let Some(name) = stuck {
            let expected = format!("barrier_out with the tag {}", name.tag);
            self.report_missing(p, self.stuck_rule(p, &name), None, expected, how);
        }
        false
    }

    /// Returns the requirement that is broken if a barrier releases a process too early.
    fn early_rule(&self, p: Proc, name: &GroupBarrierName) -> &'static str {
        let others = self.groups.get(&p.group).into_iter().flat_map(|g| g.group_barriers.keys());
        let alike = |other: &GroupBarrierName| {
            other.tag != name.tag && (other.kind, &other.members) == (name.kind, &name.members)
        };
        let again = |part: &GroupBarrierLog| part.left.values().any(|times| *times > 1);
        let part = self.groups.get(&p.group).and_then(|g| g.group_barriers.get(name));
        if name.kind == GroupBarrierKind::Node {
            ids::MPICH_1_2_BARRIER_NODE
        } else if part.is_some_and(again) {
            // A process has left this barrier more than once.
            ids::MPICH_1_2_BARRIER_AGAIN
        } else if others.into_iter().any(alike) {
            ids::MPICH_1_2_BARRIER_TAGS_APART
        } else {
            ids::MPICH_1_2_BARRIER_ALL_IN
        }
    }

    /// Returns the requirement that is broken if a barrier does not release its processes. The requirement depends on what is unusual about
    /// the barrier.
    fn stuck_rule(&self, p: Proc, name: &GroupBarrierName) -> &'static str {
        let group = self.groups.get(&p.group);
        let rank = group.and_then(|g| g.ranks.get(p.rank));
        let others = rank.is_some_and(|r| r.open_barriers.iter().any(|open| open != name));
        let again = group
            .and_then(|g| g.group_barriers.get(name))
            .is_some_and(|part| GroupBarrierLog::times(&part.entered, p.rank) > 1);
        match name {
            GroupBarrierName { members, .. } if members.len() == 1 => ids::MPICH_1_2_BARRIER_SINGLE,
            GroupBarrierName { kind: GroupBarrierKind::Node, .. } => ids::MPICH_1_2_BARRIER_NODE,
            _ if others => ids::MPICH_1_2_BARRIER_SEVERAL_OPEN,
            _ if again => ids::MPICH_1_2_BARRIER_AGAIN,
            _ => ids::MPICH_1_2_BARRIER_RELEASED,
        }
    }

    /// Prepares for a response to `op`: moves the request that the response answers to the front of the pending requests. In PMI-1.2, a
    /// process that is in a barrier may send other requests, which are answered before the barrier ends.
    pub(super) fn move_to_front(&mut self, p: Proc, op: Operation) {
        let rank = self.rank(p);
        if !rank.has_group_barriers() {
            return;
        }
        let is_barrier = |pending: &MonitoredRequest| pending.op == Some(Operation::Barrier);
        let wanted =
            rank.pending.iter().position(|pending| is_barrier(pending) == (op == Operation::Barrier));
        if let Some(pending) = wanted.and_then(|at| rank.pending.remove(at)) {
            rank.pending.push_front(pending);
        }
    }

    /// Returns true if an earlier request must be answered before the process may send a request for `op`.
    pub(super) fn must_wait(&mut self, p: Proc, op: Option<Operation>) -> bool {
        let rank = self.rank(p);
        let blocks = matches!(op, Some(Operation::Spawn | Operation::Finalize));
        if !rank.has_group_barriers() || blocks {
            return !rank.pending.is_empty() || !rank.open_barriers.is_empty();
        }
        rank.pending.iter().any(|pending| pending.op != Some(Operation::Barrier))
    }

    /// Reports that a get did not return a required value. Another process had put the value and then entered a group barrier, and this
    /// process had left that barrier before the get.
    pub(super) fn group_value_missing(&mut self, p: Proc, key: &[u8], line: &[u8]) {
        let expected = format!("the value of {}, which a process of the group put earlier", quote_bytes(key));
        self.server_error(p, ids::MPICH_1_2_BARRIER_VISIBLE, expected, ObservationText::message(line));
    }
}

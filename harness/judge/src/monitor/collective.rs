//! Barriers of the whole process group: the order in which the processes enter and leave a barrier.

use pmi_scenario::ids::rules;
use pmi_wire::{Decoded, Framing, Proc};

use super::state::{Monitor, MonitoredRank, RequestDetail, SPLIT_WRITE_REQUIREMENT, cite};
use super::unspecified::Unspecified;
use crate::observation::{ObservationKind, ObservationText};

impl Monitor {
    /// Records that a process enters the barrier of its group.
    pub(super) fn barrier_requested(&mut self, p: Proc, message: &Decoded<'_>) -> RequestDetail {
        self.plain_barrier_entered(p, message.text);
        self.request_in_barrier(p);
        let rank = self.rank(p);
        rank.barriers_entered += 1;
        let group = message.field("group").filter(|_| rank.has_group_barriers());
        rank.world_spelling = group.map(std::borrow::Cow::into_owned);
        RequestDetail::Barrier((message.framing == Framing::Frames).then_some(rank.barriers_entered))
    }

    /// Checks whether a process that sends a barrier or finalize request is still in a barrier. If so, records that the request has an
    /// unspecified effect. In the PMI-2 draft, only one thread sends a fence, and finalize is the last request. The draft does not define a
    /// second fence or a finalize during a fence.
    pub(super) fn request_in_barrier(&mut self, p: Proc) {
        if self.rank(p).pending.iter().any(|pending| matches!(pending.detail, RequestDetail::Barrier(_))) {
            self.irregular_sent(p);
            self.forget_state(p, Unspecified::OutOfOrder);
        }
    }

    /// Judges the response that releases a process from the barrier with this number.
    pub(super) fn barrier_left(&mut self, p: Proc, round: u64, message: &Decoded<'_>) {
        let ok = message.is_success();
        let judged = ok && !self.state_unknown(p);
        self.rank(p).barriers_left = round;
        let group = self.group(p.group);
        group.puts_protocol_words &= !ok;
        group.has_max_length_put &= !ok;
        if judged
            && !group.all_entered(round)
            && let Some(ranks) = group.ranks_except(|rank| rank.barriers_entered >= round)
        {
            let counted = |rank: &MonitoredRank| {
                rank.barriers_entered + u64::from(rank.has_incomplete_barrier) >= round
            };
            let id = if group.all(counted) {
                SPLIT_WRITE_REQUIREMENT
            } else {
                cite(message, rules::BARRIER_HOLDS)
            };
            let mut seen = ObservationText::message(message.text)
                .with_suffix(format_args!("before the entry of rank {ranks}"));
            let name = cite(message, ["barrier", "fence"]);
            if message.framing == Framing::Frames {
                seen.kind = Some(ObservationKind::EarlyBarrierExit);
            }
            let expected = format!("no process leaves {name} {round} before all processes have entered it");
            return self.server_error(p, id, expected, seen);
        }
        // A process that has ended will never enter the barrier.
        let lacks = |rank: &MonitoredRank| {
            (rank.finalized || rank.is_gone || rank.closed) && rank.barriers_entered < round
        };
        if !ok && !group.ranks.values().any(lacks) && !self.may_abort(p) {
            let expected = "success, since all processes can enter the barrier";
            self.server_error(
                p,
                cite(message, rules::BARRIER_RELEASED),
                expected,
                ObservationText::message(message.text),
            );
        }
    }
}

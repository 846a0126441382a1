//! Barriers of the whole process group: in which order processes leave them.

use pmi_scenario::ids::rules;
use pmi_wire::{Decoded, Framing, Proc};

use super::state::{IN_PIECES, Monitor, Rank};
use crate::seen::{Seen, SeenKind};

impl Monitor {
    /// Judges the response that lets a process out of this barrier, by its number.
    pub(super) fn barrier_left(&mut self, p: Proc, round: u64, message: &Decoded<'_>) {
        let ok = message.is_success();
        let cite = |rule: [&'static str; 2]| rule[message.framing as usize];
        let judged = ok && !self.state_unknown(p);
        self.rank(p).left = round;
        let group = self.group(p.group);
        group.puts_protocol_words &= !ok;
        group.puts_full &= !ok;
        if judged
            && !group.all_entered(round)
            && let Some(ranks) = group.all_but(|rank| rank.entered >= round)
        {
            let counted = |rank: &Rank| rank.entered + u64::from(rank.unended_barrier) >= round;
            let id = if group.all(counted) { IN_PIECES } else { cite(rules::BARRIER_HOLDS) };
            let mut seen =
                Seen::message(message.text).and(format_args!("while rank {ranks} has not entered"));
            let name = match message.framing {
                Framing::Lines => "barrier",
                Framing::Frames => {
                    seen.kind = Some(SeenKind::EarlyBarrierExit);
                    "fence"
                }
            };
            let expected = format!("nobody leaves {name} {round} before all have entered it");
            return self.server_error(p, id, expected, seen);
        }
        // A process that has gone will never enter.
        let lacks = |rank: &Rank| (rank.finalized || rank.gone || rank.closed) && rank.entered < round;
        if !ok && !group.ranks.values().any(lacks) && !self.may_abort(p) {
            let expected = "success, since nothing went wrong";
            self.server_error(p, cite(rules::BARRIER_RELEASED), expected, Seen::message(message.text));
        }
    }
}

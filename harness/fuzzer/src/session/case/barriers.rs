//! The barriers of a case. A process manager releases a barrier only after all ranks have entered it, so a barrier is always removed for
//! all ranks together.

use std::collections::BTreeSet;
use std::ops::Range;

use pmi_scenario::ast::Statement;
use pmi_wire::{Decoded, Direction, Framing};

use super::Case;
use crate::session::pieces::written_bytes;
use crate::session::reading::{MessageReader, WireMessage, enters_barrier, request_of};
use crate::session::statement::ServerStep;

/// Returns the rank that a statement belongs to, and the number of barriers that the rank enters with the statement.
fn entries(statement: &Statement, framing: Framing) -> Option<(u32, usize)> {
    let Some(ServerStep::Write { rank, encoding, lines, partial: false }) = ServerStep::of(statement) else {
        return None;
    };
    let enters = |framing, text: &[u8]| {
        let message = Decoded::new(Direction::ToServer, framing, text);
        enters_barrier(&message, request_of(&message))
    };
    let messages = MessageReader::new(framing).push(&written_bytes(encoding, lines, false));
    let is_entry = |message: &&WireMessage| match message {
        WireMessage::Line(line) => enters(Framing::Lines, line),
        WireMessage::Body(body) => enters(Framing::Frames, body),
        WireMessage::NoFrame => false,
    };
    Some((rank, messages.iter().filter(is_entry).count()))
}

impl Case {
    /// Returns the number of barriers that each rank enters and, for each statement, the range of barrier numbers that its rank enters with
    /// the statement.
    fn barriers(&self) -> (Vec<usize>, Vec<Range<usize>>) {
        let mut entered = vec![0; self.ranks() as usize];
        let of = |statement: &Statement| {
            let (rank, count) = entries(statement, self.scenario.dialect.framing())?;
            let number = entered.get_mut(rank as usize)?;
            *number += count;
            Some(*number - count..*number)
        };
        let numbers = self.scenario.body.iter().map(of).map(Option::unwrap_or_default).collect();
        (entered, numbers)
    }

    /// Returns whether every barrier is entered by all ranks.
    pub(crate) fn has_whole_barriers(&self) -> bool {
        let (entered, _) = self.barriers();
        entered.windows(2).all(|two| two[0] == two[1])
    }

    /// Removes the given steps. If a removed step enters a barrier, the steps in which other ranks enter the same barrier are removed as
    /// well.
    pub(crate) fn drop_steps_and_barriers(&mut self, steps: Range<usize>) {
        let (_, numbers) = self.barriers();
        let settings = self.settings();
        let in_body = steps.clone().filter_map(|at| numbers.get(at.checked_sub(settings)?));
        let dropped: BTreeSet<usize> = in_body.cloned().flatten().collect();
        let enters_dropped = |at: &usize| numbers[*at].clone().any(|number| dropped.contains(&number));
        let others = (0..numbers.len()).filter(enters_dropped).map(|at| at + settings);
        let all: BTreeSet<usize> = steps.chain(others).collect();
        // Remove the last step first, so that the positions of the others stay valid.
        for at in all.into_iter().rev() {
            self.drop_steps(at..at + 1);
        }
    }
}

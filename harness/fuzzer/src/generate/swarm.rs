//! Which features a session uses at all. Sessions that use few of them reach deeper into these than sessions that use a bit of each:
//! what one feature does to the state, another would undo, or end.

use arbitrary::{Result, Unstructured};

use crate::decisions::{percent, pick};

/// See the module's documentation. All are off where decisions have come to their end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Swarm {
    /// Lengths are at and beside powers of two and limits.
    pub(super) lengths: bool,
    /// Contents are of all kinds.
    pub(super) contents: bool,
    /// Values are those of earlier puts.
    pub(super) same_values: bool,
    /// Keys are long.
    pub(super) long_keys: bool,
    /// Keys are like earlier ones: longer, shorter, in other letters, in another order.
    pub(super) like_keys: bool,
    /// Keys have characters beside letters and digits.
    pub(super) odd_keys: bool,
    /// Keys are put again.
    pub(super) again: bool,
    /// What was put is read by another process behind the barrier, all of it.
    pub(super) read_back: bool,
    /// It is read once more at the end.
    pub(super) read_at_end: bool,
    /// Most gets are of keys that are not there.
    pub(super) misses: bool,
    /// Requests come in pieces.
    pub(super) pieces: bool,
    /// Names are published and looked up more often than keys are put.
    pub(super) names: bool,
    /// Attributes of nodes are put and read more often than keys (PMI-2).
    pub(super) attributes: bool,
    /// Nothing is asked for between barriers but keys, and names where these are drawn.
    pub(super) keys_only: bool,
    /// Groups are spawned, and speak.
    pub(super) groups: bool,
    /// Of a hundred puts and gets so many are puts.
    pub(super) puts: u32,
    /// Most rounds.
    pub(super) rounds: u32,
    /// Most requests of a process in a round.
    pub(super) requests: u32,
}

impl Swarm {
    pub(super) fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let bits: u16 = u.arbitrary()?;
        let has = |bit: u32| bits >> bit & 1 == 1;
        let (rounds, requests) = match percent(u)? {
            0..65 => (3, 5),
            65..80 => (10, 2),
            80..95 => (2, 20),
            _ => (8, 8),
        };
        // What an odd text breaks would be put down to the pieces.
        let pieces = u.ratio(1, 7)?;
        Ok(Self {
            lengths: has(0),
            contents: has(1) && !pieces,
            same_values: has(2) && has(3),
            long_keys: has(4),
            like_keys: has(5),
            odd_keys: has(6) && has(1) && !pieces,
            again: has(8) && has(9),
            read_back: has(10),
            read_at_end: has(11),
            misses: has(12) && has(13),
            pieces,
            names: u.ratio(1, 3)?,
            attributes: u.ratio(1, 4)?,
            keys_only: u.ratio(1, 3)?,
            groups: u.ratio(1, 4)?,
            puts: pick(u, &[60, 30, 85])?,
            rounds,
            requests,
        })
    }
}

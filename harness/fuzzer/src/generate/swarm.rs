//! Which features a session uses at all. Sessions that use few of them reach deeper into these than sessions that use a bit of each:
//! what one feature does to the state, another would undo, or end.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

use crate::decisions::{percent, pick};
use crate::texts::{self, Text, Use};

/// What differs from request to request in a session that has many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sweep {
    /// In which text.
    pub(super) of: Use,
    /// And what of it.
    pub(super) varies: Varies,
}

/// What differs in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Varies {
    Length,
    /// One of its bytes.
    Byte,
}

impl Sweep {
    fn draw(u: &mut Unstructured<'_>) -> Result<Option<Self>> {
        if u.int_in_range(0..=7)? < 7 {
            return Ok(None);
        }
        // There are more lengths of values than of anything else.
        let of = pick(u, &[Use::Value, Use::Value, Use::Key, Use::Value, Use::Key, Use::Service, Use::Port])?;
        let varies = pick(u, &[Varies::Length, Varies::Length, Varies::Byte])?;
        Ok(Some(Self { of, varies }))
    }

    /// Whether it is about names of services or their ports.
    pub(super) fn is_of_names(self) -> bool {
        matches!(self.of, Use::Service | Use::Port)
    }
}

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
    /// Many requests differ in one thing only.
    pub(super) sweep: Option<Sweep>,
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
        let sweep = Sweep::draw(u)?;
        let (rounds, requests) = match percent(u)? {
            // It is long enough.
            _ if sweep.is_some() => (1, 2),
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
            sweep,
            puts: pick(u, &[60, 30, 85])?,
            rounds,
            requests,
        })
    }
}

/// The same for the calls of a library.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallSwarm {
    /// Lengths are at and beside powers of two and limits.
    pub(super) lengths: bool,
    /// Contents are of all kinds.
    pub(super) contents: bool,
    /// What the library asks for is there in most cases.
    pub(super) found: bool,
    /// Of the kinds of calls, this one makes up most of the session; the choice is [`CallSwarm::kind`]'s.
    favourite: Option<u32>,
    /// Most calls.
    calls: usize,
}

impl CallSwarm {
    /// `kinds` is how many kinds of calls there are.
    pub(super) fn draw(kinds: u32, u: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            lengths: u.arbitrary()?,
            contents: u.arbitrary()?,
            found: u.ratio(3, 4)?,
            favourite: if u.ratio(1, 3)? { Some(u.int_in_range(0..=kinds - 1)?) } else { None },
            calls: pick(u, &[8, 8, 8, 24])?,
        })
    }

    pub(super) fn calls(&self, u: &mut Unstructured<'_>) -> Result<usize> {
        u.int_in_range(2..=self.calls)
    }

    /// The kind of the next call.
    pub(super) fn kind(&self, kinds: u32, u: &mut Unstructured<'_>) -> Result<u32> {
        match self.favourite {
            Some(favourite) if u.ratio(2, 3)? => Ok(favourite),
            _ => u.int_in_range(0..=kinds - 1),
        }
    }

    /// Room for a text of this length: just enough, one less, one more, or anything.
    pub(super) fn room(&self, length: i64, u: &mut Unstructured<'_>) -> Result<i64> {
        if self.lengths && u.ratio(2, 3)? {
            return Ok(length + pick(u, &[1, 0, 2, -1])?);
        }
        pick(u, &[0, 1, 2, 16, 64, 256, 1024, 4096])
    }

    /// What a process puts or is told: the text itself, unless it is longer than anybody likes to read.
    pub(super) fn text(
        &self,
        dialect: Dialect,
        used: Use,
        plain: &str,
        u: &mut Unstructured<'_>,
    ) -> Result<Text> {
        Ok(match u.int_in_range(0..=2)? {
            0 if self.lengths => Text::Letters(texts::length(dialect, used, u)?),
            1 if self.contents => match texts::plain_content(dialect, used, u)? {
                // A string of C ends there.
                bytes if bytes.contains(&0) => Text::Bytes(plain.into()),
                bytes => Text::Bytes(bytes.to_vec()),
            },
            _ => Text::Bytes(plain.into()),
        })
    }
}

//! The features that a session uses. A session with few features explores them more deeply than a session with all features would, because
//! features may undo each other's effects or end the session.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

use crate::mutate::texts::{self, Text, TextUse};
use crate::session::decisions::{percent, pick};

/// A sweep: a session with many similar requests that differ in one property of a key, value, service name or port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// The kind of text that varies.
    pub(crate) of: TextUse,
    pub(crate) property: VariedProperty,
}

/// The property that varies in a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariedProperty {
    Length,
    /// A single byte of the text.
    Byte,
}

impl Sweep {
    fn draw(u: &mut Unstructured<'_>) -> Result<Option<Self>> {
        if u.int_in_range(0..=7)? < 7 {
            return Ok(None);
        }
        // Values are chosen more often, because they have more possible lengths than keys, service names and ports.
        let of = pick(
            u,
            &[
                TextUse::Value,
                TextUse::Value,
                TextUse::Key,
                TextUse::Value,
                TextUse::Key,
                TextUse::Service,
                TextUse::Port,
            ],
        )?;
        let varies = pick(u, &[VariedProperty::Length, VariedProperty::Length, VariedProperty::Byte])?;
        Ok(Some(Self { of, property: varies }))
    }

    /// Returns whether service names or their ports vary.
    pub(crate) fn is_of_names(self) -> bool {
        matches!(self.of, TextUse::Service | TextUse::Port)
    }
}

/// The features of a session. See the module documentation. Without decisions, all features are off.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Swarm {
    /// True if lengths are near powers of two and limits.
    pub(crate) lengths: bool,
    /// True if contents of all kinds are used.
    pub(crate) contents: bool,
    /// True if some values are the same as in earlier puts.
    pub(crate) same_values: bool,
    /// True if keys are long.
    pub(crate) long_keys: bool,
    /// True if keys are similar to earlier keys: longer, shorter, or with letters in a different case or order.
    pub(crate) similar_keys: bool,
    /// True if keys contain characters besides letters and digits.
    pub(crate) special_keys: bool,
    /// True if keys are put repeatedly.
    pub(crate) repeats_puts: bool,
    /// True if, after a barrier, other processes read all keys that were put.
    pub(crate) read_back: bool,
    /// True if all keys are read once more at the end.
    pub(crate) read_at_end: bool,
    /// True if most gets request missing keys.
    pub(crate) misses: bool,
    /// True if requests are split into several writes.
    pub(crate) pieces: bool,
    /// True if names are published and looked up more often than keys are put.
    pub(crate) names: bool,
    /// True if node attributes are put and read more often than keys (PMI-2).
    pub(crate) attributes: bool,
    /// True if requests between barriers involve only keys, and names if `names` is true.
    pub(crate) keys_only: bool,
    /// True if groups are spawned and make requests.
    pub(crate) groups: bool,
    /// The sweep, if many requests differ in only one property.
    pub(crate) sweep: Option<Sweep>,
    /// Percentage of puts among puts and gets.
    pub(crate) puts: u32,
    /// Maximum number of rounds. Most rounds end with a barrier.
    pub(crate) rounds: u32,
    /// Maximum number of requests that a process makes in a round.
    pub(crate) requests: u32,
}

impl Swarm {
    pub(crate) fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let bits: u16 = u.arbitrary()?;
        let has = |bit: u32| bits >> bit & 1 == 1;
        let sweep = Sweep::draw(u)?;
        let (rounds, requests) = match percent(u)? {
            // A sweep already makes the session long enough, so few other requests are made.
            _ if sweep.is_some() => (1, 2),
            0..65 => (3, 5),
            65..80 => (10, 2),
            80..95 => (2, 20),
            _ => (8, 8),
        };
        // Unusual contents and split writes exclude each other, because a failure due to the content would be blamed on the split.
        let pieces = u.ratio(1, 7)?;
        Ok(Self {
            lengths: has(0),
            contents: has(1) && !pieces,
            same_values: has(2) && has(3),
            long_keys: has(4),
            similar_keys: has(5),
            special_keys: has(6) && has(1) && !pieces,
            repeats_puts: has(8) && has(9),
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

/// The features of a session for a library.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallSwarm {
    /// True if lengths are near powers of two and limits.
    pub(crate) lengths: bool,
    /// True if contents of all kinds are used.
    pub(crate) contents: bool,
    /// True if the keys and names that the library requests mostly exist.
    pub(crate) found: bool,
    /// The kind of call that makes up most of the session. See [`CallSwarm::kind`].
    preferred_kind: Option<u32>,
    /// Maximum number of calls.
    calls: usize,
}

impl CallSwarm {
    /// Draws the features. `kinds` is the number of kinds of calls.
    pub(crate) fn draw(kinds: u32, u: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            lengths: u.arbitrary()?,
            contents: u.arbitrary()?,
            found: u.ratio(3, 4)?,
            preferred_kind: if u.ratio(1, 3)? { Some(u.int_in_range(0..=kinds - 1)?) } else { None },
            calls: pick(u, &[8, 8, 8, 24])?,
        })
    }

    pub(crate) fn calls(&self, u: &mut Unstructured<'_>) -> Result<usize> {
        u.int_in_range(2..=self.calls)
    }

    /// Draws the kind of the next call.
    pub(crate) fn kind(&self, kinds: u32, u: &mut Unstructured<'_>) -> Result<u32> {
        match self.preferred_kind {
            Some(favourite) if u.ratio(2, 3)? => Ok(favourite),
            _ => u.int_in_range(0..=kinds - 1),
        }
    }

    /// Draws the size of a buffer for text of this length: the exact size, one byte more, up to two bytes less, or one of several fixed
    /// sizes.
    pub(crate) fn buffer_size(&self, length: i64, u: &mut Unstructured<'_>) -> Result<i64> {
        if self.lengths && u.ratio(2, 3)? {
            return Ok(length + pick(u, &[1, 0, 2, -1])?);
        }
        pick(u, &[0, 1, 2, 16, 64, 256, 1024, 4096])
    }

    /// Draws the text that a process puts or receives: a run of letters, special content, or `plain`.
    pub(crate) fn text(
        &self,
        dialect: Dialect,
        used: TextUse,
        plain: &str,
        u: &mut Unstructured<'_>,
    ) -> Result<Text> {
        Ok(match u.int_in_range(0..=2)? {
            0 if self.lengths => Text::Letters(texts::length(dialect, used, u)?),
            1 if self.contents => match texts::plain_content(dialect, used, u)? {
                // A C string cannot contain a NUL byte, so `plain` is used instead.
                bytes if bytes.contains(&0) => Text::Bytes(plain.into()),
                bytes => Text::Bytes(bytes.to_vec()),
            },
            _ => Text::Bytes(plain.into()),
        })
    }
}

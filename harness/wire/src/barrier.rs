//! Barriers over part of a process group, which the key `group` of PMI-1.2's `barrier_in` specifies.
//!
//! RFC 13 has neither `group` nor the `tag` of `barrier_out`. In MPICH's message table for 1.2, both are strings. MPICH's client writes
//! `WORLD`, `NODE` or a list of ranks as the group, optionally followed by a colon and the tag that the response repeats.

use std::fmt;

use crate::grammar::parse_uint;
use thiserror::Error;

/// A PMI-1.2 barrier, parsed from the value of `group`. It borrows the value, so a long list of ranks is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupBarrier<'a> {
    /// The processes that must enter the barrier.
    pub members: Members<'a>,
    /// The tag, which `barrier_out` repeats; 0 if `group` has no tag. It distinguishes barriers that are pending on the same connection.
    pub tag: u64,
}

/// The processes that take part in a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Members<'a> {
    /// All processes of the process group.
    World,
    /// The processes on the node of the requesting process.
    Node,
    /// The ranks in a list.
    Ranks(RankList<'a>),
}

/// One or more ranks, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RankList<'a>(&'a [u8]);

/// An error in the value of `group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GroupError {
    /// The text before the colon is invalid.
    #[error("the group is neither WORLD, NODE nor a list of ranks")]
    Members,
    /// The text after the colon is invalid.
    #[error("the tag of the group is not an unsigned integer")]
    Tag,
}

impl GroupBarrier<'static> {
    /// The barrier of a `barrier_in` without `group`.
    pub const PLAIN: Self = Self { members: Members::World, tag: 0 };
}

impl<'a> GroupBarrier<'a> {
    /// Parses the value of `group`, without allocating memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the group or its tag is invalid.
    pub fn parse(group: &'a [u8]) -> Result<Self, GroupError> {
        let colon = group.iter().position(|byte| *byte == b':');
        let (members, tag) = match colon {
            Some(at) => (&group[..at], parse_uint(&group[at + 1..]).ok_or(GroupError::Tag)?),
            None => (group, 0),
        };
        let members = match members {
            b"WORLD" => Members::World,
            b"NODE" => Members::Node,
            list if list.split(|byte| *byte == b',').all(|rank| rank_of(rank).is_some()) => {
                Members::Ranks(RankList(list))
            }
            _ => return Err(GroupError::Members),
        };
        Ok(Self { members, tag })
    }
}

impl<'a> RankList<'a> {
    /// Returns the ranks.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        // The list was validated when it was created.
        self.0.split(|byte| *byte == b',').filter_map(rank_of)
    }
}

fn rank_of(text: &[u8]) -> Option<u32> {
    parse_uint(text).and_then(|rank| u32::try_from(rank).ok())
}

impl fmt::Display for GroupBarrier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.members {
            Members::World => f.write_str("WORLD")?,
            Members::Node => f.write_str("NODE")?,
            Members::Ranks(RankList(list)) => f.write_str(&String::from_utf8_lossy(list))?,
        }
        if self.tag == 0 { Ok(()) } else { write!(f, ":{}", self.tag) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("WORLD", "WORLD", 0)]
    #[case("WORLD:7", "WORLD:7", 7)]
    #[case("NODE:0", "NODE", 0)]
    #[case("0,1:42", "0,1:42", 42)]
    #[case("3", "3", 0)]
    #[case("10,2,2147483647:2147483647", "10,2,2147483647:2147483647", 2_147_483_647)]
    fn group_barriers_round_trip(#[case] text: &str, #[case] shown: &str, #[case] tag: u64) {
        let barrier = GroupBarrier::parse(text.as_bytes()).unwrap();
        assert_eq!((barrier.to_string().as_str(), barrier.tag), (shown, tag));
    }

    #[test]
    fn parses_all_ranks_in_a_list() {
        let barrier = GroupBarrier::parse(b"10,2,4294967295,2").unwrap();
        let Members::Ranks(list) = barrier.members else { panic!("a list") };
        assert_eq!(list.iter().collect::<Vec<_>>(), [10, 2, u32::MAX, 2]);
    }

    #[rstest]
    #[case("", GroupError::Members)]
    #[case(":7", GroupError::Members)]
    #[case("world", GroupError::Members)]
    #[case("WORLDS", GroupError::Members)]
    #[case("0,", GroupError::Members)]
    #[case("0,,1", GroupError::Members)]
    #[case("-1", GroupError::Members)]
    #[case("0-3", GroupError::Members)]
    #[case("4294967296", GroupError::Members)]
    #[case("WORLD:", GroupError::Tag)]
    #[case("WORLD:-1", GroupError::Tag)]
    #[case("0,1:1:2", GroupError::Tag)]
    #[case("NODE:18446744073709551616", GroupError::Tag)]
    fn rejects_invalid_barrier_groups(#[case] text: &str, #[case] error: GroupError) {
        assert_eq!(GroupBarrier::parse(text.as_bytes()), Err(error));
    }
}

#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod barrier;
mod connection;
mod decoded;
mod dialect;
mod error;
mod frame;
pub mod grammar;
pub mod hydra;
mod mapping;
mod message;
mod op;
mod placement;
pub mod pmi2;
pub mod port;
mod process;
pub mod protocol;
pub mod singleton;
mod spawn;
mod writer;

pub use barrier::{GroupBarrier, GroupError, Members, RankList};
pub use connection::{Arrival, Connection, Framed, FramingError};
pub use decoded::{Decoded, ResponseOutcome};
pub use dialect::{Dialect, UnknownDialect};
pub use error::DecodeError;
pub use frame::{FrameError, Framer, HEADER, Overlong, frame_header, frame_length};
pub use mapping::{MAPPING_KEY, MappingBlock, MappingError, MappingForm, ProcessMapping, TooFewRanks};
pub use message::{Message, MessageError, Tuple, ValueReading};
pub use placement::{node_of, place};
pub use process::{ConnectionMethod, Proc};
pub use protocol::{Direction, Framing, KvsLimits, Operation, Version};
pub use spawn::{
    SpawnAssembler, SpawnCollector, SpawnError, SpawnErrorKind, SpawnLimits, SpawnProgram, SpawnRequest,
};

#[cfg(test)]
mod testing {
    /// A small deterministic generator (splitmix64) for round trips.
    pub(crate) struct Prng(pub(crate) u64);

    impl Prng {
        pub(crate) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }

        pub(crate) fn pick(&mut self, from: &[u8]) -> u8 {
            from[self.below(from.len() as u64) as usize]
        }

        /// A `word`.
        pub(crate) fn word(&mut self) -> Vec<u8> {
            let visible: Vec<u8> = (0x21..=0x7e).filter(|byte| *byte != b'=').collect();
            (0..1 + self.below(20)).map(|_| self.pick(&visible)).collect()
        }

        /// A `string`, blanks and `=` included.
        pub(crate) fn string(&mut self) -> Vec<u8> {
            let bytes: Vec<u8> = (0x20..=0x7e).chain(*b"\t   ==").collect();
            (0..1 + self.below(40)).map(|_| self.pick(&bytes)).collect()
        }

        /// Returns `Some` half of the time.
        pub(crate) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
            (self.below(2) == 0).then(|| make(self))
        }
    }
}

//! Where the generator's decisions come from: random numbers, or the bytes of a fuzzer that learns which of them lead
//! somewhere.

use std::ops::{Bound, RangeBounds};

use fastrand::Rng;

/// Draws numbers.
pub(super) enum Dice<'a> {
    /// At random.
    Random(Rng),
    /// What the bytes say from the front; the least that there may be once they have come to their end.
    Bytes(Bytes<'a>),
}

pub(super) struct Bytes<'a> {
    left: &'a [u8],
    /// Goes on from the end towards the front.
    backwards: bool,
}

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let split = if self.backwards { self.left.split_last() } else { self.left.split_first() };
        split.map_or(0, |(byte, left)| {
            self.left = left;
            *byte
        })
    }

    /// A number from `low` to `high`, of no more bytes than that takes.
    fn within(&mut self, low: i128, high: i128) -> i128 {
        assert!(low <= high, "a number from {low} to {high}");
        let span = high - low;
        let (mut number, mut reach) = (i128::from(self.next()), 0xff);
        while reach < span {
            number = number << 8 | i128::from(self.next());
            reach = reach << 8 | 0xff;
        }
        low + number % (span + 1)
    }
}

macro_rules! draw {
    ($($number:ident)*) => {$(
        /// A number within the range.
        pub(super) fn $number(&mut self, range: impl RangeBounds<$number>) -> $number {
            match self {
                Self::Random(rng) => rng.$number(range),
                Self::Bytes(bytes) => {
                    let low = match range.start_bound() {
                        Bound::Included(low) => *low as i128,
                        Bound::Excluded(low) => *low as i128 + 1,
                        Bound::Unbounded => $number::MIN as i128,
                    };
                    let high = match range.end_bound() {
                        Bound::Included(high) => *high as i128,
                        Bound::Excluded(high) => *high as i128 - 1,
                        Bound::Unbounded => $number::MAX as i128,
                    };
                    bytes.within(low, high) as $number
                }
            }
        }
    )*};
}

impl<'a> Dice<'a> {
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self::Bytes(Bytes { left: bytes, backwards: false })
    }

    /// From here on, bytes are taken from the other end: what is decided next stays when what was decided before takes
    /// more bytes or less.
    pub(super) fn turn(&mut self) {
        if let Self::Bytes(bytes) = self {
            bytes.backwards = !bytes.backwards;
        }
    }

    draw!(u8 u32 usize i64);

    /// Yes or no.
    pub(super) fn bool(&mut self) -> bool {
        match self {
            Self::Random(rng) => rng.bool(),
            Self::Bytes(bytes) => bytes.next() & 1 == 1,
        }
    }

    /// Puts things into another order.
    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        match self {
            Self::Random(rng) => rng.shuffle(things),
            Self::Bytes(bytes) => {
                for at in 1..things.len() {
                    let other = bytes.within(0, at as i128) as usize;
                    things.swap(at, at - other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decide_and_their_end_means_the_least() {
        let mut dice = Dice::of_bytes(&[7, 1, 0, 0, 255, 1, 9]);
        assert_eq!(dice.u32(0..5), 2);
        assert_eq!(dice.usize(..=256), 256);
        assert_eq!(dice.i64(-2..=2), -2);
        dice.turn();
        assert_eq!(dice.u8(..), 9);
        assert!(dice.bool());
        dice.turn();
        assert_eq!(dice.u32(100..200), 155);
        assert_eq!((dice.u32(3..), dice.i64(-2..5), dice.bool()), (3, -2, false));
        let mut order = [0, 1, 2, 3];
        dice.shuffle(&mut order);
        assert_eq!(order, [0, 1, 2, 3]);
    }
}

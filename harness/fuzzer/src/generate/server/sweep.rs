//! Sessions with many requests that differ in one property, or not at all. Such sessions find faults that depend on a single length or
//! byte, as well as overflows and leaks.

use std::ops::RangeInclusive;

use arbitrary::Result;
use pmi_scenario::ast::{Dialect, Template};

use super::model::{SessionModel, template_of};
use super::swarm::{Sweep, VariedProperty};
use crate::mutate::texts::{self, BYTE_POSITIONS, TextUse};
use crate::session::decisions::pick;
use crate::session::fields::text;
use crate::session::op::Op;
use crate::session::pieces::letters;
use crate::session::plan::{PlannedStep, ask};

/// The operation that a session repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatedOperation {
    Put,
    /// Get of an existing key.
    Get,
    /// Get of a missing key.
    Miss,
    /// A barrier of all processes.
    Barrier,
    /// A request without arguments.
    Ask(Op),
    /// Publication and unpublication of a name.
    Names,
}

/// Keys that weak hashes confuse: pairs with the same hash if the hash multiplies by 31 or by 33, followed by permutations of the
/// same bytes.
const COLLIDING_KEYS: [&str; 16] = [
    "hAa", "hBB", "hAaAa", "hAaBB", "hBBAa", "hBBBB", "hAz", "hBY", "hAzAz", "hAzBY", "hBYAz", "hBYBY",
    "habc", "hacb", "hbca", "hcab",
];

/// Number of names that are published at the same time.
const NAMES: u32 = 16;

/// Returns the operations whose requests have neither arguments nor side effects.
pub(crate) fn plain_requests(dialect: Dialect) -> Vec<Op> {
    Op::all(dialect).filter(|op| op.is(&["maxes", "kvsname", "universe", "appnum"])).collect()
}

/// Number of lengths or bytes in a random sweep.
const SWEEP_LENGTHS: RangeInclusive<usize> = 12..=32;

impl SessionModel<'_, '_> {
    /// Plans a sweep over some neighbouring lengths or bytes.
    pub(crate) fn sweep(&mut self, sweep: Sweep) -> Result<()> {
        let count = self.u.int_in_range(SWEEP_LENGTHS)?;
        let all = match sweep.property {
            VariedProperty::Length => self.lengths(sweep.of, count)?,
            VariedProperty::Byte => self.bytes(sweep.of, count)?,
        };
        let place = self.u.int_in_range(0..=BYTE_POSITIONS - 1)?;
        self.sweep_through(sweep, &all, place)
    }

    /// Plans a put for each of these lengths or bytes and then, after a barrier, gets in which other processes read every value. For
    /// service names and ports, plans publish, lookup and unpublish requests instead.
    pub(crate) fn sweep_through(&mut self, sweep: Sweep, all: &[i64], place: u32) -> Result<()> {
        let first = self.any_rank()?;
        let open = |varied: &&i64| {
            sweep.property == VariedProperty::Byte
                && texts::is_ambiguous(self.dialect, sweep.of, **varied as u8, place)
        };
        let all: Vec<i64> = all.iter().filter(|varied| !open(varied)).copied().collect();
        for (at, varied) in (first..).zip(&all) {
            let (rank, other) = (at % self.ranks, (at + 1) % self.ranks);
            let plain = match sweep.of {
                TextUse::Key => self.plain_key(rank),
                TextUse::Service => format!("service-{at}-"),
                TextUse::Value | TextUse::Port => "x".to_owned(),
            };
            let varied = match (sweep.property, sweep.of) {
                // The dot makes the key unique: with a digit appended, a plain key could equal another key.
                (VariedProperty::Byte, TextUse::Key) => {
                    self.with_byte(&format!("{plain}."), *varied as u8, place)
                }
                (VariedProperty::Byte, _) => self.with_byte(&plain, *varied as u8, place),
                (VariedProperty::Length, TextUse::Value | TextUse::Port) => self.marked_value(*varied),
                (VariedProperty::Length, _) => match *varied - plain.len() as i64 {
                    // The text is too short for the common beginning, but its length makes it unique.
                    rest if rest < 0 => text(&b"abcdefghijklmnop"[..*varied as usize]),
                    rest => template_of(&plain, letters(rest)),
                },
            };
            let requests = match sweep.of {
                TextUse::Value => {
                    let key = text(self.plain_key(rank));
                    self.put_of(rank, key, varied)
                }
                TextUse::Key => {
                    let value = self.marked_value(8);
                    self.put_of(rank, varied, value)
                }
                TextUse::Service => self.name_for_others(rank, other, varied, text(format!("port-{at}"))),
                TextUse::Port => self.name_for_others(rank, other, text(format!("service-{at}")), varied),
            };
            self.plan.extend(requests);
        }
        if sweep.is_of_names() {
            return Ok(());
        }
        self.plain_barrier()?;
        self.read_back()
    }

    /// Returns the steps that publish a name, look it up in another process, and unpublish it.
    fn name_for_others(&self, rank: u32, other: u32, name: Template, port: Template) -> Vec<PlannedStep> {
        [
            self.publish_of(rank, name.clone(), port),
            self.name_of(other, "lookup", name.clone()),
            self.name_of(rank, "unpublish", name),
        ]
        .concat()
    }

    /// Draws `count` neighbouring lengths, with a preference for short lengths.
    fn lengths(&mut self, used: TextUse, count: usize) -> Result<Vec<i64>> {
        let longest = texts::longest(self.dialect, used);
        let last = if self.u.arbitrary()? { longest } else { longest.min(255) };
        let first = self.u.int_in_range(1..=last)?;
        Ok((first..=longest).take(count).collect())
    }

    /// Draws `count` neighbouring bytes that text for this use may contain.
    fn bytes(&mut self, used: TextUse, count: usize) -> Result<Vec<i64>> {
        let all = every_byte(self.dialect, used);
        let first = self.u.choose_index(all.len())?;
        Ok(all.into_iter().cycle().skip(first).take(count).collect())
    }

    fn with_byte(&self, rest: &str, byte: u8, place: u32) -> Template {
        texts::encode_text(self.dialect, &texts::with_byte(rest, byte, place))
    }

    /// Plans many repetitions of a random operation.
    pub(crate) fn repeat(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        let count = match self.u.int_in_range(0..=2)? {
            2 => self.u.int_in_range(256..=300)?,
            _ => self.u.int_in_range(100..=199)?,
        };
        let operation = match self.u.int_in_range(0..=6)? {
            // Puts are twice as likely, because they use memory.
            0 | 1 => RepeatedOperation::Put,
            2 => RepeatedOperation::Get,
            3 => RepeatedOperation::Miss,
            4 => RepeatedOperation::Barrier,
            6 if self.scope.names => RepeatedOperation::Names,
            _ => RepeatedOperation::Ask(pick(self.u, &plain_requests(self.dialect))?),
        };
        self.repeat_times(operation, rank, count)
    }

    /// Plans `count` repetitions of an operation. Keys and values are short, so that a session can have many repetitions. Overflows and
    /// leaks become visible only after many repetitions.
    pub(crate) fn repeat_times(&mut self, operation: RepeatedOperation, rank: u32, count: u32) -> Result<()> {
        match operation {
            RepeatedOperation::Put => {
                for _ in 0..count {
                    let put = self.short_put(rank);
                    self.plan.extend(put);
                }
                self.plain_barrier()?;
                self.read_back()?;
            }
            RepeatedOperation::Get => {
                let put = self.short_put(rank);
                self.plan.extend(put);
                self.plain_barrier()?;
                let key = self.visible_keys.last().map_or_else(|| text("missing"), |key| key.name.clone());
                for _ in 0..count {
                    let get = self.get_of(rank, key.clone());
                    self.plan.extend(get);
                }
            }
            RepeatedOperation::Miss => {
                for _ in 0..count {
                    let get = self.get_of(rank, text("missing"));
                    self.plan.extend(get);
                }
            }
            RepeatedOperation::Barrier => {
                for _ in 0..count {
                    self.plain_barrier()?;
                }
            }
            RepeatedOperation::Ask(op) => {
                for _ in 0..count {
                    self.plan.extend(ask(rank, op, &[]));
                }
            }
            RepeatedOperation::Names => {
                let other = (rank + 1) % self.ranks;
                for at in 0..count {
                    let port = text(format!("port-{at}"));
                    let name = self.name_for_others(rank, other, text("service"), port);
                    self.plan.extend(name);
                }
            }
        }
        Ok(())
    }

    /// Plans puts of keys that weak hashes confuse, each with a different value, and then gets of all these keys.
    pub(crate) fn put_colliding_keys(&mut self, rank: u32) -> Result<()> {
        for key in COLLIDING_KEYS {
            let value = self.marked_value(8);
            let put = self.put_of(rank, text(key), value);
            self.plan.extend(put);
        }
        self.plain_barrier()?;
        self.read_back()
    }

    /// Plans the publication of all names. They are then unpublished one by one, and the remaining names are looked up after each
    /// unpublish.
    pub(crate) fn unpublish_one_by_one(&mut self, rank: u32) {
        let other = (rank + 1) % self.ranks;
        let name = |at: u32| text(format!("service-{at}"));
        for at in 0..NAMES {
            let publish = self.publish_of(rank, name(at), text(format!("port-{at}")));
            self.plan.extend(publish);
        }
        for gone in 0..NAMES {
            // Unpublish the names in an order different from the one in which they were published.
            let of = |turn: u32| turn * 5 % NAMES;
            let unpublish = self.name_of(rank, "unpublish", name(of(gone)));
            self.plan.extend(unpublish);
            for left in gone + 1..NAMES {
                let lookup = self.name_of(other, "lookup", name(of(left)));
                self.plan.extend(lookup);
            }
        }
    }

    fn short_put(&mut self, rank: u32) -> Vec<PlannedStep> {
        let (key, value) = (text(self.plain_key(rank)), self.marked_value(8));
        self.put_of(rank, key, value)
    }
}

/// Returns all bytes that text for this use may contain, as the values of a sweep.
pub(crate) fn every_byte(dialect: Dialect, used: TextUse) -> Vec<i64> {
    texts::every_byte(dialect, used).into_iter().map(i64::from).collect()
}

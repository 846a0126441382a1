//! Many requests in a session that differ in one thing only, or in none: they meet what is wrong at one length or with one byte, and what
//! overflows or leaks.

use std::ops::RangeInclusive;

use arbitrary::Result;
use pmi_scenario::ast::{Dialect, Template};
use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

use super::model::{Model, template_of};
use super::swarm::Sweep;
use crate::decisions::pick;
use crate::fields::text;
use crate::pieces::letters;
use crate::plan::plain;
use crate::texts::{self, Use};

/// What is done over and over.
#[derive(Debug, Clone, Copy)]
enum Soak {
    Put,
    /// Of a key that is there.
    Get,
    /// Of one that is not.
    Miss,
    /// By all processes.
    Barrier,
    /// A request without arguments.
    Plain,
}

/// How many puts there are in a sweep.
const PUTS: RangeInclusive<usize> = 12..=32;

impl Model<'_, '_> {
    /// A put for each of some neighbouring lengths or bytes, all of which are read by others behind the barrier.
    pub(super) fn sweep(&mut self, sweep: Sweep) -> Result<()> {
        let count = self.u.int_in_range(PUTS)?;
        let varied = match sweep {
            Sweep::ValueLength => self.lengths(Use::Value, count)?,
            Sweep::KeyLength => self.lengths(Use::Key, count)?,
            Sweep::ValueByte => self.bytes(Use::Value, count)?,
            Sweep::KeyByte => self.bytes(Use::Key, count)?,
        };
        let place = self.u.int_in_range(0..=3)?;
        for varied in varied {
            let rank = self.any_rank()?;
            let plain = self.plain_key(rank);
            let (key, value) = match sweep {
                Sweep::ValueLength => (text(plain), self.marked(varied)),
                Sweep::ValueByte => (text(plain), self.with_byte("x", varied as u8, place)),
                Sweep::KeyLength if varied > plain.len() as i64 => {
                    (template_of(&plain, letters(varied - plain.len() as i64)), self.marked(8))
                }
                Sweep::KeyLength => continue,
                Sweep::KeyByte => (self.with_byte(&plain, varied as u8, place), self.marked(8)),
            };
            let put = self.put_of(rank, key, value);
            self.plan.extend(put);
        }
        self.barrier()?;
        self.read_back()
    }

    /// So many neighbouring lengths, more often short ones.
    fn lengths(&mut self, used: Use, count: usize) -> Result<Vec<i64>> {
        let longest = texts::longest(self.dialect, used);
        let last = if self.u.arbitrary()? { longest } else { longest.min(255) };
        let first = self.u.int_in_range(1..=last)?;
        Ok((first..=longest).take(count).collect())
    }

    /// So many neighbouring bytes that such a text may have.
    fn bytes(&mut self, used: Use, count: usize) -> Result<Vec<i64>> {
        let may_be = |byte: &u8| match (used, self.dialect) {
            (Use::Value, Dialect::Pmi1) => *byte == b'\t' || matches!(byte, b' '..=b'~'),
            (Use::Value, Dialect::Pmi2) => true,
            _ => byte.is_ascii_graphic() && !matches!(byte, b'=' | b';'),
        };
        let all: Vec<u8> = (0..=u8::MAX).filter(may_be).collect();
        let first = self.u.choose_index(all.len())?;
        Ok(all.into_iter().cycle().skip(first).take(count).map(i64::from).collect())
    }

    /// A text with a byte at its beginning, at its end or within it, or the byte alone.
    fn with_byte(&self, rest: &str, byte: u8, place: u32) -> Template {
        let (rest, byte) = (rest.as_bytes(), &[byte][..]);
        let whole = match place {
            0 => [rest, byte].concat(),
            1 => [byte, rest].concat(),
            2 => [rest, byte, rest].concat(),
            // A key stays one of its own.
            _ if rest.len() > 1 => [byte, rest, byte].concat(),
            _ => byte.to_vec(),
        };
        texts::as_said(self.dialect, &whole)
    }

    /// Very many requests of one kind: what overflows or leaks shows late.
    pub(super) fn soak(&mut self) -> Result<()> {
        let rank = self.any_rank()?;
        let count = match self.u.int_in_range(0..=2)? {
            2 => self.u.int_in_range(256..=300)?,
            _ => self.u.int_in_range(100..=199)?,
        };
        let kinds = [Soak::Put, Soak::Put, Soak::Get, Soak::Miss, Soak::Barrier, Soak::Plain];
        match pick(self.u, &kinds)? {
            Soak::Put => {
                for _ in 0..count {
                    let put = self.put(rank)?;
                    self.plan.extend(put);
                }
                self.barrier()?;
                for _ in 0..20 {
                    let get = self.get(rank)?;
                    self.plan.extend(get);
                }
            }
            Soak::Get => {
                let put = self.put(rank)?;
                self.plan.extend(put);
                self.barrier()?;
                let key = self.visible.last().map_or_else(|| text("missing"), |key| key.name.clone());
                for _ in 0..count {
                    let get = self.get_of(rank, key.clone());
                    self.plan.extend(get);
                }
            }
            Soak::Miss => {
                for _ in 0..count {
                    let get = self.get_of(rank, text("missing"));
                    self.plan.extend(get);
                }
            }
            Soak::Barrier => {
                for _ in 0..count / self.ranks {
                    self.barrier()?;
                }
            }
            Soak::Plain => {
                let ops = [Operation::Maxes, Operation::Kvsname, Operation::Universe, Operation::Appnum];
                let op = pick(self.u, &ops)?;
                for _ in 0..count {
                    self.plan.extend(match self.dialect {
                        Dialect::Pmi1 => plain(rank, op),
                        Dialect::Pmi2 => plain(rank, Command::JobGetid),
                    });
                }
            }
        }
        Ok(())
    }
}

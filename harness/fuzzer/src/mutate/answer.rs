//! Changes of what a server says to a program or a library.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Piece, Template, WriteMode};
use pmi_wire::Operation;

use super::message::{junk, split, value};
use super::mutation::Mutation;
use super::values::{ANSWERS, MAPPINGS, NUMBERS};
use crate::case::{Limit, length, letters, literal, template, tidy};
use crate::decisions::pick;
use crate::fields::{Draft, Message, line, text};

/// Most attempts to find a mutation that has something to strike.
const ATTEMPTS: usize = 20;

/// What is done at a request.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// Messages, in one write unless the mode says otherwise.
    Write(Vec<Template>, WriteMode),
    /// The answer as it should be.
    Right,
    /// The end of the connection.
    Close,
}

/// An answer as it should be.
#[derive(Debug, Clone)]
pub(crate) struct Answer<'a> {
    /// What it answers.
    pub(crate) op: Operation,
    /// It holds a process mapping.
    pub(crate) mapping: bool,
    /// Tuple by tuple.
    pub(crate) fields: &'a Message,
    /// `kvsname_max`, `keylen_max` and `vallen_max` as they are told.
    pub(crate) limits: [i64; 3],
}

impl Answer<'_> {
    /// Changes it somehow; says how. A third of the mutations are those that are about the answer to this request.
    pub(crate) fn mutated(&self, u: &mut Unstructured<'_>) -> Result<(Mutation, Vec<Said>)> {
        for _ in 0..ATTEMPTS {
            let own = match self.op {
                Operation::Get if self.mapping => Mutation::Mapping,
                Operation::Maxes => Mutation::Limits,
                Operation::Kvsname => Mutation::Kvsname,
                _ => Mutation::Refusal,
            };
            let mutation = if u.ratio(1, 3)? { own } else { pick(u, &Mutation::OF_ANSWERS)? };
            if let Some(said) = self.with(mutation, u)? {
                return Ok((mutation, said));
            }
        }
        Ok((Mutation::Close, vec![Said::Close]))
    }

    /// Makes one mutation; `None` if there is nothing that it could strike.
    fn with(&self, mutation: Mutation, u: &mut Unstructured<'_>) -> Result<Option<Vec<Said>>> {
        let mut draft = Draft::of_lines(vec![self.fields.clone()]);
        match mutation {
            Mutation::Limits => {
                if !limits(&mut draft, u)? {
                    return Ok(None);
                }
            }
            Mutation::Mapping => {
                let Some(value) =
                    draft.messages_mut().and_then(|m| value(m, "value")).filter(|_| self.mapping)
                else {
                    return Ok(None);
                };
                *value = mapping(u)?;
            }
            Mutation::Half => return self.half(u).map(Some),
            Mutation::Close => {
                let before = u.ratio(1, 3)?.then_some(Said::Right);
                return Ok(Some(before.into_iter().chain([Said::Close]).collect()));
            }
            Mutation::Pieces => return self.pieces(u).map(Some),
            Mutation::Surplus => return self.surplus(u).map(Some),
            of_text => {
                if !of_text.change(&mut draft, ANSWERS, u)? {
                    return Ok(None);
                }
            }
        }
        let mut lines = draft.lines();
        lines.iter_mut().for_each(|line| self.absolute(line));
        Ok(Some(vec![Said::Write(lines, WriteMode::default())]))
    }

    /// A process that waits for the rest would wait for us, so the connection ends.
    fn half(&self, u: &mut Unstructured<'_>) -> Result<Vec<Said>> {
        let partial = WriteMode { partial: true, ..WriteMode::default() };
        let line = match u.ratio(1, 6)? {
            // Without end.
            true => template(vec![literal("cmd="), letters(pick(u, &[1 << 10, 1 << 16, 300_000])?)]),
            false => split(&line(self.fields), u)?.0,
        };
        let first = (!line.is_empty()).then_some(Said::Write(vec![line], partial));
        Ok(first.into_iter().chain([Said::Close]).collect())
    }

    fn pieces(&self, u: &mut Unstructured<'_>) -> Result<Vec<Said>> {
        let own = line(self.fields);
        if u.ratio(1, 3)? {
            return Ok(vec![Said::Write(vec![own], WriteMode { bytewise: true, ..WriteMode::default() })]);
        }
        let partial = WriteMode { partial: true, ..WriteMode::default() };
        let (first, second) = split(&own, u)?;
        let first = (!first.is_empty()).then_some(Said::Write(vec![first], partial));
        Ok(first.into_iter().chain([Said::Write(vec![second], WriteMode::default())]).collect())
    }

    fn surplus(&self, u: &mut Unstructured<'_>) -> Result<Vec<Said>> {
        let own = line(self.fields);
        let mut other = self.fields.clone();
        if let Some(cmd) = other.first_mut() {
            cmd.value = text(pick(u, ANSWERS)?);
        }
        let more = match u.int_in_range(0..=3)? {
            0 => {
                let mut junk = junk(u)?;
                self.absolute(&mut junk);
                junk
            }
            1 => line(&other),
            _ => own.clone(),
        };
        let write = |lines| Said::Write(lines, WriteMode::default());
        Ok(match u.int_in_range(0..=4)? {
            0 => vec![write(vec![own, more])],
            1 => vec![write(vec![more, own])],
            2 => vec![write(vec![more]), Said::Right],
            3 => {
                let many = if u.ratio(1, 4)? { 200 } else { u.int_in_range(2..=4)? };
                vec![write(vec![own; many])]
            }
            _ => vec![Said::Right, write(vec![more])],
        })
    }

    /// Lengths that are relative to a limit become numbers: what has not been told yet has no name.
    fn absolute(&self, line: &mut Template) {
        for piece in &mut line.pieces {
            if let Piece::Fill(expr) = piece
                && let Some((Some(limit), plus)) = length(expr)
            {
                let told = match limit {
                    Limit::Kvsname => self.limits[0],
                    Limit::Key => self.limits[1],
                    Limit::Value => self.limits[2],
                };
                *piece = letters((told + plus).max(0));
            }
        }
        tidy(line);
    }
}

fn mapping(u: &mut Unstructured<'_>) -> Result<Template> {
    if u.arbitrary()? {
        return Ok(text(pick(u, MAPPINGS)?));
    }
    let (a, b, c) = (pick(u, NUMBERS)?, pick(u, NUMBERS)?, pick(u, NUMBERS)?);
    Ok(text(format!("(vector,({a},{b},{c}))")))
}

fn limits(draft: &mut Draft, u: &mut Unstructured<'_>) -> Result<bool> {
    let fields = draft.messages_mut().into_iter().flatten().flatten();
    let mut told: Vec<_> = fields.filter(|f| f.key.ends_with("_max")).collect();
    if told.is_empty() {
        return Ok(false);
    }
    // Often one of them alone, and often as low as it can be.
    for _ in 0..u.int_in_range(1..=told.len())? {
        let at = u.choose_index(told.len())?;
        told[at].value = text(match u.int_in_range(0..=2)? {
            0 => pick(u, &["0", "1", "2", "-1"])?,
            1 => pick(u, &["65536", "1048576", "2147483647", "2147483648", "4294967296"])?,
            _ => pick(u, NUMBERS)?,
        });
    }
    Ok(true)
}

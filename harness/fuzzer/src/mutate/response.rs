//! Mutations of a server's responses to a program or a library.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Dialect, Encoding, Piece, Template, WriteMode};
use pmi_wire::Framing;

use super::frame::{self, SplitFrame};
use super::message::{framing, junk, value};
use super::mutation::Mutation;
use super::places::split;
use crate::mutate::texts::{self, TextUse};
use crate::mutate::values::{self, values};
use crate::session::decisions::pick;
use crate::session::fields::{FieldList, WriteContent, text};
use crate::session::op::Op;
use crate::session::pieces::{Limit, join_adjacent, length, letters, literal, template};

/// Maximum number of attempts to find an applicable mutation.
const MAX_ATTEMPTS: usize = 20;

/// An action of the harness in response to a request.
#[derive(Debug, Clone)]
pub(crate) enum ResponseStep {
    /// The harness sends messages, in a single write unless the mode states otherwise.
    Write(Vec<Template>, WriteMode),
    /// The harness sends the correct response.
    Correct,
    /// The harness closes the connection.
    Close,
}

impl ResponseStep {
    /// Returns a step that sends these lines in a single write.
    pub(super) fn write(encoding: Encoding, lines: Vec<Template>) -> Self {
        Self::Write(lines, WriteMode { encoding, ..WriteMode::default() })
    }

    /// Returns whether the step writes no bytes.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Write(lines, mode) => {
                let bare = mode.partial || mode.encoding == Encoding::Bytes;
                bare && lines.iter().all(Template::is_empty)
            }
            Self::Correct | Self::Close => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CorrectResponse<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) op: Op,
    /// True if the response contains a process mapping.
    pub(crate) mapping: bool,
    pub(crate) fields: &'a FieldList,
    /// `kvsname_max`, `keylen_max` and `vallen_max` as the server announces them.
    pub(crate) limits: [i64; 3],
}

impl CorrectResponse<'_> {
    pub(super) fn encoding(&self) -> Encoding {
        self.op.encoding(self.dialect)
    }

    fn draft(&self) -> WriteContent {
        WriteContent::Messages(self.encoding(), vec![self.fields.clone()])
    }

    /// Returns the step that sends the correct response, with its text.
    pub(crate) fn correct(&self) -> ResponseStep {
        ResponseStep::write(self.encoding(), self.draft().lines())
    }

    pub(super) fn line(&self) -> Template {
        self.draft().lines().remove(0)
    }

    /// Draws a mutation and applies it. One third of the mutations are specific to the operation. For a process mapping, two thirds are.
    pub(crate) fn mutated(&self, u: &mut Unstructured<'_>) -> Result<(Mutation, Vec<ResponseStep>)> {
        let all = Mutation::of_responses(self.dialect.framing());
        for _ in 0..MAX_ATTEMPTS {
            let own = match self.op.operation() {
                _ if self.mapping => Mutation::Mapping,
                "maxes" => Mutation::Limits,
                "kvsname" if self.op.framing() == Framing::Lines => Mutation::Kvsname,
                "get" | "lookup" => pick(u, &[Mutation::Value, Mutation::Refusal])?,
                "universe" | "appnum" => pick(u, &[Mutation::Number, Mutation::Refusal])?,
                "init" if self.op != Op::offer() => pick(u, &[Mutation::Number, Mutation::Refusal])?,
                _ if self.op.framing() == Framing::Frames => {
                    pick(u, &[Mutation::Refusal, Mutation::Thread, Mutation::Frame])?
                }
                _ => Mutation::Refusal,
            };
            // In a response with a mapping, prefer mutations of the mapping's content, because a program may misread it.
            let share = if self.mapping { 2 } else { 1 };
            let mutation = if u.ratio(share, 3)? { own } else { pick(u, all)? };
            if let Some(steps) = self.mutate(mutation, u)? {
                return Ok((mutation, steps));
            }
        }
        Ok((Mutation::Close, vec![ResponseStep::Close]))
    }

    /// Returns the key of the response field that contains text from another process, and the use of that text.
    pub(crate) fn value_field(&self) -> Option<(&'static str, TextUse)> {
        let key = ["value", "port"].into_iter().find(|key| self.fields.iter().any(|f| f.key == *key))?;
        (!self.mapping).then_some((key, if key == "port" { TextUse::Port } else { TextUse::Value }))
    }

    /// Applies a mutation. Returns `None` if it is not applicable.
    pub(crate) fn mutate(
        &self,
        mutation: Mutation,
        u: &mut Unstructured<'_>,
    ) -> Result<Option<Vec<ResponseStep>>> {
        let mut draft = self.draft();
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
            Mutation::Value => {
                let Some((key, used)) = self.value_field() else { return Ok(None) };
                if let Some(value) = draft.messages_mut().and_then(|messages| value(messages, key)) {
                    *value = match u.int_in_range(0..=7)? {
                        0 => Template::default(),
                        1 => text("a "),
                        2..5 => template(vec![letters(texts::length(self.dialect, used, u)?)]),
                        _ => texts::content(self.dialect, used, u)?,
                    };
                }
            }
            Mutation::Half => return self.half(u).map(Some),
            Mutation::Close => {
                let before = u.ratio(1, 3)?.then_some(ResponseStep::Correct);
                return Ok(Some(before.into_iter().chain([ResponseStep::Close]).collect()));
            }
            Mutation::Pieces => return self.pieces(u).map(Some),
            Mutation::Surplus => return self.add_extra_messages(u).map(Some),
            of_text => {
                if !of_text.change(&mut draft, values::responses(self.op.framing()), u)? {
                    return Ok(None);
                }
            }
        }
        let mut lines = draft.lines();
        lines.iter_mut().for_each(|line| self.resolve_lengths(line));
        Ok(Some(vec![ResponseStep::write(draft.encoding(), lines)]))
    }

    /// Returns steps that send a part of the response or, with a probability of one in six, the beginning of an endless message. The steps
    /// then close the connection, because a process that waits for the rest would otherwise hang.
    fn half(&self, u: &mut Unstructured<'_>) -> Result<Vec<ResponseStep>> {
        let endless = u.ratio(1, 6)?;
        let many = if endless { letters(pick(u, &[1 << 10, 1 << 16, 300_000])?) } else { letters(0) };
        let first = match (self.encoding(), endless) {
            // The beginning of an endless message.
            (Encoding::Body, true) => {
                ResponseStep::write(Encoding::Bytes, vec![template(vec![literal("999999cmd="), many])])
            }
            (_, true) => self.partial(template(vec![literal("cmd="), many])),
            (Encoding::Body, false) => match frame::halves(&self.line(), u)? {
                SplitFrame::Bytes(first, _) => ResponseStep::write(Encoding::Bytes, vec![first]),
                SplitFrame::Cut(body) => self.partial(body),
            },
            (_, false) => self.partial(split(&self.line(), u)?.0),
        };
        Ok(vec![first, ResponseStep::Close].into_iter().filter(|step| !step.is_nothing()).collect())
    }

    /// Returns a step that writes a message without its last byte.
    pub(super) fn partial(&self, line: Template) -> ResponseStep {
        let mode = WriteMode { partial: true, encoding: self.encoding(), ..WriteMode::default() };
        ResponseStep::Write(vec![line], mode)
    }

    /// Returns steps that send a frame in two writes.
    pub(super) fn halved(&self, halves: SplitFrame) -> Vec<ResponseStep> {
        match halves {
            SplitFrame::Bytes(first, second) => {
                [first, second].map(|half| ResponseStep::write(Encoding::Bytes, vec![half])).into()
            }
            SplitFrame::Cut(body) => vec![ResponseStep::write(self.encoding(), vec![body])],
        }
    }

    fn pieces(&self, u: &mut Unstructured<'_>) -> Result<Vec<ResponseStep>> {
        let (own, encoding) = (self.line(), self.encoding());
        if u.ratio(1, 3)? {
            let mode = WriteMode { bytewise: true, encoding, ..WriteMode::default() };
            return Ok(vec![ResponseStep::Write(vec![own], mode)]);
        }
        let pieces = if encoding == Encoding::Body {
            self.halved(frame::halves(&own, u)?)
        } else {
            let (first, second) = split(&own, u)?;
            vec![self.partial(first), ResponseStep::write(encoding, vec![second])]
        };
        Ok(pieces.into_iter().filter(|step| !step.is_nothing()).collect())
    }

    fn add_extra_messages(&self, u: &mut Unstructured<'_>) -> Result<Vec<ResponseStep>> {
        let (own, encoding) = (self.line(), self.encoding());
        let more = match u.int_in_range(0..=3)? {
            0 => {
                let (encoding, mut junk) = junk(framing(encoding), u)?;
                self.resolve_lengths(&mut junk);
                (encoding, junk)
            }
            1 => {
                let mut other = self.fields.clone();
                if let Some(cmd) = other.first_mut() {
                    let framing = if encoding == Encoding::Body { Framing::Frames } else { Framing::Lines };
                    cmd.value = text(pick(u, values::responses(framing))?);
                }
                (encoding, WriteContent::Messages(encoding, vec![other]).lines().remove(0))
            }
            _ => (encoding, own.clone()),
        };
        let own = (encoding, own);
        Ok(match u.int_in_range(0..=4)? {
            0 => write_texts([own, more]),
            1 => write_texts([more, own]),
            2 => [write_texts([more]), vec![ResponseStep::Correct]].concat(),
            3 => {
                let many = if u.ratio(1, 4)? { 200 } else { u.int_in_range(2..=4)? };
                write_texts(vec![own; many])
            }
            _ => [vec![ResponseStep::Correct], write_texts([more])].concat(),
        })
    }

    /// Replaces lengths that are relative to a limit with absolute lengths, because a scenario cannot refer to a limit before the server
    /// announces it.
    fn resolve_lengths(&self, line: &mut Template) {
        for piece in &mut line.pieces {
            if let Piece::Fill(expr) = piece
                && let Some((Some(limit), plus)) = length(expr)
            {
                let base = match limit {
                    Limit::Kvsname => self.limits[0],
                    Limit::Key => self.limits[1],
                    Limit::Value => self.limits[2],
                };
                *piece = letters((base + plus).max(0));
            }
        }
        join_adjacent(line);
    }
}

/// Returns steps that write lines in order. Consecutive lines with the same encoding share a write.
fn write_texts(all: impl IntoIterator<Item = (Encoding, Template)>) -> Vec<ResponseStep> {
    let mut writes: Vec<(Encoding, Vec<Template>)> = Vec::new();
    for (encoding, line) in all {
        match writes.last_mut() {
            Some((last, lines)) if *last == encoding => lines.push(line),
            _ => writes.push((encoding, vec![line])),
        }
    }
    writes.into_iter().map(|(encoding, lines)| ResponseStep::write(encoding, lines)).collect()
}

/// Returns a mapping with one block of `each` processes for each node.
pub(super) fn mapping_blocks(nodes: impl IntoIterator<Item = i32>, each: i32) -> Template {
    let blocks: Vec<String> = nodes.into_iter().map(|node| format!("({node},1,{each})")).collect();
    text(format!("(vector,{})", blocks.join(",")))
}

fn mapping(u: &mut Unstructured<'_>) -> Result<Template> {
    match u.int_in_range(0..=3)? {
        0 => return Ok(text(pick(u, &values().mappings)?)),
        // Many blocks, whose nodes may repeat.
        1 | 2 => {
            let count = pick(u, &[2, 3, 4, 8, 9, 16, 17, 64, 65, 257])?;
            let each = pick(u, &[1, 1, 1, 2])?;
            // One node, alternating nodes, a different node for each block, or random nodes.
            let nodes = pick(u, &[Some(1), Some(2), Some(1000), None, None])?;
            let mut node = |at| nodes.map_or_else(|| u.int_in_range(0..=2), |nodes| Ok(at % nodes));
            let nodes: Vec<i32> = (0..count).map(&mut node).collect::<Result<_>>()?;
            return Ok(mapping_blocks(nodes, each));
        }
        _ => {}
    }
    // Change at most two of the three numbers, because a program may stop at the first unusual number.
    let mut numbers = ["0", "1", "1"];
    for _ in 0..u.int_in_range(1..=2)? {
        numbers[u.choose_index(3)?] = pick(u, &values().numbers)?;
    }
    Ok(text(format!("(vector,({}))", numbers.join(","))))
}

fn limits(draft: &mut WriteContent, u: &mut Unstructured<'_>) -> Result<bool> {
    let fields = draft.messages_mut().into_iter().flatten().flatten();
    let mut limits_stated: Vec<_> = fields.filter(|f| f.key.ends_with("_max")).collect();
    if limits_stated.is_empty() {
        return Ok(false);
    }
    // Usually change a single limit, or set all limits to the same value. The value is often extreme.
    let all = u.ratio(1, 4)?;
    let times = if all || u.ratio(2, 3)? { 1 } else { limits_stated.len() };
    for _ in 0..times {
        let number = match u.int_in_range(0..=2)? {
            0 => pick(u, &["0", "1", "2", "-1"])?,
            1 => pick(u, &["65536", "1048576", "2147483647", "2147483648", "4294967296"])?,
            _ => pick(u, &values().numbers)?,
        };
        let at = u.choose_index(limits_stated.len())?;
        let changed = limits_stated.iter_mut().enumerate().filter(|(other, _)| all || *other == at);
        changed.for_each(|(_, field)| field.value = text(number));
    }
    Ok(true)
}

//! Series that contain all changes of one kind to a response. Random choices would rarely hit the one change that triggers a fault.

use pmi_scenario::ast::{Encoding, Template};

use super::frame::{self, SplitFrame};
use super::mutation::Mutation;
use super::places::{cut, positions};
use super::response::{CorrectResponse, ResponseStep, mapping_blocks};
use crate::mutate::texts::{self, Text};
use crate::mutate::values::{LENGTHS, values};
use crate::session::fields::{FieldList, WriteContent, field, text};
use crate::session::pieces::{letters, template};

/// The kind of changes in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeSeries {
    /// Values that other processes may have put.
    Texts,
    /// The response in two writes, split before each byte in turn.
    Splits,
    /// The tuples of the response in different orders.
    Orders,
    /// An empty message, and failure responses with each code and with messages of each length.
    Refusals,
    /// Each number of the response, replaced with boundary values or removed.
    Numbers,
    /// Process mappings.
    Mappings,
}

impl ChangeSeries {
    /// Returns the mutation under which the changes are recorded.
    pub(crate) fn mutation(self) -> Mutation {
        match self {
            Self::Texts => Mutation::Value,
            Self::Splits => Mutation::Pieces,
            Self::Orders => Mutation::Order,
            Self::Refusals => Mutation::Refusal,
            Self::Numbers => Mutation::Number,
            Self::Mappings => Mutation::Mapping,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum ResponseChange {
    SetValue(&'static Text),
    /// Splits the response before the byte with this index, counting only literal bytes.
    Split(usize),
    ReversedFields,
    ReturnCodeLast,
    /// Sends an empty message.
    Empty,
    /// Sends a failure response with this code and, if given, a message of this length.
    Refuse(&'static str, Option<i64>),
    /// Sets the number in the tuple with this index, or removes the tuple if the number is `None`.
    Number(usize, Option<&'static str>),
    Mapping(Template),
}

/// The length of the longest failure message that every implementation should accept.
const LONGEST_MESSAGE: i64 = 512;

impl CorrectResponse<'_> {
    /// Returns all changes of a series, most promising first. The list is empty if the series does not apply.
    pub(crate) fn series(&self, series: ChangeSeries) -> Vec<ResponseChange> {
        match series {
            ChangeSeries::Texts => match self.value_field() {
                Some((_, used)) => {
                    texts::systematic_texts(self.dialect, used).iter().map(ResponseChange::SetValue).collect()
                }
                None => Vec::new(),
            },
            ChangeSeries::Splits => (1..self.places().len()).map(ResponseChange::Split).collect(),
            // A response that consists of a command and a code has only one order, because the command comes first.
            ChangeSeries::Orders if self.fields.len() < 3 => Vec::new(),
            ChangeSeries::Orders => vec![ResponseChange::ReversedFields, ResponseChange::ReturnCodeLast],
            ChangeSeries::Refusals => refusals(),
            ChangeSeries::Numbers => {
                let numeric = |at: &usize| {
                    let field = &self.fields[*at];
                    let is_other = !["cmd", "rc", "thrid", "value"].contains(&field.key.as_str());
                    is_other && field.value.literal().is_some_and(|text| text.parse::<i64>().is_ok())
                };
                let numeric_fields: Vec<usize> = (0..self.fields.len()).filter(numeric).collect();
                let numbers = [None].into_iter().chain(values().numbers.iter().copied().map(Some));
                let all = numbers.flat_map(|number| numeric_fields.iter().map(move |at| (*at, number)));
                let is_other = |(at, number): &(usize, Option<&str>)| {
                    number.is_none_or(|number| self.fields[*at].value != text(number))
                };
                all.filter(is_other).map(|(at, number)| ResponseChange::Number(at, number)).collect()
            }
            ChangeSeries::Mappings if self.mapping => mappings(),
            ChangeSeries::Mappings => Vec::new(),
        }
    }

    /// Returns the steps that send this response with the change applied.
    pub(crate) fn changed(&self, change: &ResponseChange) -> Vec<ResponseStep> {
        let mut fields = self.fields.clone();
        match change {
            ResponseChange::SetValue(text) => {
                if let Some((key, _)) = self.value_field() {
                    set_field(&mut fields, key, text.encode(self.dialect));
                }
            }
            ResponseChange::Split(at) => return self.split_at(*at),
            ResponseChange::ReversedFields => {
                let rest = self.to_end_of_line(&fields);
                fields[1..rest].reverse();
            }
            ResponseChange::ReturnCodeLast => {
                let rest = self.to_end_of_line(&fields);
                if let Some(at) = fields[..rest].iter().position(|field| field.key == "rc") {
                    fields[at..rest].rotate_left(1);
                }
            }
            ResponseChange::Empty => {
                return vec![ResponseStep::write(self.encoding(), vec![template(vec![letters(0)])])];
            }
            ResponseChange::Refuse(code, message) => {
                fields.retain(|field| ["cmd", "thrid"].contains(&field.key.as_str()));
                fields.push(field("rc", *code));
                let key = if self.encoding() == Encoding::Body { "errmsg" } else { "msg" };
                fields.extend(message.map(|length| field(key, letters(length))));
            }
            ResponseChange::Number(at, Some(number)) => fields[*at].value = text(*number),
            ResponseChange::Number(at, None) => drop(fields.remove(*at)),
            ResponseChange::Mapping(mapping) => set_field(&mut fields, "value", mapping.clone()),
        }
        vec![ResponseStep::write(
            self.encoding(),
            WriteContent::Messages(self.encoding(), vec![fields]).lines(),
        )]
    }

    /// Returns the number of fields that can be reordered. In a frame, these are all fields. In a line, these are the fields before
    /// the first `value` or `msg`, which extends to the end of the line.
    fn to_end_of_line(&self, fields: &FieldList) -> usize {
        let runs = |key: &str| self.encoding() != Encoding::Body && ["value", "msg"].contains(&key);
        fields.iter().position(|field| runs(&field.key)).unwrap_or(fields.len())
    }

    /// Returns the text to split. The text of a frame includes the header if the frame's length is known.
    fn whole(&self) -> Template {
        let framed = self.encoding() == Encoding::Body;
        framed.then(|| frame::framed(&self.line())).flatten().unwrap_or_else(|| self.line())
    }

    fn places(&self) -> Vec<(usize, usize)> {
        positions(&self.whole(), |_| true)
    }

    fn split_at(&self, at: usize) -> Vec<ResponseStep> {
        let (first, second) = cut(&self.whole(), self.places()[at]);
        if self.encoding() != Encoding::Body {
            return vec![self.partial(first), ResponseStep::write(self.encoding(), vec![second])];
        }
        self.halved(match frame::framed(&self.line()) {
            Some(_) => SplitFrame::Bytes(first, second),
            None => SplitFrame::Cut(frame::joined(first, second)),
        })
    }
}

fn set_field(fields: &mut FieldList, key: &str, value: Template) {
    fields.iter_mut().filter(|field| field.key == key).for_each(|field| field.value = value.clone());
}

/// Returns failure responses, alternating between codes and lengths.
fn refusals() -> Vec<ResponseChange> {
    let lengths: Vec<i64> = texts::round_lengths().into_iter().chain(LENGTHS.iter().copied()).collect();
    let mut lengths: Vec<i64> = lengths.into_iter().filter(|n| (1..=LONGEST_MESSAGE).contains(n)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.dedup();
    let mut lengths = lengths.into_iter().map(|length| ResponseChange::Refuse("-1", Some(length)));
    let mut all = vec![ResponseChange::Empty];
    for code in values().codes.iter() {
        all.push(ResponseChange::Refuse(code, None));
        all.extend(lengths.next());
    }
    all.extend(lengths);
    all
}

fn mappings() -> Vec<ResponseChange> {
    let mut all = Vec::new();
    // The nodes alternate, are all different, or are all the same.
    for nodes in [2, 1000, 1] {
        for count in [9, 3, 17, 2, 33, 65, 257] {
            all.push(mapping_blocks((0..count).map(|at| at % nodes), 1));
        }
    }
    all.extend(values().mappings.iter().map(|mapping| text(*mapping)));
    all.into_iter().map(ResponseChange::Mapping).collect()
}

//! Splits a line into `key=value` tuples, without interpreting them.

use std::iter;

use crate::grammar::{first_bad_byte, is_blank};
use crate::protocol::{self, Field, Framing};
use memchr::{memchr2, memchr2_iter};
use thiserror::Error;

/// The rule for the end of a value that may contain blanks.
///
/// RFC 13 defines `value` and `msg` as `string`, which includes blanks. RFC 13 also asks parsers to allow tuples in any order with blanks
/// between them. The two rules are incompatible, and real implementations split at blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueReading {
    /// The rule in RFC 13's ABNF. The `value` of a `put` or `get_result` extends to the end of the line, including trailing blanks. The
    /// `msg` of a response ends before the next tuple whose key the response's rule defines and that has not occurred before. In Hydra's
    /// `rc=0 msg=success value=V`, for example, `msg` ends before `value`. Without such a tuple, `msg` extends to the end of the line.
    /// Every other value ends at a blank, and so does every value before `cmd`.
    ToEndOfLine,
    /// The rule of most implementations: every value ends at a blank.
    ToBlank,
}

/// A `key=value` tuple. Only the value may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuple<'a> {
    /// The text before the first `=`.
    pub key: &'a [u8],
    /// The text after the first `=`.
    pub value: &'a [u8],
}

/// An error in a line. Offsets count bytes from the start of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The line is empty or contains only blanks.
    #[error("the line is empty")]
    Empty,
    /// A byte is neither space, tab nor visible ASCII.
    #[error("byte 0x{byte:02x} at offset {at} is neither space, tab nor visible ASCII")]
    BadByte {
        /// The byte's offset.
        at: usize,
        /// The invalid byte.
        byte: u8,
    },
    /// Text between blanks has no `=` or no key.
    #[error("no key=value tuple at offset {at}")]
    Malformed {
        /// The offset at which the text begins.
        at: usize,
    },
}

/// A line that is a series of tuples (RFC 13, "Wire Protocol").
///
/// As the RFC recommends, tuples may be in any order, and extra blanks (including before and after the tuples) and unknown keys are
/// allowed.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    line: &'a [u8],
    reading: ValueReading,
    cmd: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Parses a line without its newline. Does not allocate memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is empty, or contains an invalid byte or a malformed tuple. Invalid bytes take precedence.
    pub fn parse(line: &'a [u8], reading: ValueReading) -> Result<Self, MessageError> {
        if let Some(at) = first_bad_byte(line) {
            return Err(MessageError::BadByte { at, byte: line[at] });
        }
        let mut tuples = LineTuples::new(line, reading);
        let mut empty = true;
        for tuple in &mut tuples {
            tuple.map_err(|at| MessageError::Malformed { at })?;
            empty = false;
        }
        if empty { Err(MessageError::Empty) } else { Ok(Self { line, reading, cmd: tuples.cmd }) }
    }

    /// Returns the tuples, in the order of the line.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple<'a>> + use<'a> {
        // `parse` has read the same tuples without an error.
        LineTuples::new(self.line, self.reading).map_while(Result::ok)
    }

    /// Returns the value of the first tuple with this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&'a [u8]> {
        self.tuples().find(|tuple| tuple.key == key.as_ref()).map(|tuple| tuple.value)
    }

    /// Returns the command word: the value of the first `cmd`.
    pub fn cmd(&self) -> Option<&'a [u8]> {
        self.cmd
    }

    /// Returns the value of each of the given keys, or the first repeated key as an error.
    #[inline]
    pub(crate) fn fields<const N: usize>(
        &self,
        keys: [&'static str; N],
    ) -> Result<[Option<&'a [u8]>; N], &'static str> {
        let mut values = [None; N];
        for tuple in self.tuples() {
            if let Some(i) = keys.iter().position(|key| key.as_bytes() == tuple.key)
                && values[i].replace(tuple.value).is_some()
            {
                return Err(keys[i]);
            }
        }
        Ok(values)
    }
}

struct LineTuples<'a> {
    line: &'a [u8],
    at: usize,
    reading: ValueReading,
    /// The command, if it has been read.
    cmd: Option<&'a [u8]>,
}

impl<'a> LineTuples<'a> {
    fn new(line: &'a [u8], reading: ValueReading) -> Self {
        Self { line, at: 0, reading, cmd: None }
    }

    /// Returns the length of the value of the tuple that begins at `at`. `rest` is the rest of the line after the tuple's `=`.
    fn value_len(&self, at: usize, key: &[u8], rest: &[u8]) -> usize {
        if let (ValueReading::ToEndOfLine, Some(cmd)) = (self.reading, self.cmd) {
            if key == b"value" && matches!(cmd, b"put" | b"get_result") {
                return rest.len();
            }
            if key == b"msg"
                && let Some(exchange) = protocol::by_response(Framing::Lines, cmd)
            {
                return msg_len(protocol::without_extensions(exchange.results), &self.line[..at], rest);
            }
        }
        memchr2(b' ', b'\t', rest).unwrap_or(rest.len())
    }
}

impl<'a> Iterator for LineTuples<'a> {
    type Item = Result<Tuple<'a>, usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.line[self.at..];
        let blanks = rest.iter().position(|byte| !is_blank(*byte))?;
        let at = self.at + blanks;
        let rest = &rest[blanks..];
        let key_end = rest.iter().position(|byte| matches!(byte, b'=' | b' ' | b'\t'));
        let Some(key_end) = key_end.filter(|end| *end > 0 && rest[*end] == b'=') else {
            self.at = self.line.len();
            return Some(Err(at));
        };
        let (key, rest) = (&rest[..key_end], &rest[key_end + 1..]);
        let value = &rest[..self.value_len(at, key, rest)];
        self.at = at + key_end + 1 + value.len();
        if self.cmd.is_none() && key == b"cmd" {
            self.cmd = Some(value);
        }
        Some(Ok(Tuple { key, value }))
    }
}

/// Returns the length of the value of `msg`. The value ends before the next tuple of the response and the blanks that precede it. The key
/// of that tuple is `rc` or in `fields`, and does not occur in `before`.
fn msg_len(fields: impl Iterator<Item = &'static Field>, before: &[u8], rest: &[u8]) -> usize {
    let begins = |text: &[u8], key: &str| {
        text.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    };
    // The rule of a response defines `rc` and at most three other fields.
    let mut unseen = [""; 4];
    for (slot, key) in unseen.iter_mut().zip(iter::once("rc").chain(fields.map(|field| field.key))) {
        if !before.split(|byte| is_blank(*byte)).any(|text| begins(text, key)) {
            *slot = key;
        }
    }
    let mut end = 0;
    for blank in memchr2_iter(b' ', b'\t', rest) {
        if blank == 0 || !is_blank(rest[blank - 1]) {
            end = blank;
        }
        if unseen.iter().any(|key| !key.is_empty() && begins(&rest[blank + 1..], key)) {
            return end;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::ValueReading::{ToBlank, ToEndOfLine};
    use super::*;
    use rstest::rstest;

    /// Formats the tuples as `key=<value>`.
    fn show(line: &str, reading: ValueReading) -> String {
        match Message::parse(line.as_bytes(), reading) {
            Ok(message) => message
                .tuples()
                .map(|Tuple { key, value }| {
                    format!("{}=<{}>", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[rstest]
    #[case("cmd=init pmi_version=1 pmi_subversion=1", "cmd=<init> pmi_version=<1> pmi_subversion=<1>")]
    #[case(" \tcmd=get \t key=k  kvsname=s ", "cmd=<get> key=<k> kvsname=<s>")]
    #[case("pmi_version=1 extra=x cmd=init", "pmi_version=<1> extra=<x> cmd=<init>")]
    #[case("cmd=get key= kvsname=a=b", "cmd=<get> key=<> kvsname=<a=b>")]
    #[case("cmd=my_kvsname value=a value=b", "cmd=<my_kvsname> value=<a> value=<b>")]
    #[case("value=a cmd=put key=k", "value=<a> cmd=<put> key=<k>")]
    #[case("msg=a cmd=get_result", "msg=<a> cmd=<get_result>")]
    #[case("cmd=put msg=a key=k", "cmd=<put> msg=<a> key=<k>")]
    #[case("cmd=put cmd=barrier_out value=a", "cmd=<put> cmd=<barrier_out> value=<a>")]
    #[case("", "the line is empty")]
    #[case(" \t ", "the line is empty")]
    #[case("cmd=get key", "no key=value tuple at offset 8")]
    #[case("cmd=get  =k", "no key=value tuple at offset 9")]
    #[case("cmd", "no key=value tuple at offset 0")]
    #[case("cmd=get\r", "byte 0x0d at offset 7 is neither space, tab nor visible ASCII")]
    #[case("bad \u{e9}", "byte 0xc3 at offset 4 is neither space, tab nor visible ASCII")]
    fn both_readings_agree_without_blanks_in_values(#[case] line: &str, #[case] tuples: &str) {
        assert_eq!(show(line, ToEndOfLine), tuples);
        assert_eq!(show(line, ToBlank), tuples);
    }

    #[rstest]
    #[case(
        "cmd=put key=k value=a b=c ",
        "cmd=<put> key=<k> value=<a b=c >",
        "cmd=<put> key=<k> value=<a> b=<c>"
    )]
    #[case("cmd=get_result value= a=1", "cmd=<get_result> value=< a=1>", "cmd=<get_result> value=<> a=<1>")]
    // A response from Hydra 4.2.
    #[case(
        "cmd=get_result rc=0 value=V found=TRUE",
        "cmd=<get_result> rc=<0> value=<V found=TRUE>",
        "cmd=<get_result> rc=<0> value=<V> found=<TRUE>"
    )]
    #[case("cmd=put value=a b", "cmd=<put> value=<a b>", "no key=value tuple at offset 16")]
    #[case(
        "cmd=publish_result rc=1 msg=no such service",
        "cmd=<publish_result> rc=<1> msg=<no such service>",
        "no key=value tuple at offset 31"
    )]
    fn values_with_blanks_differ_between_readings(
        #[case] line: &str,
        #[case] to_end: &str,
        #[case] to_blank: &str,
    ) {
        assert_eq!(show(line, ToEndOfLine), to_end);
        assert_eq!(show(line, ToBlank), to_blank);
    }

    #[rstest]
    // Responses from Hydra 4.0.
    #[case("cmd=get_result rc=0 msg=success value=V", "cmd=<get_result> rc=<0> msg=<success> value=<V>")]
    #[case(
        "cmd=get_result rc=-1 msg=key k not found value=unknown",
        "cmd=<get_result> rc=<-1> msg=<key k not found> value=<unknown>"
    )]
    #[case("cmd=lookup_result msg=a port b  \tport=p", "cmd=<lookup_result> msg=<a port b> port=<p>")]
    #[case("cmd=lookup_result port=p msg=a port=q", "cmd=<lookup_result> port=<p> msg=<a port=q>")]
    #[case("rc=0 cmd=put_result msg=a rc=1", "rc=<0> cmd=<put_result> msg=<a rc=1>")]
    #[case("cmd=put_result msg=a rc=1 msg=b ", "cmd=<put_result> msg=<a> rc=<1> msg=<b >")]
    #[case("cmd=put_result msg= rc=1", "cmd=<put_result> msg=<> rc=<1>")]
    #[case("cmd=kvs_destroyed msg=no such name rc=-1", "cmd=<kvs_destroyed> msg=<no such name> rc=<-1>")]
    #[case("cmd=put_result msg=a src=1 rcx=1", "cmd=<put_result> msg=<a src=1 rcx=1>")]
    #[case(
        "cmd=maxes msg=m kvsname_max=1 keylen_max=2 vallen_max=3",
        "cmd=<maxes> msg=<m> kvsname_max=<1> keylen_max=<2> vallen_max=<3>"
    )]
    fn msg_ends_before_a_tuple_of_the_response(#[case] line: &str, #[case] tuples: &str) {
        assert_eq!(show(line, ToEndOfLine), tuples);
    }

    #[test]
    fn looks_up_tuples_by_key() {
        let message = Message::parse(b"cmd=get key=a key=b", ToBlank).unwrap();
        assert_eq!(message.get("key"), Some(&b"a"[..]));
        assert_eq!(message.get(b"kvsname"), None);
        assert_eq!(message.cmd(), Some(&b"get"[..]));
    }
}

//! Responses: the messages that the server (the process manager) may send.

use crate::grammar::{Rule, parse_int, parse_intlist, parse_uint};
use crate::protocol::without_extensions;
use crate::request::{put_more, put_tuple};
use crate::{Message, MessageError, Operation, ValueReading, Version};
use std::borrow::Cow;
use thiserror::Error;

/// The limits in the answer to get_maxes. Lengths are in bytes and, according to the RFC's section on the API, include the terminating NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Maxes {
    /// The longest name of a keyval space.
    pub kvsname_max: u64,
    /// The longest key.
    pub keylen_max: u64,
    /// The longest value.
    pub vallen_max: u64,
}

/// The part of a response that depends on the operation. `None` if the rule's optional tuples are absent, as in most error responses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResponseBody<'a> {
    /// `cmd=response_to_init`: the version that this connection will use.
    Init(Option<Version>),
    /// `cmd=maxes`.
    Maxes(Option<Maxes>),
    /// The empty line that answers abort.
    AbortAck,
    /// `cmd=finalize_ack`.
    Finalize,
    /// `cmd=universe_size`, a number of processes.
    Universe(Option<u64>),
    /// `cmd=appnum`.
    Appnum(Option<u64>),
    /// `cmd=put_result`.
    Put,
    /// `cmd=my_kvsname`, a `word`.
    Kvsname(Option<&'a [u8]>),
    /// `cmd=barrier_out`, with the unparsed `tag` of PMI-1.2.
    Barrier(Option<&'a [u8]>),
    /// `cmd=get_result`: the value, a `string` that may be empty (see [`Request::Put`](crate::Request::Put)).
    Get(Option<&'a [u8]>),
    /// `cmd=publish_result`.
    Publish,
    /// `cmd=unpublish_result`.
    Unpublish,
    /// `cmd=lookup_result`: the port, visible characters (see [`Request::Publish`](crate::Request::Publish)).
    Lookup(Option<&'a [u8]>),
    /// `cmd=spawn_result`: one error code for each process.
    Spawn(Option<Vec<i64>>),
}

/// A response: the `S:` rules of RFC 13's "Protocol Definition".
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Response<'a> {
    /// `rc`; a value other than 0 is an error ("Error Handling").
    pub rc: Option<i64>,
    /// `msg`, a `string`. The RFC has it in the name service's responses; Hydra adds it to others.
    pub msg: Option<&'a [u8]>,
    /// The fields of the operation.
    pub body: ResponseBody<'a>,
}

/// An error in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The line is not a series of tuples.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// `cmd` is missing.
    #[error("no command: the key \"cmd\" is missing")]
    NoCommand,
    /// `cmd` is not a response of PMI-1.1.
    #[error("not a response of PMI-1.1")]
    UnknownCommand,
    /// A key is missing although others that belong to it are present.
    #[error("the key \"{0}\" is missing")]
    MissingKey(&'static str),
    /// The value of a key does not follow its rule.
    #[error("the value of \"{key}\" is not {expected}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The rule for the value.
        expected: Rule,
    },
    /// A key of the response's rule appears more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(&'static str),
}

impl<'a> Response<'a> {
    /// Parses a line without its newline. Allocates for `errcodes` only.
    ///
    /// Tuples may come in any order, mixed with keys that the rule does not define. The caller must judge whether optional tuples should
    /// have been present.
    ///
    /// # Errors
    ///
    /// See [`ResponseError`].
    pub fn parse(line: &'a [u8], reading: ValueReading) -> Result<Self, ResponseError> {
        if line.is_empty() {
            return Ok(Self { rc: None, msg: None, body: ResponseBody::AbortAck });
        }
        Self::read(Message::parse(line, reading)?)
    }

    /// Reads the tuples of a line that is not empty.
    ///
    /// # Errors
    ///
    /// See [`ResponseError`].
    pub(crate) fn read(message: Message<'a>) -> Result<Self, ResponseError> {
        let cmd = message.cmd().ok_or(ResponseError::NoCommand)?;
        let operation = Operation::from_response_cmd(cmd).ok_or(ResponseError::UnknownCommand)?;
        let fields = without_extensions(operation.exchange().results);
        let mut keys = ["cmd", "rc", "msg", "", "", ""];
        for (key, field) in keys[3..].iter_mut().zip(fields.clone()) {
            *key = field.key;
        }
        let [_, rc, msg, values @ ..] = message.fields(keys).map_err(ResponseError::RepeatedKey)?;
        let bad = |key, expected| ResponseError::BadValue { key, expected };
        let rc = rc.map(|rc| parse_int(rc).ok_or(bad("rc", Rule::Int))).transpose()?;
        for (field, value) in fields.clone().zip(values) {
            if value.is_some_and(|value| !field.rule.accepts(value)) {
                return Err(bad(field.key, field.rule));
            }
        }
        // In the RFC, a response has either all or none of its optional fields.
        let present = values.iter().any(Option::is_some);
        if let Some((field, _)) = fields.zip(values).find(|(_, value)| present && value.is_none()) {
            return Err(ResponseError::MissingKey(field.key));
        }
        let number = |i: usize| values[i].and_then(parse_uint);
        let body = match operation {
            Operation::Init => ResponseBody::Init(
                number(0).zip(number(1)).map(|(version, subversion)| Version { version, subversion }),
            ),
            Operation::Maxes => ResponseBody::Maxes(match (number(0), number(1), number(2)) {
                (Some(kvsname_max), Some(keylen_max), Some(vallen_max)) => {
                    Some(Maxes { kvsname_max, keylen_max, vallen_max })
                }
                _ => None,
            }),
            Operation::Abort => ResponseBody::AbortAck,
            Operation::Finalize => ResponseBody::Finalize,
            Operation::Universe => ResponseBody::Universe(number(0)),
            Operation::Appnum => ResponseBody::Appnum(number(0)),
            Operation::Put => ResponseBody::Put,
            Operation::Kvsname => ResponseBody::Kvsname(values[0]),
            Operation::Barrier => ResponseBody::Barrier(message.get("tag")),
            Operation::Get => ResponseBody::Get(values[0]),
            Operation::Publish => ResponseBody::Publish,
            Operation::Unpublish => ResponseBody::Unpublish,
            Operation::Lookup => ResponseBody::Lookup(values[0]),
            Operation::Spawn => ResponseBody::Spawn(values[0].and_then(parse_intlist)),
        };
        Ok(Self { rc, msg, body })
    }

    /// Returns whether the response reports success: `rc` absent or 0 (RFC 13, "Error Handling").
    pub fn is_success(&self) -> bool {
        self.rc.is_none_or(|rc| rc == 0)
    }

    /// Returns the answered operation.
    pub fn operation(&self) -> Operation {
        match self.body {
            ResponseBody::Init(_) => Operation::Init,
            ResponseBody::Maxes(_) => Operation::Maxes,
            ResponseBody::AbortAck => Operation::Abort,
            ResponseBody::Finalize => Operation::Finalize,
            ResponseBody::Universe(_) => Operation::Universe,
            ResponseBody::Appnum(_) => Operation::Appnum,
            ResponseBody::Put => Operation::Put,
            ResponseBody::Kvsname(_) => Operation::Kvsname,
            ResponseBody::Barrier(_) => Operation::Barrier,
            ResponseBody::Get(_) => Operation::Get,
            ResponseBody::Publish => Operation::Publish,
            ResponseBody::Unpublish => Operation::Unpublish,
            ResponseBody::Lookup(_) => Operation::Lookup,
            ResponseBody::Spawn(_) => Operation::Spawn,
        }
    }

    /// Appends the line, including its newline, in the order of the RFC's rule. The bytes of the fields are not checked.
    ///
    /// `msg` comes last, except before the value of `get_result`, which extends to the end of the line. The answer to abort cannot contain
    /// `rc` or `msg`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let exchange = self.operation().exchange();
        let Some(cmd) = exchange.response else {
            out.push(b'\n');
            return;
        };
        put_tuple(out, "cmd", cmd);
        if let Some(rc) = self.rc {
            put_more(out, "rc", rc.to_string());
        }
        let text = |value: &dyn ToString| Some(Cow::Owned(value.to_string().into_bytes()));
        let bytes = |value: Option<&'a [u8]>| value.map(Cow::Borrowed);
        let values: [Option<Cow<'_, [u8]>>; 3] = match &self.body {
            ResponseBody::Init(Some(version)) => [text(&version.version), text(&version.subversion), None],
            ResponseBody::Maxes(Some(maxes)) => {
                [text(&maxes.kvsname_max), text(&maxes.keylen_max), text(&maxes.vallen_max)]
            }
            ResponseBody::Universe(Some(number)) | ResponseBody::Appnum(Some(number)) => {
                [text(number), None, None]
            }
            ResponseBody::Kvsname(value)
            | ResponseBody::Get(value)
            | ResponseBody::Barrier(value)
            | ResponseBody::Lookup(value) => [bytes(*value), None, None],
            ResponseBody::Spawn(Some(codes)) => {
                let codes: Vec<String> = codes.iter().map(i64::to_string).collect();
                [text(&codes.join(",")), None, None]
            }
            _ => [None, None, None],
        };
        let value_is_last = matches!(self.body, ResponseBody::Get(Some(_)));
        let mut msg = self.msg.map(|msg| ("msg", Cow::Borrowed(msg)));
        let first = msg.take_if(|_| value_is_last);
        let own = exchange.results.iter().zip(values).filter_map(|(field, value)| Some((field.key, value?)));
        for (key, value) in first.into_iter().chain(own).chain(msg) {
            put_more(out, key, value);
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::ValueReading::{ToBlank, ToEndOfLine};
    use super::*;
    use crate::testing::Prng;
    use rstest::rstest;

    const MAXES: Maxes = Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 };

    fn write(response: &Response<'_>) -> String {
        let mut out = Vec::new();
        response.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    // The S: rules, with and without their optional tuples.
    #[rstest]
    #[case("cmd=response_to_init pmi_version=1 pmi_subversion=1", ResponseBody::Init(Some(Version::V1_1)))]
    #[case("cmd=response_to_init", ResponseBody::Init(None))]
    #[case("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024", ResponseBody::Maxes(Some(MAXES)))]
    #[case("cmd=maxes", ResponseBody::Maxes(None))]
    #[case("", ResponseBody::AbortAck)]
    #[case("cmd=finalize_ack", ResponseBody::Finalize)]
    #[case("cmd=universe_size size=4", ResponseBody::Universe(Some(4)))]
    #[case("cmd=universe_size", ResponseBody::Universe(None))]
    #[case("cmd=appnum appnum=0", ResponseBody::Appnum(Some(0)))]
    #[case("cmd=appnum", ResponseBody::Appnum(None))]
    #[case("cmd=put_result", ResponseBody::Put)]
    #[case("cmd=my_kvsname kvsname=kvs_0", ResponseBody::Kvsname(Some(b"kvs_0")))]
    #[case("cmd=my_kvsname", ResponseBody::Kvsname(None))]
    #[case("cmd=barrier_out", ResponseBody::Barrier(None))]
    #[case("cmd=barrier_out tag=7", ResponseBody::Barrier(Some(b"7")))]
    #[case("cmd=get_result value=a b=c", ResponseBody::Get(Some(b"a b=c")))]
    #[case("cmd=get_result value=", ResponseBody::Get(Some(b"")))]
    #[case("cmd=get_result", ResponseBody::Get(None))]
    #[case("cmd=publish_result", ResponseBody::Publish)]
    #[case("cmd=unpublish_result", ResponseBody::Unpublish)]
    #[case("cmd=lookup_result port=tag=0$h$", ResponseBody::Lookup(Some(b"tag=0$h$")))]
    #[case("cmd=lookup_result", ResponseBody::Lookup(None))]
    #[case("cmd=spawn_result errcodes=0,-1", ResponseBody::Spawn(Some(vec![0, -1])))]
    #[case("cmd=spawn_result", ResponseBody::Spawn(None))]
    fn each_response_rule_round_trips(#[case] line: &str, #[case] body: ResponseBody<'_>) {
        let response = Response { rc: None, msg: None, body };
        assert_eq!(Response::parse(line.as_bytes(), ToEndOfLine).as_ref(), Ok(&response));
        assert_eq!(write(&response), format!("{line}\n"));
        assert_eq!(line.split([' ', '=']).nth(1), response.operation().response_cmd());
    }

    // Messages from real process managers; see the two readings for the others.
    #[rstest]
    #[case(
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        0,
        None,
        ResponseBody::Init(Some(Version::V1_1))
    )]
    #[case("cmd=get_result rc=0 msg=success value=V", 0, Some(&b"success"[..]), ResponseBody::Get(Some(b"V")))]
    #[case("cmd=get_result rc=0 found=TRUE value=V", 0, None, ResponseBody::Get(Some(b"V")))]
    #[case("cmd=put_result rc=-1 msg=e", -1, Some(&b"e"[..]), ResponseBody::Put)]
    #[case("cmd=lookup_result port=P info=ok rc=0 msg=success", 0, Some(&b"success"[..]), ResponseBody::Lookup(Some(b"P")))]
    #[case("cmd=lookup_result rc=1 ", 1, None, ResponseBody::Lookup(None))] // the blank that the rule has before an absent tuple
    #[case("\tcmd=barrier_out  tag=0 rc=+0", 0, None, ResponseBody::Barrier(Some(b"0")))]
    fn tolerates_unusual_forms(
        #[case] line: &str,
        #[case] rc: i64,
        #[case] msg: Option<&[u8]>,
        #[case] body: ResponseBody<'_>,
    ) {
        for reading in [ToEndOfLine, ToBlank] {
            let response = Response::parse(line.as_bytes(), reading).unwrap();
            assert_eq!(response.is_success(), rc == 0);
            assert_eq!(response, Response { rc: Some(rc), msg, body: body.clone() });
        }
    }

    #[rstest]
    #[case(" ", "the line is empty")]
    #[case("rc=0", "no command: the key \"cmd\" is missing")]
    #[case("cmd=put", "not a response of PMI-1.1")]
    #[case("cmd=abort", "not a response of PMI-1.1")]
    #[case("cmd=put_result rc=ok", "\"rc\" is not an integer")]
    #[case("cmd=put_result rc=0 rc=0", "the key \"rc\" appears more than once")]
    #[case("cmd=response_to_init pmi_version=1", "the key \"pmi_subversion\" is missing")]
    #[case("cmd=response_to_init pmi_subversion=1", "the key \"pmi_version\" is missing")]
    #[case("cmd=maxes keylen_max=1 vallen_max=1", "the key \"kvsname_max\" is missing")]
    #[case("cmd=maxes kvsname_max=1 keylen_max=1", "the key \"vallen_max\" is missing")]
    #[case("cmd=universe_size size=-1", "\"size\" is not an unsigned integer")]
    #[case("cmd=appnum appnum=", "\"appnum\" is not an unsigned integer")]
    #[case("cmd=my_kvsname kvsname=a=b", "\"kvsname\" is not one or more visible")]
    #[case("cmd=lookup_result port=", "\"port\" is not one or more visible")]
    #[case("cmd=spawn_result errcodes=0,", "\"errcodes\" is not a comma-separated list")]
    fn errors_describe_the_mistake(#[case] line: &str, #[case] text: &str) {
        for reading in [ToEndOfLine, ToBlank] {
            let error = Response::parse(line.as_bytes(), reading).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn generated_responses_round_trip() {
        let mut prng = Prng(10);
        for i in 0..20_000 {
            let (word, value, msg) = (prng.word(), prng.string(), prng.string());
            let version = Version { version: prng.next(), subversion: prng.next() };
            let body = match i % 8 {
                0 => ResponseBody::Init(prng.maybe(|_| version)),
                1 => ResponseBody::Maxes(prng.maybe(|prng| Maxes {
                    kvsname_max: prng.next(),
                    keylen_max: prng.next(),
                    vallen_max: prng.next(),
                })),
                2 => ResponseBody::Universe(prng.maybe(Prng::next)),
                3 => ResponseBody::Kvsname(prng.maybe(|_| &word[..])),
                4 | 5 => ResponseBody::Get(prng.maybe(|_| &value[..])),
                6 => ResponseBody::Lookup(prng.maybe(|_| &word[..])),
                _ => ResponseBody::Spawn(prng.maybe(|prng| {
                    (0..1 + prng.below(9)).map(|_| prng.next() as i64 >> prng.below(64)).collect()
                })),
            };
            let response =
                Response { rc: prng.maybe(|prng| prng.next() as i64), msg: prng.maybe(|_| &msg[..]), body };
            let text = write(&response);
            // These blanks separate `msg` from the next tuple. Only such blanks can be lost.
            let line = text.trim_end_matches('\n').as_bytes();
            let mut read = Response::parse(line, ToEndOfLine).unwrap();
            if matches!(response.body, ResponseBody::Get(Some(_))) && response.msg.is_some() {
                assert_eq!(read.msg.map(<[u8]>::trim_ascii_end), response.msg.map(<[u8]>::trim_ascii_end));
                read.msg = response.msg;
            }
            assert_eq!(read, response);
        }
    }
}

//! Requests: the messages that the client (the process) may send.

use crate::grammar::{Rule, parse_int, parse_uint};
use crate::protocol::{Version, without_extensions};
use crate::{Message, MessageError, Operation, ValueReading};
use thiserror::Error;

/// A request on one line: the `C:` rules of RFC 13's "Protocol Definition", except spawn.
///
/// Fields are bytes as on the wire. A `word` has at least one byte, and contains no blank and no `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request<'a> {
    /// `cmd=init`, with the highest version that the client supports.
    Init(Version),
    /// `cmd=get_maxes`.
    Maxes,
    /// `cmd=abort`.
    Abort {
        /// `exitcode`, an `int`. Not in the RFC; Hydra's clients send it.
        exitcode: Option<i64>,
    },
    /// `cmd=finalize`.
    Finalize,
    /// `cmd=get_universe_size`.
    Universe,
    /// `cmd=get_appnum`.
    Appnum,
    /// `cmd=put`.
    Put {
        /// The keyval space, a `word`.
        kvsname: &'a [u8],
        /// The key, a `word`.
        key: &'a [u8],
        /// The value, a `string`. It may be empty: the RFC's `string` excludes that, but its section on `PMI_process_mapping` requires an
        /// empty value for an unknown mapping.
        value: &'a [u8],
    },
    /// `cmd=get_my_kvsname`.
    Kvsname,
    /// `cmd=barrier_in`.
    Barrier {
        /// The unparsed `group`. RFC 13 does not have it; in PMI-1.2, [`GroupBarrier::parse`](crate::GroupBarrier::parse) parses it.
        group: Option<&'a [u8]>,
    },
    /// `cmd=get`.
    Get {
        /// The keyval space, a `word`.
        kvsname: &'a [u8],
        /// The key, a `word`.
        key: &'a [u8],
    },
    /// `cmd=publish_name`.
    Publish {
        /// The service, a `word`.
        service: &'a [u8],
        /// The port: visible characters. The RFC requires a `word`, which cannot contain `=`, but the ports of real MPI libraries do.
        port: &'a [u8],
    },
    /// `cmd=unpublish_name`.
    Unpublish {
        /// The service, a `word`.
        service: &'a [u8],
    },
    /// `cmd=lookup_name`.
    Lookup {
        /// The service, a `word`.
        service: &'a [u8],
    },
}

/// An error in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The line is not a series of tuples.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// `cmd` is missing.
    #[error("no command: the key \"cmd\" is missing")]
    NoCommand,
    /// `cmd` is not a request of PMI-1.1.
    #[error("not a request of PMI-1.1")]
    UnknownCommand,
    /// A key that the request's rule requires is missing.
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
    /// A key of the request's rule appears more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(&'static str),
    /// A spawn request is a block of lines, which a [`SpawnCollector`](crate::SpawnCollector) reads.
    #[error("spawn is a block of lines from \"mcmd=spawn\" to \"endcmd\"")]
    SpawnOutsideBlock,
}

impl<'a> Request<'a> {
    /// Parses a line without its newline.
    ///
    /// Tuples may come in any order, mixed with keys that the rule does not define.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn parse(line: &'a [u8], reading: ValueReading) -> Result<Self, RequestError> {
        Self::read(Message::parse(line, reading)?)
    }

    /// Reads the tuples of a line.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub(crate) fn read(message: Message<'a>) -> Result<Self, RequestError> {
        let Some(cmd) = message.cmd() else {
            return Err(match message.get("mcmd") {
                Some(b"spawn") => RequestError::SpawnOutsideBlock,
                _ => RequestError::NoCommand,
            });
        };
        let operation = Operation::from_request_cmd(cmd).ok_or(RequestError::UnknownCommand)?;
        if operation == Operation::Spawn {
            return Err(RequestError::SpawnOutsideBlock);
        }
        let values = arguments(&message, operation)?;
        let [first, second, third] = values.map(Option::unwrap_or_default);
        let number = |value| parse_uint(value).unwrap_or_default();
        Ok(match operation {
            Operation::Init => Self::Init(Version { version: number(first), subversion: number(second) }),
            Operation::Maxes => Self::Maxes,
            Operation::Abort => Self::Abort { exitcode: values[0].and_then(parse_int) },
            Operation::Finalize => Self::Finalize,
            Operation::Universe => Self::Universe,
            Operation::Appnum => Self::Appnum,
            Operation::Put => Self::Put { kvsname: first, key: second, value: third },
            Operation::Kvsname => Self::Kvsname,
            Operation::Barrier | Operation::Spawn => Self::Barrier { group: message.get("group") },
            Operation::Get => Self::Get { kvsname: first, key: second },
            Operation::Publish => Self::Publish { service: first, port: second },
            Operation::Unpublish => Self::Unpublish { service: first },
            Operation::Lookup => Self::Lookup { service: first },
        })
    }

    /// Returns the requested operation.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Init(_) => Operation::Init,
            Self::Maxes => Operation::Maxes,
            Self::Abort { .. } => Operation::Abort,
            Self::Finalize => Operation::Finalize,
            Self::Universe => Operation::Universe,
            Self::Appnum => Operation::Appnum,
            Self::Put { .. } => Operation::Put,
            Self::Kvsname => Operation::Kvsname,
            Self::Barrier { .. } => Operation::Barrier,
            Self::Get { .. } => Operation::Get,
            Self::Publish { .. } => Operation::Publish,
            Self::Unpublish { .. } => Operation::Unpublish,
            Self::Lookup { .. } => Operation::Lookup,
        }
    }

    /// Appends the line, including its newline, in the order of the RFC's rule. The bytes of the fields are not checked.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let exchange = self.operation().exchange();
        put_tuple(out, "cmd", exchange.request);
        let (first, second);
        let values = match *self {
            Self::Init(version) => {
                (first, second) = (version.version.to_string(), version.subversion.to_string());
                [Some(first.as_bytes()), Some(second.as_bytes()), None]
            }
            Self::Abort { exitcode: Some(code) } => {
                first = code.to_string();
                [Some(first.as_bytes()), None, None]
            }
            Self::Barrier { group } => [group, None, None],
            Self::Put { kvsname, key, value } => [Some(kvsname), Some(key), Some(value)],
            Self::Get { kvsname, key } => [Some(kvsname), Some(key), None],
            Self::Publish { service, port } => [Some(service), Some(port), None],
            Self::Unpublish { service } | Self::Lookup { service } => [Some(service), None, None],
            Self::Abort { exitcode: None }
            | Self::Maxes
            | Self::Finalize
            | Self::Universe
            | Self::Appnum
            | Self::Kvsname => [None; MAX_ARGUMENTS],
        };
        for (field, value) in exchange.arguments.iter().zip(values) {
            if let Some(value) = value {
                put_more(out, field.key, value);
            }
        }
        out.push(b'\n');
    }
}

/// Maximum number of fields in a request on one line.
const MAX_ARGUMENTS: usize = 3;

/// Returns the values of the fields that RFC 13 defines for the operation's request, in the order of the table.
fn arguments<'a>(
    message: &Message<'a>,
    operation: Operation,
) -> Result<[Option<&'a [u8]>; MAX_ARGUMENTS], RequestError> {
    let fields = without_extensions(operation.exchange().arguments);
    let mut keys = ["cmd", "", "", ""];
    for (key, field) in keys[1..].iter_mut().zip(fields.clone()) {
        *key = field.key;
    }
    let [_, values @ ..] = message.fields(keys).map_err(RequestError::RepeatedKey)?;
    for (field, value) in fields.zip(values) {
        match value {
            None if !field.optional => return Err(RequestError::MissingKey(field.key)),
            Some(value) if !field.rule.accepts(value) => {
                return Err(RequestError::BadValue { key: field.key, expected: field.rule });
            }
            _ => {}
        }
    }
    Ok(values)
}

pub(crate) fn put_tuple(out: &mut Vec<u8>, key: &str, value: impl AsRef<[u8]>) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_ref());
}

/// Appends a tuple to a line, preceded by a blank unless the line is empty. The bytes of the value are not checked.
pub fn write_line_tuple(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    if !out.is_empty() {
        out.push(b' ');
    }
    put_tuple(out, key, value);
}

pub(crate) fn put_more(out: &mut Vec<u8>, key: &str, value: impl AsRef<[u8]>) {
    out.push(b' ');
    put_tuple(out, key, value);
}

#[cfg(test)]
mod tests {
    use super::ValueReading::{ToBlank, ToEndOfLine};
    use super::*;
    use crate::testing::Prng;
    use rstest::rstest;

    fn write(request: &Request<'_>) -> String {
        let mut out = Vec::new();
        request.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    // The C: rules, and the forms that real clients send.
    #[rstest]
    #[case("cmd=init pmi_version=1 pmi_subversion=1", Request::Init(Version::V1_1))]
    #[case("cmd=get_maxes", Request::Maxes)]
    #[case("cmd=abort", Request::Abort { exitcode: None })]
    #[case("cmd=abort exitcode=-1", Request::Abort { exitcode: Some(-1) })]
    #[case("cmd=finalize", Request::Finalize)]
    #[case("cmd=get_universe_size", Request::Universe)]
    #[case("cmd=get_appnum", Request::Appnum)]
    #[case("cmd=put kvsname=s key=k value=a b=c", Request::Put { kvsname: b"s", key: b"k", value: b"a b=c" })]
    #[case("cmd=put kvsname=s key=k value=", Request::Put { kvsname: b"s", key: b"k", value: b"" })]
    #[case("cmd=get_my_kvsname", Request::Kvsname)]
    #[case("cmd=barrier_in", Request::Barrier { group: None })]
    #[case("cmd=barrier_in group=0,1:42", Request::Barrier { group: Some(b"0,1:42") })]
    #[case("cmd=get kvsname=s key=k", Request::Get { kvsname: b"s", key: b"k" })]
    #[case("cmd=publish_name service=s port=tag=0$h=x$", Request::Publish { service: b"s", port: b"tag=0$h=x$" })]
    #[case("cmd=unpublish_name service=s", Request::Unpublish { service: b"s" })]
    #[case("cmd=lookup_name service=s", Request::Lookup { service: b"s" })]
    fn each_request_rule_round_trips(#[case] line: &str, #[case] request: Request<'_>) {
        assert_eq!(Request::parse(line.as_bytes(), ToEndOfLine), Ok(request));
        assert_eq!(write(&request), format!("{line}\n"));
        assert_eq!(line.split([' ', '=']).nth(1), Some(request.operation().request_cmd()));
    }

    #[rstest]
    #[case(" pmi_subversion=2\tx=y  pmi_version=1 cmd=init ", Request::Init(Version { version: 1, subversion: 2 }))]
    #[case("key=k cmd=get kvsname=s", Request::Get { kvsname: b"s", key: b"k" })]
    #[case("group=a group=b cmd=barrier_in", Request::Barrier { group: Some(b"a") })]
    #[case("value=v cmd=put key=k kvsname=s", Request::Put { kvsname: b"s", key: b"k", value: b"v" })]
    fn tolerates_unusual_forms(#[case] line: &str, #[case] request: Request<'_>) {
        for reading in [ToEndOfLine, ToBlank] {
            assert_eq!(Request::parse(line.as_bytes(), reading), Ok(request));
        }
    }

    #[rstest]
    #[case("", "the line is empty")]
    #[case("\0", "byte 0x00 at offset 0 is neither blank, tab nor visible ASCII")]
    #[case("barrier_in", "no key=value tuple at offset 0")]
    #[case("key=k", "no command: the key \"cmd\" is missing")]
    #[case("cmd=", "not a request of PMI-1.1")]
    #[case("cmd=put_result", "not a request of PMI-1.1")]
    #[case("cmd=init pmi_version=1", "the key \"pmi_subversion\" is missing")]
    #[case("cmd=init pmi_version=one pmi_subversion=1", "\"pmi_version\" is not an unsigned integer")]
    #[case(
        "cmd=init pmi_version=1 pmi_subversion=18446744073709551616",
        "\"pmi_subversion\" is not an unsigned"
    )]
    #[case("cmd=abort exitcode=", "\"exitcode\" is not an integer")]
    #[case("cmd=get kvsname= key=k", "\"kvsname\" is not one or more visible")]
    #[case("cmd=get kvsname=s key=a=b", "\"key\" is not one or more visible")]
    #[case("cmd=get kvsname=s", "the key \"key\" is missing")]
    #[case("cmd=get kvsname=s key=k key=k", "the key \"key\" appears more than once")]
    #[case("cmd=get_maxes cmd=get_maxes", "the key \"cmd\" appears more than once")]
    #[case("cmd=put kvsname=s key=k", "the key \"value\" is missing")]
    #[case("cmd=publish_name service=s port=", "\"port\" is not one or more visible")]
    #[case("cmd=lookup_name", "the key \"service\" is missing")]
    #[case("mcmd=spawn", "spawn is a block of lines")]
    #[case("cmd=spawn", "spawn is a block of lines")]
    #[case("mcmd=other", "no command: the key \"cmd\" is missing")]
    fn errors_describe_the_mistake(#[case] line: &str, #[case] text: &str) {
        for reading in [ToEndOfLine, ToBlank] {
            let error = Request::parse(line.as_bytes(), reading).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn generated_requests_round_trip() {
        let mut prng = Prng(9);
        for i in 0..20_000 {
            let (a, b, value) = (prng.word(), prng.word(), prng.string());
            let request = match i % 8 {
                0 => Request::Init(Version { version: prng.next(), subversion: prng.next() }),
                1 => Request::Abort { exitcode: prng.maybe(|prng| prng.next() as i64) },
                2 | 3 => Request::Put { kvsname: &a, key: &b, value: &value },
                4 => Request::Get { kvsname: &a, key: &b },
                5 => Request::Publish { service: &a, port: &b },
                6 => Request::Unpublish { service: &a },
                _ => Request::Lookup { service: &a },
            };
            let text = write(&request);
            assert_eq!(Request::parse(text.trim_end_matches('\n').as_bytes(), ToEndOfLine), Ok(request));
        }
    }

    #[test]
    fn versions_are_ordered_and_printed() {
        let version = |version, subversion| Version { version, subversion };
        assert!(version(1, 1) < version(1, 2) && version(1, 9) < version(2, 0));
        assert_eq!(Version::V1_1.to_string(), "1.1");
        let grouped = [(1, 1), (1, 2), (1, 9), (2, 0), (0, 9)];
        let grouped = grouped.map(|(major, minor)| version(major, minor).has_group_barriers());
        assert_eq!(grouped, [false, true, true, false, false]);
    }
}

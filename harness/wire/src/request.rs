//! Requests: what the client (the process) may send.

use crate::grammar::{is_visible, is_word, parse_int, parse_uint};
use crate::{Message, MessageError, Operation, ValueReading};
use std::fmt;
use thiserror::Error;

/// A PMI version, as negotiated by init. Ordered by version, then subversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// `pmi_version`.
    pub version: u64,
    /// `pmi_subversion`.
    pub subversion: u64,
}

impl Version {
    /// The version that RFC 13 documents.
    pub const V1_1: Self = Self { version: 1, subversion: 1 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.version, self.subversion)
    }
}

/// A request on one line: the `C:` rules of RFC 13's "Protocol Definition", except spawn.
///
/// Fields are bytes as on the wire. `word`s have at least one byte, and no blank and no `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request<'a> {
    /// `cmd=init`, with the highest version the client supports.
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
        /// The value, a `string`. It may be empty: the RFC's `string` rules that out, but its section on
        /// `PMI_process_mapping` demands an empty value for an unknown mapping.
        value: &'a [u8],
    },
    /// `cmd=get_my_kvsname`.
    Kvsname,
    /// `cmd=barrier_in`.
    Barrier,
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
        /// The port: visible characters. The RFC says `word`, which has no `=`, but the ports of real MPI libraries do.
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

/// Why a line is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The line is no series of tuples.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// There is no `cmd`.
    #[error("no command: the key \"cmd\" is missing")]
    NoCommand,
    /// `cmd` names no request of PMI-1.1.
    #[error("not a request of PMI-1.1")]
    UnknownCommand,
    /// A key that the request's rule demands is missing.
    #[error("the key \"{0}\" is missing")]
    MissingKey(&'static str),
    /// The value of a key does not follow its rule.
    #[error("the value of \"{key}\" is not {expected}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// What the value should have been, to follow "is not".
        expected: &'static str,
    },
    /// A key of the request's rule appears more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(&'static str),
    /// Spawn is a block of lines, to be read by a [`SpawnCollector`](crate::SpawnCollector).
    #[error("spawn is a block of lines from \"mcmd=spawn\" to \"endcmd\"")]
    SpawnOutsideBlock,
}

impl<'a> Request<'a> {
    /// Reads a line, given without its newline.
    ///
    /// Tuples may stand in any order and among keys that the rule does not have.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn parse(line: &'a [u8], reading: ValueReading) -> Result<Self, RequestError> {
        let message = Message::parse(line, reading)?;
        let Some(cmd) = message.cmd() else {
            return Err(match message.get("mcmd") {
                Some(b"spawn") => RequestError::SpawnOutsideBlock,
                _ => RequestError::NoCommand,
            });
        };
        let operation = Operation::from_request_cmd(cmd).ok_or(RequestError::UnknownCommand)?;
        Ok(match operation {
            Operation::Init => {
                let [_, version, subversion] = fields(&message, ["cmd", "pmi_version", "pmi_subversion"])?;
                Self::Init(Version {
                    version: uint("pmi_version", version)?,
                    subversion: uint("pmi_subversion", subversion)?,
                })
            }
            Operation::Abort => {
                let [_, exitcode] = fields(&message, ["cmd", "exitcode"])?;
                let expected = "an integer (RFC 13: int)";
                let bad = RequestError::BadValue { key: "exitcode", expected };
                Self::Abort { exitcode: exitcode.map(|v| parse_int(v).ok_or(bad)).transpose()? }
            }
            Operation::Put => {
                let [_, kvsname, key, value] = fields(&message, ["cmd", "kvsname", "key", "value"])?;
                Self::Put {
                    kvsname: word("kvsname", kvsname)?,
                    key: word("key", key)?,
                    value: value.ok_or(RequestError::MissingKey("value"))?,
                }
            }
            Operation::Get => {
                let [_, kvsname, key] = fields(&message, ["cmd", "kvsname", "key"])?;
                Self::Get { kvsname: word("kvsname", kvsname)?, key: word("key", key)? }
            }
            Operation::Publish => {
                let [_, service, port] = fields(&message, ["cmd", "service", "port"])?;
                let service = word("service", service)?;
                let port = port.ok_or(RequestError::MissingKey("port"))?;
                if !is_visible(port) {
                    return Err(RequestError::BadValue {
                        key: "port",
                        expected: "one or more visible characters",
                    });
                }
                Self::Publish { service, port }
            }
            Operation::Unpublish | Operation::Lookup => {
                let [_, service] = fields(&message, ["cmd", "service"])?;
                let service = word("service", service)?;
                match operation {
                    Operation::Unpublish => Self::Unpublish { service },
                    _ => Self::Lookup { service },
                }
            }
            Operation::Spawn => return Err(RequestError::SpawnOutsideBlock),
            bare => {
                let [_] = fields(&message, ["cmd"])?;
                match bare {
                    Operation::Maxes => Self::Maxes,
                    Operation::Finalize => Self::Finalize,
                    Operation::Universe => Self::Universe,
                    Operation::Appnum => Self::Appnum,
                    Operation::Kvsname => Self::Kvsname,
                    _ => Self::Barrier,
                }
            }
        })
    }

    /// The operation requested.
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
            Self::Barrier => Operation::Barrier,
            Self::Get { .. } => Operation::Get,
            Self::Publish { .. } => Operation::Publish,
            Self::Unpublish { .. } => Operation::Unpublish,
            Self::Lookup { .. } => Operation::Lookup,
        }
    }

    /// Appends the line, newline included, in the order of the RFC's rule. The bytes of the fields are not checked.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        put_tuple(out, "cmd", self.operation().request_cmd());
        match self {
            Self::Init(version) => put_version(out, version),
            Self::Abort { exitcode: Some(code) } => put_more(out, "exitcode", code.to_string()),
            Self::Put { kvsname, key, value } => {
                put_more(out, "kvsname", kvsname);
                put_more(out, "key", key);
                put_more(out, "value", value);
            }
            Self::Get { kvsname, key } => {
                put_more(out, "kvsname", kvsname);
                put_more(out, "key", key);
            }
            Self::Publish { service, port } => {
                put_more(out, "service", service);
                put_more(out, "port", port);
            }
            Self::Unpublish { service } | Self::Lookup { service } => put_more(out, "service", service),
            _ => {}
        }
        out.push(b'\n');
    }
}

fn fields<'a, const N: usize>(
    message: &Message<'a>,
    keys: [&'static str; N],
) -> Result<[Option<&'a [u8]>; N], RequestError> {
    message.fields(keys).map_err(RequestError::RepeatedKey)
}

fn word<'a>(key: &'static str, value: Option<&'a [u8]>) -> Result<&'a [u8], RequestError> {
    let value = value.ok_or(RequestError::MissingKey(key))?;
    if is_word(value) { Ok(value) } else { Err(RequestError::BadValue { key, expected: WORD }) }
}

fn uint(key: &'static str, value: Option<&[u8]>) -> Result<u64, RequestError> {
    let value = value.ok_or(RequestError::MissingKey(key))?;
    parse_uint(value).ok_or(RequestError::BadValue { key, expected: UINT })
}

pub(crate) const WORD: &str = "one or more visible characters without \"=\" (RFC 13: word)";
pub(crate) const UINT: &str = "an unsigned integer below 2^64 (RFC 13: uint)";

pub(crate) fn put_tuple(out: &mut Vec<u8>, key: &str, value: impl AsRef<[u8]>) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_ref());
}

pub(crate) fn put_more(out: &mut Vec<u8>, key: &str, value: impl AsRef<[u8]>) {
    out.push(b' ');
    put_tuple(out, key, value);
}

pub(crate) fn put_version(out: &mut Vec<u8>, version: &Version) {
    put_more(out, "pmi_version", version.version.to_string());
    put_more(out, "pmi_subversion", version.subversion.to_string());
}

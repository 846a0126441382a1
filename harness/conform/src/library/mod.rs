//! PMI libraries under test: a process of ours for each rank loads the library and makes the calls that a scenario says,
//! while the runner holds the other end of its PMI_FD.
//!
//! - `signature` knows the functions of RFC 13,
//! - [`agent`] is the process: it loads, calls, and tells what came back,
//! - `launch` starts these processes and listens to them,
//! - `object` reads what can be seen without running anything.

pub mod agent;
pub(crate) mod launch;
pub(crate) mod object;
pub(crate) mod signature;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::event::Bytes;
use crate::launch::Implementation;
pub(crate) use signature::code_name;

/// A library under test.
pub struct Library {
    /// Its file, absolute.
    pub path: PathBuf,
    /// This command's own binary, which is also the process that loads the library.
    pub binary: PathBuf,
    /// Further variables for the processes that load it.
    pub env: BTreeMap<String, String>,
    /// The process manager of its own that starts the processes; else we are one.
    pub server: Option<Box<Implementation>>,
}

/// What the runner tells the process, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// Call a function.
    Call {
        /// Its name.
        function: String,
        /// In order.
        arguments: Vec<Argument>,
    },
    /// Exit with this status.
    Exit(u8),
    /// Die of this signal.
    Kill(u8),
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Argument {
    /// A string, or the text form of an array.
    Text(Bytes),
    /// An integer.
    Number(i32),
    /// NULL.
    Null,
    /// Memory to be filled in, by this name; the size where the scenario says one.
    Out(String, Option<usize>),
}

/// What the process tells the runner, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    /// The first word of a process that a launcher has started: its rank, as far as its environment tells.
    Hello {
        /// `None` if it does not.
        rank: Option<u32>,
        /// Its process id.
        pid: i32,
    },
    /// The library has been loaded, or why it has not.
    Loaded(Option<String>),
    /// A call has returned.
    Returned(Returned),
    /// A call that could not be made: there is no such function, or the arguments do not suit it.
    NotCalled {
        /// Whether the library does not have it.
        missing: bool,
        /// In words.
        why: String,
    },
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Returned {
    /// The return code.
    pub(crate) result: i32,
    /// What the out arguments hold, in order.
    pub(crate) outs: Vec<(String, Held)>,
    /// Out arguments behind whose end, or before whose beginning, something was written.
    pub(crate) overrun: Vec<String>,
}

/// What an out argument holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Held {
    /// An integer; `None` if it was not set.
    Int(Option<i32>),
    /// Integers; `None` where one was not set.
    Ints(Vec<Option<i32>>),
    /// A string; `None` without a terminating NUL in the room that there was.
    Text(Option<Bytes>),
    /// Something that is not looked at.
    Opaque,
}

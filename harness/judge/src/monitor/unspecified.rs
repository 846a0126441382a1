//! The reasons why the standards leave the behaviour of a server open.

use std::fmt;

/// The reason why the standards do not specify how a server continues: whether it aborts the program, and which values
/// it stores. Findings that depend on such unspecified behaviour are not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unspecified {
    /// RFC 13, Error Handling: a server that cannot read a message aborts the program. The draft does not define this case.
    NotARequest,
    /// RFC 13, Wire Protocol: a client waits for the response before its next request. The draft allows several pending requests with a
    /// `thrid`.
    OutOfOrder,
    /// A client has broken another rule, which the server may detect.
    RuleViolation,
    /// A client has sent a request that servers may read in several ways, or that some servers do not support.
    AmbiguousRequest,
    /// A client has requested an abort. RFC 13, abort: the server terminates the program.
    Abort,
    /// A client that left without finalize may have failed, so the server may abort the program.
    LeftWithoutFinalize,
    /// A spawn request could not be read or was sent too early, so the group of a spawned process is unknown.
    Spawn,
}

impl fmt::Display for Unspecified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotARequest => "a client sent a message that is not a request",
            Self::OutOfOrder => "a client sent a request before its previous request was answered",
            Self::RuleViolation => "a client broke the protocol",
            Self::AmbiguousRequest => "a client sent an ambiguous request",
            Self::Abort => "a client aborted the program",
            Self::LeftWithoutFinalize => "a client left without finalize",
            Self::Spawn => "a spawn request could not be read",
        })
    }
}

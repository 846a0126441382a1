//! The names of PMI-1's operations on the wire.

use crate::protocol::{Exchange, LINES, Operation};

impl Operation {
    /// Returns the operation's row in the protocol table.
    pub fn exchange(self) -> &'static Exchange {
        &LINES[self as usize]
    }

    /// Returns the command word of the request: the value of `cmd`, or of `mcmd` for spawn.
    pub fn request_cmd(self) -> &'static str {
        self.exchange().request
    }

    /// Returns the value of `cmd` in the response; `None` for abort, whose response is an empty line.
    pub fn response_cmd(self) -> Option<&'static str> {
        self.exchange().response
    }

    /// Returns the name of the operation's rules in the RFC's ABNF, without the prefixes `C:` and `S:`.
    pub fn rule(self) -> &'static str {
        self.exchange().operation
    }

    /// Returns the operation with this name in the protocol table.
    pub fn from_rule(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.rule() == name)
    }

    /// Returns the operation with this command word in its request.
    pub fn from_request_cmd(cmd: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.request_cmd().as_bytes() == cmd)
    }

    /// Returns the operation with this command word in its response.
    pub fn from_response_cmd(cmd: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.response_cmd().is_some_and(|word| word.as_bytes() == cmd))
    }
}

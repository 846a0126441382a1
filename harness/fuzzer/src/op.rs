//! What a request asks for, in the words of its protocol.

use std::fmt;

use pmi_wire::pmi2::Command;
use pmi_wire::protocol::Exchange;
use pmi_wire::{Framing, Operation};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A request of PMI-1, with which a connection of PMI-2 begins, too.
    Pmi1(Operation),
    /// A request of PMI-2.
    Pmi2(Command),
}

impl Op {
    fn exchange(self) -> &'static Exchange {
        match self {
            Self::Pmi1(op) => op.exchange(),
            Self::Pmi2(command) => command.exchange(),
        }
    }

    /// The framing of the request and its response.
    pub(crate) fn framing(self) -> Framing {
        match self {
            Self::Pmi1(_) => Framing::Lines,
            Self::Pmi2(_) => Framing::Frames,
        }
    }

    /// The command of its request.
    pub fn name(self) -> &'static str {
        self.exchange().request
    }

    /// The command of its response, if it has one.
    pub(crate) fn response_name(self) -> Option<&'static str> {
        self.exchange().response
    }

    /// Which request a response answers. No name is one of both protocols.
    pub(crate) fn of_response(name: &[u8]) -> Option<Self> {
        Operation::from_response_cmd(name)
            .map(Self::Pmi1)
            .or_else(|| Command::from_response_name(name).map(Self::Pmi2))
    }

    /// Whether it ends the program, so that answers need not come.
    pub(crate) fn is_abort(self) -> bool {
        self.exchange().operation == "abort"
    }

    /// Whether its answer may wait for what others do.
    pub(crate) fn waits(self) -> bool {
        matches!(self.exchange().operation, "barrier" | "get-node-attribute")
    }

    /// Whether it starts processes.
    pub(crate) fn is_spawn(self) -> bool {
        matches!(self, Self::Pmi1(Operation::Spawn) | Self::Pmi2(Command::Spawn))
    }
}

impl From<Operation> for Op {
    fn from(op: Operation) -> Self {
        Self::Pmi1(op)
    }
}

impl From<Command> for Op {
    fn from(command: Command) -> Self {
        Self::Pmi2(command)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

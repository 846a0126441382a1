//! Operations in one framing: references to rows of the protocol table.

use std::fmt;

use pmi_scenario::ast::{Dialect, Encoding};
use pmi_wire::protocol::{self, Exchange, Field};
use pmi_wire::{Framing, Operation};

/// An operation in one framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    framing: Framing,
    /// The row of the operation in [`protocol::documented_exchanges`].
    row: usize,
}

impl Op {
    /// Returns the operation with this name in a dialect, or `None` if the dialect does not have it.
    pub(crate) fn of(dialect: Dialect, operation: &str) -> Option<Self> {
        Self::find(dialect.framing(), |row| row.operation == operation)
    }

    /// Returns the operations of a dialect, in the order of the protocol table.
    pub(crate) fn all(dialect: Dialect) -> impl Iterator<Item = Self> {
        let framing = dialect.framing();
        (0..protocol::documented_exchanges(framing).len()).map(move |row| Self { framing, row })
    }

    /// Returns the operation that every connection begins with.
    pub(crate) fn offer() -> Self {
        Operation::Init.into()
    }

    fn find(framing: Framing, fits: impl Fn(&Exchange) -> bool) -> Option<Self> {
        protocol::documented_exchanges(framing).iter().position(fits).map(|row| Self { framing, row })
    }

    /// Returns the operation with this command in its request.
    pub(crate) fn of_request(framing: Framing, name: &[u8]) -> Option<Self> {
        Self::find(framing, |row| row.request.as_bytes() == name)
    }

    /// Returns the operation with this command in its response. No response command exists in both framings.
    pub(crate) fn of_response(name: &[u8]) -> Option<Self> {
        let in_framing = |framing| {
            Self::find(framing, |row| row.response.is_some_and(|response| response.as_bytes() == name))
        };
        Framing::ALL.into_iter().find_map(in_framing)
    }

    pub(crate) fn exchange(self) -> &'static Exchange {
        &protocol::documented_exchanges(self.framing)[self.row]
    }

    /// Returns the name of the operation, which is the same in every framing.
    pub(crate) fn operation(self) -> &'static str {
        self.exchange().operation
    }

    /// Returns whether the operation has one of these names.
    pub(crate) fn is(self, operations: &[&str]) -> bool {
        operations.contains(&self.operation())
    }

    pub(crate) fn framing(self) -> Framing {
        self.framing
    }

    /// Returns the encoding of the request and the response in a case of this dialect.
    pub(crate) fn encoding(self, dialect: Dialect) -> Encoding {
        match (self.framing, dialect.framing()) {
            (_, Framing::Lines) => Encoding::Dialect,
            (Framing::Lines, Framing::Frames) => Encoding::Line,
            (Framing::Frames, Framing::Frames) => Encoding::Body,
        }
    }

    /// Returns the command of the request.
    pub fn name(self) -> &'static str {
        self.exchange().request
    }

    /// Returns the key of the command in the request.
    pub(crate) fn command_key(self) -> &'static str {
        self.exchange().command_key()
    }

    /// Returns the command of the response, or `None` if the operation has no such command.
    pub(crate) fn response_name(self) -> Option<&'static str> {
        self.exchange().response
    }

    /// Returns the key of a field of the request, if the request has such a field. The name of a numbered field ends with the number, as
    /// in `infokey0`.
    pub(crate) fn key(self, name: &str) -> Option<String> {
        let key = |field: &Field| {
            let number = name.strip_prefix(field.name)?;
            let fits = number.is_empty() != field.numbered && number.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| format!("{}{number}", field.key))
        };
        self.exchange().arguments.iter().chain(protocol::common_arguments(self.framing)).find_map(key)
    }

    /// Returns the keys in the response whose values later steps of a case can use, each with the name of the variable for the value.
    pub(crate) fn bindings(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let names = move |field: &Field| match (self.operation(), self.framing) {
            ("kvsname", Framing::Lines) => Some((field.key, "kvs")),
            ("kvsname", Framing::Frames) => Some((field.key, "jobid")),
            ("maxes", _) => Some((field.key, field.key)),
            _ => None,
        };
        self.exchange().results.iter().filter_map(names)
    }

    /// Returns whether the response binds this variable.
    pub(crate) fn binds(self, name: &str) -> bool {
        self.bindings().any(|(_, bound)| bound == name)
    }

    /// Returns whether the operation is an abort. After an abort, responses are optional.
    pub(crate) fn is_abort(self) -> bool {
        self.is(&["abort"])
    }

    /// Returns whether the response may depend on actions of other processes.
    pub(crate) fn waits(self) -> bool {
        self.is(&["barrier", "get-node-attribute"])
    }

    /// Returns whether the operation starts processes.
    pub(crate) fn is_spawn(self) -> bool {
        self.is(&["spawn"]) && self.response_name().is_some()
    }
}

impl From<Operation> for Op {
    fn from(op: Operation) -> Self {
        Self { framing: Framing::Lines, row: op as usize }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_keys_depend_on_the_framing() {
        let key = |dialect, operation, name| Op::of(dialect, operation).and_then(|op| op.key(name));
        let lines = |operation, name| key(Dialect::Pmi1, operation, name);
        let frames = |operation, name| key(Dialect::Pmi2, operation, name);
        assert_eq!(lines("publish", "service").as_deref(), Some("service"));
        assert_eq!(frames("publish", "service").as_deref(), Some("name"));
        assert_eq!(frames("publish", "infokey3").as_deref(), Some("infokey3"));
        assert_eq!((frames("publish", "infokey"), lines("publish", "infokey3")), (None, None));
        assert_eq!((frames("put", "thrid").as_deref(), lines("put", "thrid")), (Some("thrid"), None));
        assert_eq!((frames("put", "kvsname"), frames("maxes", "kvsname")), (None, None));
    }
}

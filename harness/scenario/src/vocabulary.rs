//! The vocabulary of RFC 13 and PMI-2. The checker uses it for suggestions, and to distinguish typos from intentionally invalid messages.

use pmi_wire::protocol::{self, Exchange};
use pmi_wire::{Framing, Operation};

use crate::ast::Dialect;

/// Returns the request commands of a dialect and their responses. A missing request or response is an empty string.
pub fn commands(dialect: Dialect) -> Vec<(&'static str, &'static str)> {
    let words = |exchange: &Exchange| (exchange.request, exchange.response.unwrap_or_default());
    let own = protocol::documented_exchanges(dialect.framing()).iter().map(words);
    let init_line = dialect.switches_framing().then(|| words(Operation::Init.exchange()));
    let parts = protocol::parts(dialect.framing()).iter().map(|(name, _)| ("", *name));
    own.chain(init_line).chain(parts).collect()
}

/// Returns the keys that occur in responses of a dialect, according to its specification or in practice. Numbered keys are left out.
pub fn response_keys(dialect: Dialect) -> Vec<&'static str> {
    let fields = protocol::response_fields(dialect.framing()).filter(|field| !field.numbered);
    fields.map(|field| field.key).chain(["cmd"]).collect()
}

/// Returns whether a command is a request to the name service.
pub fn is_name_command(cmd: &str) -> bool {
    let by_request = |framing| protocol::by_request(framing, cmd.as_bytes());
    let exchange = by_request(Framing::Lines).or_else(|| by_request(Framing::Frames));
    exchange.is_some_and(|exchange| matches!(exchange.operation, "publish" | "unpublish" | "lookup"))
}

/// Returns the keys whose values extend to the end of the line in messages with this command. In RFC 13, these values have the type
/// `string`.
pub fn run_on_keys(cmd: Option<&str>) -> &'static [&'static str] {
    match cmd {
        Some("put" | "get_result") => &["value", "msg"],
        _ => &["msg"],
    }
}

/// Returns whether a line that begins with this key belongs to a spawn block. In a spawn block, values extend to the end of the line.
pub fn is_spawn_key(key: &str) -> bool {
    key == "mcmd" || Operation::Spawn.exchange().arguments.iter().any(|field| field.matches_key(key))
}

/// The names of the variations and faults that a scenario may request from the reference server. The lists are read only when a scenario
/// names a variation or a fault.
#[derive(Debug, Clone, Copy)]
pub struct Behaviours {
    /// A function that returns the names that `vary` accepts.
    pub variations: fn() -> Vec<&'static str>,
    /// A function that returns the names that `fault` accepts.
    pub faults: fn() -> Vec<&'static str>,
}

impl Default for Behaviours {
    fn default() -> Self {
        Self { variations: Vec::new, faults: Vec::new }
    }
}

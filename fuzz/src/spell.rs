//! Builds messages with the commands and keys of the protocol table, and reads their fields.

use pmi_wire::protocol::{self, Exchange, Field};
use pmi_wire::{Decoded, Direction, Framing, HEADER};

/// Returns the exchange of an operation, given the name that the operation has in every framing.
fn exchange(framing: Framing, operation: &str) -> &'static Exchange {
    protocol::by_operation(framing, operation).expect("the framing has the operation")
}

/// Returns the text of a message: a line without its newline, or the body of a frame.
pub(crate) fn message<'a>(
    framing: Framing,
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    fields.into_iter().for_each(|(key, value)| framing.write_tuple(&mut out, key, value));
    out
}

/// Returns a request with these fields, given the names that the fields have in every framing.
pub(crate) fn request<V: AsRef<[u8]>>(
    framing: Framing,
    operation: &str,
    thrid: Option<u8>,
    fields: &[(&str, V)],
) -> Vec<u8> {
    let exchange = exchange(framing, operation);
    let thrid = thrid.map(|thrid| thrid.to_string());
    let key = |name: &str| {
        let named = |field: &&Field| field.name == name;
        exchange.arguments.iter().find(named).expect("the request has the field").key
    };
    let own = fields.iter().map(|(name, value)| (key(name), value.as_ref()));
    let common = thrid.iter().map(|thrid| ("thrid", thrid.as_bytes()));
    message(framing, [("cmd", exchange.request.as_bytes())].into_iter().chain(common).chain(own))
}

/// Returns a frame with this body.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [format!("{:>HEADER$}", body.len()).as_bytes(), body].concat()
}

/// Returns the known fields of a well-formed message in the order of the table, except that [`msg_last`] may move `msg` to the end.
pub(crate) fn known_fields<'a>(message: &Decoded<'a>) -> Vec<(&'static str, Vec<u8>)> {
    let row = message.exchange().expect("the message is well-formed");
    let command = row.command(message.direction).map(|command| ("cmd", command.as_bytes().to_vec()));
    let common: &[&str] = match (message.direction, message.framing) {
        (Direction::ToServer, Framing::Lines) => &[],
        (Direction::ToServer, Framing::Frames) => &["thrid"],
        (Direction::FromServer, Framing::Lines) => &["rc", "msg"],
        // In any frame, `found` or `flag` can report a miss and thus determine the outcome.
        (Direction::FromServer, Framing::Frames) => &["thrid", "rc", "errmsg", "found", "flag"],
    };
    let is_own = |key: &&str| !common.contains(key);
    let own = row.fields(message.direction).iter().filter(|field| !field.numbered).map(|field| field.key);
    let value = |key: &'static str| Some((key, message.value(key)?.into_owned()));
    let mut fields: Vec<_> = command
        .into_iter()
        .chain(common.iter().copied().chain(own.filter(is_own)).filter_map(value))
        .collect();
    msg_last(&mut fields);
    fields
}

/// Moves `msg` to the end, because it extends to the end of its line. Leaves `msg` in place if the value of a get, which also extends to
/// the end of the line, is last.
pub(crate) fn msg_last(fields: &mut [(&'static str, Vec<u8>)]) {
    if fields.last().is_some_and(|(key, _)| *key != "value") {
        fields.sort_by_key(|(key, _)| *key == "msg");
    }
}

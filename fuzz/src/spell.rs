//! Messages as the protocol table spells them.

use pmi_wire::pmi2::write_tuple;
use pmi_wire::protocol::{self, Exchange, Field};
use pmi_wire::{Framing, HEADER};

/// Returns the exchange of an operation, by the name that it has in every framing.
fn exchange(framing: Framing, operation: &str) -> &'static Exchange {
    let mut all = protocol::documented(framing).iter();
    all.find(|exchange| exchange.operation == operation).expect("the framing has the operation")
}

/// Returns the text of a message: a line without its newline, or the body of a frame.
pub(crate) fn message<'a>(
    framing: Framing,
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for (at, (key, value)) in fields.into_iter().enumerate() {
        match framing {
            Framing::Lines => {
                out.extend_from_slice(if at == 0 { b"" } else { b" " });
                [key.as_bytes(), b"=", value].iter().for_each(|part| out.extend_from_slice(part));
            }
            Framing::Frames => write_tuple(&mut out, key, value),
        }
    }
    out
}

/// Returns a request with these fields, by the names that they have in every framing.
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

/// Returns the frame of a body.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [format!("{:>HEADER$}", body.len()).as_bytes(), body].concat()
}

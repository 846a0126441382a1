//! The Wireshark plugin for PMI captures, generated from the protocol table.

use std::fmt::Write;

use pmi_wire::Framing;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{Field, common_arguments, common_results, exchanges, parts};

use super::pcapng::PORT;

/// The stored plugin (`ci/wireshark/pmi.lua`), whose table may be out of date.
const STORED: &str = include_str!("wireshark.lua");

/// Returns the Lua source of the plugin: the stored plugin with the current table.
pub(crate) fn wireshark_plugin() -> String {
    let mut messages = String::new();
    for framing in Framing::ALL {
        messages += "  {\n";
        for row in exchanges(framing) {
            let request = row.arguments.iter().chain(common_arguments(framing));
            message(&mut messages, row.request, row.operation, true, row.source, request);
            if let Some(response) = row.response {
                let results = row.results.iter().chain(common_results(framing));
                message(&mut messages, response, row.operation, false, row.source, results);
            }
        }
        for (name, fields) in parts(framing) {
            message(&mut messages, name, name, false, "PMI-2 draft", fields.iter());
        }
        messages += "  },\n";
    }
    let plugin = with_part(STORED, ["local PORT = ", "\n"], &PORT.to_string());
    with_part(&plugin, ["local MESSAGES = {\n", "\n}\n"], messages.trim_end())
}

/// Replaces the text between the first occurrences of `begin` and `end`.
fn with_part(text: &str, [begin, end]: [&str; 2], part: &str) -> String {
    let around = text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    around.map_or(text.to_owned(), |(before, after)| [before, begin, part, end, after].concat())
}

/// Appends the table line of a message. No word of the protocol needs escaping.
fn message<'a>(
    out: &mut String,
    command: &str,
    operation: &str,
    is_request: bool,
    source: &str,
    fields: impl Iterator<Item = &'a Field>,
) {
    let field = |field: &Field| {
        let flags = [(field.rule == Rule::String, 's'), (field.numbered, 'n'), (field.since.is_some(), '2')];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect();
        format!("{}={}:{flags}", field.key, field.name)
    };
    let fields = fields.map(field).collect::<Vec<_>>().join(" ");
    let _ = writeln!(
        out,
        "    [\"{command}\"] = {{ \"{operation}\", {is_request}, \"{source}\", \"{fields}\" }},"
    );
}

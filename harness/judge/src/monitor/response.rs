//! Checks a response against the protocol table. An irregular response is invalid input for the client.

use pmi_wire::grammar::{Rule, parse_bool, parse_int, parse_intlist};
use pmi_wire::pmi2::VALUE_MAX;
use pmi_wire::protocol::{Field, common_results};
use pmi_wire::{Decoded, Framing, ProcessMapping};

/// Returns false if a response repeats a field, has an irregular value, or, in a frame, lacks a required field. A client may react to an
/// irregular response in any way. `is_pending` tests whether a request with a given `thrid` is pending. Responses that cannot be read at
/// all count as regular here, because the monitor reports them separately.
pub(super) fn is_regular(message: &Decoded<'_>, is_pending: impl Fn(&[u8]) -> bool) -> bool {
    let framing = message.framing;
    let tuples: Vec<(&[u8], &[u8])> = message.tuples().map(|tuple| (tuple.key, tuple.value)).collect();
    let Some(exchange) = message.exchange().filter(|_| message.has_tuples()) else { return true };
    let fields = || exchange.results.iter().chain(common_results(framing));
    let value = |key: &str| tuples.iter().find(|(k, _)| *k == key.as_bytes()).map(|(_, value)| *value);
    let is_known =
        |key: &[u8]| std::str::from_utf8(key).is_ok_and(|key| fields().any(|f| f.matches_key(key)));
    let repeats = |(n, (key, _)): (usize, &(&[u8], &[u8]))| {
        is_known(key) && tuples[..n].iter().any(|(before, _)| before == key)
    };
    let fits = |(key, value): &(&[u8], &[u8])| {
        let key = std::str::from_utf8(key).unwrap_or_default();
        fields()
            .find(|field| field.matches_key(key))
            .is_none_or(|field| is_regular_value(framing, field, value))
    };
    let count =
        |key: &str| tuples.iter().filter(|(k, _)| fields().any(|f| f.key == key && is_of(f, k))).count();
    let is_success = value("rc").is_none_or(|rc| parse_int(rc) == Some(0));
    let is_there = |key| value(key).is_some_and(|value| !value.is_empty());
    let found = [value("flag"), value("found")].map(|flag| flag.and_then(parse_bool));
    let is_found = is_success && !found.contains(&Some(false));
    let has = |key: &str| exchange.results.iter().any(|field| field.key == key);
    let is_whole = framing == Framing::Lines
        || (exchange
            .results
            .iter()
            .all(|f| f.optional || f.numbered || !is_success || value(f.key).is_some())
            && (!is_found || !has("value") || value("value").or(value("port")).is_some())
            && (!is_success || !has("jobid") || is_there("jobid"))
            && !(found.contains(&Some(true)) && found.contains(&Some(false)))
            && value("nerrs").is_none_or(|n| parse_int(n) == i64::try_from(count("err")).ok())
            && value("thrid").is_none_or(is_pending));
    tuples.iter().all(fits) && !tuples.iter().enumerate().any(repeats) && is_whole
}

fn is_of(field: &Field, key: &[u8]) -> bool {
    std::str::from_utf8(key).is_ok_and(|key| field.matches_key(key))
}

/// Returns true if a value matches the rule of its field and its numbers fit the API's int.
fn is_regular_value(framing: Framing, field: &Field, value: &[u8]) -> bool {
    let is_int = |number: i64| i32::try_from(number).is_ok();
    let numbers = match field.rule {
        Rule::Uint | Rule::Int => parse_int(value).into_iter().collect(),
        Rule::IntList => parse_intlist(value).unwrap_or_default(),
        _ => Vec::new(),
    };
    let nodes = ProcessMapping::parse(value).ok().filter(|_| field.rule == Rule::String);
    let blocks = nodes.into_iter().flat_map(|nodes| nodes.blocks);
    let mut of_nodes = blocks.flat_map(|block| [block.first_node, block.nodes, block.ppn]);
    let is_text =
        framing == Framing::Lines || (std::str::from_utf8(value).is_ok() && value.len() <= VALUE_MAX);
    field.rule.accepts(value)
        && numbers.into_iter().all(is_int)
        && of_nodes.all(|number| i32::try_from(number).is_ok())
        && !(matches!(field.key, "pmi_version" | "size") && parse_int(value) == Some(0))
        && is_text
}

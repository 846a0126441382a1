//! Dictionaries for the targets, from the protocol table and the printers of the codec.
//!
//! `cargo run --example dictionaries` writes the dictionaries into `dictionaries/`. A test fails if they are stale.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pmi_scenario::ast::Dialect;
use pmi_scenario::signature;
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::{self, Exchange, Field};
use pmi_wire::{Framing, ProcessMapping, SpawnProgram};

use crate::spell;

/// Returns the dictionary of a target in libFuzzer's format, or `None` if the target's inputs are not text.
pub fn of(target: &str) -> Option<String> {
    let mut words = BTreeSet::new();
    match target {
        "stream" => {
            words.extend(requests());
            words.extend(responses());
            words.extend(["\t\n", " \n", "  ", "\t", "="].map(|blanks| blanks.as_bytes().to_vec()));
        }
        "spawn" => words.extend(spawn()),
        "mapping" => words.extend(mapping()),
        "scenario" => {
            words.extend(requests());
            words.extend(responses());
            words.extend(language());
        }
        "server_bytes" => {
            words.extend(requests());
            words.extend(spawn());
            words.extend(["kvs-0", "kvs-1"].map(|name| name.as_bytes().to_vec()));
        }
        "frames" | "pmi2_bytes" => {
            words.extend(frames());
            words.extend(
                ["cmd=init pmi_version=2 pmi_subversion=0\n", "kvs-0", "universeSize", ";;", "TRUE"]
                    .map(|w| w.as_bytes().to_vec()),
            );
            words.insert(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_vec());
        }
        "client_bytes" => {
            words.extend(responses());
            words.extend(records());
        }
        "judge" => {
            words.extend(requests());
            words.extend(responses());
            words.extend(spawn());
            words.extend(mapping());
            words.extend(
                ["PMI_FD=3\0", "PMI_RANK=0\0", "PMI_SIZE=2\0", "PMI_SPAWNED=1\0"]
                    .map(|v| v.as_bytes().to_vec()),
            );
        }
        _ => return None,
    }
    let mut text = format!("# Written by `cargo run --example dictionaries` for the target {target}.\n");
    for word in words.iter().filter(|word| !word.is_empty()) {
        text.push('"');
        for byte in word {
            match byte {
                b'"' | b'\\' => drop(write!(text, "\\{}", char::from(*byte))),
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => drop(write!(text, "\\x{byte:02x}")),
            }
        }
        text.push_str("\"\n");
    }
    Some(text)
}

/// Returns a whole line and its tuples, each tuple with the space before it.
fn tuples(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![[line, b"\n"].concat()];
    for (at, tuple) in line.split(|byte| *byte == b' ').enumerate() {
        words.push([if at == 0 { &b""[..] } else { b" " }, tuple].concat());
    }
    words
}

/// Returns the key and a value of each field. The keys of numbered fields end with the first number, 0.
fn fields(fields: &'static [Field]) -> Vec<(String, Vec<u8>)> {
    let value = |field: &Field| match field.rule {
        Rule::Word if field.name == "kvsname" => b"kvs-0".to_vec(),
        Rule::Word | Rule::String | Rule::Visible => field.name.as_bytes()[..1].to_vec(),
        Rule::Uint | Rule::Int => b"1".to_vec(),
        Rule::IntList => b"0,1".to_vec(),
        Rule::Bool => b"TRUE".to_vec(),
    };
    let key = |field: &Field| format!("{}{}", field.key, if field.numbered { "0" } else { "" });
    fields.iter().map(|field| (key(field), value(field))).collect()
}

/// Returns a message with a command, the fields in `first`, and the fields in `rest`.
fn message(framing: Framing, cmd: &str, first: &[(&str, &str)], rest: &'static [Field]) -> Vec<u8> {
    let rest = fields(rest);
    let first = [("cmd", cmd)].into_iter().chain(first.iter().copied());
    let first = first.map(|(key, value)| (key, value.as_bytes()));
    spell::message(framing, first.chain(rest.iter().map(|(key, value)| (key.as_str(), &value[..]))))
}

fn lines() -> impl Iterator<Item = &'static Exchange> {
    protocol::documented_exchanges(Framing::Lines).iter()
}

fn requests() -> Vec<Vec<u8>> {
    let all = lines().filter(|exchange| exchange.operation != "spawn");
    all.flat_map(|exchange| tuples(&message(Framing::Lines, exchange.request, &[], exchange.arguments)))
        .collect()
}

/// Returns the response to a successful operation as a line. The line is empty for abort.
fn success(exchange: &'static Exchange) -> Vec<u8> {
    let response = exchange.response;
    response.map_or(Vec::new(), |cmd| message(Framing::Lines, cmd, &[("rc", "0")], exchange.results))
}

fn responses() -> Vec<Vec<u8>> {
    let refusals = lines().filter_map(|exchange| exchange.response);
    let refusals = refusals.map(|cmd| message(Framing::Lines, cmd, &[("rc", "-1"), ("msg", "m")], &[]));
    lines().map(success).chain(refusals).flat_map(|line| tuples(&line)).collect()
}

/// Returns complete records of the target `client_bytes`: an operation, and the response that reports its success.
fn records() -> Vec<Vec<u8>> {
    (0..).zip(lines()).map(|(at, exchange)| [&[at][..], &success(exchange), b"\n\xff"].concat()).collect()
}

fn spawn() -> Vec<Vec<u8>> {
    let pair = || (b"k".to_vec(), b"v".to_vec());
    let program = SpawnProgram {
        nprocs: 1,
        execname: b"x".to_vec(),
        totspawns: 1,
        spawnssofar: 1,
        args: vec![(0, b"a".to_vec()), (1, b"b".to_vec())],
        preput: vec![pair()],
        info: vec![pair()],
    };
    let mut block = Vec::new();
    program.write_to(&mut block);
    block.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn mapping() -> Vec<Vec<u8>> {
    let text = ProcessMapping::compress(&[0, 0, 1, 1, 2]).to_string();
    let mut words: Vec<Vec<u8>> = text.split_inclusive(',').map(|part| part.as_bytes().to_vec()).collect();
    // Add tokens of MPICH's form of mappings, which `to_string` never writes, and numbers at the limits.
    words.extend(
        ["[", "]x2", " ", "4294967295", "4294967296", "18446744073709551615"].map(|w| w.as_bytes().to_vec()),
    );
    words.push(text.into_bytes());
    words
}

/// Returns the documented PMI-2 requests, as whole frames and as single tuples, and the commands and keys of the responses.
fn frames() -> Vec<Vec<u8>> {
    let all = || protocol::documented_exchanges(Framing::Frames).iter();
    let mut words = vec![b"concat=1;".to_vec()];
    for exchange in all() {
        let body = message(Framing::Frames, exchange.request, &[("thrid", "1")], exchange.arguments);
        words.push(spell::framed(&body));
        words.extend(body.split_inclusive(|b| *b == b';').map(<[u8]>::to_vec));
    }
    let responses = all().map(|exchange| (exchange.response, exchange.results));
    let parts = protocol::PARTS.map(|(name, fields)| (Some(name), fields));
    for (name, fields) in responses.chain(parts) {
        words.extend(name.map(|name| format!("cmd={name};").into_bytes()));
        let keys = fields.iter().filter(|field| !field.numbered);
        words.extend(keys.map(|field| format!("{}=", field.key).into_bytes()));
    }
    words
}

fn language() -> Vec<Vec<u8>> {
    let of_dialect = |dialect| {
        let functions =
            signature::functions(dialect).iter().map(|function| function.name.as_bytes().to_vec());
        functions.chain(signature::results(dialect).into_iter().map(String::into_bytes)).collect::<Vec<_>>()
    };
    Dialect::ALL.into_iter().flat_map(of_dialect).collect()
}

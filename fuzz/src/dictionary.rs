//! The words that the targets' inputs are made of, from the printers of the codec itself, so that they cannot rot.
//!
//! `cargo run --example dictionaries` writes them into `dictionaries/`; a test holds them up to date.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pmi_scenario::ast::Dialect;
use pmi_scenario::signature;
use pmi_wire::{Body, Maxes, Operation, ProcessMapping, Request, Response, SpawnProgram, Version};
use pmi_wire::{pmi2, protocol};

/// The dictionary of a target in libFuzzer's format; `None` for those whose inputs are not text.
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
                ["cmd=init pmi_version=2 pmi_subversion=0\n", "kvs-0", ";;", "TRUE"]
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

/// The tuples of a line, each with the blank before it, and the line.
fn tuples(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![line.to_vec()];
    for (at, tuple) in line.trim_ascii_end().split(|byte| *byte == b' ').enumerate() {
        words.push([if at == 0 { &b""[..] } else { b" " }, tuple].concat());
    }
    words
}

fn requests() -> Vec<Vec<u8>> {
    let (kvsname, key, value, service, port) = (&b"kvs-0"[..], &b"k"[..], &b"v"[..], &b"s"[..], &b"p"[..]);
    let all = [
        Request::Init(Version::V1_1),
        Request::Maxes,
        Request::Abort { exitcode: Some(1) },
        Request::Finalize,
        Request::Universe,
        Request::Appnum,
        Request::Put { kvsname, key, value },
        Request::Kvsname,
        Request::Barrier { group: Some(b"0,1:1") },
        Request::Get { kvsname, key },
        Request::Publish { service, port },
        Request::Unpublish { service },
        Request::Lookup { service },
    ];
    let printed = all.iter().flat_map(|request| {
        let mut line = Vec::new();
        request.write_to(&mut line);
        tuples(&line)
    });
    printed.collect()
}

fn response(operation: Operation, rc: i64, msg: Option<&[u8]>) -> Response<'_> {
    let maxes = Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 };
    let body = match operation {
        Operation::Init => Body::Init(Some(Version::V1_1)),
        Operation::Maxes => Body::Maxes(Some(maxes)),
        Operation::Abort => Body::AbortAck,
        Operation::Finalize => Body::Finalize,
        Operation::Universe => Body::Universe(Some(1)),
        Operation::Appnum => Body::Appnum(Some(0)),
        Operation::Put => Body::Put,
        Operation::Kvsname => Body::Kvsname(Some(b"kvs-0")),
        Operation::Barrier => Body::Barrier(Some(b"1")),
        Operation::Get => Body::Get(Some(b"v")),
        Operation::Publish => Body::Publish,
        Operation::Unpublish => Body::Unpublish,
        Operation::Lookup => Body::Lookup(Some(b"p")),
        Operation::Spawn => Body::Spawn(Some(vec![0, 1])),
    };
    Response { rc: Some(rc), msg, body }
}

fn responses() -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    for operation in Operation::ALL {
        for (rc, msg) in [(0, None), (-1, Some(&b"m"[..]))] {
            let mut line = Vec::new();
            response(operation, rc, msg).write_to(&mut line);
            words.extend(tuples(&line));
        }
    }
    words
}

/// Whole records of `client_bytes`: an operation and its success.
fn records() -> Vec<Vec<u8>> {
    let record = |(at, operation)| {
        let mut record = vec![at];
        response(operation, 0, None).write_to(&mut record);
        record.push(0xff);
        record
    };
    (0..).zip(Operation::ALL).map(record).collect()
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
    // MPICH's forms, which are read and never printed, and numbers at the edges.
    words.extend(
        ["[", "]x2", " ", "4294967295", "4294967296", "18446744073709551615"].map(|w| w.as_bytes().to_vec()),
    );
    words.push(text.into_bytes());
    words
}

/// Frames of PMI-2 and their tuples: requests as they are printed, and the beginnings and keys of responses.
fn frames() -> Vec<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    let value = |text: &'static str| text.as_bytes().into();
    let program = pmi2::Program {
        command: text("x"),
        maxprocs: 1,
        argv: vec![text("y")],
        info: vec![(text("k"), text("v"))],
    };
    let all = [
        pmi2::Request::Fullinit {
            pmijobid: Some(value("j")),
            pmirank: Some(0),
            threaded: Some(true),
            authtype: Some(value("challenge-sha256")),
            authinfo: Some(value("a")),
        },
        pmi2::Request::Finalize,
        pmi2::Request::Abort { isworld: Some(true), exitcode: Some(1), message: Some(value("m")) },
        pmi2::Request::JobGetid,
        pmi2::Request::JobConnect { jobid: value("kvs-1") },
        pmi2::Request::JobDisconnect { jobid: value("kvs-1") },
        pmi2::Request::KvsPut { key: value("k"), value: value("v") },
        pmi2::Request::KvsGet { jobid: Some(value("kvs-0")), srcid: Some(-1), key: value("k") },
        pmi2::Request::KvsFence,
        pmi2::Request::InfoPutnodeattr { key: value("k"), value: value("v") },
        pmi2::Request::InfoGetnodeattr { key: value("k"), wait: true },
        pmi2::Request::InfoGetjobattr { key: value("universeSize") },
        pmi2::Request::NamePublish { name: value("s"), port: value("p") },
        pmi2::Request::NameLookup { name: value("s") },
        pmi2::Request::NameUnpublish { name: value("s") },
        pmi2::Request::Ring { left: value("l"), right: value("r") },
        pmi2::Request::Spawn { preput: vec![(text("k"), text("v"))], programs: vec![program] },
    ];
    let mut words = Vec::new();
    for request in all {
        let mut body = Vec::new();
        request.write_to(Some(b"1"), &mut body);
        words.push([format!("{:>6}", body.len()).as_bytes(), &body].concat());
        words.extend(body.split_inclusive(|b| *b == b';').map(<[u8]>::to_vec));
    }
    words.push(text("concat=1;"));
    let responses = pmi2::Command::ALL.map(|command| (command.response_name(), command.exchange().results));
    let parts = protocol::PARTS.map(|(name, fields)| (Some(name), fields));
    for (name, fields) in responses.into_iter().chain(parts) {
        words.extend(name.map(|name| format!("cmd={name};").into_bytes()));
        let keys = fields.iter().filter(|field| !field.numbered);
        words.extend(keys.map(|field| format!("{}=", field.key).into_bytes()));
    }
    words
}

fn language() -> Vec<Vec<u8>> {
    let of_dialect = |(_, dialect)| {
        let functions =
            signature::functions(dialect).iter().map(|function| function.name.as_bytes().to_vec());
        functions.chain(signature::results(dialect).into_iter().map(String::into_bytes)).collect::<Vec<_>>()
    };
    Dialect::NAMES.into_iter().flat_map(of_dialect).collect()
}

//! Typed messages of PMI-2: a printed message must be parsed as the same message.
//!
//! Input: a byte for the kind of message, then its fields (see `input`).

use std::borrow::Cow;

use arbitrary::Unstructured;
use pmi_wire::pmi2::{Command, Pmi2SpawnProgram, Request, Response, SemicolonReading, write_tuple};

use crate::input::{byte, number};
use crate::planted;

/// Makes a message, prints it and parses it, both unchanged and with its tuples in another order and unknown ones among them.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let kind = byte(&mut u);
    let command = Command::ALL[usize::from(kind & 0x7f) % Command::ALL.len()];
    if kind < 0x80 { request(command, &mut u) } else { response(command, &mut u) }
}

/// Takes any bytes, with many semicolons.
fn text(u: &mut Unstructured<'_>) -> Vec<u8> {
    let length = usize::from(byte(u) % 32).min(u.len());
    let bytes = u.bytes(length).unwrap_or_default();
    bytes.iter().map(|b| if b % 16 == 15 { b';' } else { *b }).collect()
}

fn maybe<T>(u: &mut Unstructured<'_>, make: impl FnOnce(&mut Unstructured<'_>) -> T) -> Option<T> {
    (byte(u) & 1 == 1).then(|| make(u))
}

fn value(u: &mut Unstructured<'_>) -> Cow<'static, [u8]> {
    text(u).into()
}

fn boolean(u: &mut Unstructured<'_>) -> bool {
    byte(u) & 1 == 1
}

fn request(command: Command, u: &mut Unstructured<'_>) {
    let request = match command {
        Command::Fullinit => Request::Fullinit {
            pmijobid: maybe(u, value),
            pmirank: maybe(u, number),
            threaded: maybe(u, boolean),
            authtype: maybe(u, value),
            authinfo: maybe(u, value),
        },
        Command::Finalize => Request::Finalize,
        Command::Abort => Request::Abort {
            isworld: maybe(u, boolean),
            exitcode: maybe(u, |u| number(u).cast_signed()),
            message: maybe(u, value),
        },
        Command::JobGetid => Request::JobGetid,
        Command::JobConnect => Request::JobConnect { jobid: value(u) },
        Command::JobDisconnect => Request::JobDisconnect { jobid: value(u) },
        Command::AuthResponse
        | Command::AuthResponseComplete
        | Command::KvsGetall
        | Command::KvsPutall
        | Command::KvsPutallPair
        | Command::SpawnCmd
        | Command::Concat => return,
        Command::KvsPut => Request::KvsPut { key: value(u), value: value(u) },
        Command::KvsGet => Request::KvsGet {
            jobid: maybe(u, value),
            srcid: maybe(u, |u| number(u).cast_signed()),
            key: value(u),
        },
        Command::KvsFence => Request::KvsFence,
        Command::InfoPutnodeattr => Request::InfoPutnodeattr { key: value(u), value: value(u) },
        Command::InfoGetnodeattr => Request::InfoGetnodeattr { key: value(u), wait: boolean(u) },
        Command::InfoGetjobattr => Request::InfoGetjobattr { key: value(u) },
        Command::NamePublish => Request::NamePublish { name: value(u), port: value(u) },
        Command::NameLookup => Request::NameLookup { name: value(u) },
        Command::NameUnpublish => Request::NameUnpublish { name: value(u) },
        Command::Ring => Request::Ring { left: value(u), right: value(u) },
        Command::Spawn => {
            let pairs =
                |u: &mut Unstructured<'_>| (0..byte(u) % 3).map(|_| (text(u), text(u))).collect::<Vec<_>>();
            let preput = pairs(u);
            let _ = byte(u);
            let programs = (0..=byte(u) % 3).map(|_| Pmi2SpawnProgram {
                command: text(u),
                maxprocs: u64::from(byte(u)),
                argv: (0..byte(u) % 3).map(|_| text(u)).collect(),
                info: pairs(u),
            });
            Request::Spawn { preput, programs: programs.collect() }
        }
    };
    printed(command, &request, u);
}

/// Prints a request and parses it.
fn printed(command: Command, request: &Request<'_>, u: &mut Unstructured<'_>) {
    let thrid = maybe(u, text);
    let mut out = Vec::with_capacity(256);
    request.write_to(thrid.as_deref(), &mut out);
    if planted::is("frame-loses-doubled-semicolon") && command == Command::NamePublish {
        let doubled = out.windows(2).position(|two| two == b";;");
        if let Some(at) = doubled {
            out.remove(at);
        }
    }
    assert_eq!(Request::parse(&out, SemicolonReading::Doubled).as_ref(), Ok(request));
    assert_eq!(Request::thrid(&out, SemicolonReading::Doubled).as_deref(), thrid.as_deref());
    if !out.windows(2).any(|two| two == b";;") {
        assert_eq!(Request::parse(&out, SemicolonReading::Plain).as_ref(), Ok(request), "nothing is doubled");
    }
    // The sections of a spawn are ordered.
    if command != Command::Spawn {
        let turned = turned(&out, byte(u));
        assert_eq!(
            Request::parse(&turned, SemicolonReading::Doubled).as_ref(),
            Ok(request),
            "in another order"
        );
    }
}

/// Returns the tuples after `cmd` in another order, with an unknown one.
fn turned(body: &[u8], by: u8) -> Vec<u8> {
    let mut tuples: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = body.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let last = tuples.last_mut().expect("there is one");
        last.push(byte);
        if byte == b';' {
            match bytes.next_if_eq(&b';') {
                Some(again) => last.push(again),
                None => tuples.push(Vec::new()),
            }
        }
    }
    tuples.pop();
    let rest = &mut tuples[1..];
    if !rest.is_empty() {
        let by = usize::from(by) % rest.len();
        rest.rotate_left(by);
    }
    let mut out = tuples.remove(0);
    out.extend_from_slice(b"xyzzy==;");
    out.extend(tuples.concat());
    out
}

fn response(command: Command, u: &mut Unstructured<'_>) {
    let Some(name) = command.response_name() else { return };
    let rc = number(u).cast_signed();
    let flag = match byte(u) & 3 {
        0 => None,
        1 => Some(("found", b"TRUE".to_vec())),
        2 => Some(("flag", b"false".to_vec())),
        _ => Some(("found", text(u))),
    };
    let keys = command.response_keys().filter(|key| !matches!(*key, "found" | "flag"));
    let mut fields: Vec<(&str, Vec<u8>)> = keys.map(|key| (key, text(u))).collect();
    fields.push(("rc", rc.to_string().into_bytes()));
    fields.extend(flag.clone());
    fields.extend(maybe(u, text).map(|thrid| ("thrid", thrid)));
    fields.extend(maybe(u, text).map(|why| ("errmsg", why)));
    let by = usize::from(byte(u)) % fields.len();
    fields.rotate_left(by);
    let mut out = Vec::with_capacity(256);
    write_tuple(&mut out, "cmd", name.as_bytes());
    fields.iter().for_each(|(key, value)| write_tuple(&mut out, key, value));
    let read = Response::parse(&out, SemicolonReading::Doubled).expect("it has all that a response needs");
    assert_eq!((read.command, read.rc), (command, rc));
    for (key, value) in &fields {
        assert_eq!(read.get(key).as_deref(), Some(&value[..]), "{key}");
    }
    assert_eq!(read.get("xyzzy"), None);
    let found = match flag.map(|(_, value)| value.to_ascii_lowercase()) {
        None => Some(rc == 0),
        Some(value) if value == b"true" => Some(rc == 0),
        Some(value) if value == b"false" => Some(false),
        Some(_) => None,
    };
    assert_eq!(read.is_found(), found);
}

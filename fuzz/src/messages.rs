//! Typed messages: a printed message must be parsed as the same message.
//!
//! Input: a byte for the kind of message, then its fields (see `input`).

use arbitrary::Unstructured;
use pmi_wire::{Maxes, Operation, Request, Response, ResponseBody, ValueReading, Version};

use crate::input::{Arena, byte, number};
use crate::planted;

/// Makes a message, prints it and parses it, both unchanged and with its tuples in another order and unknown ones among them.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let kind = byte(&mut u);
    let mut arena = Arena::new();
    let operation = Operation::ALL[usize::from(kind & 0x7f) % Operation::ALL.len()];
    if kind < 0x80 {
        request(operation, &mut u, &mut arena);
    } else {
        response(operation, &mut u, &mut arena);
    }
}

fn request(operation: Operation, u: &mut Unstructured<'_>, arena: &mut Arena) {
    let request = match operation {
        Operation::Init => Request::Init(Version { version: number(u), subversion: number(u) }),
        Operation::Maxes => Request::Maxes,
        Operation::Abort => Request::Abort { exitcode: (byte(u) & 1 == 1).then(|| number(u).cast_signed()) },
        Operation::Finalize => Request::Finalize,
        Operation::Universe => Request::Universe,
        Operation::Appnum => Request::Appnum,
        Operation::Put => {
            let [kvsname, key, value] = [arena.word(u), arena.word(u), arena.string(u)];
            Request::Put { kvsname: arena.get(kvsname), key: arena.get(key), value: arena.get(value) }
        }
        Operation::Kvsname => Request::Kvsname,
        Operation::Barrier => {
            let group = (byte(u) & 1 == 1).then(|| arena.word(u));
            Request::Barrier { group: group.map(|group| arena.get(group)) }
        }
        Operation::Get => {
            let [kvsname, key] = [arena.word(u), arena.word(u)];
            Request::Get { kvsname: arena.get(kvsname), key: arena.get(key) }
        }
        Operation::Publish => {
            let [service, port] = [arena.word(u), arena.visible(u)];
            Request::Publish { service: arena.get(service), port: arena.get(port) }
        }
        Operation::Unpublish => {
            let service = arena.word(u);
            Request::Unpublish { service: arena.get(service) }
        }
        Operation::Lookup => {
            let service = arena.word(u);
            Request::Lookup { service: arena.get(service) }
        }
        // The target `spawn` covers these.
        Operation::Spawn => return,
    };
    let mut out = Vec::with_capacity(256);
    request.write_to(&mut out);
    if planted::is("port-loses-second-equals") && operation == Operation::Publish {
        let mut equals = (0..out.len()).filter(|at| out[*at] == b'=');
        if let Some(at) = equals.nth(4) {
            out.remove(at);
        }
    }
    let line = &out[..out.len() - 1];
    assert_eq!(Request::parse(line, ValueReading::ToEndOfLine), Ok(request));
    let blank = matches!(request, Request::Put { value, .. } if has_blank(value));
    if !blank {
        assert_eq!(Request::parse(line, ValueReading::ToBlank), Ok(request));
        let turned = turned(line, byte(u));
        assert_eq!(Request::parse(&turned, ValueReading::ToBlank), Ok(request), "in another order");
    }
}

fn response(operation: Operation, u: &mut Unstructured<'_>, arena: &mut Arena) {
    let flags = byte(u);
    let full = flags & 1 == 1;
    let rc = (flags & 2 == 2).then(|| number(u).cast_signed());
    let [first, second] = match operation {
        Operation::Kvsname | Operation::Barrier => [arena.word(u); 2],
        Operation::Lookup => [arena.visible(u); 2],
        Operation::Get if full => [arena.string(u), arena.word(u)],
        _ => [arena.string(u); 2],
    };
    let text = arena.get(first);
    let body = match operation {
        Operation::Init => {
            ResponseBody::Init(full.then(|| Version { version: number(u), subversion: number(u) }))
        }
        Operation::Maxes => ResponseBody::Maxes(full.then(|| Maxes {
            kvsname_max: number(u),
            keylen_max: number(u),
            vallen_max: number(u),
        })),
        Operation::Abort => ResponseBody::AbortAck,
        Operation::Finalize => ResponseBody::Finalize,
        Operation::Universe => ResponseBody::Universe(full.then(|| number(u))),
        Operation::Appnum => ResponseBody::Appnum(full.then(|| number(u))),
        Operation::Put => ResponseBody::Put,
        Operation::Kvsname => ResponseBody::Kvsname(full.then_some(text)),
        Operation::Barrier => ResponseBody::Barrier(full.then_some(text)),
        Operation::Get => ResponseBody::Get(full.then_some(text)),
        Operation::Publish => ResponseBody::Publish,
        Operation::Unpublish => ResponseBody::Unpublish,
        Operation::Lookup => ResponseBody::Lookup(full.then_some(text)),
        Operation::Spawn => {
            ResponseBody::Spawn(full.then(|| (0..=byte(u) % 8).map(|_| number(u).cast_signed()).collect()))
        }
    };
    // A `msg` that looks like a tuple of the response is parsed as one, unless that tuple comes before it.
    let msg = arena.get(second);
    let msg = (flags & 4 == 4 && !(msg.contains(&b'=') && (rc.is_none() || !full))).then_some(msg);
    let (rc, msg) = if operation == Operation::Abort { (None, None) } else { (rc, msg) };
    let response = Response { rc, msg, body };
    let mut out = Vec::with_capacity(256);
    response.write_to(&mut out);
    if planted::is("errcodes-lose-the-last-sign") && operation == Operation::Spawn && out.ends_with(b",-1\n")
    {
        out.remove(out.len() - 3);
    }
    let line = &out[..out.len() - 1];
    let read = Response::parse(line, ValueReading::ToEndOfLine);
    assert_eq!(read.as_ref(), Ok(&response));
    let blank = |text: Option<&[u8]>| text.is_some_and(has_blank);
    let value = matches!(response.body, ResponseBody::Get(value) if blank(value));
    if !value && !blank(response.msg) && operation != Operation::Abort {
        assert_eq!(Response::parse(line, ValueReading::ToBlank).as_ref(), Ok(&response));
        let turned = turned(line, byte(u));
        assert_eq!(Response::parse(&turned, ValueReading::ToBlank), Ok(response), "in another order");
    }
}

fn has_blank(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b' ' | b'\t'))
}

/// Returns the tuples in another order, with more spaces, and with an unknown tuple.
fn turned(line: &[u8], by: u8) -> Vec<u8> {
    let count = line.split(|byte| *byte == b' ').count();
    let mut out = Vec::with_capacity(line.len() + 32);
    let tuples = line.split(|byte| *byte == b' ');
    for (at, tuple) in tuples.clone().chain(tuples).skip(usize::from(by) % count).take(count).enumerate() {
        out.extend_from_slice(if at % 2 == 0 { b"\t " } else { b" " });
        out.extend_from_slice(tuple);
    }
    out.extend_from_slice(b"  xyzzy==");
    out
}

//! Target: the reference client, with arbitrary bytes from a server.
//!
//! Input: records. Each record consists of a byte that selects an operation (0x7f selects no operation), the bytes that the server then
//! sends, and 0xff. A record without bytes from the server closes the connection.

use pmi_reference::client::{Client, ClientMisuse, ServerError, ServerResponse};
use pmi_wire::grammar::Rule;
use pmi_wire::protocol::Field;
use pmi_wire::{Decoded, Direction, Framing, Operation, SpawnProgram};

use crate::{counters, input, memory, planted};

/// Checks that the client returns a response or an error and never panics. The client must send the intended request, and match responses
/// to the pending request. After an error, the client must neither send nor accept anything. The result must not depend on how the bytes
/// are split.
pub fn run(data: &[u8]) {
    let before = memory::live();
    let mut client = Client::new();
    let mut bytewise = Client::new();
    let mut waiting = None;
    let mut broken = false;
    let mut records = data;
    while let Some((&[operation], bytes)) = input::record(&mut records) {
        if operation != 0x7f {
            let requested = Operation::ALL[usize::from(operation & 0x7f) % Operation::ALL.len()];
            let sent = ask(&mut client, requested, operation);
            assert_eq!(sent, ask(&mut bytewise, requested, operation), "fragmentation changes the request");
            match sent {
                Ok(request) => {
                    assert!(
                        !broken && waiting.is_none(),
                        "the client sends a request while another is pending, or after an error"
                    );
                    check_request(requested, &request);
                    waiting = Some(requested);
                }
                Err(ClientMisuse::InFlight(other)) => assert_eq!(Some(other), waiting.map(Operation::rule)),
                Err(ClientMisuse::Broken) => assert!(broken),
                Err(_) => assert!(waiting.is_none() && !broken),
            }
        }
        if bytes.is_empty() {
            let result = client.closed();
            assert_eq!(result, bytewise.closed());
            assert!(result.is_err() || waiting.is_none() && !broken);
            (broken, waiting) = (true, None);
            continue;
        }
        let whole = client.receive(bytes);
        let first = bytes.chunks(1).find_map(|byte| bytewise.receive(byte));
        match &whole {
            None => {
                assert_eq!(first, None, "the client returns a response only if the bytes arrive one by one")
            }
            Some(Ok(answer)) => {
                assert_eq!(first.as_ref(), Some(&Ok(answer.clone())), "fragmentation changes the response");
                let operation = operation_of(answer);
                assert_eq!(
                    Some(operation),
                    waiting.take(),
                    "the response does not belong to the pending request"
                );
                // All kinds of responses share most of their decoding code, so each kind is also counted as coverage.
                counters::seen(
                    operation as u32 * 2 + u32::from(matches!(answer, ServerResponse::Failed { .. })),
                );
                assert_eq!(bytes.last(), Some(&b'\n'), "the response does not end with a newline");
            }
            Some(Err(error)) => {
                assert!(!error.to_string().is_empty());
                if *error != ServerError::Unsolicited {
                    assert_eq!(first.as_ref(), Some(&Err(error.clone())), "fragmentation changes the error");
                }
                // If bytes arrive one by one, the client returns the response before it sees the surplus bytes.
                if let Some(Ok(_)) = first {
                    assert_eq!(bytewise.receive(b"x"), Some(Err(ServerError::Unsolicited)));
                }
                (broken, waiting) = (true, None);
            }
        }
    }
    memory::check(before, (32 << 10) + 16 * data.len(), "a client");
}

fn ask(client: &mut Client, operation: Operation, detail: u8) -> Result<Vec<u8>, ClientMisuse> {
    let text: &[u8] = if detail & 0x80 == 0 { b"k" } else { b"a-longer-one" };
    match operation {
        Operation::Init => client.init(),
        Operation::Abort => client.abort((detail & 0x80 != 0).then_some(-1)),
        Operation::Finalize => client.finalize(),
        Operation::Put => client.put(text, b"two words"),
        Operation::Get => client.get(text),
        Operation::Spawn => {
            let program = SpawnProgram { nprocs: 2, execname: text.to_vec(), ..SpawnProgram::default() };
            client.spawn(&[program])
        }
        _ => {
            let value = |field: &Field| if field.rule == Rule::Visible { &b"tag=0$"[..] } else { text };
            let fields = operation.exchange().arguments.iter().filter(|field| !field.optional);
            let fields: Vec<_> = fields.map(|field| (field.name, value(field))).collect();
            client.request(operation.rule(), &fields)
        }
    }
}

fn check_request(requested: Operation, bytes: &[u8]) {
    assert!(bytes.ends_with(b"\n"));
    let line = &bytes[..bytes.len() - 1];
    if requested == Operation::Spawn {
        assert!(bytes.starts_with(b"mcmd=spawn\n") && bytes.ends_with(b"\nendcmd\n"));
        return;
    }
    assert_eq!(Decoded::new(Direction::ToServer, Framing::Lines, line).operation(), Some(requested));
}

fn operation_of(answer: &ServerResponse) -> Operation {
    match answer {
        ServerResponse::Init(_) => Operation::Init,
        ServerResponse::Maxes(_) => Operation::Maxes,
        ServerResponse::AbortAck => Operation::Abort,
        ServerResponse::Finalized => Operation::Finalize,
        ServerResponse::Universe(_) => Operation::Universe,
        ServerResponse::Appnum(_) if planted::is("appnum-taken-for-universe") => Operation::Universe,
        ServerResponse::Appnum(_) => Operation::Appnum,
        ServerResponse::Kvsname(_) => Operation::Kvsname,
        ServerResponse::Barrier | ServerResponse::GroupBarrier(..) => Operation::Barrier,
        ServerResponse::Value(_) => Operation::Get,
        ServerResponse::Port(_) => Operation::Lookup,
        ServerResponse::Spawned { .. } => Operation::Spawn,
        ServerResponse::Done(operation) | ServerResponse::Failed { operation, .. } => {
            Operation::from_rule(operation).expect("an operation of PMI-1")
        }
        ServerResponse::Joined { .. } | ServerResponse::Connected { .. } => panic!("a response of PMI-2"),
    }
}

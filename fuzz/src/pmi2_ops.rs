//! The PMI-2 reference server with operations of one to four ranks and of the processes that they spawn, compared with
//! [`crate::pmi2_model`].
//!
//! Input: a byte for the number of ranks and nodes, then four bytes for each step: the process, the operation, its arguments, and the
//! thread with the position of the cut.

use arbitrary::Unstructured;
use pmi_faults::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::Proc;

use crate::pmi2_model::{Pmi2ExpectedAction, Pmi2Model, ProcessId};
use crate::pmi2_requests::{Pmi2ClientOp, SPAWN_MAX};
use crate::spell::framed;
use crate::{counters, input, planted};

/// Maximum number of process groups that have steps.
const GROUPS: u32 = 3;
const OPS: u32 = 1 << 29;

/// Checks that the actions of the server are exactly those that the model expects.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let head = input::byte(&mut u);
    let (size, nodes) = (u32::from(head & 3) + 1, u32::from(head >> 2 & 3) + 1);
    let wrapper = planted::behaviour();
    let config = Config { spawn_max: SPAWN_MAX, nodes, pmi2: true, wrapper, ..Config::default() };
    let mut server = Server::new(config);
    server.add_group(GroupSpec { programs: vec![size], ..GroupSpec::default() });
    let mut model = Pmi2Model::new(size, nodes);
    // All processes start, unless the input includes the start.
    if head & 0x80 == 0 {
        for rank in 0..size {
            for op in [Pmi2ClientOp::Offer, Pmi2ClientOp::Fullinit] {
                send(&mut server, &mut model, (0, rank), op, None, 0);
                compare(&mut server, &mut model);
            }
        }
    }
    while let Ok(&[who, what, detail, how]) =
        u.bytes(4).map(|bytes| <&[u8; 4]>::try_from(bytes).expect("so many"))
    {
        let group = u32::from(who >> 4) % model.groups().min(GROUPS);
        let who = (group, u32::from(who & 7) % model.size(group));
        let state = model.state(who);
        match what >> 5 {
            6 => {
                server.closed(proc(who));
                model.closed(who);
            }
            7 => {
                if let Some((group, size)) = model.spawned(detail & 1 == 0) {
                    let mut codes = [0; 4];
                    codes[0] = i64::from(detail & 1);
                    server.spawned(group, &codes[..size as usize]);
                }
            }
            _ => {
                let thrid = (how & 4 == 4).then_some(how & 3);
                let op = if model.is_new(who) { Pmi2ClientOp::Offer } else { Pmi2ClientOp::of(what, detail) };
                send(&mut server, &mut model, who, op, thrid, how >> 3 & 15);
            }
        }
        let outcome = match model.due.last() {
            None => 0,
            Some(Pmi2ExpectedAction::Send { ok, .. }) => 1 + u32::from(*ok),
            Some(_) => 3,
        };
        compare(&mut server, &mut model);
        counters::reached(state * 4 + outcome);
        counters::reached(state.wrapping_mul(0x0101_0101) ^ model.state(who));
        counters::seen(OPS + u32::from(what & 31) * 8 + u32::from(group > 0) * 4 + outcome);
    }
}

/// Sends a request in two pieces.
fn send(
    server: &mut Server,
    model: &mut Pmi2Model,
    who: ProcessId,
    op: Pmi2ClientOp,
    thrid: Option<u8>,
    cut: u8,
) {
    let message = op.message(thrid);
    let (first, second) = message.split_at(usize::from(cut).min(message.len()));
    server.receive(proc(who), first);
    // The first bytes of a line already show that it is not a frame.
    if op != Pmi2ClientOp::Offer && !second.is_empty() {
        assert_eq!(server.next_action(), None, "half a request");
    }
    server.receive(proc(who), second);
    model.request(who, op, thrid);
}

/// Compares the actions of the server with the expected ones.
fn compare(server: &mut Server, model: &mut Pmi2Model) {
    let due = std::mem::take(&mut model.due);
    let mut due = due.iter();
    while let Some(action) = server.next_action() {
        let Some(expected) = due.next() else { panic!("not due: {action:?}") };
        assert!(fits(&action, expected), "{action:?} where {expected:?} is due");
    }
    assert!(due.as_slice().is_empty(), "still due: {:?}", due.as_slice());
}

fn fits(action: &ServerAction, expected: &Pmi2ExpectedAction) -> bool {
    match (action, expected) {
        (ServerAction::Send { to, bytes }, Pmi2ExpectedAction::Send { to: who, line: true, text, .. }) => {
            *to == proc(*who) && *bytes == [text.as_bytes(), b"\n"].concat()
        }
        (ServerAction::Send { to, bytes }, Pmi2ExpectedAction::Send { to: who, ok: true, text, .. }) => {
            *to == proc(*who) && *bytes == framed(text.as_bytes())
        }
        // The server may choose the text of an error message.
        (ServerAction::Send { to, bytes }, Pmi2ExpectedAction::Send { to: who, text, .. }) => {
            let header: Option<usize> =
                std::str::from_utf8(&bytes[..6]).ok().and_then(|n| n.trim().parse().ok());
            let body = &bytes[6..];
            *to == proc(*who)
                && header == Some(body.len())
                && body.starts_with(text.as_bytes())
                && body.ends_with(b";")
        }
        (
            ServerAction::Abort { group, rank: by, status, .. },
            Pmi2ExpectedAction::Abort { by: who, status: due },
        ) => (*group, *by) == *who && *status == *due,
        (
            ServerAction::Spawn { group, requester: by, programs },
            Pmi2ExpectedAction::Spawn { group: due, by: who, size },
        ) => {
            let processes: u64 = programs.iter().map(|program| program.nprocs).sum();
            *group == *due && *by == proc(*who) && processes == u64::from(*size)
        }
        _ => false,
    }
}

fn proc(who: ProcessId) -> Proc {
    Proc { group: who.0, rank: who.1 }
}

//! The reference server under any bytes of several processes.
//!
//! Input: records of a byte that names the process, what it sends, and 0xff. One that sends nothing closes its connection.
//! Processes 0 to 2 are the first group; 3 is the only one of a second group, and its records make it take its next step.

use pmi_faults::{Action, Config, GroupSpec, Server};
use pmi_wire::Proc;

use crate::{input, memory, planted};

const LINE_MAX: usize = 256;

/// A process that keeps to the protocol: what it sends, what it must be answered. None of it depends on another group.
const SCRIPT: [(&str, &str); 8] = [
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    ),
    ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=kvs-1\n"),
    ("cmd=put kvsname=kvs-1 key=k value=mine\n", "cmd=put_result rc=0\n"),
    ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n"),
    ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=1\n"),
    ("cmd=get kvsname=kvs-1 key=k\n", "cmd=get_result rc=0 value=mine\n"),
    ("cmd=get kvsname=kvs-1 key=PMI_process_mapping\n", "cmd=get_result rc=0 value=(vector,(0,1,1))\n"),
    ("cmd=finalize\n", "cmd=finalize_ack rc=0\n"),
];
const QUIET: Proc = Proc { group: 1, rank: 0 };

/// Nothing that the first group sends changes what the second is answered; a server that gets a stream in pieces does what
/// one does that gets it line by line; the server holds no more than what it was sent asks for.
pub fn run(data: &[u8]) {
    let before = memory::live();
    let (mut server, mut by_line) = (server(), server());
    let mut lines = [const { Line::new() }; 3];
    let mut script = SCRIPT.iter();
    let mut records = data;
    while let Some((&[who], bytes)) = input::record(&mut records) {
        let from = Proc { group: 0, rank: u32::from(who & 3) };
        if from.rank == 3 {
            if let Some((request, answer)) = script.next() {
                step(&mut server, request, answer);
                step(&mut by_line, request, answer);
            }
        } else if bytes.is_empty() {
            server.closed(from);
            // An end within a message is told from one between messages.
            by_line.receive(from, &lines[from.rank as usize].bytes);
            by_line.closed(from);
        } else {
            server.receive(from, bytes);
            lines[from.rank as usize].push(bytes, |line| by_line.receive(from, line));
        }
        loop {
            let action = server.next_action();
            assert_eq!(action, by_line.next_action(), "in pieces, and line by line");
            match action {
                None => break,
                Some(Action::Send { to, bytes }) => {
                    assert_eq!(to.group, 0, "an answer to who asked nothing: {}", bytes.escape_ascii());
                    assert!(bytes.ends_with(b"\n"), "an answer is a line");
                }
                Some(Action::Spawn { group, .. }) => {
                    for server in [&mut server, &mut by_line] {
                        let size = server.size(group) as usize;
                        server.spawned(group, &[0; 4][..size]);
                    }
                }
                Some(Action::Abort { group, .. }) => {
                    assert_eq!(group, 0, "whose members keep to the protocol")
                }
                Some(Action::Close { .. }) => panic!("only a server with a fault closes one connection"),
            }
        }
    }
    // A spawn request of a hundred bytes makes a group of up to four processes, in both servers.
    memory::check(before, (64 << 10) + 64 * data.len(), "a server");
}

fn server() -> Server {
    let wrapper = planted::behaviour();
    let mut server = Server::new(Config { line_max: LINE_MAX, spawn_max: 4, wrapper, ..Config::default() });
    server.add_group(GroupSpec { programs: vec![3], ..GroupSpec::default() });
    server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
    server
}

fn step(server: &mut Server, request: &str, answer: &str) {
    server.receive(QUIET, request.as_bytes());
    match server.next_action() {
        Some(Action::Send { to: QUIET, bytes }) if bytes == answer.as_bytes() => {}
        other => panic!("{other:?} in answer to {request}"),
    }
    assert_eq!(server.next_action(), None);
}

/// A line that arrives in pieces.
struct Line {
    bytes: Vec<u8>,
    /// It was passed on already, as it is too long.
    passed: bool,
}

impl Line {
    const fn new() -> Self {
        Self { bytes: Vec::new(), passed: false }
    }

    /// Passes on every line that has become whole, and one that is too long as soon as that shows.
    fn push(&mut self, bytes: &[u8], mut pass: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.bytes.extend_from_slice(piece);
            let whole = piece.ends_with(b"\n");
            if whole || self.bytes.len() >= LINE_MAX && !self.passed {
                pass(&self.bytes);
                self.bytes.clear();
                self.passed = !whole;
            }
        }
    }
}

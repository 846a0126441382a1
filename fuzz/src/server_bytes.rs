//! Target: the reference server, with arbitrary bytes from several processes.
//!
//! Input: records. Each record consists of a byte that selects a process, the bytes that this process sends, and 0xff. A record without
//! bytes closes the connection.
//! Processes 0 to 2 form the first group. Process 3 is alone in a second group, and each record for it triggers its next step.

use pmi_faults::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::{Framing, Proc};

use crate::{input, memory, planted, spell};

const LINE_MAX: usize = 256;
const OFFER: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";
const QUIET: Proc = Proc { group: 1, rank: 0 };

/// The script of a PMI-1 process (see [`DialectSession::script`]).
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

/// A session of two groups in one dialect.
pub(crate) struct DialectSession {
    /// The framing after the init line.
    pub(crate) framing: Framing,
    /// The messages of a process that follows the protocol, and the responses to them. No response depends on the other group.
    pub(crate) script: &'static [(&'static str, &'static str)],
    /// The maximum number of bytes that a server may allocate for each byte of the input.
    pub(crate) bytes: usize,
}

/// Plays a PMI-1 session.
pub fn run(data: &[u8]) {
    DialectSession { framing: Framing::Lines, script: &SCRIPT, bytes: 64 }.play(data);
}

impl DialectSession {
    /// Checks that the first group cannot change the responses to the second group, and that it does not matter how a stream is split.
    /// Responses must be whole messages. The server's memory must be proportional to the input.
    pub(crate) fn play(&self, data: &[u8]) {
        let before = memory::live();
        let (mut server, mut bytewise) = (self.server(), self.server());
        let mut script = self.script.iter();
        let mut records = data;
        while let Some((&[who], bytes)) = input::record(&mut records) {
            let from = Proc { group: 0, rank: u32::from(who & 3) };
            if from.rank == 3 {
                if let Some((request, answer)) = script.next() {
                    self.step(&mut server, request, answer);
                    self.step(&mut bytewise, request, answer);
                }
            } else if bytes.is_empty() {
                server.closed(from);
                bytewise.closed(from);
            } else {
                server.receive(from, bytes);
                bytes.iter().for_each(|byte| bytewise.receive(from, &[*byte]));
            }
            loop {
                let action = server.next_action();
                assert_eq!(action, bytewise.next_action(), "fragmentation changes the actions");
                match action {
                    None => break,
                    Some(ServerAction::Send { to, bytes }) => {
                        assert_eq!(to.group, 0, "an unrequested response: {}", bytes.escape_ascii());
                        assert!(self.is_message(&bytes), "{}", bytes.escape_ascii());
                    }
                    Some(ServerAction::Spawn { group, .. }) => {
                        for server in [&mut server, &mut bytewise] {
                            let size = server.size(group) as usize;
                            server.spawned(group, &[0; 4][..size]);
                        }
                    }
                    Some(ServerAction::Abort { group, .. }) => {
                        assert_eq!(group, 0, "the server aborted a group that follows the protocol")
                    }
                    Some(ServerAction::Close { .. }) => {
                        panic!("the server closed a single connection, which only a faulty server does")
                    }
                }
            }
        }
        // A byte of input may use many bytes of memory: a spawn request of a hundred bytes creates up to four processes in each server.
        memory::check(before, (64 << 10) + self.bytes * data.len(), "a server");
    }

    /// Returns whether the bytes are a line with its newline, or a frame with the correct length.
    fn is_message(&self, bytes: &[u8]) -> bool {
        let is_frame = |(header, body): (&[u8], &[u8])| {
            let text = std::str::from_utf8(header).ok();
            let length: Option<usize> = text.and_then(|text| text.trim().parse().ok());
            length == Some(body.len()) && body.ends_with(b";") && body.starts_with(b"cmd=")
        };
        match self.framing {
            Framing::Lines => bytes.ends_with(b"\n"),
            Framing::Frames => {
                bytes.split_at_checked(6).is_some_and(is_frame)
                    || (bytes.starts_with(b"cmd=") && bytes.ends_with(b"\n"))
            }
        }
    }

    fn server(&self) -> Server {
        let (wrapper, pmi2) = (planted::behaviour(), self.framing == Framing::Frames);
        let config = Config { line_max: LINE_MAX, spawn_max: 4, pmi2, wrapper, ..Config::default() };
        let mut server = Server::new(config);
        server.add_group(GroupSpec { programs: vec![3], ..GroupSpec::default() });
        server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
        let offers = [(0, 0), (0, 1), (0, 2), (1, 0)].map(|(group, rank)| Proc { group, rank });
        for proc in offers.into_iter().filter(|_| pmi2) {
            server.receive(proc, OFFER);
            assert!(
                matches!(server.next_action(), Some(ServerAction::Send { .. })),
                "the server did not accept the offer"
            );
        }
        server
    }

    fn step(&self, server: &mut Server, request: &str, answer: &str) {
        let [request, answer] = [request, answer].map(|text| match self.framing {
            Framing::Lines => text.as_bytes().to_vec(),
            Framing::Frames => spell::framed(text.as_bytes()),
        });
        server.receive(QUIET, &request);
        match server.next_action() {
            Some(ServerAction::Send { to: QUIET, bytes }) if bytes == answer => {}
            other => panic!("{other:?} in response to {}", request.escape_ascii()),
        }
        assert_eq!(server.next_action(), None);
    }
}

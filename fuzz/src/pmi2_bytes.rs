//! The reference server of PMI-2 under any bytes of several processes.
//!
//! Input: records of a byte that names the process, what it sends, and 0xff. One that sends nothing closes its connection.
//! Processes 0 to 2 are the first group, which has made its offer; 3 is the only one of a second group, and its records make it take
//! its next step.

use pmi_faults::{Action, Config, GroupSpec, Server};
use pmi_wire::Proc;

use crate::{input, memory, planted};

const LINE_MAX: usize = 256;
const OFFER: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";

/// A process that keeps to the protocol: what it sends, what it must be answered. None of it depends on another group.
const SCRIPT: [(&str, &str); 9] = [
    (
        "cmd=fullinit;",
        "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;",
    ),
    ("cmd=job-getid;thrid=1;", "cmd=job-getid-response;thrid=1;jobid=kvs-1;rc=0;"),
    ("cmd=kvs-put;key=k;value=mi;;ne;", "cmd=kvs-put-response;rc=0;"),
    ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
    ("cmd=info-putnodeattr;key=a;value=;", "cmd=info-putnodeattr-response;rc=0;"),
    ("cmd=kvs-get;jobid=kvs-1;srcid=9;key=k;", "cmd=kvs-get-response;found=TRUE;value=mi;;ne;rc=0;"),
    ("cmd=info-getnodeattr;key=a;wait=TRUE;", "cmd=info-getnodeattr-response;found=TRUE;value=;rc=0;"),
    (
        "cmd=info-getjobattr;key=PMI_process_mapping;",
        "cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,1));rc=0;",
    ),
    ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
];
const QUIET: Proc = Proc { group: 1, rank: 0 };

/// Nothing that the first group sends changes what the second is answered; a server that gets a stream byte by byte does what
/// one does that gets it at once; answers are whole frames; the server holds no more than what it was sent asks for.
pub fn run(data: &[u8]) {
    let before = memory::live();
    let (mut server, mut bytewise) = (server(), server());
    let mut script = SCRIPT.iter();
    let mut records = data;
    while let Some((&[who], bytes)) = input::record(&mut records) {
        let from = Proc { group: 0, rank: u32::from(who & 3) };
        if from.rank == 3 {
            if let Some((request, answer)) = script.next() {
                step(&mut server, request, answer);
                step(&mut bytewise, request, answer);
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
            assert_eq!(action, bytewise.next_action(), "at once, and byte by byte");
            match action {
                None => break,
                Some(Action::Send { to, bytes }) => {
                    assert_eq!(to.group, 0, "an answer to who asked nothing: {}", bytes.escape_ascii());
                    assert!(is_message(&bytes), "{}", bytes.escape_ascii());
                }
                Some(Action::Spawn { group, .. }) => {
                    for server in [&mut server, &mut bytewise] {
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
    memory::check(before, (64 << 10) + 128 * data.len(), "a server");
}

/// Whether it is one frame whose length is right, or a line.
fn is_message(bytes: &[u8]) -> bool {
    let Some((header, body)) = bytes.split_at_checked(6) else { return false };
    let length: Option<usize> = std::str::from_utf8(header).ok().and_then(|text| text.trim().parse().ok());
    (length == Some(body.len()) && body.ends_with(b";") && body.starts_with(b"cmd="))
        || (bytes.starts_with(b"cmd=") && bytes.ends_with(b"\n"))
}

fn server() -> Server {
    let wrapper = planted::behaviour();
    let config = Config { line_max: LINE_MAX, spawn_max: 4, pmi2: true, wrapper, ..Config::default() };
    let mut server = Server::new(config);
    server.add_group(GroupSpec { programs: vec![3], ..GroupSpec::default() });
    server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
    for proc in [(0, 0), (0, 1), (0, 2), (1, 0)].map(|(group, rank)| Proc { group, rank }) {
        server.receive(proc, OFFER);
        assert!(matches!(server.next_action(), Some(Action::Send { .. })), "the offer is taken");
    }
    server
}

fn framed(body: &str) -> Vec<u8> {
    format!("{:>6}{body}", body.len()).into_bytes()
}

fn step(server: &mut Server, request: &str, answer: &str) {
    server.receive(QUIET, &framed(request));
    match server.next_action() {
        Some(Action::Send { to: QUIET, bytes }) if bytes == framed(answer) => {}
        other => panic!("{other:?} in answer to {request}"),
    }
    assert_eq!(server.next_action(), None);
}

//! The judge.
//!
//! Input: a byte. If it is even, arbitrary events follow: a byte for the kind, one for the process, the bytes, and 0xff. If it is odd,
//! operations as in `ops` follow, which the reference server answers.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use pmi_faults::ServerAction;
use pmi_judge::event::{Bytes, Event, EventKind, SilenceProof};
use pmi_judge::{Finding, Monitor, PartyKind};
use pmi_wire::Proc;

use crate::server_ops::{ServerObserver, ServerPlay};
use crate::{input, memory, planted};

thread_local! {
    /// The ids of all requirements.
    static KNOWN_REQUIREMENTS: OnceCell<HashSet<String>> = const { OnceCell::new() };
}

/// Checks that the judge limits its findings and its memory for arbitrary events, and cites requirements that exist. It must have no
/// finding about a server that follows RFC 13, no matter what its clients do.
pub fn run(data: &[u8]) {
    // Initialized before memory is measured.
    KNOWN_REQUIREMENTS.with(|known| _ = known.get_or_init(requirements));
    let Some((kind, rest)) = data.split_first() else { return };
    if kind % 2 == 0 { events(rest) } else { operations(rest) }
}

fn requirements() -> HashSet<String> {
    let Ok(suite) = pmi_runner::suite::of_paths(&[]) else {
        panic!("the embedded requirements cannot be read")
    };
    suite.catalogue.iter().map(|known| known.id.clone()).collect()
}

fn check(findings: &[Finding], seq: u64) {
    assert!(findings.len() <= 100, "{} findings at once", findings.len());
    for finding in findings {
        let misspelt = planted::is("intlist-misspelt") && finding.requirement == "rfc13.abnf.intlist";
        assert!(!misspelt, "{finding:?}");
        assert!(
            KNOWN_REQUIREMENTS
                .with(|known| known.get().is_some_and(|ids| ids.contains(&finding.requirement))),
            "{finding:?}"
        );
        assert!(finding.seq <= seq && !finding.expected.is_empty());
        // Findings are shown on a terminal, so long and binary texts are shortened and escaped.
        assert!(finding.seen.len() < 2048 && finding.expected.len() < 64 << 10, "{finding:?}");
    }
}

fn events(data: &[u8]) {
    let before = memory::live();
    let mut monitor = Monitor::new();
    let mut seq = 0;
    let mut rest = data;
    while let Some((&[kind, who], bytes)) = input::record(&mut rest) {
        monitor.observe(&Event::new(seq, event(kind, who, bytes)));
        if kind & 0x80 == 0 {
            check(&monitor.take_findings(), seq);
        }
        seq += 1;
    }
    check(&monitor.take_findings(), seq);
    // Each event may create a process, a group, or a pending request.
    memory::check(before, (64 << 10) + 1024 * seq as usize + 64 * data.len(), "the judge");
}

fn event(kind: u8, who: u8, bytes: &[u8]) -> EventKind {
    let proc = Proc { group: u32::from(who >> 4 & 3), rank: u32::from(who & 7) };
    let bytes = Bytes(bytes.to_vec());
    match kind & 15 {
        0 => EventKind::Launched { command: vec![], ranks: u32::from(who & 7), nodes: u32::from(who >> 4) },
        1 | 2 => {
            let text = String::from_utf8_lossy(&bytes.0);
            let env: BTreeMap<String, String> = text
                .split('\0')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            EventKind::Started {
                proc,
                env,
                args: vec![],
                bad_fd: (kind & 15 == 2).then(|| "closed".to_owned()),
            }
        }
        3..=5 => EventKind::ToServer { proc, bytes },
        6..=8 => EventKind::FromServer { proc, bytes },
        9 => EventKind::ClosedByClient { proc },
        10 => EventKind::ClosedByServer { proc },
        11 => EventKind::Ended { proc, ours: who & 8 == 8 },
        12 => EventKind::NoResponse { proc, proof: SilenceProof::Idle },
        13 => EventKind::Output { proc: None, stderr: who & 8 == 8, line: bytes },
        14 => EventKind::Crashed { name: "x".to_owned(), signal: 11 },
        _ => EventKind::JobExited { exit: pmi_judge::event::Exit::Code(i32::from(who)) },
    }
}

fn operations(data: &[u8]) {
    let mut play = ServerPlay::new(data, JudgedSession { monitor: Monitor::new(), seq: 0, spawned: false });
    while play.step() {
        let findings = play.watch.monitor.take_findings();
        check(&findings, play.watch.seq);
        // The judge counts refused spawns when it numbers groups, and the server does not.
        if play.watch.spawned {
            return;
        }
        let wrong = findings.iter().find(|finding| finding.party == PartyKind::Server);
        assert_eq!(wrong, None, "a finding about a conforming server");
    }
}

/// A session that the judge observes.
struct JudgedSession {
    monitor: Monitor,
    seq: u64,
    /// True if a spawn was requested or answered.
    spawned: bool,
}

impl JudgedSession {
    fn observe(&mut self, kind: EventKind) {
        self.monitor.observe(&Event::new(self.seq, kind));
        self.seq += 1;
    }
}

fn proc(id: Proc) -> Proc {
    Proc { group: id.group, rank: id.rank }
}

impl ServerObserver for JudgedSession {
    fn group(&mut self, group: u32, size: u32, nodes: u32) {
        if group == 0 {
            self.observe(EventKind::Launched { command: vec![], ranks: size, nodes });
        }
        for rank in 0..size {
            let mut env = BTreeMap::from([
                ("PMI_FD".to_owned(), "3".to_owned()),
                ("PMI_RANK".to_owned(), rank.to_string()),
                ("PMI_SIZE".to_owned(), size.to_string()),
            ]);
            if group > 0 {
                env.insert("PMI_SPAWNED".to_owned(), "1".to_owned());
            }
            self.observe(EventKind::Started { proc: Proc { group, rank }, env, args: vec![], bad_fd: None });
        }
    }

    fn sent(&mut self, from: Proc, bytes: &[u8]) {
        self.observe(EventKind::ToServer { proc: proc(from), bytes: Bytes(bytes.to_vec()) });
    }

    fn closed(&mut self, from: Proc) {
        self.observe(EventKind::ClosedByClient { proc: proc(from) });
    }

    fn acted(&mut self, action: &ServerAction) {
        match action {
            ServerAction::Send { to, bytes } => {
                self.spawned |= bytes.starts_with(b"cmd=spawn_result");
                self.observe(EventKind::FromServer { proc: proc(*to), bytes: Bytes(bytes.clone()) });
            }
            // The server closes the connections of all processes.
            ServerAction::Abort { group, rank: by, .. } => {
                self.observe(EventKind::ClosedByServer { proc: Proc { group: *group, rank: *by } });
            }
            ServerAction::Spawn { .. } => self.spawned = true,
            ServerAction::Close { .. } => {}
        }
    }
}

//! Target: the judge, with arbitrary events.
//!
//! Input: events. Each event consists of a byte that selects its kind, a byte that selects a process, the bytes of the event, and 0xff.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use pmi_judge::event::{Bytes, Event, EventKind, SilenceProof};
use pmi_judge::{Finding, Monitor};
use pmi_wire::Proc;

use crate::{input, memory, planted};

thread_local! {
    /// The ids of all requirements.
    static KNOWN_REQUIREMENTS: OnceCell<HashSet<String>> = const { OnceCell::new() };
}

/// Checks that the judge limits its findings and its memory, and cites only requirements that exist.
pub fn run(data: &[u8]) {
    // Load the requirements first, so that their memory is not counted.
    KNOWN_REQUIREMENTS.with(|known| _ = known.get_or_init(requirements));
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
    // Each event may create a process, a group, or a pending request, so the allowed memory grows with the number of events.
    memory::check(before, (64 << 10) + 1024 * seq as usize + 64 * data.len(), "the judge");
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
        // Findings are shown on a terminal, so the judge must shorten long strings.
        assert!(finding.seen.len() < 2048 && finding.expected.len() < 64 << 10, "{finding:?}");
    }
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

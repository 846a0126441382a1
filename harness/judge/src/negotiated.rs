//! Which versions the connections of a job have agreed on.

use std::collections::BTreeSet;

use pmi_wire::{Body, Proc, Response, ValueReading};

use crate::event::{Event, What};
use crate::recent::Recent;

/// An answer to an offer stands among the first of a connection, and is not long.
const LINES: usize = 4;
const BYTES: usize = 512;

/// What has been agreed on, as far as events were read.
#[derive(Debug, Default)]
pub(crate) struct Negotiated {
    versions: BTreeSet<(u64, u64)>,
    /// What each process was told so far, without whole lines, and the number of those; nothing once it is known.
    told: Recent<Proc, Option<(Vec<u8>, usize)>>,
}

impl Negotiated {
    /// Reads the next event.
    pub(crate) fn observe(&mut self, event: &Event) {
        let What::FromServer { proc, bytes } = &event.what else { return };
        let entry = self.told.get_or_insert_with(*proc, || Some((Vec::new(), 0)));
        let Some((told, lines)) = entry else { return };
        let room = BYTES.saturating_sub(told.len());
        told.extend_from_slice(&bytes.0[..bytes.0.len().min(room)]);
        while let Some(end) = told.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = told.drain(..=end).collect();
            *lines += 1;
            if let Ok(Response { body: Body::Init(Some(version)), rc: None | Some(0), .. }) =
                Response::parse(&line[..end], ValueReading::ToEndOfLine)
            {
                self.versions.insert((version.version, version.subversion));
                *entry = None;
                return;
            }
            if *lines >= LINES {
                *entry = None;
                return;
            }
        }
        if told.len() >= BYTES {
            *entry = None;
        }
    }

    /// The versions, the lowest first: `1.1`.
    pub(crate) fn versions(&self) -> Vec<String> {
        self.versions.iter().map(|(version, subversion)| format!("{version}.{subversion}")).collect()
    }
}

/// What the connections of these events have agreed on.
pub(crate) fn versions(events: &[Event]) -> Vec<String> {
    let mut negotiated = Negotiated::default();
    events.iter().for_each(|event| negotiated.observe(event));
    negotiated.versions()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;

    #[test]
    fn an_answer_counts_whole_or_in_pieces_and_a_refusal_does_not() {
        let told = |rank, text: &str| {
            let what =
                What::FromServer { proc: Proc { group: 0, rank }, bytes: Bytes(text.as_bytes().to_vec()) };
            Event::new(0, what)
        };
        let takes = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
        let (first, second) = takes.split_at(30);
        let events = [
            told(
                0,
                "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=9\ncmd=response_to_init pmi_version=1 pmi_subversion=1\n",
            ),
            told(1, first),
            told(1, second),
            told(2, "cmd=get_result rc=0 value=cmd=response_to_init pmi_version=7 pmi_subversion=0\n"),
            told(3, &"x".repeat(BYTES + 1)),
            told(3, takes),
        ];
        assert_eq!(versions(&events), ["1.1", "2.0"]);
        assert!(versions(&[]).is_empty());
    }
}

//! Writes a session as a scenario for its program: the process manager's own answers, to be given by the reference server.
//!
//! An answer that says what the process manager is like stands as it was recorded: limits, universe size, number of the
//! application, process mapping, with their keys in the recorded order and whatever keys it had besides. What depends on the requests before it
//! (the keyval space, barriers, spawn) the reference server answers by itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use pmi_wire::{Body, Framer, Maxes, Request, Response, ValueReading};

use super::script::{Unwritable, commented, escaped, readable, span};
use pmi_judge::event::{Event, Exit, What};
use pmi_wire::Proc;

/// Longest line that is looked at.
const LINE: usize = 64 * 1024;

/// A request and its answer.
type Exchange = (&'static str, String);

#[derive(Default)]
struct Rank {
    framers: [Option<Framer>; 2],
    asked: VecDeque<Option<&'static str>>,
    exchanges: Vec<Exchange>,
}

/// Writes the scenario; `None` for a session that did not end well, or in which nothing of the kind was asked.
///
/// # Errors
///
/// The session holds what the language has no words for.
pub fn answers(events: &[Event], command: &str) -> Result<Option<String>, Unwritable> {
    let mut ranks: BTreeMap<u32, Rank> = BTreeMap::new();
    let mut size = 0;
    let mut maxes = None;
    for event in events {
        match &event.what {
            What::Launched { ranks, .. } => size = *ranks,
            What::ToServer { proc: Proc { group: 0, rank }, bytes } => {
                let rank = ranks.entry(*rank).or_default();
                for line in rank.lines(0, &bytes.0) {
                    rank.asked.push_back(kind(&line));
                }
            }
            What::FromServer { proc: Proc { group: 0, rank }, bytes } => {
                let rank = ranks.entry(*rank).or_default();
                for line in rank.lines(1, &bytes.0) {
                    if let Some(Some(request)) = rank.asked.pop_front() {
                        maxes = maxes.or_else(|| limits(&line));
                        rank.exchanges.push((request, escaped(&line)));
                    }
                }
            }
            What::Exited { exit, .. } | What::JobExited { exit } if *exit != Exit::Code(0) => {
                return Ok(None);
            }
            _ => {}
        }
    }
    let (Some(maxes), true) = (maxes, size > 0) else { return Ok(None) };
    let mut same: BTreeMap<&[Exchange], Vec<u32>> = BTreeMap::new();
    for (number, rank) in &ranks {
        same.entry(&rank.exchanges).or_default().push(*number);
    }
    let Maxes { kvsname_max, keylen_max, vallen_max } = maxes;
    let mut text = format!(
        "# The program of a recorded session, under a server that answers as its process manager did: {}\n\
         requires rfc13.abnf.s-maxes rfc13.parser.order rfc13.parser.extra-keys\ntests client\nranks {size}\n\
         serve kvsname_max={kvsname_max} keylen_max={keylen_max} vallen_max={vallen_max}\n\n",
        commented(command)
    );
    for (exchanges, ranks) in &same {
        for (request, answer) in *exchanges {
            let who = span(ranks);
            let _ = write!(text, "{who} C: {request}\n{who} S: {answer}\n");
        }
    }
    text.push_str("* P: exits 0\n");
    readable("client", text).map(Some)
}

impl Rank {
    fn lines(&mut self, direction: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
        let framer = self.framers[direction].get_or_insert_with(|| Framer::new(LINE));
        framer.push(bytes);
        let mut lines = Vec::new();
        while let Some(line) = framer.next_line() {
            let line = line.unwrap_or_default();
            // Within a spawn request only its end is answered; the handshake over PMI_PORT is none of RFC 13's.
            if line.starts_with(b"cmd=")
                && !line.starts_with(b"cmd=initack")
                && !line.starts_with(b"cmd=set ")
                || line == b"endcmd"
            {
                lines.push(line.to_vec());
            }
        }
        lines
    }
}

/// The request, if its answer says what the process manager is like.
fn kind(line: &[u8]) -> Option<&'static str> {
    Some(match Request::parse(line, ValueReading::ToEndOfLine).ok()? {
        Request::Maxes => "cmd=get_maxes",
        Request::Universe => "cmd=get_universe_size",
        Request::Appnum => "cmd=get_appnum",
        Request::Get { key: b"PMI_process_mapping", .. } => "cmd=get key=PMI_process_mapping",
        _ => return None,
    })
}

fn limits(line: &[u8]) -> Option<Maxes> {
    match Response::parse(line, ValueReading::ToEndOfLine).ok()?.body {
        Body::Maxes(maxes) => maxes,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;

    #[test]
    fn answers_stand_as_they_were_given() {
        let mut whats = vec![What::Launched { command: Vec::new(), ranks: 2, nodes: 0 }];
        for rank in 0..2 {
            let proc = Proc { group: 0, rank };
            for (request, answer) in [
                (
                    "cmd=init pmi_version=1 pmi_subversion=1",
                    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
                ),
                ("cmd=get_maxes", "cmd=maxes vallen_max=512 kvsname_max=100 keylen_max=64"),
                (
                    "cmd=get kvsname=k key=PMI_process_mapping",
                    "cmd=get_result rc=0 found=TRUE value=(vector,(0,1,2))",
                ),
                ("cmd=put kvsname=k key=a value=b", "cmd=put_result rc=0"),
                ("cmd=get_appnum", "cmd=appnum appnum=7"),
            ] {
                whats.push(What::ToServer { proc, bytes: Bytes(format!("{request}\n").into_bytes()) });
                whats.push(What::FromServer { proc, bytes: Bytes(format!("{answer}\n").into_bytes()) });
            }
        }
        let events = |last: Exit| -> Vec<Event> {
            let whats = whats.iter().cloned().chain([What::JobExited { exit: last }]);
            whats.enumerate().map(|(i, what)| Event::new(i as u64, what)).collect()
        };
        let text = answers(&events(Exit::Code(0)), "pm").unwrap().unwrap();
        let (head, body) = text.split_once("\n\n").unwrap();
        assert!(head.ends_with("serve kvsname_max=100 keylen_max=64 vallen_max=512"), "{head}");
        assert_eq!(
            body,
            "0-1  C: cmd=get_maxes\n\
             0-1  S: cmd=maxes vallen_max=512 kvsname_max=100 keylen_max=64\n\
             0-1  C: cmd=get key=PMI_process_mapping\n\
             0-1  S: cmd=get_result rc=0 found=TRUE value=(vector,(0,1,2))\n\
             0-1  C: cmd=get_appnum\n\
             0-1  S: cmd=appnum appnum=7\n\
             *    P: exits 0\n"
        );
        // What ended badly is no measure.
        assert_eq!(answers(&events(Exit::Code(1)), "pm"), Ok(None));
    }
}

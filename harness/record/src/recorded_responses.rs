//! Writes a session as a scenario for the program. In this scenario, the reference server repeats the recorded responses from the process
//! manager.
//!
//! The responses that describe the process manager are repeated as recorded, with their unusual keys and in the recorded order of keys.
//! These are the limits, the universe size, the application number, the process mapping, and the response to fullinit. All other responses
//! are those of the reference server, because they depend on earlier requests (keyval space, barriers, spawn).

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use pmi_wire::protocol;
use pmi_wire::{Decoded, Direction, Framing, KvsLimits};

use super::script::{ScenarioWriteError, dialect, escape_comment, escaped, format_scenario, span, tuples};
use pmi_judge::connections::Connections;
use pmi_judge::event::{Event, EventKind, Exit};
use pmi_scenario::ast::Dialect;
use pmi_wire::Proc;

/// A request, as the scenario expects it, and the recorded response.
type RecordedExchange = (&'static str, String);

#[derive(Default)]
struct RecordedRank {
    /// For each pending request: the row in the protocol table and, if the response will be repeated, the text of the request in the
    /// scenario.
    pending: VecDeque<(Option<&'static protocol::Exchange>, Option<&'static str>)>,
    exchanges: Vec<RecordedExchange>,
}

/// Writes a recorded session as a scenario for its program. Returns `None` if the session did not end successfully, if it contains no
/// response that the scenario can repeat or, in PMI-1, if no process requested the limits. `dialects` are the dialects of the session.
///
/// # Errors
///
/// Returns an error if the scenario language cannot express the session.
pub fn answers(
    events: &[Event],
    dialects: &[Dialect],
    command: &str,
) -> Result<Option<String>, ScenarioWriteError> {
    let dialect = dialect(dialects)?;
    let mut ranks: BTreeMap<u32, RecordedRank> = BTreeMap::new();
    let mut connections = Connections::default();
    let mut size = 0;
    let mut limits = None;
    for event in events {
        match &event.kind {
            EventKind::Launched { ranks, .. } => size = *ranks,
            EventKind::ToServer { proc: Proc { group: 0, rank }, .. }
            | EventKind::FromServer { proc: Proc { group: 0, rank }, .. } => {
                let rank = ranks.entry(*rank).or_default();
                for arrival in connections.read(event) {
                    let _ = arrival.decode().map(|message| rank.read_message(&message, &mut limits));
                }
            }
            EventKind::Exited { exit, .. } | EventKind::JobExited { exit } if *exit != Exit::Code(0) => {
                return Ok(None);
            }
            _ => {}
        }
    }
    let has_exchange = ranks.values().any(|rank| !rank.exchanges.is_empty());
    let has_limits = protocol::by_operation(dialect.framing(), "maxes").is_some();
    let head = match limits {
        _ if !has_limits => {
            format!("requires pmi2.common.fullinit-first\ndialect {dialect}\ntests client\nranks {size}")
        }
        Some(KvsLimits { kvsname_max, keylen_max, vallen_max }) => format!(
            "requires rfc13.put.length rfc13.parser.order rfc13.parser.extra-keys\ntests client\nranks {size}\n\
             serve kvsname_max={kvsname_max} keylen_max={keylen_max} vallen_max={vallen_max}"
        ),
        None => return Ok(None),
    };
    if size == 0 || !has_exchange {
        return Ok(None);
    }
    let mut same: BTreeMap<&[RecordedExchange], Vec<u32>> = BTreeMap::new();
    for (number, rank) in &ranks {
        same.entry(&rank.exchanges).or_default().push(*number);
    }
    let mut text = format!(
        "# The program of a recorded session, under a server that answers as its process manager did: {}\n{head}\n\n",
        escape_comment(command)
    );
    for (exchanges, ranks) in &same {
        for (request, answer) in *exchanges {
            let who = span(ranks);
            let _ = write!(text, "{who} expect  {request}\n{who} send    {answer}\n");
        }
    }
    text.push_str("* P: exits 0\n");
    format_scenario("client", text).map(Some)
}

impl RecordedRank {
    fn read_message(&mut self, message: &Decoded<'_>, limits: &mut Option<KvsLimits>) {
        let is_line = message.framing == Framing::Lines;
        if is_line && !is_complete_message(message.text) {
            return;
        }
        let exchange = message.exchange().filter(|_| message.is_well_formed());
        if message.direction == Direction::ToServer {
            let request = (is_line || exchange.is_some()).then(|| (exchange, kind(message)));
            return self.pending.extend(request);
        }
        let place = match message.framing {
            Framing::Lines => Some(0),
            // Several requests may be pending, and the responses may arrive in a different order, so the operations are compared.
            Framing::Frames => {
                self.pending.iter().position(|(request, _)| request.is_some() && *request == exchange)
            }
        };
        let Some((_, Some(request))) = place.and_then(|place| self.pending.remove(place)) else { return };
        *limits = limits.or(message.limits());
        let answer = if is_line { Some(escaped(message.text)) } else { tuples(message) };
        self.exchanges.extend(answer.map(|answer| (request, answer)));
    }
}

/// Returns whether a line completes a request or response. A spawn request, which has several lines, is completed by its last line.
fn is_complete_message(line: &[u8]) -> bool {
    line.starts_with(b"cmd=") || line == b"endcmd"
}

/// Returns the text of a request in the scenario, or `None` if the response to the request does not describe the process manager.
fn kind(message: &Decoded<'_>) -> Option<&'static str> {
    let exchange = message.exchange().filter(|_| message.is_well_formed())?;
    let key = message.field("key").unwrap_or_default();
    Some(match (message.framing, exchange.operation, &*key) {
        (_, "maxes", _) => "cmd=get_maxes",
        (_, "universe", _) => "cmd=get_universe_size",
        (_, "appnum", _) => "cmd=get_appnum",
        (Framing::Lines, "get", b"PMI_process_mapping") => "cmd=get key=PMI_process_mapping",
        (Framing::Frames, "init", _) => "cmd=fullinit",
        (_, "get-job-attribute", b"PMI_process_mapping") => "cmd=info-getjobattr key=PMI_process_mapping",
        (_, "get-job-attribute", b"universeSize") => "cmd=info-getjobattr key=universeSize",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;

    #[test]
    fn writes_responses_as_recorded() {
        let mut whats = vec![EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 0 }];
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
                whats.push(EventKind::ToServer { proc, bytes: Bytes(format!("{request}\n").into_bytes()) });
                whats.push(EventKind::FromServer { proc, bytes: Bytes(format!("{answer}\n").into_bytes()) });
            }
        }
        let events = |last: Exit| -> Vec<Event> {
            let whats = whats.iter().cloned().chain([EventKind::JobExited { exit: last }]);
            whats.enumerate().map(|(i, kind)| Event::new(i as u64, kind)).collect()
        };
        let text = answers(&events(Exit::Code(0)), &[Dialect::Pmi1], "pm").unwrap().unwrap();
        let (head, body) = text.split_once("\n\n").unwrap();
        assert!(head.ends_with("serve kvsname_max=100 keylen_max=64 vallen_max=512"), "{head}");
        assert_eq!(
            body,
            "0-1  expect  cmd=get_maxes\n\
             0-1  send    cmd=maxes vallen_max=512 kvsname_max=100 keylen_max=64\n\
             0-1  expect  cmd=get key=PMI_process_mapping\n\
             0-1  send    cmd=get_result rc=0 found=TRUE value=(vector,(0,1,2))\n\
             0-1  expect  cmd=get_appnum\n\
             0-1  send    cmd=appnum appnum=7\n\
             *    P: exits 0\n"
        );
        // The reference server must not repeat a session that failed.
        assert_eq!(answers(&events(Exit::Code(1)), &[Dialect::Pmi1], "pm"), Ok(None));
    }
}

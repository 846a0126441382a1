//! Writes a session as a scenario. The scenario contains the clients' requests, and the reactions that are required of every server.
//!
//! Steps are in the recorded order, in which a cause precedes its effects, except for independent steps of different ranks (`fold`).
//! Values that a server may choose become names or types: the kvsname, the limits, the mapping, and values of `PMI_` keys. The scenario
//! expects no results that depend on timing. It expects the value of a get only if there is a barrier between the put and the get, because
//! RFC 13 does not guarantee the value otherwise.

mod fold;
mod messages;
mod pattern;
mod state;

use pmi_scenario::ids;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use pmi_judge::crash::SignalCause;
use pmi_judge::event::{Event, EventKind, Exit};
use pmi_scenario::ast::{Capability, Dialect, SourceFile};
use pmi_scenario::{parse, print};
use pmi_wire::{Arrival, Decoded, Direction, Framing, FramingError, Proc};

use fold::{RecordedStep, StepText};
use state::{ConnectionEvent, ScenarioWriter, ScriptRank};

pub(super) use messages::tuples;
pub(super) use state::escaped;

/// The error for a session that the scenario language cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioWriteError(String);

/// Writes the scenario. `command` is the command line that started the session, and `dialects` are the dialects of the session.
///
/// # Errors
///
/// Returns an error if the scenario language cannot express the session.
pub fn script(events: &[Event], dialects: &[Dialect], command: &str) -> Result<String, ScenarioWriteError> {
    let ended = |event: &Event| match event.kind {
        EventKind::Exited { proc, exit } => Some((proc, exit)),
        _ => None,
    };
    let exits: HashMap<Proc, Exit> = events.iter().filter_map(ended).collect();
    let mut writer = ScenarioWriter::new(dialect(dialects)?, exits);
    for event in events {
        writer.event(&event.kind);
    }
    let text = writer.finish(command);
    format_scenario("server", text)
}

/// Returns the dialect of a session's scenario, or the default dialect if `dialects` is empty.
pub(super) fn dialect(dialects: &[Dialect]) -> Result<Dialect, ScenarioWriteError> {
    match dialects {
        [] => Ok(Dialect::default()),
        [dialect] => Ok(*dialect),
        several => {
            let words: Vec<&str> = several.iter().map(|dialect| dialect.title()).collect();
            let words = words.join(" and others ");
            Err(ScenarioWriteError(format!(
                "some processes used {words}, but a scenario has only one dialect"
            )))
        }
    }
}

/// Formats a scenario, after checking that it can be parsed.
pub(super) fn format_scenario(name: &str, text: String) -> Result<String, ScenarioWriteError> {
    let source = Arc::new(SourceFile { path: format!("{name}.pmi"), text });
    let scenario = parse(source, name).map_err(|errors| {
        let what = errors.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n");
        ScenarioWriteError(format!("cannot parse the scenario that was generated from the session: {what}"))
    })?;
    Ok(print(&scenario))
}

/// Escapes text for use in a comment.
pub(super) fn escape_comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl ScenarioWriter {
    fn event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Launched { ranks, .. } => {
                self.ranks = *ranks;
                self.steps.set_size(*ranks);
            }
            EventKind::Started { proc, .. } => {
                self.members.insert(*proc, ScriptRank::default());
                if proc.group != 0 && !self.has_failure {
                    let cites = self.cite(ids::RFC13_SPAWN_NEW_GROUP, ids::PMI2_COMMON_SPAWN_STARTS);
                    self.step(*proc, "P", cites, "starts".into());
                }
            }
            EventKind::ToServer { proc, bytes } => self.record_message(*proc, Direction::ToServer, &bytes.0),
            EventKind::FromServer { proc, bytes } => {
                self.record_message(*proc, Direction::FromServer, &bytes.0)
            }
            EventKind::ClosedByClient { proc } => {
                self.process_event(*proc, ConnectionEvent::Closed { by_client: true })
            }
            EventKind::ClosedByServer { proc } => {
                self.process_event(*proc, ConnectionEvent::Closed { by_client: false })
            }
            EventKind::Exited { proc, exit } => {
                let finalized = self.rank(*proc).finalized;
                if let (true, Exit::Code(status @ 1..=255), false) = (finalized, exit, self.has_failure) {
                    self.step(*proc, "P", self.any(), format!("exit {status}"));
                    self.has_failure = true;
                }
            }
            EventKind::JobExited { exit } => self.exit = Some(*exit),
            // A tap reports no other facts that a scenario can contain.
            _ => {}
        }
    }

    fn record_message(&mut self, p: Proc, direction: Direction, bytes: &[u8]) {
        let rank = self.rank(p);
        rank.has_written |= direction == Direction::ToServer;
        let mut happened = Vec::new();
        for Arrival { direction, message } in rank.connection.read(direction, bytes) {
            happened.push(match message {
                Ok((framing, text)) => {
                    ConnectionEvent::Message { direction, framing, text: text.into_owned() }
                }
                // An overlong line is recorded as an empty line: neither is a valid message.
                Err(FramingError::Line(_)) => {
                    ConnectionEvent::Message { direction, framing: Framing::Lines, text: Vec::new() }
                }
                Err(_) if direction == Direction::ToServer => ConnectionEvent::Garbled(bytes.to_vec()),
                Err(_) => continue,
            });
        }
        for event in happened {
            self.process_event(p, event);
        }
    }

    fn process_event(&mut self, p: Proc, event: ConnectionEvent) {
        if !self.has_failure && self.waits_in_fence(p, &event) {
            return self.rank(p).events_after_fence.push_back(event);
        }
        match event {
            ConnectionEvent::Closed { by_client } => self.closed(p, by_client),
            _ if self.has_failure => {}
            ConnectionEvent::Message { direction, framing, text } => {
                let message = Decoded::new(direction, framing, &text);
                match direction {
                    Direction::ToServer => {
                        self.request(p, &message);
                        self.release(p.group);
                    }
                    Direction::FromServer => self.response(p, &message),
                }
            }
            ConnectionEvent::Garbled(bytes) => {
                let text = format!("<bytes> <0x{:02x}>{}", bytes[0], escaped(&bytes[1..]));
                self.step(p, "send", "", text);
                self.has_failure = true;
            }
        }
    }

    /// Writes the events that had to wait until all ranks of a group had entered a fence.
    fn release(&mut self, group: u32) {
        let waiting: Vec<Proc> = self
            .members
            .iter()
            .filter(|(p, rank)| p.group == group && !rank.events_after_fence.is_empty())
            .map(|(p, _)| *p)
            .collect();
        for p in waiting {
            let held = std::mem::take(&mut self.rank(p).events_after_fence);
            for event in held {
                self.process_event(p, event);
            }
        }
    }

    // ----- the end of a connection and of the session --------------------------------------------------------------

    fn closed(&mut self, p: Proc, by_client: bool) {
        let exit = self.exits.get(&p).copied();
        let rank = self.rank(p);
        if std::mem::replace(&mut rank.closed, true) || rank.finalized {
            return;
        }
        let partial = rank.connection.partial(Direction::ToServer).to_vec();
        let spoke = rank.has_written;
        let form = match rank.connection.framing() {
            Framing::Lines => "<partial>",
            Framing::Frames => "<bytes>",
        };
        if self.has_failure {
            if self.aborted == Some(p.group) {
                let cites = self.cite(ids::RFC13_ABORT_GROUP, ids::PMI2_COMMON_ABORT);
                self.step(p, "P", cites, "is ended".into());
            }
            return;
        }
        if !by_client {
            self.has_failure = true;
            return self.step(p, "P", self.any(), "is ended".into());
        }
        if !partial.is_empty() {
            let text = format!("{form} <0x{:02x}>{}", partial[0], escaped(&partial[1..]));
            self.step(p, "send", "", text);
        }
        match exit {
            // A program that has not failed and has sent nothing does not use PMI, so no step is written.
            Some(Exit::Code(0)) | None if !spoke => return,
            Some(Exit::Code(status @ 0..=255)) => self.step(p, "P", self.any(), format!("exit {status}")),
            Some(Exit::Signal(signal)) if !SignalCause::of(signal).is_from_outside() || signal == 9 => {
                self.step(p, "P", self.any(), format!("kill {signal}"));
            }
            _ => self.step(p, "send", "", "<close>".into()),
        }
        self.has_failure = true;
    }

    fn finish(mut self, command: &str) -> String {
        // From here on, events no longer wait for a fence that some rank never entered.
        self.is_over = true;
        let groups: BTreeSet<u32> = self.members.keys().map(|p| p.group).collect();
        groups.into_iter().for_each(|group| self.release(group));
        let first = self.members.keys().filter(|p| p.group == 0).map(|p| p.rank + 1).max().unwrap_or(1);
        let ranks = self.ranks.max(first);
        let status = match self.exit {
            Some(Exit::Code(0)) if !self.has_failure => "exits 0",
            Some(exit) if exit != Exit::Code(0) && self.aborted.is_some() => "exits nonzero",
            _ => "exits any",
        };
        let steps = std::mem::take(&mut self.steps).finish();
        let mut requires: Vec<&str> = Vec::new();
        let mut known = BTreeSet::new();
        for step in &steps {
            if !step.text.cites.is_empty() && known.insert(step.text.cites) {
                requires.push(step.text.cites);
            }
        }
        if requires.is_empty() {
            requires.push(self.any());
        }
        let command = escape_comment(command);
        let mut text = format!(
            "# A recorded session, played again: {command}\n# The requests are those of its programs, in order. \
             The expected responses are those that any process manager must send.\n"
        );
        for ids in requires.chunks(5) {
            let _ = writeln!(text, "requires {}", ids.join(" "));
        }
        if self.dialect != Dialect::default() {
            let _ = writeln!(text, "dialect {}", self.dialect);
        }
        let needs = [(self.spawns, Capability::Spawn), (self.names, Capability::Names)];
        let needs = needs.into_iter().filter(|(used, _)| *used).map(|(_, need)| need);
        let needs: Vec<&str> = needs.map(Capability::word).collect();
        if !needs.is_empty() {
            let _ = writeln!(text, "needs {}", needs.join(" "));
        }
        let _ = writeln!(text, "ranks {ranks}\n");
        for RecordedStep { ranks: who, text: StepText { role, cites, text: body } } in steps {
            let cites = if cites.is_empty() { String::new() } else { format!("[{cites}]") };
            let body = body.replace('\n', "\n    ");
            let colon = if role == "P" { ":" } else { "" };
            let _ = writeln!(text, "{} {role}{cites}{colon} {body}", ranks_of(&who));
        }
        let _ = writeln!(text, "J: {status}");
        text
    }
}

/// Writes the ranks of processes in the same group, in the given order.
fn ranks_of(procs: &[Proc]) -> String {
    let group = procs[0].group;
    let prefix = match group {
        0 => String::new(),
        1 => "child:".into(),
        n => format!("child{n}:"),
    };
    prefix + &span(&procs.iter().map(|p| p.rank).collect::<Vec<_>>())
}

/// Writes ranks in the given order. Writes consecutive ranks as a range.
pub(super) fn span(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *rank => *end = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_judge::event::Bytes;

    /// Returns the body of the scenario for the messages of two ranks.
    fn body(lines: &[&str], exits: &[(u32, Exit)]) -> String {
        let mut whats = vec![EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 0 }];
        for line in lines {
            let (rank, rest) = line.split_once(' ').unwrap();
            let proc = Proc { group: 0, rank: rank.parse().unwrap() };
            let bytes = |text: &str| Bytes(format!("{text}\n").into_bytes());
            whats.push(match rest.split_once(": ") {
                Some(("C", text)) => EventKind::ToServer { proc, bytes: bytes(text) },
                Some(("S", text)) => EventKind::FromServer { proc, bytes: bytes(text) },
                _ => EventKind::ClosedByClient { proc },
            });
        }
        whats.extend(
            exits
                .iter()
                .map(|(rank, exit)| EventKind::Exited { proc: Proc { group: 0, rank: *rank }, exit: *exit }),
        );
        whats.push(EventKind::JobExited { exit: Exit::Code(0) });
        let events: Vec<Event> =
            whats.into_iter().enumerate().map(|(i, kind)| Event::new(i as u64, kind)).collect();
        let text = script(&events, &[Dialect::Pmi1], "pm").unwrap();
        let (_, body) = text.split_once("ranks 2\n\n").unwrap();
        body.to_owned()
    }

    const NAMES: [&str; 6] = [
        "0 C: cmd=get_my_kvsname",
        "0 S: cmd=my_kvsname rc=0 kvsname=k1",
        "0 C: cmd=get_maxes",
        "0 S: cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=64",
        "1 C: cmd=get_my_kvsname",
        "1 S: cmd=my_kvsname rc=0 kvsname=k1",
    ];

    #[test]
    fn script_replaces_server_values_with_names_or_types() {
        let body = body(
            &[
                &NAMES[..],
                &[
                    "0 C: cmd=get kvsname=k1 key=PMI_process_mapping",
                    "0 S: cmd=get_result rc=0 value=(vector,(0,1,2))",
                    "0 C: cmd=get kvsname=k1 key=PMI_own",
                    "0 S: cmd=get_result rc=0 value=x",
                    "0 C: cmd=get_universe_size",
                    "0 S: cmd=universe_size rc=0 size=7",
                ],
            ]
            .concat(),
            &[],
        );
        for line in [
            "expect[rfc13.kvsname.common] cmd=my_kvsname rc=ok kvsname=$kvs:word",
            "send    cmd=get kvsname=$kvs key=PMI_process_mapping",
            "expect[rfc13.mapping.provided] cmd=get_result rc=ok value=<mapping>",
            "expect[rfc13.wire.response-matches-request] cmd=get_result\n",
            "expect[rfc13.wire.response-matches-request] cmd=universe_size\n",
            "keylen_max=<uint>",
        ] {
            assert!(body.contains(line), "{line}\n{body}");
        }
    }

    #[test]
    fn script_expects_a_port_only_if_it_was_published() {
        let look_up = |port: &str| {
            let answer = format!("0 S: cmd=lookup_result rc=0{port}");
            body(&[&NAMES[..], &["0 C: cmd=lookup_name service=s", &answer]].concat(), &[])
        };
        for port in ["", " port=p"] {
            let text = look_up(port);
            assert!(text.contains("] cmd=lookup_result\n"), "{text}");
        }
    }

    #[test]
    fn script_expects_a_value_only_after_a_barrier() {
        let put = ["0 C: cmd=put kvsname=k1 key=a value=<$1>", "0 S: cmd=put_result rc=0"];
        let get = ["1 C: cmd=get kvsname=k1 key=a", "1 S: cmd=get_result rc=0 value=<$1>"];
        let barrier = [
            "0 C: cmd=barrier_in",
            "1 C: cmd=barrier_in",
            "1 S: cmd=barrier_out rc=0",
            "0 S: cmd=barrier_out rc=0",
        ];
        let early = body(&[&NAMES[..], &put, &get, &barrier].concat(), &[]);
        assert!(early.contains("cmd=get_result\n"), "{early}");
        let late = body(&[&NAMES[..], &put, &barrier, &get].concat(), &[]);
        assert!(late.contains("send    cmd=put kvsname=$kvs key=a value=<<$$1>\n"), "{late}");
        assert!(late.contains("cmd=get_result rc=ok value=<<$$1>\n"), "{late}");
        assert!(
            late.contains(
                "0-1  send    cmd=barrier_in\n1,0  expect[rfc13.barrier.released] cmd=barrier_out rc=ok"
            ),
            "{late}"
        );
        // A repeated or overlong put may be refused or accepted.
        let again = body(&[&NAMES[..], &put, &put, &barrier, &get].concat(), &[]);
        assert!(again.contains("cmd=put_result\n") && again.contains("cmd=get_result\n"), "{again}");
    }

    #[test]
    fn script_replays_process_ends_as_recorded() {
        let finalize = ["0 C: cmd=finalize", "0 S: cmd=finalize_ack rc=0", "0 closed"];
        let well = body(&[&NAMES[..], &finalize].concat(), &[(0, Exit::Code(0))]);
        assert!(well.ends_with("cmd=finalize_ack rc=ok\nJ: exits 0\n"), "{well}");
        let late = body(&[&NAMES[..], &finalize].concat(), &[(0, Exit::Code(3))]);
        assert!(late.contains(" exit 3\nJ: exits any\n"), "{late}");
        let died = body(
            &[&NAMES[..], &["0 closed", "1 closed"]].concat(),
            &[(0, Exit::Signal(11)), (1, Exit::Signal(9))],
        );
        assert!(
            died.contains("0  P[rfc13.wire.response-matches-request]: kill 11\nJ: exits any\n"),
            "{died}"
        );
        let abort = ["0 C: cmd=abort exitcode=4", "1 C: cmd=barrier_in", "0 closed", "1 closed"];
        let abort = body(&[&NAMES[..], &abort].concat(), &[]);
        assert!(
            abort.contains("cmd=abort exitcode=4\n0-1  P[rfc13.abort.group]: is ended\nJ: exits any\n"),
            "{abort}"
        );
    }

    #[test]
    fn writes_arbitrary_client_messages() {
        for text in
            ["close", "bytewise x", "cmd=", "cmd=a  b", "\u{7f}\u{ff} ", "", "mcmd=spawn x", "$kvs <uint>"]
        {
            let line = format!("0 C: {text}");
            let body = body(&[&line], &[]);
            assert!(body.contains("0  send "), "{text:?}\n{body}");
        }
    }
}

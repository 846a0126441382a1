//! The messages on each connection that no step has consumed yet, and the state of each process.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use pmi_wire::port::Greeting;
use pmi_wire::protocol::by_request;
use pmi_wire::{Decoded, Direction, Framing, Operation, Proc};

use crate::connections::CompletedMessage;
use crate::event::{Bytes, Event, EventKind, Exit};

/// Maximum number of messages per connection that no step has consumed yet.
const MAX_WAITING_MESSAGES: usize = 100_000;

/// A message that no step has consumed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The number of the event that completed the message.
    pub(crate) seq: u64,
    /// The proxy's number for the request, if the message is a request that a proxy has forwarded.
    pub(crate) request: Option<u64>,
    /// The framing of the message.
    pub framing: Framing,
    /// The text of the message, without its newline or length field.
    pub text: Vec<u8>,
}

impl ReceivedMessage {
    /// Decodes the text as a message that was sent in this direction.
    pub fn decode(&self, direction: Direction) -> Decoded<'_> {
        Decoded::new(direction, self.framing, &self.text)
    }
}

/// A process and its connection.
#[derive(Debug, Default)]
pub(crate) struct ProcessConnection {
    pub(crate) lines: VecDeque<ReceivedMessage>,
    pub(crate) started: bool,
    pub(crate) env: HashMap<String, String>,
    pub(crate) args: Vec<Bytes>,
    /// True if the server has closed the connection.
    pub(crate) closed: bool,
    /// True if a step allowed the end of the connection. Further steps of the process are then skipped.
    pub(crate) skips_steps: bool,
    /// True if the harness has closed the connection.
    pub(crate) closed_by_harness: bool,
    pub(crate) ended: bool,
    /// True if the process has requested an abort of its process group.
    pub(crate) requested_abort: bool,
    /// True if the process has written to its connection.
    pub(crate) has_sent: bool,
    /// The numbers of the proxy's requests that steps have consumed. Empty for a process that is not a proxy.
    pub(crate) consumed: Vec<u64>,
}

impl ProcessConnection {
    /// Removes and returns the first message that no step has consumed yet.
    pub(crate) fn take(&mut self) -> Option<ReceivedMessage> {
        let line = self.lines.pop_front()?;
        self.consumed.extend(line.request);
        Some(line)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.closed_by_harness
    }
}

/// The part of a spawn request that has been sent.
#[derive(Debug, Default)]
struct PartialSpawnRequest {
    /// The value of `nprocs` for the current program.
    processes: u32,
    /// The value of `totspawns`, the number of programs in the request.
    programs: u32,
    /// True if more programs will follow.
    open: bool,
}

/// The group sizes that the processes of a spawned group have received.
#[derive(Debug, Default)]
pub(crate) struct ReportedSizes {
    /// The requested size and the size that the reports agree on; `None` before the first report.
    requested_and_agreed: Option<(u32, u32)>,
    reports: u32,
}

impl ReportedSizes {
    /// Adds a report from a process of a group with `size` expected processes, and returns the size to expect from now on. RFC 13,
    /// PMI_Spawn_multiple: a server may start fewer processes than requested. If the reported sizes differ, or if more processes report
    /// than the size allows, returns the requested size.
    pub(crate) fn record(&mut self, size: u32, reported: Option<u32>) -> u32 {
        let requested = self.requested_and_agreed.map_or(size, |(requested, _)| requested);
        let accepted = reported.filter(|accepted| (1..=requested).contains(accepted)).unwrap_or(requested);
        let agreed = self.requested_and_agreed.is_none_or(|(_, before)| before == accepted);
        self.reports += 1;
        let size = if agreed && self.reports <= accepted { accepted } else { requested };
        self.requested_and_agreed = Some((requested, size));
        size
    }
}

/// The processes and process groups of a scenario, and the messages that no step has consumed yet.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    connections: BTreeMap<Proc, ProcessConnection>,
    /// The size of each process group, by group number.
    sizes: BTreeMap<u32, u32>,
    reported_sizes: BTreeMap<u32, ReportedSizes>,
    /// Number of requested groups.
    groups: u32,
    spawn: PartialSpawnRequest,
    /// Groups whose spawn request was refused, rightly or wrongly. Steps about these groups are skipped.
    refused: HashSet<u32>,
    pub(crate) job: Option<Exit>,
    pub(crate) output: bool,
    pub(crate) crashed: Option<(String, i32)>,
    /// Number of bytes that the server has sent, including the requests that proxies have forwarded.
    pub(crate) received: u64,
    /// True if a process has started without a usable PMI_FD.
    pub(crate) unconnected: bool,
}

impl Conversation {
    pub(crate) fn link(&mut self, p: Proc) -> &mut ProcessConnection {
        self.connections.entry(p).or_default()
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = (Proc, &ProcessConnection)> {
        self.connections.iter().map(|(p, link)| (*p, link))
    }

    pub(crate) fn find(&self, p: Proc) -> Option<&ProcessConnection> {
        self.connections.get(&p)
    }

    pub(crate) fn size(&self, group: u32) -> u32 {
        self.sizes.get(&group).copied().unwrap_or(0)
    }

    pub(crate) fn is_refused(&self, group: u32) -> bool {
        self.refused.contains(&group)
    }

    /// Returns the number of the group that the next lines of a spawn request belong to.
    pub(crate) fn next_group(&self) -> u32 {
        self.groups + u32::from(!self.spawn.open)
    }

    /// Records that a step has consumed a message. If the message refuses a spawn, no group will start.
    pub(crate) fn consume(&mut self, message: &ReceivedMessage) {
        let message = message.decode(Direction::FromServer);
        if message.operation() == Some(Operation::Spawn) && message.is_refusal() {
            self.refuse_spawn();
        }
    }

    /// Marks the group of the last spawn request as refused. Its processes are then not expected to start.
    pub(crate) fn refuse_spawn(&mut self) {
        self.refused.insert(self.groups);
    }

    pub(crate) fn observe(&mut self, event: &Event, messages: &[CompletedMessage<'_>]) {
        let seq = event.seq;
        match &event.kind {
            EventKind::Launched { ranks, nodes, .. } => {
                self.sizes.insert(0, *ranks);
                self.sizes.insert(Proc::PROXY_GROUP, *nodes);
            }
            EventKind::Started { proc, env, args, bad_fd } => {
                self.unconnected |= bad_fd.is_some();
                let link = self.link(*proc);
                link.started = true;
                link.env = env.clone().into_iter().collect();
                link.args.clone_from(args);
                let reported = env.get("PMI_SIZE").and_then(|size| size.parse().ok());
                self.record_size(*proc, reported);
            }
            EventKind::Greeted { proc, response: received, .. } => {
                self.record_size(*proc, Greeting::parse(&received.0).ok().map(|greeting| greeting.size));
            }
            EventKind::ToServer { proc, .. } => {
                self.link(*proc).has_sent = true;
                self.read_messages(seq, *proc, messages);
            }
            EventKind::FromServer { proc, bytes } => {
                self.received += bytes.0.len() as u64;
                self.read_messages(seq, *proc, messages);
            }
            EventKind::ClosedByServer { proc } => self.link(*proc).closed = true,
            EventKind::ClosedByClient { proc } => self.link(*proc).closed_by_harness = true,
            EventKind::Ended { proc, ours } => {
                let link = self.link(*proc);
                if *ours {
                    link.closed_by_harness = true;
                } else {
                    link.ended = true;
                    link.closed |= !link.closed_by_harness;
                }
            }
            EventKind::Output { .. } => self.output = true,
            EventKind::JobExited { exit } => self.job = Some(*exit),
            EventKind::Crashed { name, signal } => {
                self.crashed.get_or_insert((name.clone(), *signal));
            }
            // Some implementations start separate proxies for spawned groups. Steps concern only the proxies of the first group.
            EventKind::FromProxy { group: 0, proxy, id, text, .. } => {
                self.store_forwarded_request(seq, *proxy, *id, &text.0)
            }
            EventKind::ProxyEnded { group: 0, proxy, .. } | EventKind::ClosedByUpstream { proxy } => {
                self.link(Proc::proxy(*proxy)).closed = true;
            }
            _ => {}
        }
    }

    /// Records the group size that a process received, if the process belongs to a spawned group.
    fn record_size(&mut self, p: Proc, reported: Option<u32>) {
        if let Some(size) = self.sizes.get_mut(&p.group).filter(|_| p.group != 0 && reported.is_some()) {
            *size = self.reported_sizes.entry(p.group).or_default().record(*size, reported);
        }
    }

    /// Reads the messages that an event has completed on the connection of a process.
    fn read_messages(&mut self, seq: u64, p: Proc, messages: &[CompletedMessage<'_>]) {
        for (direction, message) in messages {
            match (direction, message) {
                (Direction::FromServer, message) => {
                    let link = self.link(p);
                    if link.lines.len() >= MAX_WAITING_MESSAGES {
                        continue;
                    }
                    // A framing error is stored as an empty message. The monitor reports the error.
                    let (framing, text) = message
                        .as_ref()
                        .map_or_else(|_| Default::default(), |m| (m.framing, m.text.to_vec()));
                    link.lines.push_back(ReceivedMessage { seq, request: None, framing, text });
                }
                (Direction::ToServer, Ok(message)) => {
                    self.link(p).requested_abort |= message.text.starts_with(b"cmd=abort");
                    self.read_request(message);
                }
                (Direction::ToServer, Err(_)) => {}
            }
        }
    }

    fn read_request(&mut self, message: &Decoded<'_>) {
        if message.framing == Framing::Lines {
            self.spawn_line(message.text);
        } else if let Some(request) = message.spawn() {
            self.groups += 1;
            self.sizes.insert(self.groups, u32::try_from(request.processes()).unwrap_or(u32::MAX));
        }
    }

    /// Reads a line of a spawn request, and counts the requested groups and processes. Each line is read separately, because a scenario may
    /// send malformed requests on purpose.
    fn spawn_line(&mut self, line: &[u8]) {
        let Some((key, number)) = std::str::from_utf8(line).ok().and_then(|l| l.split_once('=')) else {
            return;
        };
        let Ok(number) = number.trim().parse::<u32>() else { return };
        match key.trim() {
            "nprocs" => self.spawn.processes = number,
            "totspawns" => self.spawn.programs = number,
            "spawnssofar" => {
                self.groups += u32::from(!self.spawn.open);
                let size = self.sizes.entry(self.groups).or_default();
                *size = size.saturating_add(self.spawn.processes);
                self.spawn.open = number < self.spawn.programs;
            }
            _ => {}
        }
    }

    /// Stores a request that a proxy has forwarded. The lines of a multi-line request are joined, because a step compares a request with a
    /// single line.
    fn store_forwarded_request(&mut self, seq: u64, proxy: u32, id: u64, text: &[u8]) {
        // Besides its text, each event occupies memory for its other fields.
        self.received += text.len() as u64 + 64;
        let words: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
        let text = match words[..] {
            [line] => line.to_vec(),
            // The line that ends a block, `endcmd`, is not a tuple and is dropped.
            _ => words.into_iter().filter(|w| w.contains(&b'=')).collect::<Vec<_>>().join(&b' '),
        };
        let framing = if is_forwarded_frame(&text) { Framing::Frames } else { Framing::Lines };
        let link = self.link(Proc::proxy(proxy));
        if link.lines.len() < MAX_WAITING_MESSAGES {
            link.lines.push_back(ReceivedMessage { seq, request: Some(id), framing, text });
        }
    }
}

/// Returns true if a request that a proxy has forwarded is the body of a PMI-2 frame rather than a line.
pub(crate) fn is_forwarded_frame(text: &[u8]) -> bool {
    let name =
        text.strip_suffix(b";").and_then(|text| text.split(|b| *b == b';').next()?.strip_prefix(b"cmd="));
    name.is_some_and(|name| by_request(Framing::Frames, name).is_some())
}

//! What has been said on every connection, as far as no step has taken it, and how the processes fare.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use pmi_wire::port::Greeting;
use pmi_wire::{Content, Decoded, Direction, Framing, Operation, Proc, pmi2};

use crate::connections::Message;
use crate::event::{Bytes, Event, Exit, What};

/// Most messages of one connection that wait for a step to expect them.
const LINES_LIMIT: usize = 100_000;

/// A message that waits for a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The event that completed it.
    pub(crate) seq: u64,
    /// Number of the request, where a proxy has passed it on.
    pub(crate) request: Option<u64>,
    /// How it was framed.
    pub framing: Framing,
    /// The text without its newline or length.
    pub text: Vec<u8>,
}

impl ReceivedMessage {
    /// Decodes it as a message of this side.
    pub fn decode(&self, direction: Direction) -> Decoded<'_> {
        Decoded::new(direction, self.framing, &self.text)
    }
}

/// One connection, and the process that holds it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) lines: VecDeque<ReceivedMessage>,
    pub(crate) started: bool,
    pub(crate) env: HashMap<String, String>,
    pub(crate) args: Vec<Bytes>,
    /// The server has closed it.
    pub(crate) closed: bool,
    /// Its end was one of the outcomes that a step allows: what follows for this process is left out.
    pub(crate) over: bool,
    /// We have closed it.
    pub(crate) ours_closed: bool,
    pub(crate) ended: bool,
    /// It has asked to be ended with its process group.
    pub(crate) wants_abort: bool,
    /// Requests of a proxy that steps have taken.
    pub(crate) taken: Vec<u64>,
}

impl Link {
    /// The next message, for a step.
    pub(crate) fn take(&mut self) -> Option<ReceivedMessage> {
        let line = self.lines.pop_front()?;
        self.taken.extend(line.request);
        Some(line)
    }

    /// Whether there is something for a step, or will never be.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.ours_closed
    }
}

/// What has been sent of a spawn request.
#[derive(Debug, Default)]
struct SpawnRequest {
    /// `nprocs` of the current program.
    processes: u32,
    /// `totspawns`.
    programs: u32,
    /// Further programs are to follow.
    open: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    links: BTreeMap<Proc, Link>,
    /// Sizes of the process groups.
    sizes: BTreeMap<u32, u32>,
    /// Number of groups that were asked for.
    groups: u32,
    spawn: SpawnRequest,
    /// Groups whose spawn was refused, lawfully or where that has been told: steps about them are left out.
    refused: HashSet<u32>,
    pub(crate) job: Option<Exit>,
    /// The job has written something.
    pub(crate) output: bool,
    pub(crate) crashed: Option<(String, i32)>,
    /// Bytes from the other side.
    pub(crate) received: u64,
    /// A process came without a usable PMI_FD.
    pub(crate) unconnected: bool,
}

impl Conversation {
    pub(crate) fn link(&mut self, p: Proc) -> &mut Link {
        self.links.entry(p).or_default()
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (Proc, &Link)> {
        self.links.iter().map(|(p, link)| (*p, link))
    }

    pub(crate) fn find(&self, p: Proc) -> Option<&Link> {
        self.links.get(&p)
    }

    pub(crate) fn size(&self, group: u32) -> u32 {
        self.sizes.get(&group).copied().unwrap_or(0)
    }

    pub(crate) fn is_refused(&self, group: u32) -> bool {
        self.refused.contains(&group)
    }

    /// The number of the group that the next lines of a spawn request belong to.
    pub(crate) fn next_group(&self) -> u32 {
        self.groups + u32::from(!self.spawn.open)
    }

    /// A step has taken this message: if it refuses a spawn, nothing will come of the group.
    pub(crate) fn accepted(&mut self, message: &ReceivedMessage) {
        let message = message.decode(Direction::FromServer);
        if message.operation() == Some(Operation::Spawn) && message.is_refusal() {
            self.refuse_spawn();
        }
    }

    /// The spawn that was asked for last is refused, so nothing will come of its group.
    pub(crate) fn refuse_spawn(&mut self) {
        self.refused.insert(self.groups);
    }

    pub(crate) fn observe(&mut self, event: &Event, messages: &[Message<'_>]) {
        let seq = event.seq;
        match &event.what {
            What::Launched { ranks, nodes, .. } => {
                self.sizes.insert(0, *ranks);
                self.sizes.insert(Proc::PROXIES, *nodes);
            }
            What::Started { proc, env, args, bad_fd } => {
                self.unconnected |= bad_fd.is_some();
                let known = self.size(proc.group);
                let link = self.link(*proc);
                link.started = true;
                link.env = env.clone().into_iter().collect();
                link.args.clone_from(args);
                let told = env.get("PMI_SIZE").and_then(|size| size.parse().ok());
                if let Some(size) = told.filter(|size| proc.group != 0 && *size <= known) {
                    self.sizes.insert(proc.group, size);
                }
            }
            What::Greeted { proc, told, .. } => {
                let known = self.size(proc.group);
                if let Some(greeting) =
                    Greeting::parse(&told.0).ok().filter(|g| proc.group != 0 && g.size <= known)
                {
                    self.sizes.insert(proc.group, greeting.size);
                }
            }
            What::ToServer { proc, .. } => self.arrived(seq, *proc, messages),
            What::FromServer { proc, bytes } => {
                self.received += bytes.0.len() as u64;
                self.arrived(seq, *proc, messages);
            }
            What::ClosedByServer { proc } => self.link(*proc).closed = true,
            What::ClosedByClient { proc } => self.link(*proc).ours_closed = true,
            What::Ended { proc, ours } => {
                let link = self.link(*proc);
                if *ours {
                    link.ours_closed = true;
                } else {
                    link.ended = true;
                    link.closed |= !link.ours_closed;
                }
            }
            What::Output { .. } => self.output = true,
            What::JobExited { exit } => self.job = Some(*exit),
            What::Crashed { name, signal } => {
                self.crashed.get_or_insert((name.clone(), *signal));
            }
            // Groups that were spawned have proxies of their own in some implementations; steps are about the first.
            What::FromProxy { group: 0, proxy, id, text, .. } => self.passed_on(seq, *proxy, *id, &text.0),
            What::ProxyEnded { group: 0, proxy, .. } | What::ClosedByUpstream { proxy } => {
                self.link(Proc::proxy(*proxy)).closed = true;
            }
            _ => {}
        }
    }

    /// Reads the messages that are complete on the connection of a process.
    fn arrived(&mut self, seq: u64, p: Proc, messages: &[Message<'_>]) {
        for (direction, message) in messages {
            match (direction, message) {
                (Direction::FromServer, message) => {
                    let link = self.link(p);
                    if link.lines.len() >= LINES_LIMIT {
                        continue;
                    }
                    // A framing error fits no expectation, like an empty message. The monitor reports it.
                    let (framing, text) = message
                        .as_ref()
                        .map_or_else(|_| Default::default(), |m| (m.framing, m.text.to_vec()));
                    link.lines.push_back(ReceivedMessage { seq, request: None, framing, text });
                }
                (Direction::ToServer, Ok(message)) => {
                    self.link(p).wants_abort |= message.text.starts_with(b"cmd=abort");
                    self.asked(message);
                }
                (Direction::ToServer, Err(_)) => {}
            }
        }
    }

    fn asked(&mut self, message: &Decoded<'_>) {
        match &message.content {
            Content::LineRequest(_) => self.spawn_line(message.text),
            Content::FrameRequest(Ok(pmi2::Request::Spawn { programs, .. })) => {
                self.groups += 1;
                let all = programs.iter().fold(0, |n: u64, p| n.saturating_add(p.maxprocs));
                self.sizes.insert(self.groups, u32::try_from(all).unwrap_or(u32::MAX));
            }
            _ => {}
        }
    }

    /// Keeps count of the process groups that spawn requests begin, and of the processes that they ask for. Requests
    /// may be malformed on purpose, so this reads single lines.
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

    /// A proxy has passed something on. A request of several lines becomes one, since steps see one request at a time.
    fn passed_on(&mut self, seq: u64, proxy: u32, id: u64, text: &[u8]) {
        // An event costs memory however short it is.
        self.received += text.len() as u64 + 64;
        let words: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
        let text = match words[..] {
            [line] => line.to_vec(),
            // What ends a block is no tuple.
            _ => words.into_iter().filter(|w| w.contains(&b'=')).collect::<Vec<_>>().join(&b' '),
        };
        let framing = if is_passed_frame(&text) { Framing::Frames } else { Framing::Lines };
        let link = self.link(Proc::proxy(proxy));
        if link.lines.len() < LINES_LIMIT {
            link.lines.push_back(ReceivedMessage { seq, request: Some(id), framing, text });
        }
    }
}

/// Whether what a proxy has passed on is the body of a frame of PMI-2, and no line.
pub(crate) fn is_passed_frame(text: &[u8]) -> bool {
    let name =
        text.strip_suffix(b";").and_then(|text| text.split(|b| *b == b';').next()?.strip_prefix(b"cmd="));
    name.is_some_and(|name| pmi2::Command::from_name(name).is_some())
}

//! The session of a reproducer: the messages that processes send and receive, in a single order for all processes.

use std::collections::BTreeMap;

use pmi_judge::LINE_LIMIT;
use pmi_judge::event::{Bytes, Event, EventKind, Exit};
use pmi_wire::singleton::PMI_ARGS_OPTION;
use pmi_wire::{Connection, ConnectionMethod, Direction, Framing, HEADER, Proc, frame_length};

use super::summary::push_bytes;
use super::symptom::{NotReproducible, Symptom};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReproducerStep {
    Send(Vec<u8>, Framing),
    /// A process receives a message. `None` means silence, and an empty message means the end of the connection.
    Receive(Option<Vec<u8>>, Framing),
    /// The program under test is started as this rank, with these environment variables.
    Start(BTreeMap<String, String>),
    /// A connection that belongs to no rank is made to the server's port, after all ranks of the first group have connected.
    Stray {
        number: u32,
        ranks: u32,
    },
    Close,
    Exit(i32),
    Kill(i32),
}

/// The name of Hydra's proxy. A reproducer puts a script in the proxy's place. The script starts the proxy and records its exit status.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";

/// The check after all steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FinalCheck {
    /// The last step receives the recorded message.
    LastStep,
    /// A process is started with these arguments.
    Arguments(Proc, Vec<Bytes>),
    /// A process that connects to `PMI_PORT` receives this greeting.
    Greeting(Proc, Vec<u8>),
    /// A process is started with these environment variables.
    Environment(Proc, BTreeMap<String, String>),
    /// A process, or the launcher, is killed by a signal.
    Death { launcher: bool, signal: i32 },
    /// The process with this name, which has started the ranks, is killed by a signal.
    ManagerDies { name: String, signal: i32 },
    /// A process of the program under test ends with this status, or does not end if the status is `None`.
    Ends(Proc, Option<Exit>),
    /// A process of the program under test is killed by this signal.
    Dies(i32),
    /// The launcher ends with this status.
    JobExits(Exit),
    /// The job does not end.
    JobKeepsRunning,
}

#[derive(Debug)]
pub(super) struct ReproducerSession {
    /// The launcher, with `{agent}` for the agent, or the program under test.
    pub(super) command: Vec<String>,
    /// The method by which processes get their connections.
    pub(super) connection_method: ConnectionMethod,
    /// True if a program is under test. `Send` steps are then responses from its server.
    pub(super) of_program: bool,
    /// Number of process groups, including spawned ones.
    pub(super) groups: u32,
    pub(super) steps: Vec<(Proc, ReproducerStep)>,
    pub(super) final_check: FinalCheck,
}

/// The end of an agent's path. In a command line or a spawn request, the whole path is `DIR/gN/pmi-conform-agent`.
const AGENT: &[u8] = b"/pmi-conform-agent";

const SIGPIPE: i32 = 13;

/// The names that differ between runs.
#[derive(Default)]
struct Names {
    /// The folder of the agents.
    folder: Vec<u8>,
    /// Names that the server has sent, each with its placeholder.
    received: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Names {
    fn replace(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        if !self.folder.is_empty() {
            text = replaced(&text, &self.folder, b"{here}");
            // In the script, `{here}/gN` is the agent itself and not a folder that contains the agent, so the agent's file name is removed.
            text = replaced(&text, AGENT, b"");
        }
        self.received.iter().fold(text, |text, (name, token)| replaced(&text, name, token))
    }

    /// Records the name of a keyval space or job in a message to a process of this group.
    fn record_names(&mut self, message: &[u8], group: u32) {
        for key in ["kvsname", "jobid"] {
            let start = format!("{key}=");
            let Some(at) = memchr::memmem::find(message, start.as_bytes()) else { continue };
            let rest = &message[at + start.len()..];
            let end = rest.iter().position(|b| b.is_ascii_whitespace() || *b == b';').unwrap_or(rest.len());
            let token = format!("{{{key}{group}}}").into_bytes();
            if end > 3 && !self.received.iter().any(|(_, known)| *known == token) {
                self.received.push((rest[..end].to_vec(), token));
            }
        }
    }
}

fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, old) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the number of groups that exist after a spawn request. The request contains the agent's path, which contains the number of the
/// new group.
fn asked_groups(text: &[u8]) -> u32 {
    let program = b"{here}/g";
    let groups = memchr::memmem::find_iter(text, program).map(|at| {
        let digits = text[at + program.len()..].iter().take_while(|b| b.is_ascii_digit());
        digits.fold(0u32, |n, digit| n.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    });
    groups.max().map_or(1, |last| last.saturating_add(1))
}

/// Returns the folder of the agents that a command-line argument or a request contains.
fn folder(text: &[u8]) -> Option<String> {
    let end = memchr::memmem::find(text, AGENT)?;
    let at = text[..end].iter().rposition(|b| *b == b'/')?;
    let is_group = text[at + 1..end].strip_prefix(b"g")?.iter().all(u8::is_ascii_digit);
    let start = text[..at].iter().rposition(|b| b.is_ascii_whitespace() || b"'\"=;".contains(b));
    let folder = String::from_utf8_lossy(&text[start.map_or(0, |start| start + 1)..at]).into_owned();
    is_group.then_some(folder)
}

/// Removes the connections that end after the last message, with the remaining steps of their processes. A connection ends when its server
/// dies, and its process may not even have started when the server dies again.
fn remove_ends(steps: &mut Vec<(Proc, ReproducerStep)>) {
    let is_end = |step: &ReproducerStep| matches!(step, ReproducerStep::Receive(Some(message), _) if message.is_empty());
    let is_message = |step: &ReproducerStep| {
        matches!(step, ReproducerStep::Send(..) | ReproducerStep::Receive(..)) && !is_end(step)
    };
    let last = steps.iter().rposition(|(_, step)| is_message(step)).map_or(0, |at| at + 1);
    let tail = steps.split_off(last);
    let ended: Vec<Proc> = tail.iter().filter(|(_, step)| is_end(step)).map(|(proc, _)| *proc).collect();
    steps.extend(tail.into_iter().filter(|(proc, _)| !ended.contains(proc)));
}

/// Returns the number after a word in the line of a step such as `0 P: exit 3`.
fn number_after(line: &str, word: &str) -> Option<i32> {
    let (_, rest) = line.split_once(word)?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

impl ReproducerSession {
    pub(super) fn read(
        events: &[Event],
        symptom: &Symptom,
        quote: &dyn Fn(usize) -> String,
    ) -> Result<Self, NotReproducible> {
        let launched = events.iter().find_map(|event| match &event.kind {
            EventKind::Launched { command, .. } if !command.is_empty() => Some(command),
            _ => None,
        });
        let launched = launched.ok_or(NotReproducible::NotLaunched)?;
        if events
            .iter()
            .any(|event| matches!(event.kind, EventKind::FromProxy { .. } | EventKind::ToProxy { .. }))
        {
            return Err(NotReproducible::Upstream);
        }
        let connection_method = events.iter().find_map(|event| match event.kind {
            EventKind::Greeted { .. } => Some(ConnectionMethod::Port),
            EventKind::Singinit { .. } => Some(ConnectionMethod::Singleton),
            _ => None,
        });
        let connection_method = connection_method.unwrap_or_default();
        let requests = events.iter().filter_map(|event| match &event.kind {
            EventKind::ToServer { bytes, .. } => Some(&bytes.0[..]),
            _ => None,
        });
        // In a singleton session, only a spawn request contains the agents' folder; the manager's command line does not.
        let agent = launched.iter().map(|word| word.as_bytes()).chain(requests).find_map(folder);
        let is_spawned =
            |event: &Event| matches!(event.kind, EventKind::Started { proc, .. } if proc.group != 0);
        let of_program = agent.is_none() && connection_method != ConnectionMethod::Singleton;
        if of_program && events.iter().any(is_spawned) {
            return Err(NotReproducible::Spawned);
        }
        let folder = agent.unwrap_or_default();
        let program = format!("{folder}/g0/pmi-conform-agent");
        let mut command: Vec<String> =
            launched.iter().map(|word| word.replace(&program, "{agent}")).collect();
        if connection_method == ConnectionMethod::Singleton {
            let option = command
                .iter()
                .position(|word| word.trim_start_matches('-').replace('-', "_") == PMI_ARGS_OPTION[1..])
                .ok_or(NotReproducible::Manager)?;
            for (place, word) in [(1, "{port}"), (4, "{pid}")] {
                *command.get_mut(option + place).ok_or(NotReproducible::Manager)? = word.to_owned();
            }
        }
        let mut reader = StepReader {
            names: Names { folder: folder.into_bytes(), received: Vec::new() },
            symptom,
            quote,
            of_program,
            connections: BTreeMap::new(),
            steps: Vec::new(),
            final_check: None,
            expected: None,
            ranks: 1,
        };
        for event in &events[..reader.last_step(events)] {
            reader.take(event);
            if reader.final_check.is_some() {
                break;
            }
        }
        if matches!(symptom, Symptom::Death { .. }) {
            remove_ends(&mut reader.steps);
        }
        let look = match (reader.final_check.take(), symptom) {
            (Some(look), _) => look,
            (None, Symptom::Death { signal, .. }) if of_program => FinalCheck::Dies(*signal),
            (None, Symptom::Death { name, signal })
                if !name.starts_with("the launcher") && name != HYDRA_PROXY =>
            {
                FinalCheck::ManagerDies { name: name.clone(), signal: *signal }
            }
            (None, Symptom::Death { name, signal }) => {
                FinalCheck::Death { launcher: name.starts_with("the launcher"), signal: *signal }
            }
            (None, Symptom::JobKeepsRunning) => FinalCheck::JobKeepsRunning,
            (None, Symptom::Event { .. }) => return Err(NotReproducible::Symptom),
        };
        let started = events.iter().filter_map(|event| match event.kind {
            EventKind::Started { proc, .. } if proc.group < Proc::STRAY_GROUP => Some(proc.group + 1),
            _ => None,
        });
        let requested = reader.steps.iter().filter_map(|(_, step)| match step {
            ReproducerStep::Send(text, _) => Some(asked_groups(text)),
            _ => None,
        });
        let groups = started.chain(requested).max().unwrap_or(1);
        Ok(Self { command, connection_method, of_program, groups, steps: reader.steps, final_check: look })
    }

    /// Returns whether the script pauses the launcher until its proxy has ended. Hydra's mpiexec is killed by SIGPIPE if it passes the end
    /// of its standard input on to a proxy that has ended. For this to happen, the job must be over before mpiexec runs again.
    pub(super) fn pauses_launcher(&self) -> bool {
        self.final_check == FinalCheck::Death { launcher: true, signal: SIGPIPE }
            && self.connection_method != ConnectionMethod::Singleton
    }
}

struct StepReader<'a> {
    names: Names,
    symptom: &'a Symptom,
    quote: &'a dyn Fn(usize) -> String,
    of_program: bool,
    connections: BTreeMap<Proc, Connection>,
    steps: Vec<(Proc, ReproducerStep)>,
    final_check: Option<FinalCheck>,
    /// The process that the last expectation is about, or `None` if the expectation is about the job.
    expected: Option<Proc>,
    /// Number of ranks in the first group.
    ranks: u32,
}

impl StepReader<'_> {
    /// Returns the number of relevant events. The events after a death belong to the cleanup.
    fn last_step(&self, events: &[Event]) -> usize {
        let dies =
            |event: &Event| matches!(event.kind, EventKind::Crashed { .. } | EventKind::JobExited { .. });
        match self.symptom {
            Symptom::Death { .. } => events.iter().position(dies).unwrap_or(events.len()),
            Symptom::Event { .. } | Symptom::JobKeepsRunning => events.len(),
        }
    }

    fn take(&mut self, event: &Event) {
        let seen = match self.symptom {
            Symptom::Event { seq, seen } if *seq == event.seq => Some(seen.as_str()),
            _ => None,
        };
        let of_program = self.of_program;
        match &event.kind {
            EventKind::ToServer { proc, bytes } if proc.group < Proc::STRAY_GROUP => {
                self.carried(*proc, Direction::ToServer, &bytes.0, seen);
            }
            EventKind::ToServer { proc, bytes } if proc.group == Proc::STRAY_GROUP => {
                if self.steps.iter().all(|(of, _)| of != proc) {
                    self.step(*proc, ReproducerStep::Stray { number: proc.rank, ranks: self.ranks });
                }
                self.sends(*proc, &bytes.0);
            }
            EventKind::Launched { ranks, .. } => self.ranks = *ranks,
            EventKind::FromServer { proc, bytes } if proc.group < Proc::STRAY_GROUP => {
                self.carried(*proc, Direction::FromServer, &bytes.0, seen);
            }
            EventKind::Started { proc, env, args, .. } => {
                if of_program {
                    // PMI_FD is kept only if it is invalid, because the scenario is then about an invalid descriptor.
                    let variables =
                        env.iter().filter(|(name, fd)| *name != "PMI_FD" || fd.parse::<u32>().is_err());
                    let variables = variables.map(|(name, value)| (name.clone(), value.clone())).collect();
                    self.step(*proc, ReproducerStep::Start(variables));
                } else if let Some(seen) = seen {
                    self.final_check = Some(match seen.contains("PMI_") {
                        true => FinalCheck::Environment(*proc, env.clone()),
                        false => FinalCheck::Arguments(*proc, args.clone()),
                    });
                }
            }
            EventKind::Greeted { proc, response: received, .. } if seen.is_some() => {
                self.final_check = Some(FinalCheck::Greeting(*proc, received.0.clone()));
            }
            EventKind::ClosedByServer { proc } if of_program => self.step(*proc, ReproducerStep::Close),
            EventKind::Ended { proc, ours: true } if of_program => self.step(*proc, ReproducerStep::Kill(9)),
            EventKind::ClosedByClient { proc } if of_program => self.over(*proc, seen),
            EventKind::Exited { proc, exit } if seen.is_some() => {
                self.final_check = Some(FinalCheck::Ends(*proc, Some(*exit)))
            }
            EventKind::StillRunning { procs, .. } if seen.is_some() => {
                self.final_check = procs.first().map(|proc| FinalCheck::Ends(*proc, None));
            }
            EventKind::ClosedByServer { proc } | EventKind::Ended { proc, ours: false }
                if proc.group < Proc::STRAY_GROUP =>
            {
                self.over(*proc, seen);
            }
            EventKind::NoResponse { proc, .. } if proc.group < Proc::STRAY_GROUP => self.silent(*proc, seen),
            EventKind::Expected(expected) => self.expected = expected.proc,
            EventKind::Silence { .. } => match self.expected {
                Some(proc) => self.silent(proc, seen),
                None => self.final_check = seen.map(|_| FinalCheck::JobKeepsRunning),
            },
            EventKind::ClosedByClient { proc } => self.step(*proc, ReproducerStep::Close),
            EventKind::Ended { proc, ours: true } => {
                let line = (self.quote)(event.line);
                let step = match number_after(&line, "kill ") {
                    Some(signal) => ReproducerStep::Kill(signal),
                    None => ReproducerStep::Exit(number_after(&line, "exit ").unwrap_or(0)),
                };
                self.step(*proc, step);
            }
            EventKind::JobExited { exit } if seen.is_some() => {
                self.final_check = Some(FinalCheck::JobExits(*exit))
            }
            _ => {}
        }
    }

    /// Returns the direction of the messages that the script receives.
    fn received(&self) -> Direction {
        if self.of_program { Direction::ToServer } else { Direction::FromServer }
    }

    fn over(&mut self, proc: Proc, seen: Option<&str>) {
        let partial = self.partial(proc).unwrap_or_default();
        self.step(proc, ReproducerStep::Receive(Some(partial), Framing::Lines));
        self.final_check = seen.map(|_| FinalCheck::LastStep);
    }

    fn step(&mut self, proc: Proc, step: ReproducerStep) {
        let leaves = |step: &ReproducerStep| {
            matches!(step, ReproducerStep::Close | ReproducerStep::Exit(_) | ReproducerStep::Kill(_))
        };
        if !self.steps.iter().any(|(of, earlier)| *of == proc && leaves(earlier)) {
            self.steps.push((proc, step));
        }
    }

    fn connection(&mut self, proc: Proc) -> &mut Connection {
        self.connections.entry(proc).or_insert_with(|| Connection::new(LINE_LIMIT))
    }

    fn partial(&mut self, proc: Proc) -> Option<Vec<u8>> {
        let received = self.received();
        let partial = self.connection(proc).partial(received).to_vec();
        (!partial.is_empty()).then(|| self.names.replace(&partial))
    }

    fn silent(&mut self, proc: Proc, seen: Option<&str>) {
        let silence = ReproducerStep::Receive(self.partial(proc), Framing::Lines);
        // A silence that was observed twice becomes a single step. With two steps, the first would discard a response, and the second would
        // miss it.
        let last = self.steps.iter().rposition(|(of, _)| *of == proc);
        if let Some(last) = last.filter(|last| self.steps[*last].1 == silence) {
            self.steps.remove(last);
        }
        self.step(proc, silence);
        self.final_check = seen.map(|_| FinalCheck::LastStep);
    }

    fn carried(&mut self, proc: Proc, direction: Direction, bytes: &[u8], seen: Option<&str>) {
        let messages = push_bytes(self.connection(proc), direction, bytes);
        if direction == self.received() {
            self.receives(proc, messages, seen)
        } else {
            self.sends(proc, bytes)
        }
    }

    fn sends(&mut self, proc: Proc, bytes: &[u8]) {
        // The script computes the length of a frame when it sends the frame, because names may have a different length in each run.
        let frame = bytes.first_chunk::<HEADER>().and_then(|header| frame_length(*header));
        let step = match frame {
            Some(length) if bytes.len() == HEADER + length => {
                ReproducerStep::Send(self.names.replace(&bytes[HEADER..]), Framing::Frames)
            }
            _ => ReproducerStep::Send(self.names.replace(bytes), Framing::Lines),
        };
        self.step(proc, step);
    }

    /// Adds a step for each message, up to the message that the finding is about.
    fn receives(&mut self, proc: Proc, messages: Vec<(Vec<u8>, Framing)>, seen: Option<&str>) {
        let is_seen = |(text, _): &(Vec<u8>, Framing)| {
            let text = text.escape_ascii().to_string();
            seen.is_some_and(|seen| !text.is_empty() && seen.contains(&text))
        };
        let last = messages.iter().position(is_seen);
        for (number, (mut text, framing)) in messages.into_iter().enumerate() {
            if framing == Framing::Lines {
                text.push(b'\n');
            }
            let step = ReproducerStep::Receive(Some(self.names.replace(&text)), framing);
            if !self.of_program {
                self.names.record_names(&text, proc.group);
            }
            self.step(proc, step);
            if last == Some(number) {
                break;
            }
        }
        self.final_check = seen.map(|_| FinalCheck::LastStep);
    }
}

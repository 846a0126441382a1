//! The reference server, connected to the interpreter in memory, without processes, sockets or waiting.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use pmi_faults::{Config, GroupSpec, Server, ServerAction};
use pmi_wire::port::initack;
use pmi_wire::{ConnectionMethod, Proc, singleton};

use super::{Incoming, Party, SilenceMeaning};
use pmi_judge::event::{Bytes, EventKind, Exit, SilenceProof};

/// A reference server with the processes that a launcher would have started.
pub struct MemoryParty {
    server: Server,
    queue: VecDeque<EventKind>,
    alive: BTreeMap<Proc, ()>,
    status: i32,
    over: bool,
}

impl MemoryParty {
    /// Launches `ranks` processes on the configured number of nodes.
    pub fn launch(config: Config, ranks: u32) -> Self {
        let mut server = Server::new(config);
        server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        let mut party =
            Self { server, queue: VecDeque::new(), alive: BTreeMap::new(), status: 0, over: false };
        for rank in 0..ranks {
            party.start(Proc { group: 0, rank }, Vec::new());
        }
        party
    }

    /// Returns whether each effect of the server's behaviour has occurred (see [`Server::shown_effects`]).
    pub(crate) fn shown_effects(&self) -> Vec<bool> {
        self.server.shown_effects()
    }

    fn start(&mut self, proc: Proc, args: Vec<Bytes>) {
        let place =
            if self.server.connection_method() == ConnectionMethod::Port { "127.0.0.1:4242" } else { "3" };
        let env: BTreeMap<String, String> =
            self.server.environment(proc, place).into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        self.alive.insert(proc, ());
        let connected = self.server.connects(proc);
        let mut bad_fd = (!connected).then(|| "descriptor 3 is not open".to_owned());
        let initack_line = env.get("PMI_ID").map(|id| initack(id));
        if self.server.connection_method() == ConnectionMethod::Singleton && proc.group == 0 {
            bad_fd = self.singinit(proc);
        }
        if let Some(initack_line) =
            initack_line.filter(|_| self.server.connection_method() == ConnectionMethod::Port)
        {
            let response =
                self.server.admit(initack_line.as_bytes()).map_or_else(Vec::new, |(_, response)| response);
            let initack_line = Bytes(format!("{initack_line}\n").into_bytes());
            match response.is_empty() {
                true => bad_fd = Some("no response to initack".to_owned()),
                false => self.queue.push_back(EventKind::Greeted {
                    proc,
                    initack: initack_line,
                    response: Bytes(response),
                }),
            }
        }
        self.queue.push_back(EventKind::Started { proc, env, args, bad_fd });
        if !connected {
            self.queue.push_back(EventKind::ClosedByServer { proc });
            self.alive.remove(&proc);
        }
    }

    /// Performs the handshake of a singleton. Returns the error if the connection fails.
    fn singinit(&mut self, proc: Proc) -> Option<String> {
        let request = self.server.welcome();
        let answer = if request.is_empty() { String::new() } else { format!("{}\n", singleton::RESPONSE) };
        let received =
            self.server.admit(answer.trim_end().as_bytes()).map_or_else(Vec::new, |(_, received)| received);
        let info = singleton::SingletonInfo::parse(received.trim_ascii_end());
        self.queue.push_back(EventKind::Singinit {
            proc,
            request: Bytes(request),
            answer: Bytes(answer.into_bytes()),
            reply: Bytes(received),
        });
        match info {
            Ok(info) if info.streams => Some("no connection for standard input".to_owned()),
            Ok(_) => None,
            Err(expected) => Some(format!("no {expected}")),
        }
    }

    /// Carries out the actions of the server.
    fn act(&mut self) {
        while let Some(action) = self.server.next_action() {
            match action {
                ServerAction::Send { to, bytes } => {
                    let proc = Proc { group: to.group, rank: to.rank };
                    self.queue.push_back(EventKind::FromServer { proc, bytes: Bytes(bytes) });
                }
                ServerAction::Spawn { group, requester: _, programs } => {
                    let agent = self.agent(group);
                    let mut codes = Vec::new();
                    let found = programs.iter().all(|p| p.execname == agent);
                    for program in &programs {
                        for _ in 0..program.nprocs {
                            let proc = Proc { group, rank: codes.len() as u32 };
                            if found {
                                let args = program.args.iter().map(|(_, arg)| Bytes(arg.clone())).collect();
                                self.start(proc, args);
                            }
                            codes.push(i64::from(!found));
                        }
                    }
                    self.server.spawned(group, &codes);
                }
                ServerAction::Close { proc, end } => {
                    let proc = Proc { group: proc.group, rank: proc.rank };
                    self.queue.push_back(EventKind::ClosedByServer { proc });
                    if end && self.alive.remove(&proc).is_some() {
                        self.queue.push_back(EventKind::Ended { proc, ours: false });
                    }
                }
                ServerAction::Abort { group, rank: by, status, reason } => {
                    if !reason.is_empty() {
                        let line = Bytes(format!("rank {by}: {reason}").into_bytes());
                        self.queue.push_back(EventKind::Output { proc: None, stderr: true, line });
                    }
                    // An abort ends the whole job, including the other groups.
                    let others = self.alive.keys().copied().filter(|proc| proc.group != group);
                    let ranks = (0..self.server.size(group)).map(|rank| Proc { group, rank });
                    let procs = ranks.chain(others).collect();
                    self.end_by_server(procs, status);
                }
            }
        }
        if self.alive.is_empty() && !self.over {
            self.over = true;
            self.queue.push_back(EventKind::JobExited { exit: Exit::Code(self.status) });
        }
    }

    /// Sets the status of the job, unless it already has a status other than 0.
    fn fail(&mut self, status: i32) {
        if self.status == 0 {
            self.status = status;
        }
    }

    /// Terminates `procs`, as the server does when a job fails with `status`.
    fn end_by_server(&mut self, procs: Vec<Proc>, status: i32) {
        for proc in procs {
            self.queue.push_back(EventKind::ClosedByServer { proc });
            if self.alive.remove(&proc).is_some() {
                self.queue.push_back(EventKind::Ended { proc, ours: false });
            }
        }
        self.fail(status);
    }

    fn end(&mut self, proc: Proc, status: i32) {
        self.server.closed(proc);
        self.alive.remove(&proc);
        self.fail(status);
        self.act();
    }
}

impl Party for MemoryParty {
    fn send(&mut self, to: Proc, bytes: &[u8]) {
        // All processes have connected, so no other connection is accepted.
        if to.group == Proc::STRAY_GROUP && bytes.contains(&b'\n') {
            self.queue.push_back(EventKind::ClosedByServer { proc: to });
            if self.server.stray_ends_job() {
                self.end_by_server(self.alive.keys().copied().collect(), 1);
                self.act();
            }
        }
        if self.alive.contains_key(&to) {
            self.server.receive(to, bytes);
            self.act();
        }
    }

    fn close(&mut self, proc: Proc) {
        if self.alive.contains_key(&proc) {
            self.server.closed(proc);
            self.act();
        }
    }

    fn exit(&mut self, proc: Proc, status: u8) {
        self.end(proc, i32::from(status));
    }

    fn kill(&mut self, proc: Proc, signal: u8) {
        self.end(proc, 128 + i32::from(signal));
    }

    fn next(&mut self, _: Instant, _: SilenceMeaning) -> Incoming {
        self.queue.pop_front().map_or(Incoming::Nothing(SilenceProof::Idle), Incoming::Event)
    }

    fn pass_time(&mut self) -> bool {
        self.server.pass_time();
        true
    }

    fn agent(&mut self, group: u32) -> Vec<u8> {
        format!("/memory/agent-{group}").into_bytes()
    }
}

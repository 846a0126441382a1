//! The state that all proxies of a job share: keyval spaces, published names and decisions about spawns. This module does no I/O.
//!
//! The reference server keeps the state and makes the decisions. A proxy answers most of its clients' requests itself and forwards the
//! rest. In this module, all forwarded requests of a process group count as requests from rank 0, which the code calls the group's *proxy
//! client*.

use std::borrow::Cow;
use std::collections::HashSet;

use pmi_reference::{Config, GroupId, GroupSpec, Server, ServerAction};
use pmi_wire::{Decoded, Direction, Framing, KvsLimits, Proc, SpawnProgram, frame_header};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoreResult {
    /// A line or a frame for the client.
    Response(Vec<u8>),
    /// Start a process group, and report the result with [`Store::spawned`].
    Spawn { group: GroupId, by: GroupId, programs: Vec<SpawnProgram> },
    /// End the job.
    Abort { status: i32, reason: String },
}

#[derive(Debug)]
pub(super) struct Store {
    server: Server,
    /// A server for the same process groups, whose proxy clients speak PMI-2. Keyval spaces have the same names, but each dialect has its
    /// own pairs.
    pmi2_server: Server,
    /// Groups whose spawn was requested in PMI-2.
    spawned_by_pmi2: HashSet<GroupId>,
}

fn proxy_client(group: GroupId) -> Proc {
    Proc { group, rank: 0 }
}

impl Store {
    /// Creates a store for groups on `nodes` nodes. Its limits on keys and values are large, because the proxies enforce the real limits,
    /// and each pair that they accept must be stored here.
    pub(super) fn new(nodes: u32) -> Self {
        let config = Config::default();
        let limits = KvsLimits { keylen_max: 1 << 16, vallen_max: 1 << 20, ..config.limits };
        let config = Config { nodes, limits, line_max: 1 << 21, ..config };
        let second = Server::new(Config { pmi2: true, ..config.clone() });
        Self { server: Server::new(config), pmi2_server: second, spawned_by_pmi2: HashSet::new() }
    }

    /// Adds the first process group. Spawns add further groups.
    pub(super) fn add_group(&mut self, ranks: u32) -> GroupId {
        let group = self.server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        self.pmi2_server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        self.join(group);
        group
    }

    /// Initializes a group's proxy clients. For each spawned group, the upstream calls this method once.
    pub(super) fn join(&mut self, group: GroupId) {
        let replies = self.request(group, b"cmd=init pmi_version=1 pmi_subversion=1");
        debug_assert_eq!(replies.len(), 1);
        self.pmi2_server.receive(proxy_client(group), b"cmd=init pmi_version=2 pmi_subversion=0\n");
        let replies = self.ask_pmi2(group, b"cmd=fullinit;pmijobid=0;pmirank=0;threaded=TRUE;");
        debug_assert_eq!(replies.len(), 2);
    }

    pub(super) fn size(&self, group: GroupId) -> u32 {
        self.server.size(group)
    }

    pub(super) fn kvsname(&mut self, group: GroupId) -> Vec<u8> {
        self.value(group, b"cmd=get_my_kvsname", "kvsname")
    }

    pub(super) fn mapping(&mut self, group: GroupId) -> Vec<u8> {
        let mut line = b"cmd=get kvsname=".to_vec();
        line.extend(self.kvsname(group));
        line.extend_from_slice(b" key=PMI_process_mapping");
        self.value(group, &line, "value")
    }

    fn value(&mut self, group: GroupId, line: &[u8], key: &str) -> Vec<u8> {
        match &self.request(group, line)[..] {
            [StoreResult::Response(reply)] => field(reply, key).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Puts a pair. Returns whether the pair was new and was accepted. Returns an error if the job must end instead.
    pub(super) fn put(&mut self, group: GroupId, key: &[u8], value: &[u8]) -> Result<bool, StoreResult> {
        let mut line = b"cmd=put kvsname=".to_vec();
        line.extend(self.kvsname(group));
        line.extend_from_slice(b" key=");
        line.extend_from_slice(key);
        line.extend_from_slice(b" value=");
        line.extend_from_slice(value);
        match self.request(group, &line).pop() {
            Some(StoreResult::Response(reply)) => Ok(field(&reply, "rc").is_none_or(|rc| rc == b"0")),
            Some(other) => Err(other),
            None => Ok(false),
        }
    }

    /// Serves a request from a group's proxy client, given without its trailing newline.
    pub(super) fn request(&mut self, group: GroupId, text: &[u8]) -> Vec<StoreResult> {
        self.server.receive(proxy_client(group), text);
        self.server.receive(proxy_client(group), b"\n");
        let answers = answers(&mut self.server);
        for answer in &answers {
            if let StoreResult::Spawn { programs, .. } = answer {
                self.pmi2_server.add_group(of_programs(programs));
            }
        }
        answers
    }

    /// Serves a PMI-2 request from a group's proxy client, given as the body of its frame.
    pub(super) fn ask_pmi2(&mut self, group: GroupId, body: &[u8]) -> Vec<StoreResult> {
        // A body that is too long for the header cannot have arrived in a frame.
        let Some(header) = frame_header(body.len()) else { return Vec::new() };
        self.pmi2_server.receive(proxy_client(group), &header);
        self.pmi2_server.receive(proxy_client(group), body);
        let answers = answers(&mut self.pmi2_server);
        for answer in &answers {
            if let StoreResult::Spawn { group, programs, .. } = answer {
                self.server.add_group(of_programs(programs));
                self.spawned_by_pmi2.insert(*group);
            }
        }
        answers
    }

    /// Reports to the server whether a spawned group was started.
    pub(super) fn spawned(&mut self, group: GroupId, started: bool) -> Vec<StoreResult> {
        let size = self.size(group) as usize;
        let server =
            if self.spawned_by_pmi2.contains(&group) { &mut self.pmi2_server } else { &mut self.server };
        server.spawned(group, &vec![i64::from(!started); size]);
        answers(server)
    }
}

/// Returns the specification of a group with as many processes as `programs` request.
fn of_programs(programs: &[SpawnProgram]) -> GroupSpec {
    let counts = programs.iter().map(|program| program.nprocs as u32).collect();
    GroupSpec { programs: counts, spawned: true, ..GroupSpec::default() }
}

fn answers(server: &mut Server) -> Vec<StoreResult> {
    std::iter::from_fn(|| server.next_action())
        .filter_map(|action| match action {
            ServerAction::Send { bytes, .. } => Some(StoreResult::Response(bytes)),
            ServerAction::Spawn { group, requester: by, programs, .. } => {
                Some(StoreResult::Spawn { group, by: by.group, programs })
            }
            ServerAction::Abort { status, reason, .. } => Some(StoreResult::Abort { status, reason }),
            // Only a server with a fault closes a connection.
            ServerAction::Close { .. } => None,
        })
        .collect()
}

fn field(reply: &[u8], key: &str) -> Option<Vec<u8>> {
    let line = reply.strip_suffix(b"\n").unwrap_or(reply);
    Decoded::new(Direction::FromServer, Framing::Lines, line).value(key).map(Cow::into_owned)
}

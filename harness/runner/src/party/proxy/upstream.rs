//! The upstream of any number of proxies, which serves the process groups that are spread over them, as `mpiexec` does. This module does
//! no I/O.
//!
//! [`Upstream::receive`] accepts the bytes from the proxies, and [`Upstream::next_order`] returns the resulting orders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::unix::ffi::OsStringExt;

use pmi_reference::GroupId;
use pmi_wire::protocol::by_request;
use pmi_wire::{Decoded, Direction, Framing, HEADER, SpawnProgram, frame_length, place};

use super::script::RunnerCommand;
use super::store::{Store, StoreResult};
use pmi_judge::event::{Bytes, EventKind};
use pmi_wire::hydra::Family;
use pmi_wire::hydra::{Decoder, FrameAddress, ProxyMessage, ReceivedFrame};
use pmi_wire::hydra::{GroupLaunch, LaunchProgram, ProcessBlock};

/// An order to the driver. Orders are carried out in sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DriverOrder {
    /// Start a proxy at the other end of connection `link`. Connections are numbered consecutively over all groups.
    Start {
        link: usize,
        group: u32,
        proxy: u32,
    },
    Send {
        link: usize,
        bytes: Vec<u8>,
    },
    /// Forward a process's output.
    Output {
        stderr: bool,
        bytes: Vec<u8>,
    },
    /// Close a connection to a proxy.
    HangUp {
        link: usize,
    },
    /// Report an event to the runner before the next orders are carried out.
    Report(Box<EventKind>),
    /// Kill all proxies, and end the job.
    End {
        status: i32,
        reason: String,
    },
}

/// Exit status of a job that ended early because the proxy did not speak the expected protocol.
pub(super) const PROTOCOL_ERROR_STATUS: i32 = 3;

/// The processes of a group that one proxy serves.
#[derive(Debug)]
struct ProxyGroup {
    group: GroupId,
    proxy: u32,
    link: usize,
    launch: GroupLaunch,
    /// True if the proxy has reported the ids of these processes.
    started: bool,
    ended: bool,
}

#[derive(Debug)]
struct ProxyConnection {
    decoder: Decoder,
    /// True while the connection may be written to.
    open: bool,
}

#[derive(Debug, Default)]
struct UpstreamGroup {
    kvsname: Vec<u8>,
    /// Pairs put since the last barrier, which the proxies have not received yet.
    unsent_pairs: Vec<(Vec<u8>, Vec<u8>)>,
    barriers: Vec<Barrier>,
    /// Processes in a fence, in order of arrival.
    processes_in_fence: VecDeque<FencedProcess>,
}

#[derive(Debug)]
struct FencedProcess {
    id: u64,
    proxy_group: usize,
    route: i32,
    thrid: Option<Vec<u8>>,
}

/// A barrier that at least one process has entered.
#[derive(Debug)]
struct Barrier {
    /// The name of the barrier within its group, if barriers have names.
    name: Option<Vec<u8>>,
    /// Number of processes that must enter the barrier.
    total: u64,
    /// Proxies whose processes have entered the barrier. Each entry contains the index of the proxy, the count of these processes, and the
    /// count of the proxy's reports.
    entered: Vec<(u32, u64, u32)>,
}

/// A request that a proxy has forwarded.
#[derive(Debug, Clone)]
struct ForwardedRequest {
    proxy_group: usize,
    route: i32,
    /// A line, or the body of a frame.
    text: Vec<u8>,
    framed: bool,
}

impl ForwardedRequest {
    /// Returns the name of the request, such as `get` or `spawn`.
    fn command(&self) -> &[u8] {
        if self.framed {
            let first = self.text.split(|b| *b == b';').next().unwrap_or_default();
            return first.strip_prefix(b"cmd=").unwrap_or(first);
        }
        let first = self.text.split(|b| matches!(b, b' ' | b'\n')).next().unwrap_or_default();
        let command = first.strip_prefix(b"m").unwrap_or(first);
        command.strip_prefix(b"cmd=").unwrap_or(first)
    }

    /// Returns the name of the barrier in the request.
    fn barrier(&self) -> Option<&[u8]> {
        self.text.split(|b| *b == b' ').find_map(|word| word.strip_prefix(b"group="))
    }
}

/// Maximum number of requests that a scenario may answer later.
const MAX_HELD_REQUESTS: usize = 100_000;

/// A function that finds the file of a program to be spawned.
pub(super) type ProgramFinder = Box<dyn Fn(SpawnProgram) -> io::Result<LaunchProgram>>;

pub(super) struct Upstream {
    family: Family,
    nodes: u32,
    store: Store,
    find_program: ProgramFinder,
    groups: Vec<UpstreamGroup>,
    proxy_groups: Vec<ProxyGroup>,
    links: Vec<ProxyConnection>,
    orders: VecDeque<DriverOrder>,
    status: i32,
    /// Names of the requests that the scenario answers.
    held_commands: Vec<String>,
    /// Number of requests so far.
    requests: u64,
    /// The requests that the scenario may answer later.
    answerable_requests: BTreeMap<u64, ForwardedRequest>,
    /// Numbers of the held requests that the upstream has not served. The scenario may have answered them.
    held: BTreeSet<u64>,
}

impl Upstream {
    /// Starts `ranks` processes of a program on `nodes` nodes, but on at most one node per rank.
    pub(super) fn new(
        family: Family,
        ranks: u32,
        nodes: u32,
        program: LaunchProgram,
        find: ProgramFinder,
    ) -> Self {
        let nodes = nodes.clamp(1, ranks.max(1));
        let mut store = Store::new(nodes);
        let group = store.add_group(ranks);
        let mut this = Self {
            family,
            nodes,
            store,
            find_program: find,
            groups: Vec::new(),
            proxy_groups: Vec::new(),
            links: Vec::new(),
            orders: VecDeque::new(),
            status: 0,
            held_commands: Vec::new(),
            requests: 0,
            answerable_requests: BTreeMap::new(),
            held: BTreeSet::new(),
        };
        this.launch(group, None, &[(program, ranks)]);
        this
    }

    pub(super) fn next_order(&mut self) -> Option<DriverOrder> {
        self.orders.pop_front()
    }

    /// Returns a description of the next expected message from a proxy that has not started its processes yet.
    pub(super) fn awaited(&self, link: usize) -> Option<String> {
        let link_state = self.links.get(link)?;
        self.proxy_groups.iter().find(|s| s.link == link && !s.started)?;
        Some(match (link_state.open, link_state.decoder.partial()) {
            (true, _) => "the ids of the processes that it must start".into(),
            (false, b"") => "its init record".into(),
            (false, some) => format!(
                "all {} bytes of its init record (received {}: {})",
                self.family.init_len(),
                some.len(),
                some.escape_ascii()
            ),
        })
    }

    /// Returns whether a proxy has reported the end of all its processes.
    pub(super) fn has_ended(&self, link: usize) -> bool {
        self.proxy_groups.iter().filter(|s| s.link == link).all(|s| s.ended)
    }

    /// Returns the first status other than 0, in the order in which processes were reported to have ended.
    pub(super) fn status(&self) -> i32 {
        self.status
    }

    /// Returns the process group and number of the proxy at a connection.
    pub(super) fn proxy_at(&self, link: usize) -> (GroupId, u32) {
        self.proxy_groups.iter().find(|s| s.link == link).map_or((0, 0), |s| (s.group, s.proxy))
    }

    /// Carries out a command from the scenario.
    pub(super) fn command(&mut self, command: RunnerCommand) {
        match command {
            RunnerCommand::Hold(names) => self.held_commands = names,
            RunnerCommand::CorrectResponse(id) => {
                // A request is served only once, because a second entry into a barrier would count for another process.
                if self.held.remove(&id)
                    && let Some(request) = self.answerable_requests.get(&id).cloned()
                {
                    self.serve(id, &request);
                }
            }
            RunnerCommand::Response { proxy, to, text } => {
                let request = to.and_then(|id| self.answerable_requests.get(&id)).cloned();
                let first = self.proxy_groups.iter().position(|s| s.group == 0 && s.proxy == proxy);
                let Some(proxy_group) = request.as_ref().map(|a| a.proxy_group).or(first) else { return };
                let route = request.as_ref().map_or(0, |a| a.route);
                if let Some(header) = text.0.first_chunk::<HEADER>()
                    && frame_length(*header).is_some()
                {
                    let bytes = self.address(proxy_group).frame(route, &text.0);
                    self.report_message(proxy_group, to, text.0[HEADER..].to_vec(), true);
                    return self.send(proxy_group, bytes);
                }
                let barrier = request.as_ref().and_then(ForwardedRequest::barrier);
                let bytes = self.address(proxy_group).verbatim(route, barrier, &text.0);
                let for_all =
                    [&b"cmd=keyval_cache"[..], b"cmd=barrier_out"].iter().any(|t| text.0.starts_with(t));
                self.report_message(proxy_group, to.filter(|_| !for_all), text.0, true);
                self.send(proxy_group, bytes);
            }
            RunnerCommand::Close(proxy) => {
                let Some(proxy_group) = self.proxy_groups.iter().find(|s| s.group == 0 && s.proxy == proxy)
                else {
                    return;
                };
                let link = proxy_group.link;
                self.report(EventKind::ClosedByUpstream { proxy });
                self.orders.push_back(DriverOrder::HangUp { link });
            }
        }
    }

    fn report(&mut self, kind: EventKind) {
        self.orders.push_back(DriverOrder::Report(Box::new(kind)));
    }

    /// Reports a message before it is sent to a proxy.
    fn report_message(&mut self, proxy_group: usize, answers: Option<u64>, text: Vec<u8>, scripted: bool) {
        let ProxyGroup { group, proxy, .. } = self.proxy_groups[proxy_group];
        self.report(EventKind::ToProxy { group, proxy, answers, text: Bytes(text), scripted });
    }

    pub(super) fn receive(&mut self, link: usize, bytes: &[u8]) {
        self.links[link].decoder.push(bytes);
        loop {
            match self.links[link].decoder.next() {
                Ok(Some(received)) => self.received(link, received),
                Ok(None) => return,
                Err(error) => {
                    let reason = format!("the proxy uses a different protocol than expected: {error}");
                    return self.end(PROTOCOL_ERROR_STATUS, reason);
                }
            }
        }
    }

    fn received(&mut self, link: usize, ReceivedFrame { group, message }: ReceivedFrame) {
        if let ProxyMessage::Init { .. } = message {
            self.links[link].open = true;
            for proxy_group in (0..self.proxy_groups.len())
                .filter(|s| self.proxy_groups[*s].link == link)
                .collect::<Vec<_>>()
            {
                self.send_launch(proxy_group);
            }
            return;
        }
        if let ProxyMessage::Output { stderr, bytes } = message {
            return self.orders.push_back(DriverOrder::Output { stderr, bytes });
        }
        let fits = |s: &ProxyGroup| s.link == link && group.is_none_or(|g| g == s.group as i32);
        let Some(at) = self.proxy_groups.iter().position(fits) else {
            let reason = format!(
                "the proxy refers to process group {}, which was not assigned to it",
                group.unwrap_or(0)
            );
            return self.end(PROTOCOL_ERROR_STATUS, reason);
        };
        match message {
            ProxyMessage::Pids(_) => self.proxy_groups[at].started = true,
            ProxyMessage::Ended(statuses) => self.ended(at, &statuses),
            ProxyMessage::Request { route, text } => self.request(at, route, &text),
            ProxyMessage::Puts(pairs) => {
                self.report_puts(at, &pairs);
                self.put(self.proxy_groups[at].group, pairs);
            }
            ProxyMessage::Init { .. } | ProxyMessage::Output { .. } | ProxyMessage::Terminated => {}
        }
    }

    fn end(&mut self, status: i32, reason: String) {
        self.orders.push_back(DriverOrder::End { status, reason });
    }

    fn address(&self, proxy_group: usize) -> FrameAddress {
        let ProxyGroup { group, proxy, .. } = self.proxy_groups[proxy_group];
        FrameAddress { family: self.family, group: group as i32, proxy: proxy as i32 }
    }

    fn send(&mut self, proxy_group: usize, bytes: Vec<u8>) {
        let link = self.proxy_groups[proxy_group].link;
        self.orders.push_back(DriverOrder::Send { link, bytes });
    }

    /// Spreads a process group over nodes, and starts its processes there through existing or new proxies.
    fn launch(&mut self, group: GroupId, parent: Option<Vec<u8>>, programs: &[(LaunchProgram, u32)]) {
        let size = self.store.size(group);
        let kvsname = self.store.kvsname(group);
        let mapping = self.store.mapping(group);
        self.groups.push(UpstreamGroup { kvsname: kvsname.clone(), ..UpstreamGroup::default() });
        let placed = place(size, self.nodes);
        for node in 0..=placed.last().copied().unwrap_or(0) {
            let mut blocks = Vec::new();
            let mut first = 0;
            for (appnum, (program, count)) in (0..).zip(programs) {
                let here = (first..first + count).filter(|rank| placed.get(*rank as usize) == Some(&node));
                let (from, count_here) = (here.clone().next(), here.count() as u32);
                if let Some(from) = from {
                    let program = program.clone();
                    blocks.push(ProcessBlock {
                        appnum,
                        first: from,
                        count: count_here,
                        total_count: *count,
                        program,
                    });
                }
                first += count;
            }
            let launch = GroupLaunch {
                size,
                kvsname: kvsname.clone(),
                parent: parent.clone(),
                mapping: mapping.clone(),
                dir: std::env::current_dir().ok().map(|dir| dir.into_os_string().into_vec()),
                blocks,
            };
            let shared = self.family.shares_proxies() && group > 0;
            let link = if shared { node as usize } else { self.links.len() };
            if !shared {
                let decoder = Decoder::new(self.family, launch.count() as usize);
                self.links.push(ProxyConnection { decoder, open: false });
            }
            self.proxy_groups.push(ProxyGroup {
                group,
                proxy: node,
                link,
                launch,
                started: false,
                ended: false,
            });
            if shared {
                self.send_launch(self.proxy_groups.len() - 1);
            } else {
                self.orders.push_back(DriverOrder::Start { link, group, proxy: node });
                if !self.family.sends_init() {
                    self.links[link].open = true;
                    self.send_launch(self.proxy_groups.len() - 1);
                }
            }
        }
    }

    fn send_launch(&mut self, proxy_group: usize) {
        let address = self.address(proxy_group);
        let launch = address.launch(&self.proxy_groups[proxy_group].launch);
        self.send(proxy_group, launch);
    }

    /// Handles a proxy's report that its processes of a group have ended.
    fn ended(&mut self, proxy_group: usize, statuses: &[i32]) {
        self.proxy_groups[proxy_group].ended = true;
        let group = self.proxy_groups[proxy_group].group;
        // If one process fails, its proxy kills the others, so a killed process was rarely the first to fail.
        let killed = statuses.iter().find(|s| **s & 0x7f == 9);
        let cause = statuses.iter().find(|s| **s != 0 && **s & 0x7f != 9).or(killed);
        let status = cause.map_or(0, |wait| match wait & 0x7f {
            0 => (wait >> 8) & 0xff,
            signal => 128 + signal,
        });
        if self.status == 0 {
            self.status = status;
        }
        let others = self.proxy_groups.iter().any(|s| s.group == group && !s.ended);
        if status > 128 && others && cause.is_some_and(|wait| wait & 0x7f != 0) {
            return self.end(status, format!("a process died of signal {}", status - 128));
        }
        self.check_barriers(group);
    }

    fn request(&mut self, proxy_group: usize, route: i32, text: &[u8]) {
        let request = match body(text) {
            Some(text) => ForwardedRequest { proxy_group, route, text, framed: true },
            None => {
                let end = text.iter().rposition(|b| !matches!(b, 0 | b'\n')).map_or(0, |at| at + 1);
                ForwardedRequest { proxy_group, route, text: text[..end].to_vec(), framed: false }
            }
        };
        if !request.framed && matches!(request.command(), b"put" | b"mput") {
            let pairs = pairs(&request.text);
            self.report_puts(proxy_group, &pairs);
            return self.put(self.proxy_groups[proxy_group].group, pairs);
        }
        // An abort has no response, so it is never held.
        let may_wait = request.command() != b"abort";
        let held = may_wait && self.held_commands.iter().any(|name| name.as_bytes() == request.command());
        let id = self.report_request(proxy_group, request.text.clone(), held);
        if !self.held_commands.is_empty() && self.answerable_requests.len() < MAX_HELD_REQUESTS {
            self.answerable_requests.insert(id, request.clone());
        }
        match held {
            true => drop(self.held.insert(id)),
            false => self.serve(id, &request),
        }
    }

    fn report_request(&mut self, proxy_group: usize, text: Vec<u8>, held: bool) -> u64 {
        let ProxyGroup { group, proxy, .. } = self.proxy_groups[proxy_group];
        let id = self.requests;
        self.requests += 1;
        self.report(EventKind::FromProxy { group, proxy, id, text: Bytes(text), held });
        id
    }

    fn report_puts(&mut self, proxy_group: usize, pairs: &[(Vec<u8>, Vec<u8>)]) {
        self.report_request(proxy_group, format_pairs(b"cmd=mput", pairs), false);
    }

    /// Answers a PMI-1 request correctly, and passes a PMI-2 request on to [`serve_frame`](Self::serve_frame).
    fn serve(&mut self, id: u64, request: &ForwardedRequest) {
        let &ForwardedRequest { proxy_group, route, ref text, framed } = request;
        let group = self.proxy_groups[proxy_group].group;
        if framed {
            return self.serve_frame(id, request);
        }
        let mut words = text.split(|b| *b == b' ').filter(|word| !word.is_empty());
        match words.next().unwrap_or_default() {
            b"cmd=barrier_in" => {
                let words: Vec<&[u8]> = words.collect();
                self.enter(proxy_group, &words);
            }
            // A proxy must answer these requests itself, so forwarding one is a protocol error.
            b"cmd=init" | b"cmd=finalize" => {
                self.end(
                    PROTOCOL_ERROR_STATUS,
                    format!(
                        "the proxy forwarded a request that it must answer itself: {}",
                        text.escape_ascii()
                    ),
                );
            }
            cmd => {
                let is_abort = cmd == b"cmd=abort";
                let answers = self.store.request(group, text);
                self.answer(answers, |this, line| {
                    // An abort ends the process, so the process cannot receive a response.
                    if !is_abort {
                        let bytes = this.address(proxy_group).response(route, &line);
                        this.report_message(proxy_group, Some(id), line, false);
                        this.send(proxy_group, bytes);
                    }
                });
            }
        }
    }

    /// Answers a PMI-2 request correctly.
    fn serve_frame(&mut self, id: u64, request: &ForwardedRequest) {
        let &ForwardedRequest { proxy_group, route, ref text, .. } = request;
        let group = self.proxy_groups[proxy_group].group;
        let message = Decoded::new(Direction::ToServer, Framing::Frames, text);
        match request.command() {
            // A proxy must answer these requests itself, so forwarding one is a protocol error.
            b"fullinit" | b"finalize" => {
                self.end(
                    PROTOCOL_ERROR_STATUS,
                    format!(
                        "the proxy forwarded a request that it must answer itself: {}",
                        text.escape_ascii()
                    ),
                );
            }
            // No known proxy forwards commands that exist only in the draft, so this must be a truncated request.
            _ if message.is_request_part() => {
                self.end(1, format!("protocol error: incomplete request: {}", text.escape_ascii()));
            }
            b"kvs-fence" => {
                let thrid = message.value("thrid").map(|thrid| thrid.into_owned());
                self.groups[group as usize].processes_in_fence.push_back(FencedProcess {
                    id,
                    proxy_group,
                    route,
                    thrid,
                });
                self.leave_fence(group);
            }
            _ => {
                let answers = self.store.ask_pmi2(group, text);
                self.answer(answers, |this, frame| this.reply_frame(id, proxy_group, route, &frame));
            }
        }
    }

    /// Acts on the results from the store. `reply` sends the responses to clients.
    fn answer(&mut self, answers: Vec<StoreResult>, reply: impl Fn(&mut Self, Vec<u8>)) {
        let mut answers = VecDeque::from(answers);
        while let Some(answer) = answers.pop_front() {
            match answer {
                StoreResult::Response(bytes) => reply(self, bytes),
                StoreResult::Spawn { group, by, programs } => {
                    let started = self.spawn(by, group, programs);
                    answers.extend(self.store.spawned(group, started));
                }
                StoreResult::Abort { status, reason } => self.end(status, reason),
            }
        }
    }

    fn reply_frame(&mut self, id: u64, proxy_group: usize, route: i32, frame: &[u8]) {
        let bytes = self.address(proxy_group).frame(route, frame);
        self.report_message(proxy_group, Some(id), frame.get(HEADER..).unwrap_or_default().to_vec(), false);
        self.send(proxy_group, bytes);
    }

    /// Releases the processes in a fence if all processes of the group have entered it. According to the draft, a released process can get
    /// everything that was put before the fence.
    fn leave_fence(&mut self, group: GroupId) {
        let size = self.store.size(group) as usize;
        let fenced = &mut self.groups[group as usize].processes_in_fence;
        let in_it: BTreeSet<(usize, i32)> = fenced.iter().map(|f| (f.proxy_group, f.route)).collect();
        if in_it.len() < size {
            return;
        }
        let (mut out, mut left) = (BTreeSet::new(), VecDeque::new());
        for fenced in std::mem::take(fenced) {
            if !out.insert((fenced.proxy_group, fenced.route)) {
                // This entry is for the next fence, which the process has already entered.
                left.push_back(fenced);
                continue;
            }
            let mut frame = Vec::new();
            let mut tuple = |key: &str, value: &[u8]| Framing::Frames.write_tuple(&mut frame, key, value);
            tuple("cmd", b"kvs-fence-response");
            fenced.thrid.iter().for_each(|thrid| tuple("thrid", thrid));
            tuple("rc", b"0");
            let frame = Framing::Frames.complete(frame).unwrap_or_default();
            self.reply_frame(fenced.id, fenced.proxy_group, fenced.route, &frame);
        }
        self.groups[group as usize].processes_in_fence = left;
    }

    fn spawn(&mut self, by: GroupId, group: GroupId, programs: Vec<SpawnProgram>) -> bool {
        let mut found = Vec::new();
        let mut preput = Vec::new();
        for mut program in programs {
            let count = program.nprocs as u32;
            preput.append(&mut program.preput);
            match (self.find_program)(program) {
                Ok(program) => found.push((program, count)),
                Err(reason) => {
                    let bytes = format!("hydra-upstream: spawn failed: {reason}\n").into_bytes();
                    self.orders.push_back(DriverOrder::Output { stderr: true, bytes });
                    // The group number is used up even if the spawn fails.
                    self.groups.push(UpstreamGroup::default());
                    return false;
                }
            }
        }
        self.store.join(group);
        let parent = self.groups[by as usize].kvsname.clone();
        self.launch(group, Some(parent), &found);
        // Intel's proxies receive the pairs in advance. In other families, a proxy requests keys that are not in its cache.
        if self.family == Family::Intel {
            for proxy_group in (0..self.proxy_groups.len())
                .filter(|s| self.proxy_groups[*s].group == group)
                .collect::<Vec<_>>()
            {
                let cache = self.address(proxy_group).cache(&preput);
                self.send(proxy_group, cache);
            }
        }
        true
    }

    fn put(&mut self, group: GroupId, pairs: Vec<(Vec<u8>, Vec<u8>)>) {
        for (key, value) in pairs {
            match self.store.put(group, &key, &value) {
                Ok(true) => self.groups[group as usize].unsent_pairs.push((key, value)),
                // The put was refused, but the proxy has already answered its client, so nothing is sent.
                Ok(false) => {}
                Err(StoreResult::Abort { status, reason }) => return self.end(status, reason),
                Err(_) => {}
            }
        }
    }

    /// Handles a `barrier_in` from a proxy, which reports that all participants that it serves have entered the barrier.
    fn enter(&mut self, proxy_group: usize, words: &[&[u8]]) {
        let ProxyGroup { group, proxy, ref launch, .. } = self.proxy_groups[proxy_group];
        let field = |key: &[u8]| words.iter().find_map(|w| w.strip_prefix(key)?.strip_prefix(b"="));
        let number = |key: &[u8]| field(key).and_then(pmi_wire::grammar::parse_uint);
        let name = field(b"group").map(<[u8]>::to_vec);
        let total = number(b"total_count").unwrap_or(u64::from(launch.size));
        let count = number(b"count").unwrap_or(u64::from(launch.count()));
        let barriers = &mut self.groups[group as usize].barriers;
        let at = barriers.iter().position(|b| b.name == name).unwrap_or_else(|| {
            barriers.push(Barrier { name, total, entered: Vec::new() });
            barriers.len() - 1
        });
        let barrier = &mut barriers[at];
        match barrier.entered.iter_mut().find(|(p, ..)| *p == proxy) {
            Some((.., times)) => *times = times.saturating_add(1),
            None => barrier.entered.push((proxy, count, 1)),
        }
        if barrier.entered.iter().map(|(_, count, _)| *count).fold(0, u64::saturating_add) < barrier.total {
            return self.check_barriers(group);
        }
        let name = barrier.name.clone();
        let proxies: Vec<u32> = barrier.entered.iter().map(|(p, ..)| *p).collect();
        for (.., times) in &mut barrier.entered {
            *times -= 1;
        }
        barrier.entered.retain(|(.., times)| *times > 0);
        if barrier.entered.is_empty() {
            barriers.swap_remove(at);
        }
        self.leave(group, name.as_deref(), &proxies);
    }

    fn leave(&mut self, group: GroupId, name: Option<&[u8]>, proxies: &[u32]) {
        let fresh = std::mem::take(&mut self.groups[group as usize].unsent_pairs);
        for proxy_group in 0..self.proxy_groups.len() {
            let ProxyGroup { group: of, proxy, ended, .. } = self.proxy_groups[proxy_group];
            if of != group || ended {
                continue;
            }
            let address = self.address(proxy_group);
            let mut bytes = address.cache(&fresh);
            if !fresh.is_empty() {
                self.report_message(proxy_group, None, format_pairs(b"cmd=keyval_cache", &fresh), false);
            }
            if proxies.contains(&proxy) {
                bytes.extend(address.barrier_out(name));
                self.report_message(proxy_group, None, b"cmd=barrier_out".to_vec(), false);
            }
            self.send(proxy_group, bytes);
        }
    }

    /// Ends the job if processes are waiting in a barrier for processes that have ended. A proxy cannot detect this, since it serves only
    /// its own processes.
    fn check_barriers(&mut self, group: GroupId) {
        let whole = |b: &Barrier| b.total == u64::from(self.store.size(group));
        let gone = |b: &Barrier| {
            self.proxy_groups
                .iter()
                .any(|s| s.group == group && s.ended && !b.entered.iter().any(|(p, ..)| *p == s.proxy))
        };
        if self.groups[group as usize].barriers.iter().any(|b| whole(b) && gone(b)) {
            self.end(1, "processes wait in a barrier for processes that have already ended".into());
        }
    }
}

/// Extracts the body of a PMI-2 request from the text that a proxy forwards. Some generations of Hydra omit the length header, the trailing
/// semicolon or both, or replace the semicolon with a NUL. Returns `None` if the text has neither a length header nor a known PMI-2
/// command.
fn body(text: &[u8]) -> Option<Vec<u8>> {
    let length = text.first_chunk::<HEADER>().and_then(|header| frame_length(*header));
    let mut body = if length.is_some() { text[HEADER..].to_vec() } else { text.to_vec() };
    let name = body.split(|b| *b == b';').next().and_then(|tuple| tuple.strip_prefix(b"cmd="));
    if length.is_none() && name.and_then(|name| by_request(Framing::Frames, name)).is_none() {
        return None;
    }
    if body.last() == Some(&0) {
        body.pop();
    }
    if body.last() != Some(&b';') || length == Some(body.len() + 1) {
        body.push(b';');
    }
    Some(body)
}

/// Returns the pairs of a put. A word without `=` continues the previous value, which contained a space.
fn pairs(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for word in text.split(|b| *b == b' ').filter(|word| !word.is_empty()).skip(1) {
        match word.iter().position(|b| *b == b'=') {
            Some(at) => pairs.push((word[..at].to_vec(), word[at + 1..].to_vec())),
            None => {
                if let Some((_, value)) = pairs.last_mut() {
                    value.push(b' ');
                    value.extend_from_slice(word);
                }
            }
        }
    }
    pairs
}

fn format_pairs(command: &[u8], pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut text = command.to_vec();
    for (key, value) in pairs {
        text.push(b' ');
        text.extend_from_slice(key);
        text.push(b'=');
        text.extend_from_slice(value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> LaunchProgram {
        LaunchProgram { argv: vec![b"prog".to_vec()], dir: None }
    }

    fn make(family: Family, ranks: u32, nodes: u32) -> Upstream {
        let find = |program: SpawnProgram| match &program.execname[..] {
            b"missing" => Err(io::Error::other("missing: program not found")),
            _ => Ok(LaunchProgram { argv: vec![program.execname], dir: None }),
        };
        Upstream::new(family, ranks, nodes, program(), Box::new(find))
    }

    fn orders(upstream: &mut Upstream) -> Vec<DriverOrder> {
        std::iter::from_fn(|| upstream.next_order())
            .filter(|o| !matches!(o, DriverOrder::Report(_)))
            .collect()
    }

    /// Formats each report as `PROXY asks ID: TEXT` or `PROXY told ID: TEXT`. Marks held requests and scripted responses.
    fn reports(upstream: &mut Upstream) -> Vec<String> {
        let reports = std::iter::from_fn(|| upstream.next_order()).filter_map(|order| match order {
            DriverOrder::Report(kind) => Some(*kind),
            _ => None,
        });
        reports
            .map(|kind| match kind {
                EventKind::FromProxy { proxy, id, text, held, .. } => {
                    format!("{proxy} asks {id}: {text}{}", if held { " (held)" } else { "" })
                }
                EventKind::ToProxy { proxy, answers, text, scripted, .. } => {
                    format!("{proxy} told {answers:?}: {text}{}", if scripted { " (scripted)" } else { "" })
                }
                other => format!("{other:?}"),
            })
            .collect()
    }

    /// Returns a frame from a proxy whose family uses short headers.
    fn frame(command: i32, group: i32, proxy: i32, route: i32, body: &[u8]) -> Vec<u8> {
        let head = [command, body.len() as i32, group, proxy, 1, route];
        head.into_iter().flat_map(i32::to_ne_bytes).chain(body.iter().copied()).collect()
    }

    fn ints(numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    /// Returns an upstream whose proxies speak the protocol of Hydra 4.2 and have started their processes.
    fn started(ranks: u32, nodes: u32) -> Upstream {
        let mut upstream = make(Family::Mpich4_2, ranks, nodes);
        for link in 0..nodes as usize {
            assert!(upstream.awaited(link).is_some_and(|message| message == "its init record"));
            upstream.receive(link, &[b"HYD\0".to_vec(), ints(&[0, link as i32])].concat());
            assert!(
                upstream.awaited(link).is_some_and(|message| message.starts_with("the ids of the processes"))
            );
            upstream.receive(link, &frame(5, 0, link as i32, 0, &ints(&[7, 8])));
            assert_eq!(upstream.awaited(link), None);
        }
        orders(&mut upstream);
        upstream
    }

    fn say(upstream: &mut Upstream, link: usize, route: i32, text: &[u8]) -> Vec<DriverOrder> {
        upstream.receive(link, &frame(7, 0, link as i32, route, text));
        orders(upstream)
    }

    fn reply(link: usize, route: i32, text: &[u8]) -> DriverOrder {
        let address = FrameAddress { family: Family::Mpich4_2, group: 0, proxy: link as i32 };
        DriverOrder::Send { link, bytes: address.response(route, text) }
    }

    #[test]
    fn upstream_sends_launch_options_after_init_record() {
        let mut upstream = make(Family::Mpich4_2, 3, 2);
        let starts = [
            DriverOrder::Start { link: 0, group: 0, proxy: 0 },
            DriverOrder::Start { link: 1, group: 0, proxy: 1 },
        ];
        assert_eq!(orders(&mut upstream), starts);
        upstream.receive(1, b"HYD\0\0\0\0\0\x01\0\0");
        assert_eq!(orders(&mut upstream), []);
        upstream.receive(1, b"\0");
        let [DriverOrder::Send { link: 1, bytes }] = &orders(&mut upstream)[..] else { panic!() };
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains("(vector,(0,1,2),(1,1,1))") && text.contains("--pmi-id-map\0"), "{text}");
    }

    #[test]
    fn sends_pairs_to_all_proxies_before_barrier_out() {
        let mut upstream = started(4, 2);
        assert_eq!(say(&mut upstream, 0, 0, b"cmd=mput a=1 b=x y\n"), []);
        assert_eq!(say(&mut upstream, 0, 0, b"cmd=barrier_in\n"), []);
        assert_eq!(
            say(&mut upstream, 0, 0, b"cmd=barrier_in\n"),
            [],
            "a second report from the same proxy must not count for another proxy"
        );
        // `a` is already set, so this put has no effect on it. The upstream does not reply, because the proxy has already answered its
        // client.
        assert_eq!(say(&mut upstream, 1, 0, b"cmd=mput a=2 c=3\n"), []);
        let out = |link| {
            let DriverOrder::Send { bytes: mut cache, .. } =
                reply(link, 0, b"cmd=keyval_cache a=1 b=x\\ y c=3\n")
            else {
                panic!()
            };
            let DriverOrder::Send { bytes, .. } = reply(link, 0, b"cmd=barrier_out\n") else { panic!() };
            cache.extend(bytes);
            DriverOrder::Send { link, bytes: cache }
        };
        assert_eq!(say(&mut upstream, 1, 0, b"cmd=barrier_in\n"), [out(0), out(1)]);
        // The second entry of the first proxy counts for the next barrier.
        let again = [reply(0, 0, b"cmd=barrier_out\n"), reply(1, 0, b"cmd=barrier_out\n")];
        assert_eq!(say(&mut upstream, 1, 0, b"cmd=barrier_in\n"), again);
        let get = b"cmd=get kvsname=kvs-0 key=c\n";
        assert_eq!(say(&mut upstream, 0, 9, get), [reply(0, 9, b"cmd=get_result rc=0 value=3\n")]);
    }

    #[test]
    fn barrier_out_names_the_subset_of_ranks() {
        let mut upstream = started(4, 2);
        let world = b"cmd=barrier_in group=WORLD count=2 total_count=4\n";
        assert_eq!(say(&mut upstream, 0, -1, world), []);
        assert_eq!(say(&mut upstream, 0, -1, b"cmd=barrier_in group=1,2 count=1 total_count=2\n"), []);
        let named = b"cmd=barrier_out group=1,2\n";
        assert_eq!(
            say(&mut upstream, 1, -1, b"cmd=barrier_in group=1,2 count=1 total_count=2\n"),
            [reply(0, 0, named), reply(1, 0, named)]
        );
    }

    #[test]
    fn spawned_group_is_launched_as_the_family_requires() {
        let spawn = |name: &str| {
            format!(
                "mcmd=spawn\nnprocs=2\nexecname={name}\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n\
                 info_num=0\nendcmd\0"
            )
        };
        let mut upstream = started(2, 1);
        let new_orders = say(&mut upstream, 0, 5, spawn("child").as_bytes());
        let [DriverOrder::Send { link: 0, bytes }, answer] = &new_orders[..] else {
            panic!("{new_orders:?}")
        };
        assert!(String::from_utf8_lossy(bytes).contains("PMI_SPAWNED=1"));
        assert_eq!(*answer, reply(0, 5, b"cmd=spawn_result rc=0 errcodes=0,0\n"));
        let new_orders = say(&mut upstream, 0, 5, spawn("missing").as_bytes());
        assert!(matches!(&new_orders[0], DriverOrder::Output { stderr: true, .. }), "{new_orders:?}");
        assert_eq!(new_orders[1], reply(0, 5, b"cmd=spawn_result rc=-1 errcodes=1,1 msg=spawn_failed\n"));

        let mut old = make(Family::Mpich4_1, 2, 1);
        old.receive(0, b"HYD\0\0\0\0\0");
        orders(&mut old);
        let new_orders = say(&mut old, 0, 5, spawn("child").as_bytes());
        assert_eq!(new_orders[0], DriverOrder::Start { link: 1, group: 1, proxy: 0 });
    }

    /// Returns the response to a client's PMI-2 request, without the length of the frame.
    fn frame_reply(link: usize, route: i32, body: &str) -> DriverOrder {
        let address = FrameAddress { family: Family::Mpich4_2, group: 0, proxy: link as i32 };
        DriverOrder::Send { link, bytes: address.frame(route, format!("{:>6}{body}", body.len()).as_bytes()) }
    }

    #[test]
    fn accepts_every_hydra_form_of_pmi2_requests() {
        let done = |route| frame_reply(0, route, "cmd=kvs-put-response;thrid=7;rc=0;");
        for (key, text) in [
            // The forms are a complete frame, a frame with a NUL instead of the trailing semicolon, a frame without the semicolon, and a
            // body without the length.
            ("a", &b"    34cmd=kvs-put;thrid=7;key=a;value=v;"[..]),
            ("b", b"    34cmd=kvs-put;thrid=7;key=b;value=v\0"),
            ("c", b"34    cmd=kvs-put;thrid=7;key=c;value=v"),
            ("d", b"cmd=kvs-put;thrid=7;key=d;value=v"),
        ] {
            let mut upstream = started(2, 1);
            assert_eq!(say(&mut upstream, 0, 5, text), [done(5)], "{key}");
            let get = format!("cmd=kvs-get;jobid=kvs-0;key={key};");
            let get = format!("{:>6}{get}", get.len());
            let response = frame_reply(0, 6, "cmd=kvs-get-response;found=TRUE;value=v;rc=0;");
            assert_eq!(say(&mut upstream, 0, 6, get.as_bytes()), [response]);
        }
    }

    #[test]
    fn fence_holds_processes_until_all_have_entered() {
        let mut upstream = started(2, 2);
        let fence = b"    14cmd=kvs-fence;";
        assert_eq!(say(&mut upstream, 0, 5, fence), []);
        // A second entry does not count for another process.
        assert_eq!(say(&mut upstream, 0, 5, fence), []);
        let out = |link, route| frame_reply(link, route, "cmd=kvs-fence-response;rc=0;");
        assert_eq!(say(&mut upstream, 1, 5, fence), [out(0, 5), out(1, 5)]);
        assert_eq!(say(&mut upstream, 1, 5, fence), [out(0, 5), out(1, 5)]);
    }

    #[test]
    fn pmi2_spawn_starts_a_new_group() {
        let mut upstream = started(2, 1);
        let spawn = "cmd=spawn;ncmds=1;preputcount=1;ppkey0=k;ppval0=v;subcmd=child;maxprocs=2;argc=0;infokeycount=0;";
        let new_orders = say(&mut upstream, 0, 5, format!("{:>6}{spawn}", spawn.len()).as_bytes());
        let [DriverOrder::Send { link: 0, bytes }, DriverOrder::Send { bytes: answer, .. }] = &new_orders[..]
        else {
            panic!("{new_orders:?}")
        };
        assert!(String::from_utf8_lossy(bytes).contains("PMI_SPAWNED=1"));
        assert!(String::from_utf8_lossy(answer).contains("cmd=spawn-response;"), "{new_orders:?}");
        // The new group can get the values that the spawn request put for it.
        let get = b"    18cmd=kvs-get;key=k;";
        upstream.receive(0, &frame(7, 1, 0, 9, get));
        let new_orders = orders(&mut upstream);
        let [DriverOrder::Send { bytes, .. }] = &new_orders[..] else { panic!("{new_orders:?}") };
        assert!(String::from_utf8_lossy(bytes).ends_with("found=TRUE;value=v;rc=0;"), "{new_orders:?}");
    }

    #[test]
    fn reports_proxy_requests_before_responses() {
        let mut upstream = started(4, 2);
        upstream.receive(0, &frame(7, 0, 0, 0, b"cmd=put a=1 b=2\n"));
        upstream.receive(0, &frame(7, 0, 0, 9, b"cmd=get kvsname=kvs-0 key=none\0"));
        let reports = reports(&mut upstream);
        assert_eq!(reports[..2], ["0 asks 0: cmd=mput a=1 b=2", "0 asks 1: cmd=get kvsname=kvs-0 key=none"]);
        assert!(reports[2].starts_with("0 told Some(1): cmd=get_result rc=-1"), "{reports:?}");
    }

    #[test]
    fn held_request_waits_for_the_scenario() {
        let mut upstream = started(4, 2);
        upstream.command(RunnerCommand::Hold(vec!["get".into(), "barrier_in".into()]));
        assert_eq!(say(&mut upstream, 0, 9, b"cmd=get kvsname=kvs-0 key=a\n"), []);
        assert_eq!(say(&mut upstream, 1, 8, b"cmd=get kvsname=kvs-0 key=b\n"), []);
        let answer = |to, text: &[u8]| RunnerCommand::Response { proxy: 0, to, text: Bytes(text.to_vec()) };
        upstream.command(answer(Some(1), b"cmd=get_result rc=0 value=x\n"));
        assert_eq!(orders(&mut upstream), [reply(1, 8, b"cmd=get_result rc=0 value=x\n")]);
        // A held request can be served late, but only once.
        upstream.command(RunnerCommand::CorrectResponse(0));
        let [DriverOrder::Send { link: 0, .. }] = orders(&mut upstream)[..] else { panic!() };
        upstream.command(RunnerCommand::CorrectResponse(0));
        assert_eq!(orders(&mut upstream), []);
        upstream.command(answer(Some(0), b"junk"));
        assert_eq!(orders(&mut upstream), [reply(0, 9, b"junk")]);
        assert_eq!(say(&mut upstream, 0, -1, b"cmd=barrier_in group=WORLD count=2 total_count=4\n"), []);
        upstream.command(answer(Some(2), b"cmd=barrier_out\n"));
        assert_eq!(orders(&mut upstream), [reply(0, 0, b"cmd=barrier_out group=WORLD\n")]);
        upstream.command(RunnerCommand::Close(1));
        assert_eq!(orders(&mut upstream), [DriverOrder::HangUp { link: 1 }]);
    }

    #[test]
    fn job_status_reflects_the_process_statuses() {
        let mut upstream = started(4, 2);
        upstream.receive(0, &frame(6, 0, 0, 0, &ints(&[0, 768])));
        assert!(upstream.has_ended(0) && !upstream.has_ended(1));
        upstream.receive(1, &frame(6, 0, 1, 0, &ints(&[9, 11])));
        assert_eq!((upstream.status(), orders(&mut upstream)), (3, vec![]));

        let mut upstream = started(4, 2);
        upstream.receive(0, &frame(6, 0, 0, 0, &ints(&[9, 11])));
        assert!(matches!(orders(&mut upstream)[..], [DriverOrder::End { status: 139, .. }]));

        let mut upstream = started(4, 2);
        upstream.receive(0, &frame(6, 0, 0, 0, &ints(&[0, 0])));
        assert!(matches!(
            say(&mut upstream, 1, 0, b"cmd=barrier_in\n")[..],
            [DriverOrder::End { status: 1, .. }]
        ));

        let mut upstream = started(4, 2);
        let new_orders = say(&mut upstream, 1, 4, b"cmd=abort exitcode=6\0");
        assert!(matches!(new_orders[..], [DriverOrder::End { status: 6, .. }]), "{new_orders:?}");
    }

    #[test]
    fn invalid_proxy_message_ends_the_job() {
        for (group, text) in [(1, &b"cmd=barrier_in\n"[..]), (0, b"cmd=finalize\n"), (0, b"cmd=init\n")] {
            let mut upstream = started(2, 1);
            upstream.receive(0, &frame(7, group, 0, 0, text));
            let new_orders = orders(&mut upstream);
            assert!(
                matches!(new_orders[..], [DriverOrder::End { status: PROTOCOL_ERROR_STATUS, .. }]),
                "{new_orders:?}"
            );
        }
        for text in [&b"cmd=what\0"[..], b"\0", b"cmd=mput = =x\n", b"cmd=barrier_in count=-1 total_count=x"]
        {
            let mut upstream = started(2, 1);
            say(&mut upstream, 0, 0, text);
        }
    }
}

//! The state machine of the manager, without processes and sockets.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::bug::{Bug, is};
use super::left::{Left, Pairs};
use super::space::{Reader, Space, leak};

/// Limits of keys and values. In PMI-1, a NUL follows them; in PMI-2, none does.
const LONGEST: (usize, usize) = (63, 1023);
const LONGEST_IN_FRAMES: (usize, usize) = (64, 1024);

/// Limit of a program's arguments and of a spawn's pairs.
const MOST_ARGUMENTS: usize = 1000;

/// A process: a group, and a rank in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proc {
    pub(super) group: usize,
    pub(super) rank: usize,
}

/// A program of a spawn.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    pub(super) count: usize,
    pub(super) argv: Vec<OsString>,
}

/// An action that the caller must perform.
#[derive(Debug)]
pub(super) enum Action {
    Send(Proc, Vec<u8>),
    Start {
        by: Proc,
        group: usize,
        programs: Vec<Program>,
    },
    /// Ends all processes, and the job with this status.
    End(i32),
}

#[derive(Debug, Default)]
struct Process {
    buffer: Vec<u8>,
    frames: bool,
    begun: bool,
    finalized: bool,
    /// Waits in a barrier; in PMI-2, with the number of this thread.
    waits: Option<Vec<u8>>,
    puts: u32,
    puts_in_round: u32,
    gets: u32,
    last_answer: Option<Vec<u8>>,
    /// The messages of an incomplete PMI-1 spawn.
    spawn: Option<Pairs>,
    /// The thread of a spawn that is in progress.
    spawns: Vec<u8>,
    /// Threads that wait for attributes.
    awaits: Vec<(Vec<u8>, Vec<u8>)>,
    attributes: u32,
    /// Number of requests with the number of a thread.
    threads: u32,
    published: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Group {
    processes: Vec<Process>,
    space: Space,
    round: u32,
    /// The ranks that have entered the barrier, in order, and the last one of each earlier barrier.
    entered: Vec<usize>,
    last: Vec<usize>,
    stuck: bool,
    missed: Option<usize>,
    attributes: Vec<(usize, Vec<u8>, Vec<u8>)>,
    /// The group whose keyval space it uses.
    space_of: usize,
}

/// The manager of a job.
#[derive(Debug)]
pub(super) struct Manager {
    bug: Option<Bug>,
    nodes: usize,
    groups: Vec<Group>,
    names: Pairs,
    /// Number of publish requests.
    published: u32,
    leaks: usize,
    over: bool,
    actions: VecDeque<Action>,
    /// The state that the previous job left, and the state for the next one.
    before: Left,
    withdrawn: Pairs,
    aborted: bool,
}

/// Returns the value of a key.
fn value<'a>(pairs: &'a Pairs, key: &str) -> Option<&'a [u8]> {
    value_of(pairs, key.as_bytes())
}

fn value_of<'a>(pairs: &'a Pairs, key: &[u8]) -> Option<&'a [u8]> {
    pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_slice())
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn word(text: &[u8]) -> OsString {
    OsString::from_vec(text.to_vec())
}

/// Parses the tuples of a line; the value of `value` extends to its end.
fn tuples(line: &[u8]) -> Option<Pairs> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let mut pairs = Vec::new();
    let mut rest = line;
    loop {
        rest = &rest[rest.iter().take_while(|b| blank(b)).count()..];
        if rest.is_empty() {
            break;
        }
        let equals = rest.iter().position(|b| *b == b'=')?;
        let key = rest[..equals].to_vec();
        let end = match key == b"value" {
            true => rest.len(),
            false => rest.iter().position(blank).unwrap_or(rest.len()),
        };
        pairs.push((key, rest.get(equals + 1..end)?.to_vec()));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Some(pairs)
}

/// Parses the tuples of a frame, whose semicolons are doubled in values.
fn frame_tuples(body: &[u8]) -> Option<Pairs> {
    let mut pairs = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let equals = rest.iter().position(|b| *b == b'=')?;
        let key = rest[..equals].to_vec();
        let mut value = Vec::new();
        let mut at = equals + 1;
        loop {
            match (rest.get(at)?, rest.get(at + 1)) {
                (b';', Some(b';')) => {
                    value.push(b';');
                    at += 2;
                }
                (b';', _) => break,
                (byte, _) => {
                    value.push(*byte);
                    at += 1;
                }
            }
        }
        pairs.push((key, value));
        rest = &rest[at + 1..];
    }
    Some(pairs)
}

impl Manager {
    pub(super) fn new(bug: Option<Bug>, nodes: usize, size: usize, before: Left) -> Self {
        let mut manager = Self {
            bug,
            nodes,
            groups: Vec::new(),
            names: Vec::new(),
            published: 0,
            leaks: 0,
            over: false,
            actions: VecDeque::new(),
            before,
            withdrawn: Vec::new(),
            aborted: false,
        };
        manager.add_group(size);
        manager
    }

    /// Returns the state for the next job.
    pub(super) fn left(&self) -> Left {
        let first = &self.groups[0];
        Left {
            keys: first.space.pairs(),
            names: self.names.clone(),
            withdrawn: self.withdrawn.clone(),
            aborted: self.aborted,
            waiting: first.entered.len(),
        }
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn has(&self, name: &str) -> bool {
        is(self.bug, name)
    }

    fn add_group(&mut self, size: usize) -> usize {
        let space_of =
            if self.groups.len() == 2 && self.has("spawn-second-job") { 1 } else { self.groups.len() };
        let processes = (0..size).map(|_| Process::default()).collect();
        self.groups.push(Group { processes, space_of, ..Group::default() });
        self.groups.len() - 1
    }

    fn process(&mut self, p: Proc) -> &mut Process {
        &mut self.groups[p.group].processes[p.rank]
    }

    fn size(&self, p: Proc) -> usize {
        self.groups[p.group].processes.len()
    }

    fn kvsname(&self, p: Proc) -> Vec<u8> {
        format!("planted_{}", self.groups[p.group].space_of).into_bytes()
    }

    /// Returns the number of processes of a group on each node. Spawned processes are all on the first node.
    fn per_node(&self, p: Proc) -> usize {
        if p.group == 0 { self.size(p).div_ceil(self.nodes) } else { self.size(p) }
    }

    fn mapping(&self, p: Proc) -> Vec<u8> {
        let nodes = self.size(p).div_ceil(self.per_node(p));
        format!("(vector,(0,{nodes},{}))", self.per_node(p)).into_bytes()
    }

    fn end(&mut self, status: i32) {
        self.over = true;
        self.actions.push_back(Action::End(status));
    }

    fn line(&mut self, to: Proc, line: impl Into<Vec<u8>>) {
        let mut line = line.into();
        line.push(b'\n');
        self.actions.push_back(Action::Send(to, line));
    }

    fn frame(&mut self, to: Proc, command: &str, thread: &[u8], pairs: &[(&str, &[u8])]) {
        let mut body = format!("cmd={command}-response;").into_bytes();
        let mut add = |key: &str, value: &[u8]| {
            body.extend(format!("{key}=").bytes());
            value.iter().for_each(|b| body.extend(std::iter::repeat_n(*b, if *b == b';' { 2 } else { 1 })));
            body.push(b';');
        };
        if !thread.is_empty() {
            add("thrid", thread);
        }
        pairs.iter().for_each(|(key, value)| add(key, value));
        let mut frame = format!("{:6}", body.len()).into_bytes();
        frame.extend(body);
        self.actions.push_back(Action::Send(to, frame));
    }

    /// Handles the end of a process's connection.
    pub(super) fn closed(&mut self, p: Proc) {
        let process = self.process(p);
        if process.begun && !process.finalized && !self.over {
            self.end(1);
        }
    }

    /// Handles bytes from a process.
    pub(super) fn receive(&mut self, p: Proc, bytes: &[u8]) {
        let mut bytes = bytes;
        let half = self.process(p).buffer.clone();
        let others = |rank: usize| rank != p.rank;
        if !half.is_empty() {
            if self.has("half-at-equals") && half.ends_with(b"=") {
                bytes = &bytes[1..];
            }
            if self.has("half-line") && bytes.len() < 8 {
                self.process(p).buffer.clear();
                return;
            }
            if self.has("barrier-half") && self.groups[p.group].entered.iter().any(|rank| others(*rank)) {
                self.groups[p.group].stuck = true;
            }
        } else if self.has("half-of-other") {
            let processes = &self.groups[p.group].processes;
            let of = (0..processes.len()).find(|rank| others(*rank) && !processes[*rank].buffer.is_empty());
            if let Some(of) = of {
                let taken = std::mem::take(&mut self.groups[p.group].processes[of].buffer);
                self.process(p).buffer = taken;
            }
        }
        self.process(p).buffer.extend(bytes);
        while !self.over {
            let process = self.process(p);
            if !process.frames {
                let Some(end) = process.buffer.iter().position(|b| *b == b'\n') else { return };
                let line: Vec<u8> = process.buffer.drain(..=end).collect();
                self.request(p, &line[..end]);
                continue;
            }
            let Some(header) = process.buffer.get(..6) else { return };
            let Some(mut length) = number(header.trim_ascii()) else { return self.end(1) };
            if is(self.bug, "frame-1000") {
                length = length.min(999);
            }
            let process = self.process(p);
            if process.buffer.len() < 6 + length {
                return;
            }
            let frame: Vec<u8> = process.buffer.drain(..6 + length).collect();
            self.command(p, &frame[6..]);
        }
    }

    fn request(&mut self, p: Proc, line: &[u8]) {
        if self.process(p).spawn.is_some() || line == b"mcmd=spawn" {
            return self.spawn_line(p, line);
        }
        let done = tuples(line).and_then(|pairs| self.answer(p, &pairs));
        if done.is_none() {
            self.end(1);
        }
    }

    /// Answers a PMI-1 request; returns `None` if it is invalid.
    fn answer(&mut self, p: Proc, pairs: &Pairs) -> Option<()> {
        let get = |key: &str| value(pairs, key);
        let known = |this: &Self| get("kvsname") == Some(&this.kvsname(p)[..]);
        if !self.process(p).begun && get("cmd")? != b"init" {
            return None;
        }
        match get("cmd")? {
            b"init" => {
                let offered = (number(get("pmi_version")?)?, number(get("pmi_subversion")?)?);
                if offered < (1, 1) {
                    self.line(p, "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1");
                    return Some(());
                }
                self.process(p).begun = true;
                self.process(p).frames = offered.0 == 2;
                let (version, sub) = if offered.0 == 2 { (2, 0) } else { (1, 1) };
                self.line(p, format!("cmd=response_to_init rc=0 pmi_version={version} pmi_subversion={sub}"));
            }
            b"get_maxes" => {
                if self.has("maxes-late") && self.process(p).puts >= 8 {
                    std::process::abort();
                }
                self.line(p, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
            }
            b"get_my_kvsname" => {
                let name = self.kvsname(p);
                self.line(p, [b"cmd=my_kvsname rc=0 kvsname=", &name[..]].concat());
            }
            b"get_universe_size" => {
                let size = self.groups[0].processes.len();
                self.line(p, format!("cmd=universe_size rc=0 size={size}"));
            }
            b"get_appnum" => self.line(p, "cmd=appnum rc=0 appnum=0"),
            b"put" => {
                let (key, value) = (get("key")?, get("value")?);
                let fits = key.len() <= LONGEST.0 && value.len() <= LONGEST.1;
                let done = fits && known(self) && self.put(p, key, value, LONGEST);
                self.line(p, if done { "cmd=put_result rc=0" } else { "cmd=put_result rc=-1 msg=refused" });
            }
            b"get" if self.process(p).gets == 255 && self.has("get-256") => {}
            b"get" => {
                let found = known(self).then(|| self.get(p, get("key")?)).flatten();
                match found {
                    Some(value) => self.line(p, [b"cmd=get_result rc=0 value=", &value[..]].concat()),
                    None => self.line(p, "cmd=get_result rc=-1 msg=not_found"),
                }
            }
            b"barrier_in" => self.barrier(p, Vec::new()),
            b"publish_name" => {
                let done = self.publish(p, get("service")?, get("port")?);
                self.line(
                    p,
                    if done { "cmd=publish_result rc=0" } else { "cmd=publish_result rc=-1 msg=known" },
                );
            }
            b"unpublish_name" => {
                let done = self.unpublish(get("service")?);
                let rc = if done { "rc=0" } else { "rc=-1 msg=unknown" };
                self.line(p, format!("cmd=unpublish_result {rc}"));
            }
            b"lookup_name" => match self.lookup(p, get("service")?) {
                Some(port) => self.line(p, [b"cmd=lookup_result rc=0 port=", &port[..]].concat()),
                None => self.line(p, "cmd=lookup_result rc=-1 msg=unknown"),
            },
            b"finalize" => {
                self.process(p).finalized = true;
                self.line(p, "cmd=finalize_ack rc=0");
            }
            b"abort" => {
                self.aborted = true;
                self.end(number(get("exitcode").unwrap_or(b"1")).map_or(1, |code| code as i32 & 0xff))
            }
            _ => return None,
        }
        Some(())
    }

    fn command(&mut self, p: Proc, body: &[u8]) {
        let done = frame_tuples(body).and_then(|pairs| self.answer_frame(p, &pairs));
        if done.is_none() {
            self.end(1);
        }
    }

    /// Answers a PMI-2 request; returns `None` if it is invalid.
    fn answer_frame(&mut self, p: Proc, pairs: &Pairs) -> Option<()> {
        let get = |key: &str| value(pairs, key);
        let command = String::from_utf8(get("cmd")?.to_vec()).ok()?;
        let thread = get("thrid").unwrap_or_default();
        if get("concat").is_some() {
            // A part of a command, which this manager does not support.
            return None;
        }
        self.process(p).threads += u32::from(!thread.is_empty());
        if self.has("thread-8") && self.process(p).threads == 8 {
            std::process::abort();
        }
        if self.has("thread-in-fence") && self.process(p).waits.is_some() {
            return Some(());
        }
        const OK: (&str, &[u8]) = ("rc", b"0");
        const NOT: [(&str, &[u8]); 2] = [("rc", b"-1"), ("errmsg", b"refused")];
        match command.as_str() {
            "fullinit" => {
                let (size, rank) = (self.size(p).to_string(), p.rank.to_string());
                let parent = self.kvsname(Proc { group: 0, rank: 0 });
                let mut all: Vec<(&str, &[u8])> = vec![
                    ("pmi-version", b"2"),
                    ("pmi-subversion", b"0"),
                    ("rank", rank.as_bytes()),
                    ("size", size.as_bytes()),
                    ("appnum", b"0"),
                    ("debugged", b"FALSE"),
                    ("pmiverbose", b"FALSE"),
                ];
                if p.group > 0 {
                    all.push(("spawner-jobid", &parent));
                }
                all.push(OK);
                self.frame(p, &command, thread, &all);
            }
            "job-getid" => {
                let id = self.kvsname(p);
                self.frame(p, &command, thread, &[("jobid", &id), OK]);
            }
            "kvs-put" => {
                let (key, value) = (get("key")?, get("value")?);
                let fits = key.len() <= LONGEST_IN_FRAMES.0 && value.len() <= LONGEST_IN_FRAMES.1;
                match fits && self.put(p, key, value, LONGEST_IN_FRAMES) {
                    true => self.frame(p, &command, thread, &[OK]),
                    false => self.frame(p, &command, thread, &NOT),
                }
            }
            "kvs-get" => {
                let own = get("jobid").is_none_or(|id| id.is_empty() || id == self.kvsname(p));
                let found = own.then(|| self.get(p, get("key")?)).flatten();
                self.found(p, &command, thread, found);
            }
            "kvs-fence" => self.barrier(p, thread.to_vec()),
            "info-getjobattr" => {
                let size = self.groups[0].processes.len().to_string().into_bytes();
                let found = match get("key")? {
                    b"PMI_process_mapping" => Some(self.mapping(p)),
                    b"universeSize" => Some(size),
                    b"hasNameServ" => Some(b"TRUE".to_vec()),
                    _ => None,
                };
                self.found(p, &command, thread, found);
            }
            "info-putnodeattr" => {
                let node = p.rank / self.per_node(p);
                let (key, value) = (get("key")?.to_vec(), get("value")?.to_vec());
                self.put_attribute(p, node, key, value);
                self.frame(p, &command, thread, &[OK]);
                self.tell_attributes(p.group, node);
            }
            "info-getnodeattr" => {
                let node = p.rank / self.per_node(p);
                let found = self.attribute(p.group, node, get("key")?);
                if found.is_none() && get("wait").is_some_and(|wait| wait.eq_ignore_ascii_case(b"true")) {
                    let awaits = (get("key")?.to_vec(), thread.to_vec());
                    self.process(p).awaits.push(awaits);
                } else {
                    self.found(p, &command, thread, found);
                }
            }
            "name-publish" => match self.publish(p, get("name")?, get("port")?) {
                true => self.frame(p, &command, thread, &[OK]),
                false => self.frame(p, &command, thread, &NOT),
            },
            "name-unpublish" => match self.unpublish(get("name")?) {
                true => self.frame(p, &command, thread, &[OK]),
                false => self.frame(p, &command, thread, &NOT),
            },
            "name-lookup" => {
                let found = self.lookup(p, get("name")?);
                self.found(p, &command, thread, found);
            }
            "spawn" => {
                self.process(p).spawns = thread.to_vec();
                self.spawn_frame(p, pairs)?;
            }
            "finalize" => {
                self.process(p).finalized = true;
                self.frame(p, &command, thread, &[OK]);
            }
            "abort" => {
                self.aborted = true;
                self.end(1);
            }
            _ => return None,
        }
        Some(())
    }

    fn found(&mut self, p: Proc, command: &str, thread: &[u8], value: Option<Vec<u8>>) {
        match value {
            Some(value) => {
                self.frame(p, command, thread, &[("found", b"TRUE"), ("value", &value), ("rc", b"0")]);
            }
            None => self.frame(p, command, thread, &[("found", b"FALSE"), ("rc", b"0")]),
        }
    }

    // ----- keys

    fn put(&mut self, p: Proc, key: &[u8], value: &[u8], limits: (usize, usize)) -> bool {
        let process = self.process(p);
        process.puts += 1;
        process.puts_in_round += 1;
        let forgotten = (process.puts == 17, process.puts_in_round > 8);
        let crashes = process.puts == 200;
        if forgotten.0 && self.has("put-17") || forgotten.1 && self.has("put-9-a-round") {
            return true;
        }
        if crashes && self.has("put-200") {
            std::process::abort();
        }
        let own = self.groups[p.group].space_of;
        let at = if p.group > 0 && self.has("spawn-put") { 0 } else { own };
        let round = self.groups[p.group].round;
        self.groups[at].space.put(self.bug, key, value, (p.rank, round), limits)
    }

    fn get(&mut self, p: Proc, key: &[u8]) -> Option<Vec<u8>> {
        if self.has("finalize-first") && self.groups[p.group].processes[0].finalized {
            std::process::abort();
        }
        let per_node = self.per_node(p);
        let group = &self.groups[p.group];
        let size = group.processes.len();
        let others_wait = size > 1 && group.entered.len() == size - 1 && !group.entered.contains(&p.rank);
        let reader = Reader { rank: p.rank, size, others_wait, per_node };
        let mut found = match key {
            b"PMI_process_mapping" => Some(self.mapping(p)),
            _ => self.groups[group.space_of].space.get(self.bug, key, reader),
        };
        if self.has("spawn-get-after") && p.group == 0 {
            let of_children = self.groups[1..].iter().rev().find_map(|g| g.space.get(None, key, reader));
            found = of_children.or(found);
        }
        let before = value_of(&self.before.keys, key).filter(|_| p.group == 0);
        let stays = match (&found, before) {
            (None, Some(_)) => self.has("job-key"),
            (Some(new), Some(old)) => self.has("job-value") && new.len() == old.len(),
            (_, None) => false,
        };
        if stays {
            found = before.map(<[u8]>::to_vec);
        }
        let missed = self.groups[p.group].missed.take();
        if self.has("get-after-miss") && missed.is_some_and(|rank| rank != p.rank) {
            found = None;
        } else if found.is_none() {
            self.groups[p.group].missed = Some(p.rank);
        }
        if found.is_none() && self.has("leak-miss") {
            leak(6, &mut self.leaks);
        }
        let stale = self.has("get-33");
        let process = self.process(p);
        process.gets += 1;
        if stale && process.gets == 33 {
            found.clone_from(&process.last_answer);
        }
        process.last_answer.clone_from(&found);
        found
    }

    fn barrier(&mut self, p: Proc, thread: Vec<u8>) {
        if self.process(p).waits.is_some() {
            return self.end(1);
        }
        self.process(p).waits = Some(thread);
        let has_early = self.has("barrier-early");
        let has_backwards = self.has("barrier-backwards");
        let never = [("barrier-6", 5), ("barrier-70", 69)]
            .into_iter()
            .find(|(bug, _)| self.has(bug))
            .map(|(_, round)| round);
        let never = never.or((p.group > 0 && self.has("barrier-2-spawned")).then_some(1));
        let forgets = self.has("put-long-ago");
        let never = never.or((p.group == 0 && self.before.aborted && self.has("job-abort")).then_some(0));
        let counted = if self.has("job-waiting") && p.group == 0 { self.before.waiting } else { 0 };
        let group = &mut self.groups[p.group];
        let size = group.processes.len();
        group.entered.push(p.rank);
        let first = group.entered[0];
        let early = has_early
            && size > 1
            && group.entered.len() == size - 1
            && group.last.len() >= 2
            && group.last.iter().rev().take(2).all(|last| *last == first);
        let counted = if group.round == 0 { counted } else { 0 };
        if group.entered.len() + counted < size && !early {
            return;
        }
        let backwards = size >= 3 && group.entered.windows(2).all(|two| two[0] > two[1]);
        if group.stuck || never == Some(group.round) || has_backwards && backwards {
            return;
        }
        group.round += 1;
        if forgets && group.round >= 3 {
            group.space.forget_before(group.round - 2);
        }
        group.last.push(p.rank);
        group.entered.clear();
        for rank in 0..size {
            let to = Proc { rank, ..p };
            let process = self.process(to);
            process.puts_in_round = 0;
            let Some(thread) = process.waits.take() else { continue };
            match process.frames {
                true => self.frame(to, "kvs-fence", &thread, &[("rc", b"0")]),
                false => self.line(to, "cmd=barrier_out rc=0"),
            }
        }
    }

    // ----- attributes

    fn put_attribute(&mut self, p: Proc, node: usize, key: Vec<u8>, value: Vec<u8>) {
        self.process(p).attributes += 1;
        let again = self.has("attribute-again") && self.process(p).attributes == 2;
        let attributes = &mut self.groups[p.group].attributes;
        if again {
            attributes.retain(|(of, ..)| *of != node);
        }
        attributes.retain(|(of, known, _)| (*of, known) != (node, &key));
        attributes.push((node, key, value));
    }

    fn attribute(&self, group: usize, node: usize, key: &[u8]) -> Option<Vec<u8>> {
        let fits = |(of, known, _): &&(usize, Vec<u8>, Vec<u8>)| *of == node && known == key;
        self.groups[group].attributes.iter().find(fits).map(|(.., value)| value.clone())
    }

    /// Answers the processes that wait for attributes of a node.
    fn tell_attributes(&mut self, group: usize, node: usize) {
        for rank in 0..self.groups[group].processes.len() {
            let p = Proc { group, rank };
            if rank / self.per_node(p) != node {
                continue;
            }
            let awaits = std::mem::take(&mut self.process(p).awaits);
            let mut told = false;
            for (key, thread) in awaits {
                match self.attribute(group, node, &key) {
                    Some(value) => {
                        self.found(p, "info-getnodeattr", &thread, Some(value));
                        told = true;
                    }
                    None => self.process(p).awaits.push((key, thread)),
                }
            }
            if told && self.has("attribute-two") {
                return;
            }
        }
    }

    // ----- names

    fn publish(&mut self, p: Proc, name: &[u8], port: &[u8]) -> bool {
        self.process(p).published = Some(port.to_vec());
        let mut name = name.to_vec();
        let mut port = port.to_vec();
        if self.has("name-long") {
            name.truncate(63);
        }
        if self.has("port-long") {
            port.truncate(127);
        }
        self.published += 1;
        if self.has("name-29") && name.len() == 29 || self.has("name-30-times") && self.published == 30 {
            return true;
        }
        if let Some(old) = value_of(&self.before.names, &name)
            && self.has("job-port")
        {
            port = old.to_vec();
        }
        let known = self.names.iter().any(|(known, _)| *known == name);
        if !known || self.has("name-after-unpublish") {
            self.names.push((name, port));
        }
        !known
    }

    fn unpublish(&mut self, name: &[u8]) -> bool {
        let Some(at) = self.names.iter().position(|(known, _)| known == name) else { return false };
        self.withdrawn.push(self.names.remove(if self.has("name-first") { 0 } else { at }));
        true
    }

    fn lookup(&mut self, p: Proc, name: &[u8]) -> Option<Vec<u8>> {
        if self.has("leak-lookup") {
            leak(9, &mut self.leaks);
        }
        let found = value_of(&self.names, name);
        let found =
            found.or_else(|| value_of(&self.before.withdrawn, name).filter(|_| self.has("job-name")))?;
        let found = found.to_vec();
        match self.process(p).published.clone().filter(|_| self.has("name-other")) {
            Some(own) => Some(own),
            None => Some(found),
        }
    }

    // ----- spawns

    /// Handles a line of a PMI-1 spawn, which has several for each program.
    fn spawn_line(&mut self, p: Proc, line: &[u8]) {
        let mut so_far = self.process(p).spawn.take().unwrap_or_default();
        let equals = line.iter().position(|b| *b == b'=').unwrap_or(line.len());
        so_far.push((line[..equals].to_vec(), line.get(equals + 1..).unwrap_or_default().to_vec()));
        let ended = so_far.iter().filter(|(key, _)| key == b"endcmd").count();
        let Some(total) = value(&so_far, "totspawns").and_then(number).filter(|total| *total <= ended) else {
            if line == b"endcmd" && value(&so_far, "totspawns").is_none() {
                return self.end(1);
            }
            self.process(p).spawn = Some(so_far);
            return;
        };
        let mut programs = Vec::new();
        for program in so_far.split(|(key, _)| key == b"endcmd").take(total) {
            let program = program.to_vec();
            let get = |key: String| value(&program, &key);
            let (Some(name), Some(count)) = (get("execname".into()), get("nprocs".into()).and_then(number))
            else {
                return self.end(1);
            };
            let args = get("argcnt".into()).and_then(number).unwrap_or(0).min(MOST_ARGUMENTS);
            // The first argument has the number 0 or 1: the specification has both.
            let args = (0..=args).filter_map(|i| get(format!("arg{i}")).map(word));
            programs.push(Program { count, argv: std::iter::once(word(name)).chain(args).collect() });
        }
        let preput = value(&so_far, "preput_num").and_then(number).unwrap_or(0).min(MOST_ARGUMENTS);
        let pair = |i| {
            let key = value(&so_far, &format!("preput_key_{i}"))?;
            Some((key.to_vec(), value(&so_far, &format!("preput_val_{i}"))?.to_vec()))
        };
        let preput = (0..preput).filter_map(pair).collect();
        self.spawn(p, programs, preput);
    }

    /// Handles a PMI-2 spawn; returns `None` if it is invalid.
    fn spawn_frame(&mut self, p: Proc, pairs: &Pairs) -> Option<()> {
        let total = number(value(pairs, "ncmds")?)?;
        let mut programs: Vec<Program> = Vec::new();
        for (key, value) in pairs {
            match key.as_slice() {
                b"subcmd" => programs.push(Program { count: 1, argv: vec![word(value)] }),
                b"maxprocs" => programs.last_mut()?.count = number(value)?,
                key if key.starts_with(b"argv") => programs.last_mut()?.argv.push(word(value)),
                _ => {}
            }
        }
        if programs.len() != total {
            return None;
        }
        let preput = value(pairs, "preputcount").and_then(number).unwrap_or(0).min(MOST_ARGUMENTS);
        let pair = |i| {
            let key = value(pairs, &format!("ppkey{i}"))?;
            Some((key.to_vec(), value(pairs, &format!("ppval{i}"))?.to_vec()))
        };
        let preput = (0..preput).filter_map(pair).collect();
        self.spawn(p, programs, preput);
        Some(())
    }

    fn spawn(&mut self, by: Proc, programs: Vec<Program>, preput: Pairs) {
        let count = programs.iter().fold(0_usize, |sum, program| sum.saturating_add(program.count));
        // A larger number is an error, and would overload the machine.
        if !(1..=64).contains(&count) || self.groups.len() > 16 {
            return self.not_started(by);
        }
        let group = self.add_group(count);
        let most = if self.has("spawn-second-preput") { 1 } else { preput.len() };
        let at = self.groups[group].space_of;
        for (key, value) in preput.iter().take(most) {
            self.groups[at].space.put(None, key, value, (0, 0), LONGEST_IN_FRAMES);
        }
        self.actions.push_back(Action::Start { by, group, programs });
    }

    fn not_started(&mut self, by: Proc) {
        match self.process(by).frames {
            false => self.line(by, "cmd=spawn_result rc=-1 msg=refused"),
            true => {
                let thread = self.process(by).spawns.clone();
                self.frame(by, "spawn", &thread, &[("rc", b"-1"), ("errmsg", b"refused"), ("nerrs", b"0")]);
            }
        }
    }

    /// Handles the result of starting the processes of a group.
    pub(super) fn started(&mut self, by: Proc, group: usize, statuses: &[i32]) {
        let failed = statuses.iter().any(|status| *status != 0);
        let codes: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        if !self.process(by).frames {
            let rc = if failed { "rc=-1 msg=failed" } else { "rc=0" };
            return self.line(by, format!("cmd=spawn_result {rc} errcodes={}", codes.join(",")));
        }
        let (thread, id) = (self.process(by).spawns.clone(), self.kvsname(Proc { group, rank: 0 }));
        let (count, keys) = (codes.len().to_string(), (0..codes.len()).map(|i| format!("err{i}")));
        let keys: Vec<String> = keys.collect();
        let mut pairs: Vec<(&str, &[u8])> = vec![("rc", if failed { b"-1" } else { b"0" }), ("jobid", &id)];
        pairs.push(("nerrs", count.as_bytes()));
        pairs.extend(keys.iter().zip(&codes).map(|(key, code)| (key.as_str(), code.as_bytes())));
        self.frame(by, "spawn", &thread, &pairs);
    }
}

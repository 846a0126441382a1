//! PMI-2 after the init line, to the letter of MPICH's draft: one frame for each answer, `thrid` after `cmd`, a fence that is a
//! barrier, a positive `rc` for what cannot be done.
//!
//! Where the draft leaves a choice: what was put can be read at once; a key is put once; each name is published once; the id of a
//! job is the name of its keyval space. Requests that only the draft describes are refused.

use std::borrow::Cow;

use pmi_wire::pmi2::{Body, Command, Program, Request, RequestError, Semicolons};
use pmi_wire::{Proc, SpawnProgram};

use super::asked::Asked;
use super::config::{Action, GroupId, GroupSpec};
use super::lifecycle::ProtocolError;
use super::state::{Awaits, Held, Phase, Server};
use crate::reply::FrameReply;

/// The limits that the draft has for keys and values, in bytes.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

/// Most requests of a process that may wait for their answers, so that no client can make a server grow.
const MAX_HELD: usize = 10_000;

/// `rc` of what failed. The draft gives no numbers.
pub const FAILED: i64 = 1;
/// `rc` of a command that is not known, for which the draft names an error code.
const UNKNOWN_COMMAND: i64 = 2;

impl Server {
    /// Reads a frame, and checks that the process may say it now.
    pub(super) fn read_frame<'a>(
        &self,
        from: Proc,
        body: &'a [u8],
    ) -> Result<Option<Asked<'a>>, ProtocolError> {
        let thrid = Request::thrid(body, Semicolons::Doubled).map(Cow::into_owned);
        let unknown = |thrid| {
            let command = Body::parse(body, Semicolons::Doubled).ok().and_then(|body| body.cmd());
            let command = command.map(<[u8]>::to_vec).unwrap_or_default();
            Ok(Some(Asked::UnknownFrame { thrid, command }))
        };
        let request = match Request::parse(body, Semicolons::Doubled) {
            Ok(request) => request,
            Err(RequestError::UnknownCommand) => return unknown(thrid),
            Err(error) => return Err(error.to_string().into()),
        };
        let command = request.command();
        // A part of a request that only the draft has.
        if command.response_name().is_none() && matches!(request, Request::DraftOnly(_)) {
            return Ok(None);
        }
        let process = self.process(from);
        let waits = process.held.iter().any(|held| held.thrid.is_none() || held.thrid == thrid);
        match (process.phase, command) {
            (Phase::Joined, Command::Abort) => {}
            (Phase::Joined, _) if process.held.len() >= MAX_HELD => {
                return Err("too many requests that wait".into());
            }
            (Phase::Joined, _) if waits => return Err("request before the last one is answered".into()),
            (Phase::Joined, Command::Fullinit) if process.has_fullinit => return Err("fullinit twice".into()),
            (Phase::Joined, Command::Fullinit) => {}
            (Phase::Joined, _) if process.has_fullinit => {}
            (Phase::Joined | Phase::New, _) => return Err("request before fullinit".into()),
            (Phase::Finalized | Phase::Closed, _) => return Err("request after finalize".into()),
        }
        match request {
            Request::Ring { .. } => unknown(thrid),
            request => Ok(Some(Asked::Frame { thrid, request })),
        }
    }

    pub(super) fn frame(&mut self, from: Proc, thrid: Option<Vec<u8>>, request: Request<'_>) {
        let command = request.command();
        let reply = || FrameReply::ok(command, thrid.clone());
        let fail = |why: &str| FrameReply::fail(command, thrid.clone(), FAILED, why);
        let done = |done: Result<(), &str>| done.map_or_else(fail, |()| reply());
        let group = from.group as usize;
        let answer = match request {
            Request::Fullinit { authtype: Some(_), .. } => fail("unknown authtype"),
            Request::Fullinit { .. } => self.fullinit(from, reply()),
            Request::Abort { exitcode, .. } => {
                return self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
            }
            Request::Finalize => {
                self.reply_frame(from, reply());
                self.leave(from);
                return self.fail_fence(from.group);
            }
            Request::JobGetid => reply().with("jobid", self.groups[group].kvsname.clone()),
            Request::JobConnect { .. } | Request::JobDisconnect { .. } | Request::DraftOnly(_) => {
                fail("not supported")
            }
            Request::KvsPut { key, value } => {
                done(too_long(&key, &value).map_or_else(|| self.store(from, &key, &value), Err))
            }
            Request::KvsGet { jobid, key, .. } => {
                // Libraries write one that they were not given as an empty one.
                let group = &self.groups[group];
                match jobid.is_none_or(|id| id.is_empty() || *id == *group.kvsname) {
                    true => reply().found(group.kvs.get(&*key)),
                    false => fail("unknown jobid"),
                }
            }
            Request::KvsFence => return self.fence(from, thrid),
            Request::InfoPutnodeattr { key, value } => match too_long(&key, &value) {
                Some(why) => fail(why),
                None => {
                    let node = (self.node(from), key.into_owned());
                    self.groups[group].node.insert(node, value.into_owned());
                    self.reply_frame(from, reply());
                    return self.release_attributes(from.group);
                }
            },
            Request::InfoGetnodeattr { key, wait } => {
                let node = (self.node(from), key.into_owned());
                match self.groups[group].node.get(&node) {
                    None if wait => return self.hold(from, thrid, Awaits::NodeAttribute(node.1)),
                    value => reply().found(value),
                }
            }
            Request::InfoGetjobattr { key } => reply().found(self.job_attribute(from, &key).as_ref()),
            Request::NamePublish { name, port } => done(self.publish(&name, &port)),
            Request::NameLookup { name } => reply().found(self.lookup(&name).ok()),
            Request::NameUnpublish { name } => done(self.unpublish(&name)),
            Request::Spawn { preput, programs } => return self.pmi2_spawn(from, thrid, preput, programs),
            Request::Ring { .. } => return self.unknown_command(from, thrid, command.name().as_bytes()),
        };
        self.reply_frame(from, answer);
    }

    fn fullinit(&mut self, from: Proc, reply: FrameReply) -> FrameReply {
        self.process_mut(from).has_fullinit = true;
        let group = &self.groups[from.group as usize];
        let reply = reply
            .with("pmi-version", "2")
            .with("pmi-subversion", "0")
            .with("rank", from.rank.to_string())
            .with("size", group.procs.len().to_string())
            .with("appnum", group.appnum(from.rank).to_string());
        let reply = match &group.spawner {
            Some(jobid) => reply.with("spawner-jobid", jobid.clone()),
            None => reply,
        };
        reply.with("debugged", "FALSE").with("pmiverbose", "FALSE")
    }

    /// The attributes that the API names, and the mapping that MPICH asks for.
    fn job_attribute(&self, p: Proc, key: &[u8]) -> Option<Vec<u8>> {
        let group = &self.groups[p.group as usize];
        match key {
            b"PMI_process_mapping" => group.kvs.get(key).cloned(),
            b"universeSize" => {
                let size = self.config.universe_size.unwrap_or(group.procs.len() as u64);
                Some(size.to_string().into_bytes())
            }
            b"hasNameServ" => Some(b"YES".to_vec()),
            _ => None,
        }
    }

    /// The draft names an error code for it, and so has it be answered.
    pub(super) fn unknown_command(&mut self, from: Proc, thrid: Option<Vec<u8>>, command: &[u8]) {
        let reply = FrameReply::fail(Command::Fullinit, thrid, UNKNOWN_COMMAND, "unknown command");
        let name = Some([command, b"-response"].concat());
        self.reply_frame(from, FrameReply { name, ..reply });
    }

    /// Holds a request back.
    pub fn hold(&mut self, from: Proc, thrid: Option<Vec<u8>>, what: Awaits) {
        self.process_mut(from).held.push(Held { thrid, what });
    }

    // ----- fence

    /// A fence of the draft: it answers all processes of the job when all are in it.
    fn fence(&mut self, from: Proc, thrid: Option<Vec<u8>>) {
        self.hold(from, thrid, Awaits::Fence);
        if self.groups[from.group as usize].procs.iter().all(|proc| proc.is_in_fence()) {
            self.leave_fence(from.group, true);
        } else {
            self.fail_fence(from.group);
        }
    }

    /// Fails the fence if a process that has left for good would have to enter.
    pub fn fail_fence(&mut self, group: GroupId) {
        let state = &self.groups[group as usize];
        if state.left > 0 && state.procs.iter().any(|proc| proc.is_in_fence()) {
            self.leave_fence(group, false);
        }
    }

    /// Answers all processes that are in the fence.
    pub fn leave_fence(&mut self, group: GroupId, ok: bool) {
        for rank in 0..self.size(group) {
            self.answer_fence(Proc { group, rank }, ok);
        }
    }

    /// Answers one process, if it is in the fence.
    pub fn answer_fence(&mut self, to: Proc, ok: bool) {
        let held = &mut self.process_mut(to).held;
        let Some(at) = held.iter().position(|held| held.what == Awaits::Fence) else { return };
        let thrid = held.remove(at).thrid;
        let reply = match ok {
            true => FrameReply::ok(Command::KvsFence, thrid),
            false => FrameReply::fail(Command::KvsFence, thrid, FAILED, "a process has left the job"),
        };
        self.reply_frame(to, reply);
    }

    /// Answers what waited for an attribute that is there now.
    pub fn release_attributes(&mut self, group: GroupId) {
        for rank in 0..self.size(group) {
            let to = Proc { group, rank };
            let node = self.node(to);
            for held in std::mem::take(&mut self.process_mut(to).held) {
                let value = match &held.what {
                    Awaits::NodeAttribute(key) => {
                        self.groups[group as usize].node.get(&(node, key.clone())).cloned()
                    }
                    _ => None,
                };
                match value {
                    Some(value) => {
                        let reply = FrameReply::ok(Command::InfoGetnodeattr, held.thrid);
                        self.reply_frame(to, reply.found(Some(&value)));
                    }
                    None => self.process_mut(to).held.push(held),
                }
            }
        }
    }

    // ----- spawn

    fn pmi2_spawn(
        &mut self,
        by: Proc,
        thrid: Option<Vec<u8>>,
        preput: Vec<(Vec<u8>, Vec<u8>)>,
        programs: Vec<Program>,
    ) {
        let total = programs.iter().fold(0, |n: u64, p| n.saturating_add(p.maxprocs));
        if let Some(why) = self.refuses_to_start(total) {
            return self.reply_frame(by, FrameReply::fail(Command::Spawn, thrid, FAILED, why));
        }
        let spawner = self.groups[by.group as usize].kvsname.clone();
        let counts = programs.iter().map(|p| p.maxprocs as u32).collect();
        let group = self.add_group(GroupSpec { programs: counts, preput, spawned: true });
        self.groups[group as usize].spawner = Some(spawner);
        self.hold(by, thrid, Awaits::Spawn(group));
        self.spawns.push((group, by));
        let programs = programs.into_iter().map(|program| SpawnProgram {
            nprocs: program.maxprocs,
            execname: program.command,
            args: (0..).zip(program.argv).collect(),
            info: program.info,
            ..SpawnProgram::default()
        });
        self.act(Action::Spawn { group, by, programs: programs.collect() });
    }

    /// Answers the process that asked for a group, if it speaks PMI-2. Returns whether it does.
    pub(super) fn pmi2_spawned(&mut self, by: Proc, group: GroupId, errcodes: &[i64]) -> bool {
        let held = &mut self.process_mut(by).held;
        let Some(at) = held.iter().position(|held| held.what == Awaits::Spawn(group)) else { return false };
        let thrid = held.remove(at).thrid;
        let mut reply = if errcodes.iter().all(|code| *code == 0) {
            let jobid = self.groups[group as usize].kvsname.clone();
            FrameReply::ok(Command::Spawn, thrid).with("jobid", jobid)
        } else {
            self.groups[group as usize].aborted = true;
            FrameReply::fail(Command::Spawn, thrid, FAILED, "spawn failed")
        };
        reply = reply.with("nerrs", errcodes.len().to_string());
        for (i, code) in errcodes.iter().enumerate() {
            reply = reply.with(&format!("err{i}"), code.to_string());
        }
        self.reply_frame(by, reply);
        true
    }
}

fn too_long(key: &[u8], value: &[u8]) -> Option<&'static str> {
    match (key.len() > KEY_MAX, value.len() > VALUE_MAX) {
        (true, _) => Some("key too long"),
        (_, true) => Some("value too long"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::server::Config;

    /// A server whose processes have joined a job of this size on these nodes.
    fn joined(ranks: u32, nodes: u32) -> Server {
        let mut server = Server::new(Config { pmi2: true, nodes, ..Config::default() });
        server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
        for rank in 0..ranks {
            server.receive(Proc { group: 0, rank }, b"cmd=init pmi_version=2 pmi_subversion=0\n");
            let all = say(&mut server, rank, "cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;");
            assert!(all[1].contains(&format!("rank={rank};size={ranks};")), "{all:?}");
        }
        server
    }

    /// Says something, and returns what everybody is told then: rank and body, or what else is done.
    fn say(server: &mut Server, rank: u32, body: &str) -> Vec<String> {
        server.receive(Proc { group: 0, rank }, format!("{:>6}{body}", body.len()).as_bytes());
        let shown = |action| match action {
            Action::Send { to, bytes } => format!("{} {}", to.rank, bytes.escape_ascii()),
            Action::Abort { reason, .. } => format!("abort: {reason}"),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| server.next_action()).map(shown).collect()
    }

    #[test]
    fn a_fence_answers_everybody_when_all_are_in_it() {
        let mut server = joined(2, 1);
        assert_eq!(
            say(&mut server, 0, "cmd=kvs-put;key=k;value=a;;b;"),
            ["0     26cmd=kvs-put-response;rc=0;"]
        );
        assert!(say(&mut server, 0, "cmd=kvs-fence;thrid=7;").is_empty());
        let both = say(&mut server, 1, "cmd=kvs-fence;");
        assert_eq!(
            both,
            ["0     36cmd=kvs-fence-response;thrid=7;rc=0;", "1     28cmd=kvs-fence-response;rc=0;"]
        );
        let got = say(&mut server, 1, "cmd=kvs-get;key=k;");
        assert_eq!(got, ["1     48cmd=kvs-get-response;found=TRUE;value=a;;b;rc=0;"]);
    }

    #[test]
    fn who_waits_for_an_attribute_of_the_node_is_answered_by_it() {
        let mut server = joined(4, 2);
        assert!(say(&mut server, 2, "cmd=info-getnodeattr;key=k;wait=TRUE;").is_empty());
        assert_eq!(say(&mut server, 0, "cmd=info-putnodeattr;key=k;value=v;").len(), 1);
        let told = say(&mut server, 3, "cmd=info-putnodeattr;key=k;value=w;");
        assert_eq!(told.len(), 2);
        assert!(told[1].starts_with("2 ") && told[1].contains("value=w;"), "{told:?}");
    }

    #[rstest]
    #[case("cmd=kvs-get;", "abort: protocol error: the key \"key\" is missing: \"cmd=kvs-get;\"")]
    #[case("cmd=fullinit;", "abort: protocol error: fullinit twice: \"cmd=fullinit;\"")]
    #[case("x", "abort: protocol error: the body does not end in a semicolon: \"x\"")]
    #[case("cmd=abort;isworld=TRUE;", "abort: abort requested")]
    #[case("cmd=nonsense;", "0     50cmd=nonsense-response;rc=2;errmsg=unknown command;")]
    fn what_is_no_request_ends_the_job_and_an_unknown_one_is_refused(#[case] body: &str, #[case] done: &str) {
        assert_eq!(say(&mut joined(1, 1), 0, body), [done]);
    }

    #[test]
    fn threads_without_end_end_the_job() {
        let mut server = joined(1, 1);
        for thread in 0..MAX_HELD {
            let told = say(&mut server, 0, &format!("cmd=info-getnodeattr;thrid={thread};key=k;wait=TRUE;"));
            assert!(told.is_empty(), "{told:?}");
        }
        let told = say(&mut server, 0, "cmd=job-getid;thrid=last;");
        assert!(told[0].starts_with("abort: protocol error: too many requests that wait"), "{told:?}");
    }

    #[rstest]
    #[case(
        "cmd=job-connect;thrid=7;jobid=kvs-0;",
        Some("cmd=job-connect-response;thrid=7;rc=1;errmsg=not supported;")
    )]
    #[case("cmd=kvs-getall;jobid=kvs-0;", Some("cmd=kvs-getall-response;rc=1;errmsg=not supported;"))]
    #[case("cmd=spawn;ncmds=1;preputcount=0;", Some("cmd=spawn-response;rc=1;errmsg=not supported;"))]
    #[case("cmd=spawn-cmd;maxprocs=1;argc=1;argv0=a;", None)]
    #[case("cmd=kvs-put;key=a;concat=9;", None)]
    #[case("cmd=kvs-get;jobid=other;key=a;", Some("cmd=kvs-get-response;rc=1;errmsg=unknown jobid;"))]
    fn requests_of_the_draft_alone_are_refused(#[case] body: &str, #[case] reply: Option<&str>) {
        let replies = say(&mut joined(1, 1), 0, body);
        let bodies: Vec<&str> = replies.iter().map(|reply| &reply["0 ".len() + 6..]).collect();
        assert_eq!(bodies, Vec::from_iter(reply));
    }

    #[test]
    fn pmi2_is_spoken_only_if_the_server_is_set_up_so() {
        let mut server = Server::new(Config::default());
        server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
        server.receive(Proc { group: 0, rank: 0 }, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        let Some(Action::Send { bytes, .. }) = server.next_action() else { panic!("no answer") };
        assert!(bytes.starts_with(b"cmd=response_to_init rc=0 pmi_version=1 "), "{}", bytes.escape_ascii());
    }
}

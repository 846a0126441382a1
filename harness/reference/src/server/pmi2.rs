//! PMI-2 behind the init line, to the letter of MPICH's draft: one frame for each answer, `thrid` behind `cmd`, a fence that is a
//! barrier, a positive `rc` for what cannot be done.
//!
//! Where the draft leaves a choice: what was put can be read at once; a key is put once; each name is published once; the id of a
//! job is the name of its keyval space. Requests that only the draft describes are refused.

use std::borrow::Cow;

use pmi_wire::pmi2::{Body, Command, Program, Request, Semicolons};
use pmi_wire::{Proc, SpawnProgram, place};

use super::config::{Action, GroupId, GroupSpec};
use super::held::{Awaits, Held};
use super::state::{Phase, Server};
use crate::fault::{Effect, Pmi2Effect, ReplyDraft};
use crate::reply::FrameReply;

/// The limits that the draft has for keys and values, in bytes.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

/// Most requests of a process that may wait for their answers, so that nobody can make a server grow.
const HELD_LIMIT: usize = 10_000;

/// `rc` of what failed, and of what is not known. The draft names the second, and gives no numbers.
const FAILED: i64 = 1;
const UNKNOWN_COMMAND: i64 = 2;

impl Server {
    pub(super) fn frame(&mut self, from: Proc, body: &[u8]) {
        let thrid = Request::thrid(body, Semicolons::Doubled).map(Cow::into_owned);
        let request = match Request::parse(body, Semicolons::Doubled) {
            Ok(request) => request,
            Err(pmi_wire::pmi2::RequestError::UnknownCommand) => {
                return self.unknown_command(from, thrid, body);
            }
            Err(error) => return self.protocol_error(from, &error.to_string(), body),
        };
        let command = request.command();
        let has_no_response = command.response_name().is_none();
        if has_no_response && matches!(request, Request::DraftOnly(_)) {
            return;
        }
        let threads = !self.one_at_a_time(from);
        let waits = self
            .proc(from)
            .pmi2
            .held
            .iter()
            .any(|held| !threads || held.thrid.is_none() || held.thrid == thrid);
        let joined = self.proc(from).pmi2.joined;
        match (self.proc(from).phase, command) {
            (Phase::Joined, Command::Abort) => {}
            (Phase::Joined, _) if self.proc(from).pmi2.held.len() >= HELD_LIMIT => {
                return self.protocol_error(from, "too many requests that wait", body);
            }
            (Phase::Joined, _) if waits => {
                return self.protocol_error(from, "request before the last one is answered", body);
            }
            (Phase::Joined, Command::Fullinit) if !joined => {}
            (Phase::Joined, Command::Fullinit) => return self.protocol_error(from, "fullinit twice", body),
            (Phase::Joined, _) if joined => {}
            (Phase::Joined | Phase::New, _) => {
                return self.protocol_error(from, "request before fullinit", body);
            }
            (Phase::Finalized | Phase::Closed, _) => {
                return self.protocol_error(from, "request after finalize", body);
            }
        }
        if self.affected_pmi2(from, &request, thrid.as_deref()) {
            return;
        }
        let reply = |command| FrameReply::ok(command, thrid.clone());
        let fail = |command, why: &str| FrameReply::fail(command, thrid.clone(), FAILED, why);
        let group = from.group as usize;
        let answer = match request {
            Request::Fullinit { authtype: Some(_), .. } => fail(command, "unknown authtype"),
            Request::Fullinit { .. } => self.fullinit(from, thrid.clone()),
            Request::Abort { exitcode, .. } => {
                return self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
            }
            Request::Finalize => {
                self.send_frame(from, reply(command));
                self.proc(from).phase = Phase::Finalized;
                self.groups[group].left += 1;
                return self.fail_fence(from);
            }
            Request::JobGetid => {
                let jobid = self.groups[group].kvsname.clone();
                reply(command).with("jobid", jobid)
            }
            Request::JobConnect { .. } | Request::JobDisconnect { .. } | Request::DraftOnly(_) => {
                fail(command, "not supported")
            }
            Request::KvsPut { key, value } => match Self::too_long(&key, &value) {
                Some(why) => fail(command, why),
                None if self.groups[group].kvs.contains_key(&*key) => fail(command, "key is there already"),
                None => {
                    self.groups[group].kvs.insert(key.into_owned(), value.into_owned());
                    reply(command)
                }
            },
            Request::KvsGet { jobid, key, .. } => {
                // Libraries write one that they were not given as an empty one.
                let group = &self.groups[group];
                match jobid.is_none_or(|id| id.is_empty() || *id == *group.kvsname) {
                    true => Self::found(reply(command), group.kvs.get(&*key)),
                    false => fail(command, "unknown jobid"),
                }
            }
            Request::KvsFence => {
                let process = &mut self.proc(from).pmi2;
                process.fences += 1;
                process.held.push(Held { thrid, what: Awaits::Fence });
                return self.fence(from);
            }
            Request::InfoPutnodeattr { key, value } => match Self::too_long(&key, &value) {
                Some(why) => fail(command, why),
                None => {
                    let node = (self.node(from), key.into_owned());
                    self.groups[group].node.insert(node, value.into_owned());
                    self.send_frame(from, reply(command));
                    return self.release_attributes(from.group);
                }
            },
            Request::InfoGetnodeattr { key, wait } => {
                let node = (self.node(from), key.into_owned());
                match self.groups[group].node.get(&node) {
                    None if wait => {
                        let what = Awaits::NodeAttribute(node.1);
                        return self.proc(from).pmi2.held.push(Held { thrid, what });
                    }
                    value => Self::found(reply(command), value),
                }
            }
            Request::InfoGetjobattr { key } => {
                let value = self.job_attribute(from, &key);
                Self::found(reply(command), value.as_ref())
            }
            Request::NamePublish { name, port } => match self.names.contains_key(&*name) {
                true => fail(command, "name is published already"),
                false => {
                    self.names.insert(name.into_owned(), port.into_owned());
                    reply(command)
                }
            },
            Request::NameLookup { name } => Self::found(reply(command), self.names.get(&*name)),
            Request::NameUnpublish { name } => match self.names.remove(&*name) {
                Some(_) => reply(command),
                None => fail(command, "name is not published"),
            },
            Request::Spawn { preput, programs } => return self.pmi2_spawn(from, thrid, preput, programs),
            Request::Ring { .. } => return self.unknown_command(from, thrid, body),
        };
        self.send_frame(from, answer);
    }

    fn fullinit(&mut self, from: Proc, thrid: Option<Vec<u8>>) -> FrameReply {
        self.proc(from).pmi2.joined = true;
        let group = &self.groups[from.group as usize];
        let spawner = group.spawner.clone();
        let reply = FrameReply::ok(Command::Fullinit, thrid)
            .with("pmi-version", "2")
            .with("pmi-subversion", "0")
            .with("rank", from.rank.to_string())
            .with("size", group.procs.len().to_string())
            .with("appnum", group.appnum(from.rank).to_string());
        let reply = match spawner {
            Some(jobid) => reply.with("spawner-jobid", jobid),
            None => reply,
        };
        reply.with("debugged", "FALSE").with("pmiverbose", "FALSE")
    }

    /// A value, or that there is none. The draft has it be `flag`; what all implementations write is `found`.
    fn found(reply: FrameReply, value: Option<&Vec<u8>>) -> FrameReply {
        match value {
            Some(value) => reply.with("found", "TRUE").with("value", value.clone()),
            None => reply.with("found", "FALSE"),
        }
    }

    fn too_long(key: &[u8], value: &[u8]) -> Option<&'static str> {
        match (key.len() > KEY_MAX, value.len() > VALUE_MAX) {
            (true, _) => Some("key too long"),
            (_, true) => Some("value too long"),
            _ => None,
        }
    }

    fn node(&self, p: Proc) -> u32 {
        place(self.size(p.group), self.config.nodes).get(p.rank as usize).copied().unwrap_or(0)
    }

    /// What the API names, and the mapping that MPICH asks for.
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
    fn unknown_command(&mut self, from: Proc, thrid: Option<Vec<u8>>, body: &[u8]) {
        let cmd = Body::parse(body, Semicolons::Doubled).ok().and_then(|body| body.cmd());
        let name = [cmd.unwrap_or_default(), b"-response"].concat();
        let mut reply = FrameReply::fail(Command::Fullinit, thrid, UNKNOWN_COMMAND, "unknown command");
        reply.name = Some(name);
        self.send_frame(from, reply);
    }

    // ----- fence

    fn fence(&mut self, from: Proc) {
        let group = &self.groups[from.group as usize];
        if group.procs.iter().all(|proc| proc.pmi2.is_in_fence()) {
            self.leave_fence(from.group, true);
        } else {
            self.fail_fence(from);
        }
    }

    /// A process that has left for good will never enter.
    pub(super) fn fail_fence(&mut self, by: Proc) {
        let group = &self.groups[by.group as usize];
        if group.left > 0 && group.procs.iter().any(|proc| proc.pmi2.is_in_fence()) {
            self.leave_fence(by.group, false);
        }
    }

    fn leave_fence(&mut self, group: GroupId, ok: bool) {
        for rank in 0..self.size(group) {
            self.answer_fence(Proc { group, rank }, ok);
        }
    }

    fn answer_fence(&mut self, to: Proc, ok: bool) {
        let held = &mut self.proc(to).pmi2.held;
        let Some(at) = held.iter().position(|held| held.what == Awaits::Fence) else { return };
        let thrid = held.remove(at).thrid;
        let reply = match ok {
            true => FrameReply::ok(Command::KvsFence, thrid),
            false => FrameReply::fail(Command::KvsFence, thrid, FAILED, "a process has left the job"),
        };
        self.send_frame(to, reply);
    }

    /// Answers what waited for an attribute that is there now.
    fn release_attributes(&mut self, group: GroupId) {
        for rank in 0..self.size(group) {
            let to = Proc { group, rank };
            let node = self.node(to);
            let held = std::mem::take(&mut self.proc(to).pmi2.held);
            for held in held {
                let value = match &held.what {
                    Awaits::NodeAttribute(key) => {
                        self.groups[group as usize].node.get(&(node, key.clone())).cloned()
                    }
                    _ => None,
                };
                match value {
                    Some(value) => {
                        let reply = FrameReply::ok(Command::InfoGetnodeattr, held.thrid);
                        self.send_frame(to, Self::found(reply, Some(&value)));
                    }
                    None => self.proc(to).pmi2.held.push(held),
                }
            }
        }
    }

    // ----- spawn

    fn pmi2_spawn(
        &mut self,
        by: Proc,
        thrid: Option<Vec<u8>>,
        mut preput: Vec<(Vec<u8>, Vec<u8>)>,
        mut programs: Vec<Program>,
    ) {
        match self.pmi2_effect(by) {
            Some(Pmi2Effect::SpawnOneTooFew) => {
                programs
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|p| p.maxprocs = p.maxprocs.saturating_sub(1));
            }
            Some(Pmi2Effect::SpawnNoPreput) => preput.clear(),
            Some(Pmi2Effect::SpawnFirstProgramOnly) => programs.truncate(1),
            Some(Pmi2Effect::SpawnNoArguments) => programs.iter_mut().for_each(|p| p.argv.clear()),
            _ => {}
        }
        let total = programs.iter().fold(0, |n: u64, p| n.saturating_add(p.maxprocs));
        let refused = if total == 0 {
            "no processes asked for"
        } else if total > self.config.spawn_max {
            "too many processes asked for"
        } else {
            let spawner = self.groups[by.group as usize].kvsname.clone();
            let counts = programs.iter().map(|p| p.maxprocs as u32).collect();
            let group = self.add_group(GroupSpec { programs: counts, preput, spawned: true });
            self.groups[group as usize].spawner = Some(spawner);
            self.proc(by).pmi2.held.push(Held { thrid, what: Awaits::Spawn(group) });
            self.spawns.push((group, by));
            let programs = programs.into_iter().map(|program| SpawnProgram {
                nprocs: program.maxprocs,
                execname: program.command,
                args: (0..).zip(program.argv).collect(),
                info: program.info,
                ..SpawnProgram::default()
            });
            self.actions.push_back(Action::Spawn { group, by, programs: programs.collect() });
            return;
        };
        self.send_frame(by, FrameReply::fail(Command::Spawn, thrid, FAILED, refused));
    }

    /// Whether it was a process that speaks PMI-2 who asked for the group; then it is told what came of it.
    pub(super) fn pmi2_spawned(&mut self, by: Proc, group: GroupId, errcodes: &[i64]) -> bool {
        let held = &mut self.proc(by).pmi2.held;
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
            reply.fields.push((format!("err{i}"), code.to_string().into_bytes()));
        }
        self.send_frame(by, reply);
        true
    }

    // ----- replies and effects

    fn send_frame(&mut self, to: Proc, reply: FrameReply) {
        let mut draft = ReplyDraft::frame(to, &reply);
        let (command, ok) = (reply.command, reply.rc == 0);
        let pick = |e: &Effect| match e {
            Effect::FrameReply(which, f) if which.fits(command, ok) => Some(*f),
            _ => None,
        };
        self.each_effect(to, pick, |edit, circumstances| {
            edit.apply(&mut draft, circumstances);
        });
        let pick = |e: &Effect| match e {
            Effect::FrameWrites(which, f) if which.fits(command, ok) => Some(*f),
            _ => None,
        };
        self.send_draft(to, draft, ok, pick);
    }

    fn pmi2_effect(&mut self, from: Proc) -> Option<Pmi2Effect> {
        self.effect(from, |e| if let Effect::Pmi2(f) = e { Some(*f) } else { None })
    }

    fn one_at_a_time(&mut self, from: Proc) -> bool {
        let pick = |e: &Effect| matches!(e, Effect::Pmi2(Pmi2Effect::OneAtATime)).then_some(());
        self.effect(from, pick).is_some()
    }

    /// Whether an effect has dealt with the request.
    fn affected_pmi2(&mut self, from: Proc, request: &Request<'_>, thrid: Option<&[u8]>) -> bool {
        if self.effects.is_none() {
            return false;
        }
        let relevant = |effect: Pmi2Effect| effect.command() == Some(request.command());
        let pick =
            |e: &Effect| if let Effect::Pmi2(f) = e { Some(*f).filter(|f| relevant(*f)) } else { None };
        let Some(effect) = self.effect(from, pick) else { return self.held_for_fence(from, request, thrid) };
        let thrid = thrid.map(<[u8]>::to_vec);
        let command = request.command();
        let number = from.group as usize;
        let ok = || FrameReply::ok(command, thrid.clone());
        let (size, node) = (self.size(from.group), self.node(from));
        let answer = match (effect, request) {
            (Pmi2Effect::PutLost, _) => ok(),
            (Pmi2Effect::PutReplaces, Request::KvsPut { key, value }) => {
                self.groups[number].kvs.insert(key.to_vec(), value.to_vec());
                ok()
            }
            (Pmi2Effect::PutIntoAllJobs, Request::KvsPut { key, value }) => {
                for group in &mut self.groups {
                    group.kvs.insert(key.to_vec(), value.to_vec());
                }
                ok()
            }
            (Pmi2Effect::GetOwnOnly, Request::KvsGet { .. }) if from.rank > 0 => Self::found(ok(), None),
            (Pmi2Effect::GetBelievesHint, Request::KvsGet { srcid: Some(id), .. })
                if *id >= 0 && *id != i64::from(from.rank) =>
            {
                Self::found(ok(), None)
            }
            (Pmi2Effect::GetOneFenceLate, Request::KvsGet { .. }) if self.proc(from).pmi2.fences < 2 => {
                Self::found(ok(), None)
            }
            (Pmi2Effect::GetConsumes, Request::KvsGet { key, .. }) if !super::state::own_key(key) => {
                let value = self.groups[number].kvs.remove(&**key);
                Self::found(ok(), value.as_ref())
            }
            (Pmi2Effect::GetPrefix, Request::KvsGet { key, .. }) => {
                let kvs = &self.groups[number].kvs;
                let found = kvs.get(&**key).or_else(|| {
                    kvs.iter().find(|(k, _)| key.starts_with(k) || k.starts_with(key)).map(|(_, v)| v)
                });
                Self::found(ok(), found)
            }
            (Pmi2Effect::GetWaits, Request::KvsGet { key, .. })
                if !self.groups[number].kvs.contains_key(&**key) =>
            {
                return true;
            }
            (Pmi2Effect::FenceAtOnce | Pmi2Effect::FenceAtOnceAndGetsWait, _) => {
                self.proc(from).pmi2.fences += 1;
                self.send_frame(from, ok());
                self.release_keys(from.group);
                return true;
            }
            (Pmi2Effect::FenceNever, _) => {
                self.proc(from).pmi2.held.push(Held { thrid, what: Awaits::Fence });
                return true;
            }
            (Pmi2Effect::FenceShort, _) => {
                self.proc(from).pmi2.held.push(Held { thrid, what: Awaits::Fence });
                let inside = self.groups[number].procs.iter().filter(|proc| proc.pmi2.is_in_fence()).count();
                if inside as u32 + 1 >= size {
                    self.leave_fence(from.group, true);
                }
                return true;
            }
            (Pmi2Effect::FenceLeavesOutLast, _) => {
                self.proc(from).pmi2.held.push(Held { thrid, what: Awaits::Fence });
                if self.groups[number].procs.iter().all(|proc| proc.pmi2.is_in_fence()) {
                    for rank in 0..size.max(2) - 1 {
                        self.answer_fence(Proc { rank, ..from }, true);
                    }
                }
                return true;
            }
            (Pmi2Effect::FenceWipes, _) => {
                self.groups[number].kvs.retain(|key, _| super::state::own_key(key));
                return false;
            }
            (Pmi2Effect::NodePutLost, _) => ok(),
            (Pmi2Effect::NodePutEverywhere, Request::InfoPutnodeattr { key, value }) => {
                for node in 0..self.config.nodes {
                    self.groups[number].node.insert((node, key.to_vec()), value.to_vec());
                }
                self.send_frame(from, ok());
                self.release_attributes(from.group);
                return true;
            }
            (Pmi2Effect::NodePutReleasesNobody, Request::InfoPutnodeattr { key, value }) => {
                self.groups[number].node.insert((node, key.to_vec()), value.to_vec());
                ok()
            }
            (Pmi2Effect::NodeGetNeverWaits, Request::InfoGetnodeattr { key, .. }) => {
                let value = self.groups[number].node.get(&(node, key.to_vec())).cloned();
                Self::found(ok(), value.as_ref())
            }
            (Pmi2Effect::NodeGetAlwaysWaits, Request::InfoGetnodeattr { key, .. })
                if !self.groups[number].node.contains_key(&(node, key.to_vec())) =>
            {
                return true;
            }
            (Pmi2Effect::NodeGetOwnOnly, Request::InfoGetnodeattr { .. }) if from.rank > 0 => {
                Self::found(ok(), None)
            }
            (Pmi2Effect::NameLost, _) | (Pmi2Effect::NameStays, _) => ok(),
            (Pmi2Effect::NameOwnOnly, _) if from.rank > 0 => {
                FrameReply::fail(command, thrid, FAILED, "name is not published")
            }
            (Pmi2Effect::SpawnNothing, _) => ok(),
            (Pmi2Effect::AbortIgnored, _) => return true,
            (Pmi2Effect::AbortSenderOnly, _) => {
                self.end_some(from.group, |rank, _| rank == from.rank);
                return true;
            }
            (Pmi2Effect::AbortSparesLast, _) => {
                self.end_some(from.group, |rank, _| rank + 1 < size);
                return true;
            }
            (Pmi2Effect::FinalizeEndsGroup, _) => {
                self.send_frame(from, ok());
                self.end_some(from.group, |rank, _| rank != from.rank);
                self.proc(from).phase = Phase::Finalized;
                return true;
            }
            (Pmi2Effect::FinalizeStopsServing, _) => {
                self.effect_state().mute = true;
                return false;
            }
            _ => return false,
        };
        self.send_frame(from, answer);
        true
    }

    /// A server whose fence does not block holds back the answer to a get until all have entered it.
    fn held_for_fence(&mut self, from: Proc, request: &Request<'_>, thrid: Option<&[u8]>) -> bool {
        let Request::KvsGet { key, jobid, .. } = request else { return false };
        if jobid.as_deref().is_some_and(|id| self.groups[from.group as usize].kvsname != id) {
            return false;
        }
        let pick = |e: &Effect| matches!(e, Effect::Pmi2(Pmi2Effect::FenceAtOnceAndGetsWait)).then_some(());
        if self.effect(from, pick).is_none() || self.all_fenced(from) {
            return false;
        }
        let held = Held { thrid: thrid.map(<[u8]>::to_vec), what: Awaits::Key(key.to_vec()) };
        self.proc(from).pmi2.held.push(held);
        true
    }

    fn all_fenced(&mut self, p: Proc) -> bool {
        let fences = self.proc(p).pmi2.fences;
        self.groups[p.group as usize].procs.iter().all(|proc| proc.pmi2.fences >= fences)
    }

    fn release_keys(&mut self, group: GroupId) {
        for rank in 0..self.size(group) {
            let to = Proc { group, rank };
            if !self.all_fenced(to) {
                continue;
            }
            for held in std::mem::take(&mut self.proc(to).pmi2.held) {
                match &held.what {
                    Awaits::Key(key) => {
                        let value = self.groups[group as usize].kvs.get(key).cloned();
                        let reply = FrameReply::ok(Command::KvsGet, held.thrid);
                        self.send_frame(to, Self::found(reply, value.as_ref()));
                    }
                    _ => self.proc(to).pmi2.held.push(held),
                }
            }
        }
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
        for thread in 0..HELD_LIMIT {
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

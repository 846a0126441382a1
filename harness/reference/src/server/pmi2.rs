//! PMI-2 behind the init line, to the letter of MPICH's draft: one frame for each answer, `thrid` behind `cmd`, a fence that is a
//! barrier, a positive `rc` for what cannot be done.
//!
//! Where the draft leaves a choice: what was put can be read at once; a key is put once; each name is published once; the id of a
//! job is the name of its keyval space; a job whose id is known can be connected to and needs no help with its values, though pairs that
//! are brought for it are kept. Who asks to be authenticated by a challenge is; nobody has to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pmi_wire::pmi2::{
    Body, CHALLENGE_SHA256, Command, ConcatError, Program, Request, Semicolons, Series, SeriesError, Whole,
    challenge_answer,
};
use pmi_wire::{Proc, SpawnProgram, place};

use super::config::{Action, GroupId, GroupSpec};
use super::held::{Awaits, Challenge, Held};
use super::state::{Phase, Server};
use crate::behaviour::{Effect, Pmi2Effect, ReplyDraft};
use crate::reply::FrameReply;

/// The limits that the draft has for keys and values, in bytes.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

/// Most requests of a process that may wait for their answers, so that nobody can make a server grow.
const HELD_LIMIT: usize = 10_000;

/// Most series of messages, and most bytes of them, that a process may leave incomplete.
const SERIES_LIMIT: usize = 1000;
const SERIES_BYTES: usize = 8 << 20;

/// `rc` of what failed, and of what is not known. The draft names the second, and gives no numbers.
const FAILED: i64 = 1;
const UNKNOWN_COMMAND: i64 = 2;

impl Server {
    pub(super) fn frame(&mut self, from: Proc, body: &[u8]) {
        match self.put_together(from, body) {
            Ok(Some(whole)) => self.command(from, &whole),
            Ok(None) => {}
            Err(error) => self.protocol_error(from, &error.to_string(), body),
        }
    }

    /// A command, in however many messages it came.
    fn command(&mut self, from: Proc, body: &[u8]) {
        let thrid = Request::thrid(body, Semicolons::Doubled).map(Cow::into_owned);
        let request = match Request::parse(body, Semicolons::Doubled) {
            Ok(request) => request,
            Err(pmi_wire::pmi2::RequestError::UnknownCommand) => {
                return self.unknown_command(from, thrid, body);
            }
            Err(error) => return self.protocol_error(from, &error.to_string(), body),
        };
        let command = request.command();
        if self.continues(from, thrid.as_deref(), &request, body) {
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
            (Phase::Joined, Command::Fullinit) if !joined && self.proc(from).pmi2.challenge.is_none() => {}
            (Phase::Joined, Command::AuthResponse | Command::AuthResponseComplete)
                if self.proc(from).pmi2.challenge.is_some() => {}
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
        match Series::begun_by(&request) {
            Some(Ok(series)) => return self.gather(from, thrid, series),
            Some(Err(error)) => return self.protocol_error(from, &error.to_string(), body),
            None => {}
        }
        let reply = |command| FrameReply::ok(command, thrid.clone());
        let fail = |command, why: &str| FrameReply::fail(command, thrid.clone(), FAILED, why);
        let group = from.group as usize;
        let answer = match request {
            Request::Fullinit { authtype: Some(authtype), .. } => match &*authtype {
                CHALLENGE_SHA256 => return self.challenge(from, thrid),
                _ => fail(command, "unknown authtype"),
            },
            Request::Fullinit { .. } => self.fullinit(from, thrid.clone()),
            Request::Auth { authinfo, complete } => return self.authenticate(from, &authinfo, complete),
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
            Request::JobConnect { jobid } => match self.job(&jobid) {
                _ if self.has(from, Pmi2Effect::ConnectUnknown) => reply(command).with("kvscopy", "no"),
                Some(_) => {
                    if self.has(from, Pmi2Effect::ConnectOne) {
                        self.proc(from).pmi2.connected.clear();
                    }
                    let copy = self.has(from, Pmi2Effect::ConnectNeedsCopy);
                    let connected = &mut self.proc(from).pmi2.connected;
                    if !connected.iter().any(|id| *id == *jobid) {
                        connected.push(jobid.into_owned());
                    }
                    reply(command).with("kvscopy", if copy { "yes" } else { "no" })
                }
                None => fail(command, "unknown jobid"),
            },
            Request::JobDisconnect { jobid } => {
                let keeps = self.has(from, Pmi2Effect::DisconnectKeeps);
                let all = self.has(from, Pmi2Effect::DisconnectAll);
                let connected = &mut self.proc(from).pmi2.connected;
                match connected.iter().position(|id| *id == *jobid) {
                    Some(_) if keeps => reply(command),
                    Some(_) if all => {
                        connected.clear();
                        reply(command)
                    }
                    Some(at) => {
                        connected.swap_remove(at);
                        reply(command)
                    }
                    None => fail(command, "not connected"),
                }
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
                let named = jobid.as_deref().filter(|id| !id.is_empty());
                match named.map_or(Some(group), |id| self.readable_job(from, id)) {
                    None => fail(command, "not connected with this job"),
                    Some(job) => {
                        let brought =
                            jobid.and_then(|id| self.groups[group].brought.get(&*id)?.get(&*key)).cloned();
                        let apart = job != group && self.has(from, Pmi2Effect::ConnectNeedsCopy);
                        let own = job != group && self.has(from, Pmi2Effect::ConnectReadsOwn);
                        let job = if own { group } else { job };
                        let value = self.groups[job].kvs.get(&*key).filter(|_| !apart);
                        Self::found(reply(command), value.or(brought.as_ref()))
                    }
                }
            }
            Request::KvsGetall { jobid } => match self.readable_job(from, &jobid) {
                Some(job) => {
                    self.tell_all(from, thrid.as_deref(), job, &jobid);
                    reply(command)
                }
                None => fail(command, "not connected with this job"),
            },
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
            // What begins a series is gathered above, and what belongs to none, or goes on with nothing, is an error.
            Request::SpawnHead { .. }
            | Request::SpawnCmd(_)
            | Request::KvsPutall { .. }
            | Request::KvsPutallPair { .. }
            | Request::Concat { .. } => {
                return self.protocol_error(from, "it goes on with nothing that has begun", body);
            }
        };
        self.send_frame(from, answer);
    }

    /// The job of this id, if the process may read its values: its own, or one that it has connected with.
    fn readable_job(&mut self, p: Proc, id: &[u8]) -> Option<usize> {
        let group = p.group as usize;
        if self.groups[group].kvsname == id {
            return Some(group);
        }
        if self.has(p, Pmi2Effect::ConnectNeedless) {
            return self.job(id);
        }
        let process = &self.groups[group].procs[p.rank as usize].pmi2;
        process.connected.iter().any(|connected| connected == id).then(|| self.job(id)).flatten()
    }

    /// How many pairs a job has, and each of them.
    fn tell_all(&mut self, to: Proc, thrid: Option<&[u8]>, job: usize, jobid: &[u8]) {
        let apart = job != to.group as usize && self.has(to, Pmi2Effect::ConnectNeedsCopy);
        let job = if self.has(to, Pmi2Effect::GetallReadsOwn) { to.group as usize } else { job };
        let some = self.has(to, Pmi2Effect::GetallSome);
        let lost = self.has(to, Pmi2Effect::GetallPairLost);
        let count_last = self.has(to, Pmi2Effect::GetallCountLast);
        let backwards = self.has(to, Pmi2Effect::GetallBackwards);
        let brought = self.groups[to.group as usize].brought.get(jobid);
        let mut pairs: BTreeMap<_, _> = brought.into_iter().flatten().collect();
        if !apart {
            pairs.extend(&self.groups[job].kvs);
        }
        let mut pairs: Vec<_> = pairs.into_iter().take(if some { 32 } else { usize::MAX }).collect();
        let part = |name| FrameReply::part(Command::KvsGetall, name, thrid.map(<[u8]>::to_vec));
        let count = part("kvs-getall-paircount-response").with("npair", pairs.len().to_string());
        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            part("kvs-getall-pair-response").with("key", key.clone()).with("val", value.clone())
        };
        if lost {
            pairs.pop();
        }
        let mut told: Vec<FrameReply> = std::iter::once(count).chain(pairs.into_iter().map(pair)).collect();
        if count_last {
            told.rotate_left(1);
        }
        if backwards {
            told[1..].reverse();
        }
        for reply in told {
            self.send_frame(to, reply);
        }
    }

    // ----- requests of several messages

    /// The whole command, if this message is all of it or the end of it.
    fn put_together<'b>(&mut self, from: Proc, body: &'b [u8]) -> Result<Option<Cow<'b, [u8]>>, ConcatError> {
        if self.effects.is_some() && contains(body, b"concat") {
            return self.affected_piece(from, body).map(|whole| whole.map(Cow::Owned));
        }
        self.proc(from).pmi2.concat.push(body, Semicolons::Doubled)
    }

    /// Whether a request is dealt with as a part of one that has begun. The messages of a spawn follow each other; those of others
    /// have their `thrid` to tell them by.
    fn continues(&mut self, from: Proc, thrid: Option<&[u8]>, request: &Request<'_>, body: &[u8]) -> bool {
        let series = &mut self.proc(from).pmi2.series;
        if series.is_empty() || request.command() == Command::Abort {
            return false;
        }
        let place = series.iter().position(|(own, _)| own.as_deref() == thrid);
        let spawns = series.iter().any(|(_, series)| series.is_spawn());
        let (own, mut series) = match place {
            Some(place) => series.swap_remove(place),
            None if spawns || thrid.is_none() => {
                self.protocol_error(from, &SeriesError::Other.to_string(), body);
                return true;
            }
            None => return false,
        };
        let early = match series.is_spawn() {
            true => (Command::Spawn, Pmi2Effect::SpawnCmdEarly),
            false => (Command::KvsPutall, Pmi2Effect::PutallEarly),
        };
        if self.has(from, early.1) {
            self.send_frame(from, FrameReply::ok(early.0, own.clone()));
        }
        match series.push(request) {
            Ok(()) => self.gather(from, own, series),
            Err(error) => self.protocol_error(from, &error.to_string(), body),
        }
        true
    }

    /// Does what a series asks for if all of it is there, and keeps it otherwise.
    fn gather(&mut self, from: Proc, thrid: Option<Vec<u8>>, series: Series) {
        match series.finish() {
            Err(series) => {
                let open = &mut self.proc(from).pmi2.series;
                open.push((thrid, series));
                let kept: usize = open.iter().map(|(_, series)| series.kept()).sum();
                if open.len() > SERIES_LIMIT || kept > SERIES_BYTES {
                    self.protocol_error(from, "too much that is not complete", b"");
                }
            }
            Ok(Whole::Spawn { mut preput, mut programs }) => {
                self.affect_series(from, &mut preput, &mut programs);
                self.pmi2_spawn(from, thrid, preput, programs);
            }
            Ok(Whole::Putall { jobid, pairs }) => {
                let command = Command::KvsPutall;
                let reply = match self.bring(from, jobid, pairs) {
                    Ok(()) => FrameReply::ok(command, thrid),
                    Err(why) => FrameReply::fail(command, thrid, FAILED, why),
                };
                self.send_frame(from, reply);
            }
        }
    }

    /// Keeps the pairs of another job.
    fn bring(&mut self, p: Proc, jobid: Vec<u8>, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), &'static str> {
        let own = self.groups[p.group as usize].kvsname == jobid;
        if self.has(p, Pmi2Effect::PutallRefused) {
            return Err("no help is needed");
        }
        if own || self.readable_job(p, &jobid).is_none() {
            return Err("not connected with this job");
        }
        if let Some(why) = pairs.iter().find_map(|(key, value)| Self::too_long(key, value)) {
            return Err(why);
        }
        let mut pairs = pairs;
        if self.has(p, Pmi2Effect::PutallLost) {
            pairs.clear();
        }
        if self.has(p, Pmi2Effect::PutallLastLost) {
            pairs.pop();
        }
        let replaces = self.has(p, Pmi2Effect::PutallReplaces);
        let into_own = self.has(p, Pmi2Effect::PutallIntoOwn);
        let group = &mut self.groups[p.group as usize];
        let brought = if into_own { &mut group.kvs } else { group.brought.entry(jobid).or_default() };
        if replaces {
            brought.clear();
        }
        brought.extend(pairs);
        Ok(())
    }

    // ----- authentication

    /// Asks a process to prove that it knows the secret, before its fullinit is answered.
    fn challenge(&mut self, from: Proc, thrid: Option<Vec<u8>>) {
        if self.has(from, Pmi2Effect::AuthNotAsked) {
            let reply = self.fullinit(from, thrid);
            return self.send_frame(from, reply);
        }
        self.challenges += u64::from(!self.has(from, Pmi2Effect::AuthSameNumber));
        let text = format!("{}/{}", self.config.seed, self.challenges);
        let hash = challenge_answer(&self.config.secret, text.as_bytes());
        // It has 60 bits, so that it is an integer to everybody.
        let number = u64::from_str_radix(&hash[..15], 16).unwrap_or_default();
        let number = match () {
            () if self.has(from, Pmi2Effect::AuthNoInteger) => format!("{number:#x}"),
            () if self.has(from, Pmi2Effect::AuthNegative) => format!("-{number}"),
            () => number.to_string(),
        };
        let reply = FrameReply::part(Command::Fullinit, "auth-response", thrid.clone());
        self.send_frame(from, reply.with("authinfo", number.clone()));
        self.proc(from).pmi2.challenge = Some(Challenge { thrid, number });
    }

    /// Answers the fullinit of a process that has proved to know the secret. Any other is left alone: by the draft its connection is
    /// closed.
    fn authenticate(&mut self, from: Proc, authinfo: &[u8], complete: bool) {
        let Some(Challenge { thrid, number }) = self.proc(from).pmi2.challenge.take() else { return };
        let right = self.is_proof(from, &number, authinfo);
        if right && self.has(from, Pmi2Effect::AuthNoAnswer) {
            return;
        }
        if complete && right {
            let reply = self.fullinit(from, thrid);
            return self.send_frame(from, reply);
        }
        if self.has(from, Pmi2Effect::AuthRefusesByCode) {
            let reply = FrameReply::fail(Command::Fullinit, thrid, FAILED, "not authenticated");
            return self.send_frame(from, reply);
        }
        self.proc(from).phase = Phase::Closed;
        self.groups[from.group as usize].left += 1;
        self.actions.push_back(Action::Close { proc: from, end: false });
        self.fail_fence(from);
    }

    /// Whether this is the hash of the secret and the number, in digits of either case.
    fn is_proof(&mut self, from: Proc, number: &str, authinfo: &[u8]) -> bool {
        let secret = self.config.secret.clone();
        let due = match self.has(from, Pmi2Effect::AuthNumberFirst) {
            true => challenge_answer(number.as_bytes(), &secret),
            false => challenge_answer(&secret, number.as_bytes()),
        };
        if self.has(from, Pmi2Effect::AuthOthersAnswer) {
            let group = &self.groups[from.group as usize];
            let others = group.procs.iter().filter_map(|proc| proc.pmi2.challenge.as_ref());
            let mut due = others.map(|other| challenge_answer(&secret, other.number.as_bytes()));
            if due.any(|due| due.as_bytes() == authinfo) {
                return true;
            }
        }
        self.has(from, Pmi2Effect::AuthAnyAnswer)
            || (authinfo.is_empty() && self.has(from, Pmi2Effect::AuthEmptyAnswer))
            || authinfo.eq_ignore_ascii_case(due.as_bytes())
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

    fn job(&self, jobid: &[u8]) -> Option<usize> {
        self.groups.iter().position(|group| group.kvsname == jobid && !group.aborted)
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
        let mut draft = ReplyDraft::frame(to, self.size(to.group), &reply);
        let (command, ok) = (reply.command, reply.rc == 0);
        let pick = |e: &Effect| match e {
            Effect::FrameReply(which, f) if which.fits(command, ok) => Some(*f),
            _ => None,
        };
        self.each_effect(to, pick, |edit, count| {
            draft.count = count;
            edit(&mut draft);
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

    /// Whether it has this effect, and this is the occasion.
    fn has(&mut self, from: Proc, effect: Pmi2Effect) -> bool {
        let pick = |e: &Effect| matches!(e, Effect::Pmi2(other) if *other == effect).then_some(());
        self.effect(from, pick).is_some()
    }

    /// What becomes of a message that may be one of several of a command.
    fn affected_piece(&mut self, from: Proc, body: &[u8]) -> Result<Option<Vec<u8>>, ConcatError> {
        let Ok(read) = Body::parse(body, Semicolons::Doubled) else { return Ok(Some(body.to_vec())) };
        let goes_on = read.cmd() == Some(b"concat");
        let more = read.tuples().last().is_some_and(|tuple| tuple.key == b"concat");
        let joined = self.proc(from).pmi2.joined;
        if self.has(from, Pmi2Effect::ConcatFirstPiece)
            || (!joined && self.has(from, Pmi2Effect::ConcatNotBeforeFullinit))
        {
            return Ok(Some(body.to_vec()));
        }
        let one_stream = self.has(from, Pmi2Effect::ConcatOneStream);
        let drops = goes_on && more && self.has(from, Pmi2Effect::ConcatDropsMiddle);
        let mut changed = Vec::new();
        for tuple in read.tuples() {
            let tie = matches!(tuple.key, b"cmd" | b"concat" | b"concatid");
            if drops && !tie {
                continue;
            }
            changed.extend_from_slice(tuple.key);
            changed.push(b'=');
            changed.extend_from_slice(match tuple.key {
                b"concat" | b"concatid" if one_stream => b"0",
                _ => tuple.value,
            });
            changed.push(b';');
        }
        if more && self.has(from, Pmi2Effect::ConcatAnswersPieces) {
            let command = read.cmd().and_then(Command::from_name).unwrap_or(Command::JobGetid);
            self.send_frame(from, FrameReply::ok(command, None));
        }
        let whole = self.proc(from).pmi2.concat.push(&changed, Semicolons::Doubled)?.map(Cow::into_owned);
        match whole.as_ref().is_some_and(|whole| whole.len() > 4096)
            && self.has(from, Pmi2Effect::ConcatShort)
        {
            true => Err(ConcatError::TooLong),
            false => Ok(whole),
        }
    }

    /// What becomes of a spawn whose programs came in messages of their own.
    fn affect_series(
        &mut self,
        from: Proc,
        preput: &mut Vec<(Vec<u8>, Vec<u8>)>,
        programs: &mut Vec<Program>,
    ) {
        if self.has(from, Pmi2Effect::SpawnCmdFirst) {
            programs.truncate(1);
        }
        if self.has(from, Pmi2Effect::SpawnCmdNoPreput) {
            preput.clear();
        }
        if self.has(from, Pmi2Effect::SpawnCmdNameIsArgument) {
            programs.iter_mut().for_each(|program| program.argv.insert(0, program.command.clone()));
        }
        if self.has(from, Pmi2Effect::SpawnCmdSameCount) {
            let first = programs.first().map_or(0, |program| program.maxprocs);
            programs.iter_mut().for_each(|program| program.maxprocs = first);
        }
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

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
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

    #[test]
    fn series_without_end_end_the_job() {
        let mut server = joined(1, 1);
        for thread in 0..SERIES_LIMIT {
            let told = say(&mut server, 0, &format!("cmd=kvs-putall;thrid={thread};jobid=kvs-0;npair=1;"));
            assert!(told.is_empty(), "{told:?}");
        }
        let told = say(&mut server, 0, "cmd=kvs-putall;thrid=last;jobid=kvs-0;npair=1;");
        assert!(told[0].starts_with("abort: protocol error: too much that is not complete"), "{told:?}");
        let mut server = joined(1, 1);
        say(&mut server, 0, "cmd=kvs-putall;jobid=kvs-0;npair=9999;");
        let pair = format!("cmd=kvs-putall-pair;key=k;val={};", "v".repeat(50_000));
        let told = (0..200).find_map(|_| say(&mut server, 0, &pair).pop());
        assert!(told.is_some_and(|told| told.contains("too much that is not complete")));
    }

    #[test]
    fn a_job_can_be_read_while_it_is_connected() {
        let mut server = joined(1, 1);
        let other =
            GroupSpec { programs: vec![1], preput: vec![(b"k".to_vec(), b"v".to_vec())], spawned: true };
        server.add_group(other);
        let get = "cmd=kvs-get;jobid=kvs-1;key=k;";
        assert!(say(&mut server, 0, get)[0].contains("rc=1;"));
        assert!(say(&mut server, 0, "cmd=job-connect;jobid=kvs-1;")[0].contains("kvscopy=no;rc=0;"));
        assert!(say(&mut server, 0, get)[0].contains("value=v;"));
        assert!(say(&mut server, 0, "cmd=job-disconnect;jobid=kvs-1;")[0].contains("rc=0;"));
        assert!(say(&mut server, 0, get)[0].contains("rc=1;"));
        assert!(say(&mut server, 0, "cmd=job-connect;jobid=nosuch;")[0].contains("rc=1;"));
    }

    #[test]
    fn all_pairs_of_a_job_can_be_read_and_brought() {
        let mut server = joined(1, 1);
        server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
        say(&mut server, 0, "cmd=kvs-put;key=a;value=1;");
        let told = say(&mut server, 0, "cmd=kvs-getall;thrid=7;jobid=kvs-0;");
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].ends_with("cmd=kvs-getall-paircount-response;thrid=7;npair=2;"), "{told:?}");
        assert!(told.iter().any(|t| t.ends_with("cmd=kvs-getall-pair-response;thrid=7;key=a;val=1;")));
        assert!(told[3].ends_with("cmd=kvs-getall-response;thrid=7;rc=0;"));
        let refused = say(&mut server, 0, "cmd=kvs-getall;jobid=kvs-1;");
        assert_eq!((refused.len(), refused[0].contains("cmd=kvs-getall-response;rc=1;")), (1, true));
        say(&mut server, 0, "cmd=job-connect;jobid=kvs-1;");
        assert!(say(&mut server, 0, "cmd=kvs-putall;jobid=kvs-1;npair=2;").is_empty());
        assert!(say(&mut server, 0, "cmd=kvs-putall-pair;key=b;val=2;").is_empty());
        let done = say(&mut server, 0, "cmd=kvs-putall-pair;key=c;val=3;");
        assert!(done[0].ends_with("cmd=kvs-putall-response;rc=0;"), "{done:?}");
        assert!(say(&mut server, 0, "cmd=kvs-get;jobid=kvs-1;key=c;")[0].contains("value=3;"));
        assert!(say(&mut server, 0, "cmd=kvs-get;key=c;")[0].contains("found=FALSE;"));
    }

    #[test]
    fn a_long_command_may_come_in_pieces() {
        let mut server = joined(1, 1);
        assert!(say(&mut server, 0, "cmd=kvs-put;key=a;concat=9;").is_empty());
        assert!(say(&mut server, 0, "cmd=job-getid;")[0].contains("jobid="));
        assert!(say(&mut server, 0, "cmd=concat;concatid=9;value=1;")[0].contains("kvs-put-response;rc=0;"));
        let lost = say(&mut server, 0, "cmd=concat;concatid=9;value=1;");
        assert!(lost[0].starts_with("abort: protocol error: it goes on with a command that has not begun"));
    }

    #[test]
    fn a_spawn_may_be_a_series_that_nothing_interrupts() {
        let mut server = joined(1, 1);
        assert!(say(&mut server, 0, "cmd=spawn;thrid=1;ncmds=2;preputcount=0;").is_empty());
        assert!(say(&mut server, 0, "cmd=spawn-cmd;thrid=1;maxprocs=1;argc=1;argv0=a;").is_empty());
        let asked = say(&mut server, 0, "cmd=spawn-cmd;thrid=1;maxprocs=2;argc=2;argv0=b;argv1=x;");
        assert!(asked[0].starts_with("Spawn {") && asked.len() == 1, "{asked:?}");
        let mut server = joined(1, 1);
        say(&mut server, 0, "cmd=spawn;thrid=1;ncmds=2;preputcount=0;");
        let lost = say(&mut server, 0, "cmd=job-getid;thrid=2;");
        assert!(
            lost[0].starts_with("abort: protocol error: another message of the series is due"),
            "{lost:?}"
        );
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_nobody_else() {
        let challenged = |server: &mut Server| {
            let told = say(server, 0, "cmd=fullinit;authtype=challenge-sha256;");
            told[0].split(['=', ';']).nth(3).expect("a number").to_owned()
        };
        let fresh = || {
            let mut server = Server::new(Config { pmi2: true, ..Config::default() });
            server.add_group(GroupSpec { programs: vec![1], ..GroupSpec::default() });
            server.receive(Proc { group: 0, rank: 0 }, b"cmd=init pmi_version=2 pmi_subversion=0\n");
            server.next_action();
            server
        };
        let mut server = fresh();
        let number = challenged(&mut server);
        let answer = challenge_answer(b"pmi-conform", number.as_bytes());
        let told = say(&mut server, 0, &format!("cmd=auth-response-complete;authinfo={answer};"));
        assert!(told[0].contains("cmd=fullinit-response;"), "{told:?}");
        let mut server = fresh();
        let number = challenged(&mut server);
        let wrong = challenge_answer(b"guessed", number.as_bytes());
        let told = say(&mut server, 0, &format!("cmd=auth-response-complete;authinfo={wrong};"));
        assert_eq!(told, ["Close { proc: Proc { group: 0, rank: 0 }, end: false }"]);
        assert!(say(&mut server, 0, "cmd=job-getid;").is_empty());
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

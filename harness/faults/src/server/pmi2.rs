//! PMI-2.

use pmi_reference::server::{Asked, Awaits, FAILED, Phase, ProtocolError};
use pmi_reference::{FrameReply, GroupId};
use pmi_wire::pmi2::{Command, Request, Semicolons};
use pmi_wire::{Framing, Proc};

use super::{Server, is_own_key};
use crate::effect::{Effect, Pmi2Effect};

impl Server {
    fn fences(&mut self, p: Proc) -> u64 {
        self.state().fences.get(&p).copied().unwrap_or(0)
    }

    /// Takes a request for a protocol error while another thread of the process waits, if an effect has it so.
    pub(super) fn keeps_one_at_a_time(&mut self, from: Proc, body: &[u8]) -> Result<(), ProtocolError> {
        let process = self.server.process(from);
        let waits =
            process.framing == Framing::Frames && process.phase == Phase::Joined && !process.held.is_empty();
        let is_abort = || {
            Request::parse(body, Semicolons::Doubled).is_ok_and(|request| request.command() == Command::Abort)
        };
        if !waits || is_abort() {
            return Ok(());
        }
        let pick = |e: &Effect| matches!(e, Effect::Pmi2(Pmi2Effect::OneAtATime)).then_some(());
        match self.pick(from, pick) {
            Some(()) => Err("request before the last one is answered".into()),
            None => Ok(()),
        }
    }

    /// A spawn as an effect has it.
    pub(super) fn affect_request<'a>(&mut self, from: Proc, mut asked: Asked<'a>) -> Asked<'a> {
        let Asked::Frame { request: Request::Spawn { preput, programs }, .. } = &mut asked else {
            return asked;
        };
        match self.pick(from, |e| if let Effect::Pmi2(f) = e { Some(*f) } else { None }) {
            Some(Pmi2Effect::SpawnOneTooFew) => {
                programs.last_mut().into_iter().for_each(|p| p.maxprocs = p.maxprocs.saturating_sub(1));
            }
            Some(Pmi2Effect::SpawnNoPreput) => preput.clear(),
            Some(Pmi2Effect::SpawnFirstProgramOnly) => programs.truncate(1),
            Some(Pmi2Effect::SpawnNoArguments) => programs.iter_mut().for_each(|p| p.argv.clear()),
            _ => {}
        }
        asked
    }

    /// Returns whether an effect has dealt with the request.
    pub(super) fn affected_frame(&mut self, from: Proc, thrid: Option<&[u8]>, request: &Request<'_>) -> bool {
        let relevant = |effect: Pmi2Effect| effect.command() == Some(request.command());
        let pick =
            |e: &Effect| if let Effect::Pmi2(f) = e { Some(*f).filter(|f| relevant(*f)) } else { None };
        let Some(effect) = self.pick(from, pick) else {
            if matches!(request, Request::KvsFence) {
                *self.state().fences.entry(from).or_default() += 1;
            }
            return self.held_for_fence(from, request, thrid);
        };
        let thrid = thrid.map(<[u8]>::to_vec);
        let command = request.command();
        let number = from.group as usize;
        let ok = || FrameReply::ok(command, thrid.clone());
        let (size, node) = (self.size(from.group), self.server.node(from));
        let answer = match (effect, request) {
            (Pmi2Effect::PutLost, _) => ok(),
            (Pmi2Effect::PutReplaces, Request::KvsPut { key, value }) => {
                self.server.groups[number].kvs.insert(key.to_vec(), value.to_vec());
                ok()
            }
            (Pmi2Effect::PutIntoAllJobs, Request::KvsPut { key, value }) => {
                for group in &mut self.server.groups {
                    group.kvs.insert(key.to_vec(), value.to_vec());
                }
                ok()
            }
            (Pmi2Effect::GetOwnOnly, Request::KvsGet { .. }) if from.rank > 0 => ok().found(None),
            (Pmi2Effect::GetBelievesHint, Request::KvsGet { srcid: Some(id), .. })
                if *id >= 0 && *id != i64::from(from.rank) =>
            {
                ok().found(None)
            }
            (Pmi2Effect::GetOneFenceLate, Request::KvsGet { .. }) if self.fences(from) < 2 => {
                ok().found(None)
            }
            (Pmi2Effect::GetConsumes, Request::KvsGet { key, .. }) if !is_own_key(key) => {
                let value = self.server.groups[number].kvs.remove(&**key);
                ok().found(value.as_ref())
            }
            (Pmi2Effect::GetPrefix, Request::KvsGet { key, .. }) => {
                let kvs = &self.server.groups[number].kvs;
                let found = kvs.get(&**key).or_else(|| {
                    kvs.iter().find(|(k, _)| key.starts_with(k) || k.starts_with(key)).map(|(_, v)| v)
                });
                ok().found(found)
            }
            (Pmi2Effect::GetWaits, Request::KvsGet { key, .. })
                if !self.server.groups[number].kvs.contains_key(&**key) =>
            {
                return true;
            }
            (Pmi2Effect::FenceAtOnce | Pmi2Effect::FenceAtOnceAndGetsWait, _) => {
                *self.state().fences.entry(from).or_default() += 1;
                self.server.reply_frame(from, ok());
                self.release_keys(from.group);
                return true;
            }
            (Pmi2Effect::FenceNever, _) => {
                self.server.hold(from, thrid, Awaits::Fence);
                return true;
            }
            (Pmi2Effect::FenceShort, _) => {
                self.server.hold(from, thrid, Awaits::Fence);
                let inside =
                    self.server.groups[number].procs.iter().filter(|proc| proc.is_in_fence()).count();
                if inside as u32 + 1 >= size {
                    self.server.leave_fence(from.group, true);
                }
                return true;
            }
            (Pmi2Effect::FenceLeavesOutLast, _) => {
                self.server.hold(from, thrid, Awaits::Fence);
                if self.server.groups[number].procs.iter().all(|proc| proc.is_in_fence()) {
                    for rank in 0..size.max(2) - 1 {
                        self.server.answer_fence(Proc { rank, ..from }, true);
                    }
                }
                return true;
            }
            (Pmi2Effect::FenceWipes, _) => {
                self.server.groups[number].kvs.retain(|key, _| is_own_key(key));
                *self.state().fences.entry(from).or_default() += 1;
                return false;
            }
            (Pmi2Effect::NodePutLost, _) => ok(),
            (Pmi2Effect::NodePutEverywhere, Request::InfoPutnodeattr { key, value }) => {
                for node in 0..self.server.config.nodes {
                    self.server.groups[number].node.insert((node, key.to_vec()), value.to_vec());
                }
                self.server.reply_frame(from, ok());
                self.server.release_attributes(from.group);
                return true;
            }
            (Pmi2Effect::NodePutReleasesNobody, Request::InfoPutnodeattr { key, value }) => {
                self.server.groups[number].node.insert((node, key.to_vec()), value.to_vec());
                ok()
            }
            (Pmi2Effect::NodeGetNeverWaits, Request::InfoGetnodeattr { key, .. }) => {
                let value = self.server.groups[number].node.get(&(node, key.to_vec())).cloned();
                ok().found(value.as_ref())
            }
            (Pmi2Effect::NodeGetAlwaysWaits, Request::InfoGetnodeattr { key, .. })
                if !self.server.groups[number].node.contains_key(&(node, key.to_vec())) =>
            {
                return true;
            }
            (Pmi2Effect::NodeGetOwnOnly, Request::InfoGetnodeattr { .. }) if from.rank > 0 => {
                ok().found(None)
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
                self.server.reply_frame(from, ok());
                self.end_some(from.group, |rank, _| rank != from.rank);
                self.server.process_mut(from).phase = Phase::Finalized;
                return true;
            }
            (Pmi2Effect::FinalizeStopsServing, _) => {
                self.state().mute = true;
                return false;
            }
            _ => return false,
        };
        self.server.reply_frame(from, answer);
        true
    }

    /// A server whose fence does not block holds back the answer to a get until all have entered it.
    fn held_for_fence(&mut self, from: Proc, request: &Request<'_>, thrid: Option<&[u8]>) -> bool {
        let Request::KvsGet { key, jobid, .. } = request else { return false };
        if jobid.as_deref().is_some_and(|id| self.server.groups[from.group as usize].kvsname != id) {
            return false;
        }
        let pick = |e: &Effect| matches!(e, Effect::Pmi2(Pmi2Effect::FenceAtOnceAndGetsWait)).then_some(());
        if self.pick(from, pick).is_none() || self.all_fenced(from) {
            return false;
        }
        self.server.hold(from, thrid.map(<[u8]>::to_vec), Awaits::Key(key.to_vec()));
        true
    }

    fn all_fenced(&mut self, p: Proc) -> bool {
        let fences = self.fences(p);
        (0..self.size(p.group)).all(|rank| self.fences(Proc { rank, ..p }) >= fences)
    }

    fn release_keys(&mut self, group: GroupId) {
        for rank in 0..self.size(group) {
            let to = Proc { group, rank };
            if !self.all_fenced(to) {
                continue;
            }
            for held in std::mem::take(&mut self.server.process_mut(to).held) {
                match &held.what {
                    Awaits::Key(key) => {
                        let value = self.server.groups[group as usize].kvs.get(key).cloned();
                        let reply = FrameReply::ok(Command::KvsGet, held.thrid);
                        self.server.reply_frame(to, reply.found(value.as_ref()));
                    }
                    _ => self.server.process_mut(to).held.push(held),
                }
            }
        }
    }
}

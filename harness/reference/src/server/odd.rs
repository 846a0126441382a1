//! What the effects of faults and variations do to the server. Every function does nothing at once without any.

use pmi_wire::{Operation, Request, SpawnProgram, SpawnRequest, Version};

use super::{Action, Config, GroupId, Phase, ProcId, Server, Waiting};
use crate::fault::{
    AbortFault, BarrierFault, Draft, Effect, ErrorFault, FinalizeFault, GetFault, NamesFault, Origin,
    PutFault, Quirks, Scene, SpawnFault, VersionFault,
};
use crate::reply::Reply;

/// Keys of which one is the mapping's are never the manager's to lose: faults of the KVS leave it alone.
fn own_key(key: &[u8]) -> bool {
    key.starts_with(b"PMI_")
}

/// Whether the fault shows when the group is there, and not when the request comes.
fn at_start(fault: SpawnFault) -> bool {
    matches!(fault, SpawnFault::CopiesParentKvs | SpawnFault::NoPreput | SpawnFault::PreputAtBarrier)
}

impl Server {
    pub(super) fn odd_config(config: &mut Config) {
        let behaviour = config.behaviour.clone();
        for (effect, _) in behaviour.effects() {
            if let Effect::Config(change) = effect {
                change(config);
            }
        }
    }

    fn scene(&self, p: ProcId) -> Scene {
        let group = self.groups.get(p.group as usize);
        Scene {
            group: p.group,
            rank: p.rank,
            size: group.map_or(0, |g| g.procs.len() as u32),
            nodes: self.config.nodes,
            waiting: group.is_some_and(|g| g.procs.iter().any(|p| p.waiting == Waiting::Barrier)),
            burst: self.quirks.as_ref().is_some_and(|q| q.burst),
        }
    }

    fn quirk<T>(&mut self, p: ProcId, pick: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        self.quirks.as_ref()?;
        let scene = self.scene(p);
        self.quirks.as_mut()?.pick(&scene, pick)
    }

    fn each<T>(&mut self, p: ProcId, pick: impl Fn(&Effect) -> Option<T>, apply: impl FnMut(T, u64)) {
        let scene = self.scene(p);
        if let Some(quirks) = &mut self.quirks {
            quirks.each(&scene, pick, apply);
        }
    }

    /// The notebook. Only called where some effect has been picked.
    fn notes(&mut self) -> &mut Quirks {
        self.quirks.get_or_insert_default()
    }

    // ----- what processes are given --------------------------------------------------------------------------------

    pub(super) fn odd_environment(&mut self, p: ProcId, env: &mut Vec<(&'static str, String)>) {
        if self.quirks.is_some() {
            let scene = self.scene(p);
            self.each(p, |e| if let Effect::Env(f) = e { Some(*f) } else { None }, |f, _| f(env, &scene));
        }
    }

    /// Whether the descriptor that PMI_FD names is to be connected.
    pub fn connects(&mut self, p: ProcId) -> bool {
        self.quirk(p, |e| matches!(e, Effect::DeadFd).then_some(())).is_none()
    }

    /// Whether the driver has to tell how processes ended by its own exit status.
    pub fn tells_status(&self) -> bool {
        !self.config.behaviour.effects().any(|(e, _)| matches!(e, Effect::StatusZero))
    }

    pub(super) fn odd_mapping(&mut self, group: GroupId, size: u32, mut mapping: Vec<u8>) -> Vec<u8> {
        if self.quirks.is_some() {
            let p = ProcId { group, rank: 0 };
            let scene = Scene { size, ..self.scene(p) };
            let pick = |e: &Effect| if let Effect::Mapping(f) = e { Some(*f) } else { None };
            if let Some(quirks) = &mut self.quirks {
                quirks.each(&scene, pick, |f, _| f(&mut mapping, &scene));
            }
        }
        mapping
    }

    pub(super) fn odd_kvsname(&mut self, group: GroupId, mut name: Vec<u8>) -> Vec<u8> {
        if self.quirks.is_some() {
            let p = ProcId { group, rank: 0 };
            self.each(
                p,
                |e| if let Effect::Kvsname(f) = e { Some(*f) } else { None },
                |f, _| f(&mut name, group),
            );
        }
        name
    }

    // ----- bytes in and out ----------------------------------------------------------------------------------------

    pub(super) fn odd_read(&mut self, from: ProcId, bytes: &[u8]) -> Option<Vec<u8>> {
        self.quirks.as_ref()?;
        let spawns = bytes.starts_with(b"mcmd=");
        self.notes().burst = !spawns && bytes.iter().filter(|b| **b == b'\n').count() > 1;
        let change = self.quirk(from, |e| if let Effect::Read(f) = e { Some(*f) } else { None })?;
        Some(change(bytes))
    }

    /// The request that the server takes a line for, if any.
    pub(super) fn odd_line(&mut self, from: ProcId, line: &[u8]) -> Option<Vec<u8>> {
        if self.notes().mute {
            return None;
        }
        let in_spawn = self.proc(from).spawn.is_some() || line.starts_with(b"mcmd=");
        let reject = |e: &Effect| if let Effect::Reject(f) = e { Some(*f) } else { None };
        if !in_spawn && self.quirk(from, |e| reject(e).filter(|f| f(line))).is_some() {
            self.protocol_error(from, "not understood", line);
            return None;
        }
        if self.proc(from).waiting == Waiting::Barrier
            && line == b"cmd=barrier_in"
            && self.barrier_fault(from) == Some(BarrierFault::CountsTwice)
        {
            let group = &mut self.groups[from.group as usize];
            group.entered += 1;
            if group.entered >= group.procs.len() as u32 {
                self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
            }
            return None;
        }
        match self.quirk(from, |e| if let Effect::Hear(f) = e { Some(*f) } else { None }) {
            Some(change) => change(line),
            None => Some(line.to_vec()),
        }
    }

    pub(super) fn odd_reply(&mut self, to: ProcId, reply: &Reply) {
        let mut draft = Draft::new(to, self.size(to.group), reply);
        let (op, ok) = (reply.op, reply.rc == 0);
        let pick = |e: &Effect| match e {
            Effect::Reply(which, f) if which.fits(op, ok) => Some(*f),
            _ => None,
        };
        self.each(to, pick, |edit, count| {
            draft.count = count;
            edit(&mut draft);
        });
        let bytes = draft.bytes();
        if bytes.is_empty() {
            return;
        }
        let pick = |e: &Effect| match e {
            Effect::Writes(which, f) if which.fits(op, ok) => Some(*f),
            _ => None,
        };
        let writes = match self.quirk(to, pick) {
            Some(split) => split(bytes),
            None => vec![bytes],
        };
        for bytes in writes {
            self.actions.push_back(Action::Send { to: draft.to, bytes });
        }
    }

    // ----- errors, abort, finalize ---------------------------------------------------------------------------------

    /// Ends the ones of the group that `which` says, and leaves the others alone.
    fn end_some(&mut self, group: GroupId, which: impl Fn(u32, &super::Proc) -> bool) {
        for rank in 0..self.size(group) {
            let proc = ProcId { group, rank };
            if self.proc(proc).phase != Phase::Closed && which(rank, self.proc(proc)) {
                self.proc(proc).phase = Phase::Closed;
                self.actions.push_back(Action::Close { proc, end: true });
            }
        }
    }

    pub(super) fn odd_error(&mut self, from: ProcId, line: &[u8]) -> bool {
        let pick = |e: &Effect| match e {
            Effect::Error(which, fault) if which(line) => Some(*fault),
            _ => None,
        };
        if self.proc(from).phase == Phase::Closed {
            return false;
        }
        let Some(fault) = self.quirk(from, pick) else { return false };
        let spawning = self.proc(from).spawn.take().is_some();
        let cmd = line.split(|b| *b == b' ').find_map(|t| t.strip_prefix(b"cmd=")).unwrap_or(b"");
        let op = match Operation::from_request_cmd(cmd) {
            _ if spawning => Operation::Spawn,
            op => op.unwrap_or(Operation::Put),
        };
        match fault {
            ErrorFault::Ignored => {}
            ErrorFault::AnsweredOk => self.reply(from, Reply::ok(op)),
            ErrorFault::AnsweredFail => self.reply(from, Reply::fail(op, "malformed")),
            ErrorFault::OffenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            ErrorFault::OthersOnly => self.end_some(from.group, |rank, _| rank != from.rank),
            ErrorFault::Unlogged => self.abort(from, 1, String::new()),
        }
        true
    }

    pub(super) fn odd_abort(&mut self, from: ProcId) -> bool {
        let pick = |e: &Effect| if let Effect::Abort(f) = e { Some(*f) } else { None };
        let Some(fault) = self.quirk(from, pick) else { return false };
        let size = self.size(from.group);
        let place = crate::placement::place(size, self.config.nodes);
        let node = |rank: u32| place.get(rank as usize).copied();
        match fault {
            AbortFault::Ignored => self.reply(from, Reply::ok(Operation::Abort)),
            AbortFault::SenderOnly => self.end_some(from.group, |rank, _| rank == from.rank),
            AbortFault::SparesSender => self.end_some(from.group, |rank, _| rank != from.rank),
            AbortFault::SparesLast => self.end_some(from.group, |rank, _| size == 1 || rank + 1 != size),
            AbortFault::SparesFinalized => self.end_some(from.group, |_, p| p.phase != Phase::Finalized),
            AbortFault::SparesWaiting => self.end_some(from.group, |_, p| p.waiting != Waiting::Barrier),
            AbortFault::SparesOtherNode => {
                self.end_some(from.group, |rank, _| node(rank) == node(from.rank));
            }
            AbortFault::OpensBarrier => {
                self.leave_barrier(from.group, &Reply::ok(Operation::Barrier));
                self.abort(from, 1, "abort requested".into());
            }
        }
        true
    }

    pub(super) fn odd_finalize(&mut self, from: ProcId) -> bool {
        let pick = |e: &Effect| if let Effect::Finalize(f) = e { Some(*f) } else { None };
        let Some(fault) = self.quirk(from, pick) else { return false };
        self.proc(from).phase = Phase::Finalized;
        self.groups[from.group as usize].left += 1;
        match fault {
            FinalizeFault::WaitsForAll => {
                self.notes().held.push(from);
                let all = self.groups[from.group as usize]
                    .procs
                    .iter()
                    .all(|p| matches!(p.phase, Phase::Finalized | Phase::Closed));
                if all {
                    for p in std::mem::take(&mut self.notes().held) {
                        self.reply(p, Reply::ok(Operation::Finalize));
                    }
                }
            }
            FinalizeFault::EndsGroup => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.abort(from, 0, "finalized".into());
            }
            FinalizeFault::ForgetsKeys => {
                let notes = self.notes();
                let gone: Vec<_> = notes
                    .origins
                    .iter()
                    .filter(|((g, _), o)| *g == from.group && o.rank == from.rank)
                    .map(|((_, k), _)| k.clone())
                    .collect();
                for key in gone {
                    self.groups[from.group as usize].kvs.remove(&key);
                }
                self.reply(from, Reply::ok(Operation::Finalize));
            }
            FinalizeFault::StopsServing => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.notes().mute = true;
            }
            FinalizeFault::Closes => {
                self.reply(from, Reply::ok(Operation::Finalize));
                self.actions.push_back(Action::Close { proc: from, end: false });
            }
        }
        true
    }

    /// A process that has left without finalize; whether that is all right with us.
    pub(super) fn odd_leaver(&mut self, from: ProcId) -> bool {
        if self.barrier_fault(from) != Some(BarrierFault::LeaverCounts) {
            return false;
        }
        self.odd_left(from);
        true
    }

    pub(super) fn odd_init(&mut self, from: ProcId, offered: Version) -> bool {
        if offered == Version::V1_1 {
            return false;
        }
        let pick = |e: &Effect| if let Effect::Version(f) = e { Some(*f) } else { None };
        let Some(fault) = self.quirk(from, pick) else { return false };
        let lower = offered < Version::V1_1;
        let used = match fault {
            VersionFault::RefusesHigher if !lower => {
                self.reply(from, Reply::fail(Operation::Init, "unknown version"));
                return true;
            }
            VersionFault::ClosesOnLower if lower => {
                self.abort(from, 1, "unknown version".into());
                return true;
            }
            VersionFault::AcceptsLower if lower => Version::V1_1,
            VersionFault::Echoes => offered,
            _ => return false,
        };
        self.proc(from).phase = Phase::Joined;
        let reply = Reply::ok(Operation::Init)
            .with("pmi_version", used.version.to_string())
            .with("pmi_subversion", used.subversion.to_string());
        self.reply(from, reply);
        true
    }

    // ----- keyval space --------------------------------------------------------------------------------------------

    fn alias(&mut self, from: ProcId, key: &[u8]) -> Vec<u8> {
        match self.quirk(from, |e| if let Effect::Key(f) = e { Some(*f) } else { None }) {
            Some(alias) if !own_key(key) => alias(key),
            _ => key.to_vec(),
        }
    }

    /// Books a put that will be, or does it differently.
    pub(super) fn odd_put(
        &mut self,
        from: ProcId,
        kvsname: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Option<Reply> {
        self.quirks.as_ref()?;
        let (keylen_max, vallen_max) = (self.config.keylen_max, self.config.vallen_max);
        let fault = self.quirk(from, |e| if let Effect::Put(f) = e { Some(*f) } else { None });
        let known = self.groups[from.group as usize].kvsname == kvsname;
        let ok = Some(Reply::ok(Operation::Put));
        let refused = Some(Reply::fail(Operation::Put, "no"));
        match fault {
            Some(PutFault::AnyKvs) if !known => return ok,
            _ if !known => return None,
            Some(PutFault::AcceptsOverlong) => {}
            _ if key.len() >= keylen_max || value.len() >= vallen_max => return None,
            _ => {}
        }
        let at = (from.group, key.to_vec());
        let round = self.notes().rounds.get(&from.group).copied().unwrap_or(0);
        // With aliases, another key may stand where this one would.
        let aliases = self.config.behaviour.effects().any(|(e, _)| matches!(e, Effect::Key(_)));
        let there = match aliases {
            true => self.notes().origins.contains_key(&at),
            false => self.groups[from.group as usize].kvs.contains_key(key),
        };
        let long_key = key.len() + 1 == keylen_max;
        let long_value = value.len() + 1 == vallen_max;
        self.notes().puts += 1;
        match fault {
            Some(PutFault::Lost) => return ok,
            Some(PutFault::LostIfLongKey) if long_key => return ok,
            Some(PutFault::LostIfLongValue) if long_value => return ok,
            Some(PutFault::RefusedIfLongKey) if long_key => return refused,
            Some(PutFault::RefusedIfLongValue) if long_value => return refused,
            Some(PutFault::RefusedWithoutBarrier) if self.notes().puts > 1 => return refused,
            Some(PutFault::KeepsBoth) => {
                self.notes().own_values.insert((from, key.to_vec()), value.to_vec());
                self.groups[from.group as usize].kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                return ok;
            }
            Some(PutFault::IntoAllGroups) => {
                for group in &mut self.groups {
                    group.kvs.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                }
                return ok;
            }
            Some(PutFault::Deferred) if !there => {
                let pending = self.notes().deferred.iter().any(|(g, k, _)| *g == from.group && k == key);
                if pending {
                    return refused;
                }
                self.notes().deferred.push((from.group, key.to_vec(), value.to_vec()));
                return ok;
            }
            Some(PutFault::Replaces | PutFault::AcceptsOverlong) => {}
            _ if there => return None,
            _ => {}
        }
        self.notes().origins.insert(at, Origin { rank: from.rank, round });
        let (mut key, mut value) = (self.alias(from, key), value.to_vec());
        let config = self.config.clone();
        self.each(
            from,
            |e| if let Effect::Store(f) = e { Some(*f) } else { None },
            |store, _| store(&mut key, &mut value, &config),
        );
        self.groups[from.group as usize].kvs.insert(key, value);
        ok
    }

    pub(super) fn odd_get(&mut self, from: ProcId, kvsname: &[u8], key: &[u8]) -> Option<Reply> {
        self.quirks.as_ref()?;
        if own_key(key) {
            return None;
        }
        let asked = key;
        let key = &self.alias(from, key)[..];
        let fault = self.quirk(from, |e| if let Effect::Get(f) = e { Some(*f) } else { None });
        let number = from.group as usize;
        let known = self.groups[number].kvsname == kvsname;
        let missing = || Some(Reply::fail(Operation::Get, "key not found"));
        let found = |value: Vec<u8>| Some(Reply::ok(Operation::Get).with("value", value));
        match fault {
            Some(GetFault::AnyKvs) => {}
            Some(GetFault::LongNameOnly)
                if self.groups[number].kvsname.starts_with(kvsname)
                    || kvsname.starts_with(&self.groups[number].kvsname) => {}
            Some(GetFault::OtherGroups) if !known => {
                let other = self.groups.iter().find(|g| g.kvsname == kvsname)?;
                return other.kvs.get(key).cloned().and_then(found);
            }
            _ if !known => return None,
            _ => {}
        }
        if let Some(own) = self.notes().own_values.get(&(from, key.to_vec())).cloned() {
            return found(own);
        }
        let origin = self.notes().origins.get(&(from.group, asked.to_vec())).copied();
        let round = self.notes().rounds.get(&from.group).copied().unwrap_or(0);
        let value = self.groups[number].kvs.get(key).cloned();
        let place = crate::placement::place(self.size(from.group), self.config.nodes);
        let node = |rank: u32| place.get(rank as usize).copied();
        let hidden = origin.is_some_and(|o| match fault {
            Some(GetFault::OwnOnly) => o.rank != from.rank,
            Some(GetFault::SameNodeOnly) => node(o.rank) != node(from.rank),
            Some(GetFault::OneBarrierLate) => o.rank != from.rank && round < o.round + 2,
            Some(GetFault::FirstEpochOnly) => o.rank != from.rank && o.round > 1,
            Some(GetFault::LastEpochOnly) => round > o.round + 1,
            Some(GetFault::AfterBarrierOnly) => round < o.round + 1,
            _ => false,
        });
        if hidden {
            return missing();
        }
        let used = self.notes().gets.entry((from.group, key.to_vec())).or_default();
        *used += 1;
        let again = *used > 1;
        let kvs = &mut self.groups[number].kvs;
        let others = |kvs: &std::collections::HashMap<Vec<u8>, Vec<u8>>| {
            let mut keys: Vec<_> = kvs.iter().filter(|(k, _)| !own_key(k) && *k != key).collect();
            keys.sort_unstable();
            keys.first().map(|(_, v)| v.to_vec())
        };
        match fault {
            Some(GetFault::Consumes) => return kvs.remove(key).map_or_else(missing, found),
            Some(GetFault::SecondIsOther) if again => return others(kvs).and_then(found),
            Some(GetFault::OtherKeysValue) if value.is_some() => return others(kvs).and_then(found),
            Some(GetFault::Prefix) => {
                let mut keys: Vec<_> = kvs.iter().filter(|(k, _)| k.starts_with(key)).collect();
                keys.sort_unstable_by(|a, b| b.cmp(a));
                return keys.first().map_or_else(missing, |(_, v)| found(v.to_vec()));
            }
            Some(GetFault::NextKey) if value.is_none() => {
                let mut keys: Vec<_> =
                    kvs.iter().filter(|(k, _)| !own_key(k) && k.as_slice() > key).collect();
                keys.sort_unstable();
                return keys.first().map_or_else(missing, |(_, v)| found(v.to_vec()));
            }
            Some(GetFault::OtherGroups) if value.is_none() => {
                let leaked = self.groups.iter().find_map(|g| g.kvs.get(key).cloned());
                return leaked.map_or_else(missing, found);
            }
            Some(GetFault::PreviousAnswer) => {
                let previous = std::mem::replace(&mut self.notes().last_value, value.clone());
                return previous.or(value).map_or_else(missing, found);
            }
            _ => {}
        }
        value.map_or_else(missing, found)
    }

    // ----- barrier -------------------------------------------------------------------------------------------------

    fn barrier_fault(&mut self, from: ProcId) -> Option<BarrierFault> {
        self.quirk(from, |e| if let Effect::Barrier(f) = e { Some(*f) } else { None })
    }

    /// Called when a process has entered; whether the rest has been dealt with.
    pub(super) fn odd_barrier(&mut self, from: ProcId) -> bool {
        let Some(fault) = self.barrier_fault(from) else { return false };
        let size = self.size(from.group);
        let others: u32 = self.groups.iter().map(|g| g.entered).sum();
        let place = crate::placement::place(size, self.config.nodes);
        let notes = self.notes();
        let (puts, toggles) = (notes.puts, notes.toggles);
        let group = &mut self.groups[from.group as usize];
        let (entered, full) = (group.entered, group.entered == size);
        let ok = Reply::ok(Operation::Barrier);
        let release = match fault {
            BarrierFault::Never => return true,
            BarrierFault::AtOnce => true,
            BarrierFault::Short(n) => entered + n >= size,
            BarrierFault::Half => entered * 2 >= size,
            BarrierFault::AcrossGroups => full || others >= size,
            BarrierFault::KeepsCount => full || toggles > 0,
            BarrierFault::Toggle => full || (toggles % 2 == 1 && entered + 1 >= size),
            BarrierFault::NeedsData if full && puts == 0 => return true,
            BarrierFault::PerNode => {
                let node = place[from.rank as usize];
                let mates = |(rank, n): (usize, &u32)| (*n == node).then_some(rank);
                let mates: Vec<usize> = place.iter().enumerate().filter_map(mates).collect();
                if mates.iter().all(|r| group.procs[*r].waiting == Waiting::Barrier) {
                    group.entered -= mates.len() as u32;
                    for rank in mates {
                        self.groups[from.group as usize].procs[rank].waiting = Waiting::Nothing;
                        let to = ProcId { group: from.group, rank: rank as u32 };
                        self.reply(to, ok.clone());
                    }
                }
                return true;
            }
            BarrierFault::LeavesOutFirst | BarrierFault::LeavesOutLast | BarrierFault::LeavesOutLatest
                if full && size > 1 =>
            {
                let left_out = match fault {
                    BarrierFault::LeavesOutFirst => 0,
                    BarrierFault::LeavesOutLast => size - 1,
                    _ => from.rank,
                };
                group.procs[left_out as usize].waiting = Waiting::Nothing;
                true
            }
            BarrierFault::ReleasesEverybody if entered == 1 => {
                for proc in &mut group.procs {
                    if proc.phase == Phase::Joined {
                        proc.waiting = Waiting::Barrier;
                    }
                }
                true
            }
            BarrierFault::WipesKvs if full => {
                group.kvs.retain(|k, _| own_key(k));
                true
            }
            _ => full,
        };
        if release {
            self.notes().toggles += 1;
            self.leave_barrier(from.group, &ok);
        } else {
            self.fail_barrier(from);
        }
        true
    }

    /// Somebody has left for good while others wait; whether the rest has been dealt with.
    pub(super) fn odd_left(&mut self, by: ProcId) -> bool {
        if self.barrier_fault(by) != Some(BarrierFault::LeaverCounts) {
            return false;
        }
        if self.groups[by.group as usize].entered > 0 {
            self.leave_barrier(by.group, &Reply::ok(Operation::Barrier));
        }
        true
    }

    pub(super) fn odd_leave(&mut self, id: GroupId, reply: &Reply) {
        let notes = self.notes();
        *notes.rounds.entry(id).or_default() += 1;
        notes.puts = 0;
        let deferred = std::mem::take(&mut notes.deferred);
        for (group, key, value) in deferred {
            if group == id {
                self.groups[id as usize].kvs.insert(key, value);
            } else {
                self.notes().deferred.push((group, key, value));
            }
        }
        let pick = |e: &Effect| matches!(e, Effect::Names(NamesFault::BarrierDrops)).then_some(());
        if self.quirk(ProcId { group: id, rank: 0 }, pick).is_some() {
            self.names.clear();
        }
        let group = &mut self.groups[id as usize];
        group.entered = 0;
        let mut out = Vec::new();
        for (rank, proc) in (0..).zip(&mut group.procs) {
            if proc.waiting == Waiting::Barrier {
                proc.waiting = Waiting::Nothing;
                out.push(ProcId { group: id, rank });
            }
        }
        for to in out {
            self.reply(to, reply.clone());
        }
    }

    // ----- spawn and names -----------------------------------------------------------------------------------------

    pub(super) fn odd_spawn(&mut self, by: ProcId, mut request: SpawnRequest) -> Option<SpawnRequest> {
        if self.quirks.is_none() {
            return Some(request);
        }
        self.each(
            by,
            |e| if let Effect::SpawnRequest(f) = e { Some(*f) } else { None },
            |f, _| f(&mut request),
        );
        match self
            .quirk(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| !at_start(*f)))
        {
            Some(SpawnFault::Refused) => {
                self.reply(by, Reply::fail(Operation::Spawn, "not here"));
                return None;
            }
            Some(SpawnFault::AnswerPerProgram) => {
                for _ in 1..request.programs.len() {
                    self.reply(by, Reply::ok(Operation::Spawn));
                }
            }
            Some(SpawnFault::EarlyAnswer) => {
                self.reply(by, Reply::ok(Operation::Spawn));
            }
            Some(SpawnFault::NeverStarts) => {
                self.reply(by, Reply::ok(Operation::Spawn));
                return None;
            }
            Some(SpawnFault::PreputIntoParent) => {
                let pairs: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
                self.groups[by.group as usize].kvs.extend(pairs);
            }
            _ => {}
        }
        Some(request)
    }

    /// The group has been made and is to be started.
    pub(super) fn odd_start(
        &mut self,
        by: ProcId,
        group: GroupId,
        programs: Vec<SpawnProgram>,
    ) -> Vec<SpawnProgram> {
        if self.quirks.is_none() {
            return programs;
        }
        let mut request = SpawnRequest { programs };
        self.each(
            by,
            |e| if let Effect::SpawnStart(f) = e { Some(*f) } else { None },
            |f, _| f(&mut request),
        );
        let preput: Vec<_> = request.programs.iter().flat_map(|p| p.preput.clone()).collect();
        match self
            .quirk(by, |e| if let Effect::Spawn(f) = e { Some(*f) } else { None }.filter(|f| at_start(*f)))
        {
            Some(SpawnFault::CopiesParentKvs) => {
                let parents = self.groups[by.group as usize].kvs.clone();
                for (key, value) in parents {
                    self.groups[group as usize].kvs.entry(key).or_insert(value);
                }
            }
            Some(SpawnFault::NoPreput) => self.groups[group as usize].kvs.retain(|k, _| own_key(k)),
            Some(SpawnFault::PreputAtBarrier) => {
                self.groups[group as usize].kvs.retain(|k, _| own_key(k));
                let later = preput.into_iter().map(|(k, v)| (group, k, v));
                self.notes().deferred.extend(later);
            }
            _ => {}
        }
        request.programs
    }

    pub(super) fn odd_names(&mut self, from: ProcId, request: &Request<'_>) -> bool {
        let pick = |e: &Effect| if let Effect::Names(f) = e { Some(*f) } else { None };
        let Some(fault) = self.quirk(from, pick) else { return false };
        if fault == NamesFault::Refused {
            self.reply(from, Reply::fail(request.operation(), "not served"));
            return true;
        }
        let missing = |op| Reply::fail(op, "name is not published");
        let reply = match *request {
            Request::Publish { service, port } => {
                let there = self.names.contains_key(service);
                let ok = Reply::ok(Operation::Publish);
                match fault {
                    NamesFault::Lost => {}
                    NamesFault::TwiceLost if there => {
                        self.names.remove(service);
                    }
                    _ if there && fault != NamesFault::TwiceReplaces => return false,
                    NamesFault::OneName => {
                        self.names.clear();
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                    NamesFault::LastPortForAll => {
                        self.names.insert(service.to_vec(), port.to_vec());
                        self.names.values_mut().for_each(|p| *p = port.to_vec());
                    }
                    NamesFault::InKvs => {
                        let kvs = &mut self.groups[from.group as usize].kvs;
                        kvs.insert(service.to_vec(), port.to_vec());
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                    _ => {
                        self.names.insert(service.to_vec(), port.to_vec());
                    }
                }
                self.notes().publishers.insert(service.to_vec(), from);
                ok
            }
            Request::Unpublish { service } => {
                let there = self.names.contains_key(service);
                let ok = Reply::ok(Operation::Unpublish);
                self.notes().unpublished += 1;
                match fault {
                    NamesFault::UnknownUnpublishOk if !there => ok,
                    _ if !there => missing(Operation::Unpublish),
                    NamesFault::UnpublishKeeps => ok,
                    NamesFault::UnpublishOnlyFirstTime if self.notes().unpublished > 1 => ok,
                    NamesFault::UnpublishTakesAll => {
                        self.names.clear();
                        ok
                    }
                    _ => return false,
                }
            }
            Request::Lookup { service } => {
                let publisher = self.notes().publishers.get(service).copied();
                let hidden = publisher.is_some_and(|p| match fault {
                    NamesFault::OwnOnly => p != from,
                    NamesFault::GroupOnly => p.group != from.group,
                    NamesFault::DropsWithPublisher => {
                        self.groups[p.group as usize].procs[p.rank as usize].phase == Phase::Finalized
                    }
                    _ => false,
                });
                let found = match fault {
                    _ if hidden => None,
                    NamesFault::OneLookup => self.names.remove(service),
                    NamesFault::Prefix => {
                        self.names.iter().find(|(k, _)| k.starts_with(service)).map(|(_, v)| v.clone())
                    }
                    _ => self.names.get(service).cloned(),
                };
                match found {
                    Some(port) => Reply::ok(Operation::Lookup).with("port", port),
                    None => missing(Operation::Lookup),
                }
            }
            _ => return false,
        };
        self.reply(from, reply);
        true
    }
}

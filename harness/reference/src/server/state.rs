//! What a server knows of its groups and processes, and the least that every handler needs: to reply, to abort, to ask
//! whether an effect applies.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pmi_wire::{Framer, Framing, Proc, ProcessMapping, SpawnCollector, Version, WayIn, place};

use super::config::{Action, Config, GroupId, GroupSpec};
use super::effects::EffectState;
use super::held::Pmi2Process;
use super::open_barrier::OpenBarrier;
use crate::fault::{Circumstances, Effect, ReplyDraft, Writes};
use crate::reply::Reply;

/// Whether a key is the process manager's own. Effects on the keyval space leave those keys alone.
pub(super) fn own_key(key: &[u8]) -> bool {
    key.starts_with(b"PMI_")
}

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not initialized yet.
    New,
    Joined,
    Finalized,
    Closed,
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nothing,
    Barrier,
    Spawn,
}

/// A process and its connection.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) framer: Framer,
    /// What was negotiated.
    pub(super) framing: Framing,
    /// The same, of PMI-1; 1.1 before that.
    pub(super) version: Version,
    pub(super) pmi2: Pmi2Process,
    pub(super) phase: Phase,
    pub(super) waiting: Waiting,
    /// Its connection was let in by initack.
    pub(super) admitted: bool,
    /// Present from the first `mcmd=spawn` of a request to its last `endcmd`.
    pub(super) spawn: Option<Box<SpawnCollector>>,
}

/// A process group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kvsname: Vec<u8>,
    pub(super) kvs: HashMap<Vec<u8>, Vec<u8>>,
    pub(super) procs: Vec<Process>,
    pub(super) programs: Vec<u32>,
    pub(super) entered: u32,
    /// Barriers of parts of the group that somebody has entered.
    pub(super) open_barriers: Vec<OpenBarrier>,
    /// The number of processes that have left for good: finalized or closed. It is kept, because every barrier asks for it.
    pub(super) left: u32,
    pub(super) aborted: bool,
    pub(super) spawned: bool,
    /// The job that spawned it, by a request of PMI-2.
    pub(super) spawner: Option<Vec<u8>>,
    /// Attributes of nodes, by node and key.
    pub(super) node: HashMap<(u32, Vec<u8>), Vec<u8>>,
}

impl Group {
    pub(super) fn appnum(&self, rank: u32) -> usize {
        let mut first = 0;
        self.programs.iter().position(|n| (first += n, rank < first).1).unwrap_or(0)
    }
}

/// A keyval space that a process has created.
#[derive(Debug)]
pub(super) struct KeyvalSpace {
    pub(super) name: Vec<u8>,
    /// In the order of their puts, by which they have numbers.
    pub(super) pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl KeyvalSpace {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Server {
    pub(super) config: Config,
    pub(super) groups: Vec<Group>,
    pub(super) names: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keyval spaces that processes have created.
    pub(super) spaces: Vec<KeyvalSpace>,
    /// How many there have been.
    pub(super) created: u64,
    /// Which process waits for which group to be spawned.
    pub(super) spawns: Vec<(GroupId, Proc)>,
    pub(super) actions: VecDeque<Action>,
    /// `None` in a server without faults and variations.
    pub(super) effects: Option<Box<EffectState>>,
}

impl Server {
    /// A server without process groups.
    pub fn new(mut config: Config) -> Self {
        let effects = EffectState::of(&config.behaviour);
        Self::apply_to_config(&mut config);
        Self {
            effects,
            config,
            groups: Vec::new(),
            names: BTreeMap::new(),
            spaces: Vec::new(),
            created: 0,
            spawns: Vec::new(),
            actions: VecDeque::new(),
        }
    }

    /// Adds a process group; its processes may connect at once.
    pub fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        let id = self.groups.len() as GroupId;
        let size: u32 = spec.programs.iter().sum();
        let mut kvs: HashMap<_, _> = spec.preput.into_iter().collect();
        let mapping = ProcessMapping::compress(&place(size, self.config.nodes)).to_string().into_bytes();
        // RFC 13, Local Process Group Information: an empty string where the mapping does not fit.
        let mapping =
            if (mapping.len() as u64) < self.config.maxes.vallen_max { mapping } else { Vec::new() };
        let mapping = self.affect_mapping(id, size, mapping);
        kvs.insert(b"PMI_process_mapping".to_vec(), mapping);
        let kvsname = self.affect_kvsname(id, format!("{}-{id}", self.config.kvs_prefix).into_bytes());
        self.groups.push(Group {
            kvsname,
            kvs,
            procs: (0..size)
                .map(|_| Process {
                    admitted: false,
                    framer: Framer::new(self.config.line_max),
                    framing: Framing::Lines,
                    version: Version::V1_1,
                    pmi2: Pmi2Process::default(),
                    phase: Phase::New,
                    waiting: Waiting::Nothing,
                    spawn: None,
                })
                .collect(),
            programs: spec.programs,
            entered: 0,
            open_barriers: Vec::new(),
            left: 0,
            aborted: false,
            spawned: spec.spawned,
            spawner: None,
            node: HashMap::new(),
        });
        id
    }

    /// Number of processes of a group.
    pub fn size(&self, group: GroupId) -> u32 {
        self.groups[group as usize].procs.len() as u32
    }

    /// Whether the group was spawned.
    fn is_spawned(&self, group: GroupId) -> bool {
        self.groups[group as usize].spawned
    }

    /// The variables that a process's environment must hold (RFC 13, Environment), given the number of the descriptor,
    /// which only the driver knows.
    pub fn environment(&mut self, p: Proc, place: &str) -> Vec<(&'static str, String)> {
        let size = self.size(p.group).to_string();
        let mut env = match self.config.way_in {
            WayIn::Port => vec![("PMI_PORT", place.to_owned()), ("PMI_ID", self.id(p).to_string())],
            // It has started before its process manager.
            WayIn::Singleton if p.group == 0 => return Vec::new(),
            WayIn::Fd | WayIn::Singleton => {
                vec![("PMI_FD", place.to_owned()), ("PMI_RANK", p.rank.to_string()), ("PMI_SIZE", size)]
            }
        };
        if self.is_spawned(p.group) {
            env.push(("PMI_SPAWNED", "1".to_owned()));
        }
        self.affect_environment(p, &mut env);
        env
    }

    /// Which effects of its behaviour have shown, or would have if they are only rehearsed; in the order in which they were added.
    pub fn shown_effects(&self) -> Vec<bool> {
        self.effects.as_ref().map(|effects| effects.shown()).unwrap_or_default()
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether the process has initialized and not finalized, so that [`closed`](Self::closed) would be an error.
    pub fn is_joined(&self, p: Proc) -> bool {
        !self.dead(p) && self.groups[p.group as usize].procs[p.rank as usize].phase == Phase::Joined
    }

    pub(super) fn proc(&mut self, p: Proc) -> &mut Process {
        &mut self.groups[p.group as usize].procs[p.rank as usize]
    }

    pub(super) fn dead(&self, p: Proc) -> bool {
        let group = &self.groups[p.group as usize];
        group.aborted || group.procs[p.rank as usize].phase == Phase::Closed
    }

    pub(super) fn reply(&mut self, to: Proc, reply: Reply) {
        if self.effects.is_some() {
            return self.affected_reply(to, &reply);
        }
        let mut bytes = Vec::with_capacity(64);
        reply.render(&mut bytes);
        self.actions.push_back(Action::Send { to, bytes });
    }

    pub(super) fn abort(&mut self, by: Proc, status: i64, reason: String) {
        let group = &mut self.groups[by.group as usize];
        group.aborted = true;
        group.kvs = HashMap::new();
        group.open_barriers = Vec::new();
        self.actions.push_back(Action::Abort { group: by.group, by: by.rank, status, reason });
    }

    // ----- effects

    fn apply_to_config(config: &mut Config) {
        let behaviour = config.behaviour.clone();
        if behaviour.is_rehearsed() {
            return;
        }
        for (effect, _) in behaviour.effects() {
            match effect {
                Effect::Maxes(maxes) => {
                    config.maxes = maxes;
                    config.make_room();
                }
                Effect::Universe(size) => config.universe_size = Some(size),
                _ => {}
            }
        }
    }

    pub(super) fn circumstances(&self, p: Proc) -> Circumstances {
        let group = self.groups.get(p.group as usize);
        Circumstances {
            group: p.group,
            rank: p.rank,
            size: group.map_or(0, |g| g.procs.len() as u32),
            nodes: self.config.nodes,
            waiting: group.is_some_and(|g| g.procs.iter().any(|p| p.waiting == Waiting::Barrier)),
            refused: self.effects.as_ref().is_some_and(|q| q.refused.contains(&p)),
            burst: self.effects.as_ref().is_some_and(|q| q.burst),
            uses: 0,
        }
    }

    /// The first effect that `pick` takes and whose occasion this is.
    pub(super) fn effect<T>(&mut self, p: Proc, pick: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        self.effects.as_ref()?;
        let circumstances = self.circumstances(p);
        self.effects.as_mut()?.pick(&circumstances, pick)
    }

    /// Applies every effect that `pick` takes and whose occasion this is, with how often it has been used.
    pub(super) fn each_effect<T>(
        &mut self,
        p: Proc,
        pick: impl Fn(&Effect) -> Option<T>,
        apply: impl FnMut(T, &Circumstances),
    ) {
        let circumstances = self.circumstances(p);
        if let Some(effects) = &mut self.effects {
            effects.each(&circumstances, pick, apply);
        }
    }

    /// What effects remember. It is asked for only where an effect applies.
    pub(super) fn effect_state(&mut self) -> &mut EffectState {
        self.effects.get_or_insert_default()
    }

    fn affect_environment(&mut self, p: Proc, env: &mut Vec<(&'static str, String)>) {
        if self.effects.is_some() {
            let pick = |e: &Effect| if let Effect::Env(f) = e { Some(*f) } else { None };
            self.each_effect(p, pick, |edit, circumstances| {
                edit.apply(env, circumstances);
            });
        }
    }

    /// Whether the descriptor that PMI_FD names is to be connected.
    pub fn connects(&mut self, p: Proc) -> bool {
        self.effect(p, |e| matches!(e, Effect::DeadFd).then_some(())).is_none()
    }

    /// Whether the driver has to tell how processes ended by its own exit status.
    pub fn tells_status(&self) -> bool {
        let hides = self.config.behaviour.effects().any(|(e, _)| matches!(e, Effect::StatusZero));
        self.config.behaviour.is_rehearsed() || !hides
    }

    fn affect_mapping(&mut self, group: GroupId, size: u32, mut mapping: Vec<u8>) -> Vec<u8> {
        if self.effects.is_some() {
            let p = Proc { group, rank: 0 };
            let circumstances = Circumstances { size, ..self.circumstances(p) };
            let pick = |e: &Effect| if let Effect::Mapping(f) = e { Some(*f) } else { None };
            if let Some(effects) = &mut self.effects {
                effects.each(&circumstances, pick, |edit, circumstances| {
                    edit.apply(&mut mapping, circumstances);
                });
            }
        }
        mapping
    }

    fn affect_kvsname(&mut self, group: GroupId, mut name: Vec<u8>) -> Vec<u8> {
        if self.effects.is_some() {
            let p = Proc { group, rank: 0 };
            let pick = |e: &Effect| if let Effect::Kvsname(f) = e { Some(*f) } else { None };
            self.each_effect(p, pick, |edit, circumstances| {
                edit.apply(&mut name, circumstances);
            });
        }
        name
    }

    fn affected_reply(&mut self, to: Proc, reply: &Reply) {
        let mut draft = ReplyDraft::new(to, reply);
        let (op, ok) = (reply.op, reply.rc == 0);
        let pick = |e: &Effect| match e {
            Effect::Reply(which, f) if which.fits(op, ok) => Some(*f),
            _ => None,
        };
        self.each_effect(to, pick, |edit, circumstances| {
            edit.apply(&mut draft, circumstances);
        });
        let pick = |e: &Effect| match e {
            Effect::Writes(which, f) if which.fits(op, ok) => Some(*f),
            _ => None,
        };
        self.send_draft(to, draft, ok, pick);
    }

    /// Sends a reply to what a process asked, in the writes that an effect has it sent in, and notes whether it was a refusal.
    pub(super) fn send_draft(
        &mut self,
        asker: Proc,
        draft: ReplyDraft,
        ok: bool,
        pick: impl Fn(&Effect) -> Option<Writes>,
    ) {
        if let Some(effects) = &mut self.effects {
            match ok {
                true => effects.refused.remove(&asker),
                false => effects.refused.insert(asker),
            };
        }
        let bytes = draft.bytes();
        if bytes.is_empty() {
            return;
        }
        let writes = match self.effect(asker, pick) {
            Some(writes) => writes.of(bytes),
            None => vec![bytes],
        };
        for bytes in writes {
            self.actions.push_back(Action::Send { to: draft.to, bytes });
        }
    }

    /// Ends those processes of a group that `which` picks, and leaves the others alone.
    pub(super) fn end_some(&mut self, group: GroupId, which: impl Fn(u32, &Process) -> bool) {
        for rank in 0..self.size(group) {
            let proc = Proc { group, rank };
            if self.proc(proc).phase != Phase::Closed && which(rank, self.proc(proc)) {
                self.proc(proc).phase = Phase::Closed;
                self.actions.push_back(Action::Close { proc, end: true });
            }
        }
    }
}

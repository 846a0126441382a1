//! Where and when a server is odd.

use std::collections::HashMap;

use pmi_wire::{Operation, SpawnRequest};

use super::{Behaviour, Draft};
use crate::server::{Config, GroupId, ProcId};

/// The circumstances in which a server does something.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scene {
    /// Process group.
    pub group: GroupId,
    /// Rank in it.
    pub rank: u32,
    /// Size of the group.
    pub size: u32,
    /// Nodes that it is spread over.
    pub nodes: u32,
    /// Some process of the group waits in the barrier.
    pub waiting: bool,
    /// The request came with others in one read.
    pub burst: bool,
}

/// On which occasions an effect shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// On every one.
    Always,
    /// On the nth one only.
    Nth(u64),
    /// From the nth one on.
    From(u64),
    /// For spawned groups only.
    Spawned,
    /// With two nodes or more.
    Nodes,
    /// With so many ranks or more.
    Ranks(u32),
    /// For the last of several ranks.
    LastRank,
    /// For the last rank of a group of odd size, 3 or more.
    OddLast,
    /// For all ranks but the first.
    NotFirst,
    /// While somebody waits in the barrier.
    Waiting,
    /// When several messages came in one read.
    Burst,
}

impl When {
    fn holds(self, scene: &Scene, uses: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(n) => uses == n,
            Self::From(n) => uses >= n,
            Self::Spawned => scene.group > 0,
            Self::Nodes => scene.nodes > 1,
            Self::Ranks(n) => scene.size >= n,
            Self::LastRank => scene.size > 1 && scene.rank + 1 == scene.size,
            Self::OddLast => scene.size > 1 && scene.size % 2 == 1 && scene.rank + 1 == scene.size,
            Self::NotFirst => scene.rank > 0,
            Self::Waiting => scene.waiting,
            Self::Burst => scene.burst,
        }
    }
}

/// Which replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Successes.
    Ok,
    /// Failures.
    Fail,
    /// Both.
    Any,
}

/// To which operation, `None` for all, and which replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct For(pub Option<Operation>, pub On);

impl For {
    pub(crate) fn fits(self, op: Operation, ok: bool) -> bool {
        self.0.is_none_or(|o| o == op)
            && match self.1 {
                On::Ok => ok,
                On::Fail => !ok,
                On::Any => true,
            }
    }
}

/// Where a server does something else.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// What it is set up with.
    Config(fn(&mut Config)),
    /// The environment of a process, `PMI_FD` included.
    Env(fn(&mut Vec<(&'static str, String)>, &Scene)),
    /// The descriptor in `PMI_FD` is not connected.
    DeadFd,
    /// The name of a group's keyval space.
    Kvsname(fn(&mut Vec<u8>, GroupId)),
    /// The process mapping.
    Mapping(fn(&mut Vec<u8>, &Scene)),
    /// What is taken for the bytes of one read.
    Read(fn(&[u8]) -> Vec<u8>),
    /// What is taken for a request; `None` where it is dropped.
    Hear(fn(&[u8]) -> Option<Vec<u8>>),
    /// Lawful requests that are taken for protocol errors.
    Reject(fn(&[u8]) -> bool),
    /// A reply.
    Reply(For, fn(&mut Draft)),
    /// The writes that a reply is sent in.
    Writes(For, fn(Vec<u8>) -> Vec<Vec<u8>>),
    /// What a put stores: key and value, which may change, and the limits of both.
    Store(fn(&mut Vec<u8>, &mut Vec<u8>, &Config)),
    /// What stands for a key, in puts and gets.
    Key(fn(&[u8]) -> Vec<u8>),
    /// A put.
    Put(PutFault),
    /// A get.
    Get(GetFault),
    /// The barrier.
    Barrier(BarrierFault),
    /// A protocol error, for the lines that fit.
    Error(fn(&[u8]) -> bool, ErrorFault),
    /// An init of a version that is not 1.1.
    Version(VersionFault),
    /// An abort.
    Abort(AbortFault),
    /// A finalize.
    Finalize(FinalizeFault),
    /// A spawn request before it is done.
    SpawnRequest(fn(&mut SpawnRequest)),
    /// What the driver is told to start.
    SpawnStart(fn(&mut SpawnRequest)),
    /// How a spawn is done.
    Spawn(SpawnFault),
    /// The name service.
    Names(NamesFault),
    /// The exit status of the job is 0 whatever happened.
    StatusZero,
}

pub use kinds::*;
mod kinds {
    #![allow(missing_docs, reason = "each is described by the faults that have it")]

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PutFault {
        Lost,
        LostIfLongKey,
        LostIfLongValue,
        AnyKvs,
        RefusedIfLongKey,
        RefusedIfLongValue,
        RefusedWithoutBarrier,
        Replaces,
        KeepsBoth,
        IntoAllGroups,
        AcceptsOverlong,
        Deferred,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GetFault {
        AnyKvs,
        OtherGroups,
        Consumes,
        SecondIsOther,
        OwnOnly,
        SameNodeOnly,
        Prefix,
        NextKey,
        OtherKeysValue,
        PreviousAnswer,
        OneBarrierLate,
        FirstEpochOnly,
        LastEpochOnly,
        AfterBarrierOnly,
        LongNameOnly,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum BarrierFault {
        Never,
        AtOnce,
        Short(u32),
        Half,
        PerNode,
        KeepsCount,
        LeavesOutLast,
        LeavesOutFirst,
        LeavesOutLatest,
        ReleasesEverybody,
        NeedsData,
        AcrossGroups,
        LeaverCounts,
        CountsTwice,
        WipesKvs,
        Toggle,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErrorFault {
        Ignored,
        AnsweredOk,
        AnsweredFail,
        OffenderOnly,
        OthersOnly,
        Unlogged,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VersionFault {
        RefusesHigher,
        AcceptsLower,
        Echoes,
        ClosesOnLower,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AbortFault {
        Ignored,
        SenderOnly,
        SparesSender,
        SparesLast,
        SparesFinalized,
        SparesWaiting,
        SparesOtherNode,
        OpensBarrier,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FinalizeFault {
        WaitsForAll,
        EndsGroup,
        ForgetsKeys,
        StopsServing,
        Closes,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpawnFault {
        AnswerPerProgram,
        CopiesParentKvs,
        NoPreput,
        PreputIntoParent,
        PreputAtBarrier,
        EarlyAnswer,
        NeverStarts,
        Refused,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NamesFault {
        OwnOnly,
        GroupOnly,
        UnpublishKeeps,
        UnpublishOnlyFirstTime,
        UnpublishTakesAll,
        OneLookup,
        OneName,
        Prefix,
        Lost,
        InKvs,
        UnknownUnpublishOk,
        TwiceReplaces,
        TwiceLost,
        DropsWithPublisher,
        LastPortForAll,
        BarrierDrops,
        Refused,
    }
}

#[derive(Debug)]
struct Quirk {
    effect: &'static Effect,
    when: When,
    uses: u64,
}

/// Who put a key, and in which barrier round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) rank: u32,
    pub(crate) round: u64,
}

/// What an odd server keeps beyond a good one.
#[derive(Debug, Default)]
pub(crate) struct Quirks {
    list: Vec<Quirk>,
    pub(crate) burst: bool,
    /// Barriers passed, per group.
    pub(crate) rounds: HashMap<GroupId, u64>,
    pub(crate) origins: HashMap<(GroupId, Vec<u8>), Origin>,
    /// What a rank put under a key that another had put before.
    pub(crate) own_values: HashMap<(ProcId, Vec<u8>), Vec<u8>>,
    pub(crate) publishers: HashMap<Vec<u8>, ProcId>,
    /// Puts since the last barrier.
    pub(crate) puts: u64,
    pub(crate) gets: HashMap<(GroupId, Vec<u8>), u64>,
    pub(crate) last_value: Option<Vec<u8>>,
    pub(crate) held: Vec<ProcId>,
    pub(crate) deferred: Vec<(GroupId, Vec<u8>, Vec<u8>)>,
    pub(crate) mute: bool,
    pub(crate) toggles: u64,
    pub(crate) unpublished: u64,
}

impl Quirks {
    pub(crate) fn of(behaviour: &Behaviour) -> Option<Box<Self>> {
        let list: Vec<Quirk> =
            behaviour.effects().map(|(effect, when)| Quirk { effect, when, uses: 0 }).collect();
        (!list.is_empty()).then(|| Box::new(Self { list, ..Self::default() }))
    }

    /// The first effect that `pick` knows and whose occasion this is.
    pub(crate) fn pick<T>(&mut self, scene: &Scene, pick: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        self.list.iter_mut().find_map(|quirk| {
            let picked = pick(quirk.effect)?;
            quirk.uses += 1;
            quirk.when.holds(scene, quirk.uses).then_some(picked)
        })
    }

    /// All effects that `pick` knows and whose occasion this is, with how often each was used.
    pub(crate) fn each<T>(
        &mut self,
        scene: &Scene,
        pick: impl Fn(&Effect) -> Option<T>,
        mut apply: impl FnMut(T, u64),
    ) {
        for quirk in &mut self.list {
            if let Some(picked) = pick(quirk.effect) {
                quirk.uses += 1;
                if quirk.when.holds(scene, quirk.uses) {
                    apply(picked, quirk.uses);
                }
            }
        }
    }
}

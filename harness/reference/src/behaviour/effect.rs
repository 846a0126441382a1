//! Where a server does something else than the reference would.

use pmi_wire::pmi2::Command;
use pmi_wire::{Maxes, Operation, SpawnRequest};

use super::circumstances::Circumstances;
use super::draft::ReplyDraft;

/// What a process is told that has asked for a process manager by singleton init: lines with their newlines, or nothing.
#[derive(Debug, Clone)]
pub struct Singinit {
    /// What is said first.
    pub asks: Vec<u8>,
    /// What is said to its answer.
    pub info: Vec<u8>,
}

/// Replies by their success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// Replies that report success.
    Ok,
    /// Replies that report a failure.
    Fail,
    /// Both.
    Any,
}

impl ReplyKind {
    fn fits(self, ok: bool) -> bool {
        match self {
            Self::Ok => ok,
            Self::Fail => !ok,
            Self::Any => true,
        }
    }
}

/// The replies that an effect applies to: those to an operation, or to all operations, and of which success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replies(pub Option<Operation>, pub ReplyKind);

impl Replies {
    /// Whether the reply to an operation, a success or not, is one of them.
    pub(crate) fn fits(self, op: Operation, ok: bool) -> bool {
        self.0.is_none_or(|o| o == op) && self.1.fits(ok)
    }
}

/// The replies of PMI-2 that an effect applies to: those to a command, or to all commands, and of which success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameReplies(pub Option<Command>, pub ReplyKind);

impl FrameReplies {
    /// Whether the reply to a command, a success or not, is one of them.
    pub(crate) fn fits(self, command: Command, ok: bool) -> bool {
        self.0.is_none_or(|c| c == command) && self.1.fits(ok)
    }
}

/// Where a server does something else. Data that the server consults, and functions on what it is about to read or send.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// The limits of the keyval space.
    Maxes(Maxes),
    /// The universe size.
    Universe(u64),
    /// The environment of a process, `PMI_FD` included.
    Env(fn(&mut Vec<(&'static str, String)>, &Circumstances)),
    /// The descriptor in `PMI_FD` is not connected.
    DeadFd,
    /// What a process is told that has made its connection by `PMI_PORT`.
    Greeting(fn(&mut Vec<u8>, &Circumstances)),
    /// What a process is told that has asked for a process manager by singleton init.
    Singinit(fn(&mut Singinit)),
    /// The name of a group's keyval space.
    Kvsname(fn(&mut Vec<u8>, u32)),
    /// The process mapping.
    Mapping(fn(&mut Vec<u8>, &Circumstances)),
    /// What is taken for the bytes of one read.
    Read(fn(&[u8]) -> Vec<u8>),
    /// What is taken for a request; `None` where it is dropped.
    Hear(fn(&[u8]) -> Option<Vec<u8>>),
    /// Lawful requests that are taken for protocol errors.
    Reject(fn(&[u8]) -> bool),
    /// A reply.
    Reply(Replies, fn(&mut ReplyDraft)),
    /// The writes that a reply is sent in.
    Writes(Replies, fn(Vec<u8>) -> Vec<Vec<u8>>),
    /// What a put stores: key and value, which may change, and the limits of both.
    Store(fn(&mut Vec<u8>, &mut Vec<u8>, Maxes)),
    /// What stands for a key, in puts and gets.
    Key(fn(&[u8]) -> Vec<u8>),
    /// A put.
    Put(PutEffect),
    /// A get.
    Get(GetEffect),
    /// The barrier.
    Barrier(BarrierEffect),
    /// The barrier of a part of a process group.
    GroupBarrier(GroupBarrierEffect),
    /// A protocol error, for the lines that fit.
    Error(fn(&[u8]) -> bool, ErrorEffect),
    /// An init of a version that is not 1.1.
    Version(VersionEffect),
    /// An abort.
    Abort(AbortEffect),
    /// A finalize.
    Finalize(FinalizeEffect),
    /// A spawn request before it is done.
    SpawnRequest(fn(&mut SpawnRequest)),
    /// What the driver is told to start.
    SpawnStart(fn(&mut SpawnRequest)),
    /// How a spawn is done.
    Spawn(SpawnEffect),
    /// Keyval spaces beside those of the groups.
    KeyvalSpace(KeyvalSpaceEffect),
    /// The name service.
    Names(NamesEffect),
    /// The exit status of the job is 0 whatever happened.
    StatusZero,
    /// A reply of PMI-2.
    FrameReply(FrameReplies, fn(&mut ReplyDraft)),
    /// The writes that a reply of PMI-2 is sent in.
    FrameWrites(FrameReplies, fn(Vec<u8>) -> Vec<Vec<u8>>),
    /// What a request of PMI-2 does.
    Pmi2(Pmi2Effect),
}

impl Effect {
    /// Whether it shows from the beginning, whatever is asked: it changes how the server is set up, not what it does.
    pub(crate) fn is_of_setup(&self) -> bool {
        matches!(self, Self::Maxes(_) | Self::Universe(_) | Self::StatusZero)
    }

    /// Whether it shows in PMI-2 alone.
    pub fn is_of_frames(&self) -> bool {
        matches!(self, Self::FrameReply(..) | Self::FrameWrites(..) | Self::Pmi2(_))
    }
}

pub use kinds::*;
mod kinds {
    #![allow(missing_docs, reason = "each is described by the faults that have it")]

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PutEffect {
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
    pub enum GetEffect {
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
    pub enum BarrierEffect {
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
    pub enum GroupBarrierEffect {
        Never,
        LoneNever,
        AtOnce,
        Short,
        WaitsForAll,
        NodeIsWorld,
        TagsAlike,
        OneAtATime,
        OrderMatters,
        TakesOutsiders,
        LeavesOutLatest,
        LastOutFirst,
        OpensPlain,
        PlainNever,
        LockStep,
        NobodyOpens,
        OpensOnce,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErrorEffect {
        Ignored,
        AnsweredOk,
        AnsweredFail,
        OffenderOnly,
        OthersOnly,
        Unlogged,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VersionEffect {
        RefusesHigher,
        AcceptsLower,
        Echoes,
        ClosesOnLower,
        RefusesLower,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AbortEffect {
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
    pub enum FinalizeEffect {
        WaitsForAll,
        EndsGroup,
        ForgetsKeys,
        StopsServing,
        Closes,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpawnEffect {
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
    pub enum Pmi2Effect {
        PutLost,
        PutReplaces,
        PutIntoAllJobs,
        GetOwnOnly,
        GetBelievesHint,
        GetOneFenceLate,
        GetConsumes,
        GetPrefix,
        GetWaits,
        FenceAtOnce,
        FenceAtOnceAndGetsWait,
        FenceNever,
        FenceShort,
        FenceLeavesOutLast,
        FenceWipes,
        NodePutLost,
        NodePutEverywhere,
        NodePutReleasesNobody,
        NodeGetNeverWaits,
        NodeGetAlwaysWaits,
        NodeGetOwnOnly,
        NameLost,
        NameStays,
        NameOwnOnly,
        SpawnNothing,
        SpawnOneTooFew,
        SpawnNoPreput,
        SpawnFirstProgramOnly,
        SpawnNoArguments,
        AbortIgnored,
        AbortSenderOnly,
        AbortSparesLast,
        FinalizeEndsGroup,
        FinalizeStopsServing,
        OneAtATime,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeyvalSpaceEffect {
        OneName,
        OwnName,
        DestroyKeeps,
        DestroyTakesAll,
        UnknownDestroyed,
        IndexFromOne,
        IndexStays,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NamesEffect {
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

impl Pmi2Effect {
    /// The command that it is about; `None` where it shows elsewhere than when that is read.
    pub(crate) fn command(self) -> Option<Command> {
        Some(match self {
            Self::PutLost | Self::PutReplaces | Self::PutIntoAllJobs => Command::KvsPut,
            Self::GetOwnOnly
            | Self::GetBelievesHint
            | Self::GetOneFenceLate
            | Self::GetConsumes
            | Self::GetPrefix
            | Self::GetWaits => Command::KvsGet,
            Self::FenceAtOnce
            | Self::FenceAtOnceAndGetsWait
            | Self::FenceNever
            | Self::FenceShort
            | Self::FenceLeavesOutLast
            | Self::FenceWipes => Command::KvsFence,
            Self::NodePutLost | Self::NodePutEverywhere | Self::NodePutReleasesNobody => {
                Command::InfoPutnodeattr
            }
            Self::NodeGetNeverWaits | Self::NodeGetAlwaysWaits | Self::NodeGetOwnOnly => {
                Command::InfoGetnodeattr
            }
            Self::NameLost => Command::NamePublish,
            Self::NameStays => Command::NameUnpublish,
            Self::NameOwnOnly => Command::NameLookup,
            Self::SpawnNothing => Command::Spawn,
            Self::AbortIgnored | Self::AbortSenderOnly | Self::AbortSparesLast => Command::Abort,
            Self::FinalizeEndsGroup | Self::FinalizeStopsServing => Command::Finalize,
            // Looked for where they show.
            _ => return None,
        })
    }
}

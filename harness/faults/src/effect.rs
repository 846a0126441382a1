//! The places where a server can differ from the reference.

use pmi_wire::pmi2::Command;
use pmi_wire::{Maxes, Operation};
use serde::Deserialize;

use super::edit::Edit;

/// Replies by their success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Returns whether the reply to an operation, a success or not, is one of them.
    pub(crate) fn fits(self, op: Operation, ok: bool) -> bool {
        self.0.is_none_or(|o| o == op) && self.1.fits(ok)
    }
}

/// The replies of PMI-2 that an effect applies to: those to a command, or to all commands, and of which success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameReplies(pub Option<Command>, pub ReplyKind);

impl FrameReplies {
    /// Returns whether the reply to a command, a success or not, is one of them.
    pub(crate) fn fits(self, command: Command, ok: bool) -> bool {
        self.0.is_none_or(|c| c == command) && self.1.fits(ok)
    }
}

/// The writes that a reply is sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Each byte by itself.
    Bytewise,
    /// Two halves.
    Halves,
    /// The last byte by itself.
    NewlineApart,
    /// The length and the body.
    HeaderApart,
    /// All in one, with colons where equals signs should be.
    Colons,
}

impl Writes {
    /// Splits a reply.
    pub(crate) fn of(self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let length = bytes.len();
        let at = match self {
            Self::Bytewise => return bytes.chunks(1).map(<[u8]>::to_vec).collect(),
            Self::Halves => length.div_ceil(2),
            Self::NewlineApart => length.saturating_sub(1),
            Self::HeaderApart => length.min(pmi_wire::HEADER),
            Self::Colons => {
                bytes.iter_mut().filter(|b| **b == b'=').for_each(|b| *b = b':');
                return vec![bytes];
            }
        };
        let rest = bytes.split_off(at);
        [bytes, rest].into_iter().filter(|write| !write.is_empty()).collect()
    }
}

/// A place where a server differs from the reference, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The limits of the keyval space.
    Maxes(Maxes),
    /// The universe size.
    Universe(u64),
    /// The environment of a process, `PMI_FD` included.
    Env(Edit),
    /// The descriptor in `PMI_FD` is not connected.
    DeadFd,
    /// The greeting of a process that has made its connection by `PMI_PORT`.
    Greeting(Edit),
    /// The messages to a process that has asked for a process manager by singleton init.
    Singinit(Edit),
    /// The name of a group's keyval space.
    Kvsname(Edit),
    /// The process mapping.
    Mapping(Edit),
    /// The bytes of one read, as they are understood.
    Read(Edit),
    /// A request that fulfils conditions, as it is understood; it is dropped if there are no steps.
    Hear(Edit, Edit),
    /// Lawful requests that are taken for protocol errors, by the conditions that they fulfil.
    Reject(Edit),
    /// A reply.
    Reply(Replies, Edit),
    /// The writes that a reply is sent in.
    Writes(Replies, Writes),
    /// The value that a put stores.
    Store(Edit),
    /// The key under which a pair is stored and found.
    Key(Edit),
    /// A put.
    Put(PutEffect),
    /// A get.
    Get(GetEffect),
    /// The barrier.
    Barrier(BarrierEffect),
    /// The barrier of a part of a process group.
    GroupBarrier(GroupBarrierEffect),
    /// A protocol error, for the requests that fulfil conditions.
    Error(Edit, ErrorEffect),
    /// An init of a version that is not 1.1.
    Version(VersionEffect),
    /// An abort.
    Abort(AbortEffect),
    /// A finalize.
    Finalize(FinalizeEffect),
    /// A spawn request before it is done.
    SpawnRequest(Edit),
    /// The programs that the driver starts.
    SpawnStart(Edit),
    /// How a spawn is done.
    Spawn(SpawnEffect),
    /// Keyval spaces beside those of the groups.
    KeyvalSpace(KeyvalSpaceEffect),
    /// The name service.
    Names(NamesEffect),
    /// A reply of PMI-2.
    FrameReply(FrameReplies, Edit),
    /// The writes that a reply of PMI-2 is sent in.
    FrameWrites(FrameReplies, Writes),
    /// A request of PMI-2.
    Pmi2(Pmi2Effect),
}

impl Effect {
    /// Returns whether it shows from the beginning, whatever is asked: it changes how the server is set up, not what it does.
    pub(crate) fn is_of_setup(&self) -> bool {
        matches!(self, Self::Maxes(_) | Self::Universe(_))
    }

    /// Returns whether it shows in PMI-2 alone.
    pub fn is_of_frames(&self) -> bool {
        matches!(self, Self::FrameReply(..) | Self::FrameWrites(..) | Self::Pmi2(_))
    }
}

pub use kinds::*;
mod kinds {
    #![allow(missing_docs, reason = "each is described by the faults that have it")]

    use serde::Deserialize;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum BarrierEffect {
        Never,
        AtOnce,
        OneShort,
        TwoShort,
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ErrorEffect {
        Ignored,
        AnsweredOk,
        AnsweredFail,
        OffenderOnly,
        OthersOnly,
        Unlogged,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum VersionEffect {
        RefusesHigher,
        AcceptsLower,
        Echoes,
        ClosesOnLower,
        RefusesLower,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum FinalizeEffect {
        WaitsForAll,
        EndsGroup,
        ForgetsKeys,
        StopsServing,
        Closes,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum KeyvalSpaceEffect {
        OneName,
        OwnName,
        DestroyKeeps,
        DestroyTakesAll,
        UnknownDestroyed,
        IndexFromOne,
        IndexStays,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

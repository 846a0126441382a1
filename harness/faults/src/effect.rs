//! The effects that a server can have: its differences from the reference server.

use pmi_reference::{ResponseHeader, ResponseParts};
use pmi_wire::{Framing, KvsLimits, ResponseOutcome, protocol};
use serde::Deserialize;

use super::edit::Edit;

/// A selection of responses by their outcome. A miss counts as a failure, although PMI-2 reports it with `rc=0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeSelector {
    /// Responses that report success.
    Ok,
    /// Responses that report a failure or a miss.
    Fail,
    /// All responses.
    Any,
}

/// The responses that an effect applies to, selected by their request and their outcome. `None` selects all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseSelector(pub Option<&'static str>, pub OutcomeSelector);

impl ResponseSelector {
    /// Returns the selector for responses to requests with this name: `each`, an operation of the protocol table in every dialect, or a
    /// command of one dialect. Returns `None` if the name is unknown. Fullinit counts as a separate request, although the table lists it as
    /// the init of PMI-2.
    pub(crate) fn for_request(of: &str, kind: OutcomeSelector) -> Option<Self> {
        let operations = protocol::all_exchanges().map(|exchange| exchange.operation);
        let requests = protocol::all_exchanges().map(|exchange| exchange.request);
        match of {
            "each" => Some(Self(None, kind)),
            _ => Some(Self(Some(operations.chain(requests).find(|name| *name == of)?), kind)),
        }
    }

    /// Returns whether the selector applies to responses to this request.
    pub(crate) fn names(self, header: &ResponseHeader, is_pmi2: bool) -> bool {
        match (self.0, header.exchange) {
            (None, _) => !is_pmi2 || header.framing == Framing::Frames,
            (Some(name), Some(exchange)) => {
                exchange.request == name || (exchange.operation == name && exchange.request != "fullinit")
            }
            (Some(_), None) => false,
        }
    }

    /// Returns whether a response is selected. On a PMI-2 connection, "all requests" are those after the init line.
    pub(crate) fn matches(self, response: &ResponseParts, is_pmi2: bool) -> bool {
        let is_ok = response.result.outcome == ResponseOutcome::Success;
        self.names(&response.header, is_pmi2)
            && match self.1 {
                OutcomeSelector::Ok => is_ok,
                OutcomeSelector::Fail => !is_ok,
                OutcomeSelector::Any => true,
            }
    }
}

/// The way in which a response is divided into writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseWrites {
    /// Every byte in a separate write.
    Bytewise,
    /// Two halves in separate writes.
    Halves,
    /// The last byte in a separate write.
    NewlineApart,
    /// The length header in a separate write.
    HeaderApart,
    /// One write, with colons in place of equals signs.
    Colons,
}

impl ResponseWrites {
    pub(crate) fn split(self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
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

/// A difference from the reference server: the affected data or action, and the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The limits of the keyval space.
    Limits(KvsLimits),
    /// The universe size.
    Universe(u64),
    /// The environment of a process, including `PMI_FD`.
    Env(Edit),
    /// The descriptor in `PMI_FD` is not connected.
    DeadFd,
    /// A connection to the port ends the job if it belongs to no process.
    StrayEndsJob,
    /// The greeting to a process that has connected through `PMI_PORT`.
    Greeting(Edit),
    /// The messages to a process that has requested a process manager (singleton init).
    Singinit(Edit),
    /// The name of a group's keyval space.
    Kvsname(Edit),
    /// The process mapping.
    Mapping(Edit),
    /// The bytes that the server receives in a single read.
    Read(Edit),
    /// A request that meets the conditions of the first edit. The server receives the request as changed by the second edit, or not at all
    /// if the second edit has no steps.
    IncomingRequest(Edit, Edit),
    /// The bytes of a read while a request is incomplete.
    Piece(PieceEffect),
    /// A request of this kind, after it has been read.
    Request(ResponseSelector, Edit),
    /// Valid requests that meet these conditions and that the server treats as protocol errors.
    Reject(Edit),
    /// A response.
    Response(ResponseSelector, Edit),
    /// The way in which a response is divided into writes.
    Writes(ResponseSelector, ResponseWrites),
    /// The value that a put stores.
    Store(Edit),
    /// The key under which a pair is stored and found.
    Key(Edit),
    /// A difference in the handling of a put.
    Put(PutEffect),
    /// A difference in the handling of a get.
    Get(GetEffect),
    /// A difference in the barrier of a whole process group.
    Barrier(BarrierEffect),
    /// A difference in the barriers over part of a process group.
    GroupBarrier(GroupBarrierEffect),
    /// A protocol error caused by a request that meets these conditions.
    Error(Edit, ErrorEffect),
    /// A difference in the handling of an init with a version other than 1.1.
    Version(VersionEffect),
    /// A difference in the handling of an abort.
    Abort(AbortEffect),
    /// A difference in the handling of a finalize.
    Finalize(FinalizeEffect),
    /// A spawn request before it is carried out.
    SpawnRequest(Edit),
    /// The programs that the driver starts.
    SpawnStart(Edit),
    /// The way in which a spawn is carried out.
    Spawn(SpawnEffect),
    /// A difference in keyval spaces other than those of the groups.
    KeyvalSpace(KeyvalSpaceEffect),
    /// A difference in the name service.
    Names(NamesEffect),
    /// A difference in the handling of node attributes.
    Node(NodeEffect),
    /// A request that arrives while another request from the same process is unanswered, and that the server treats as a protocol error.
    RejectsConcurrent,
}

impl Effect {
    /// Returns whether the effect changes the server's settings rather than its actions. Such an effect applies from the
    /// beginning, before any request.
    pub(crate) fn is_of_setup(&self) -> bool {
        matches!(self, Self::Limits(_) | Self::Universe(_))
    }
}

pub use kinds::*;
mod kinds {
    #![allow(missing_docs, reason = "the faults that use a variant document it")]

    use serde::Deserialize;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PieceEffect {
        AfterEqualsShort,
        ShortLost,
        OfAnother,
    }

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
        SecondForOddRanks,
        SixtyFourKeys,
        IntoFirstGroup,
        RefusedButStored,
        RefusedAndRemoved,
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
        BelievesHint,
        LastMisreadsFirst,
        CutOnOtherNode,
        SpawnedGroupFirst,
        ThreeEpochs,
        KeyThatIsPrefix,
        EarlierJob,
        EarlierJobIfAsLong,
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
        AtOnceAndRequestsWait,
        NeverBackwards,
        EarlyForLatecomer,
        NeverAfterPieces,
        NeverAfterAbort,
        CountsEarlierJob,
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
        NobodyOpens,
        OpensOnce,
        CountsOthers,
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
    pub enum NodeEffect {
        PutLost,
        PutEverywhere,
        PutReleasesNobody,
        GetNeverWaits,
        GetAlwaysWaits,
        GetFirstRankOnly,
        PutReleasesOne,
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
        TwiceRefusedButReplaces,
        TwiceLost,
        DropsWithPublisher,
        LastPortForAll,
        BarrierDrops,
        Refused,
        UnpublishTakesFirst,
        TwiceKeepsSecond,
        OwnPort,
        EarlierWithdrawn,
        EarlierPort,
    }
}

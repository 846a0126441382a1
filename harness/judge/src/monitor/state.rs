//! The state of the monitor: connections, process groups and names, as observed on the wire.

use pmi_scenario::ids::{self, rules};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use pmi_wire::protocol::Exchange;
use pmi_wire::{
    Connection, Decoded, Direction, Framing, KvsLimits, MAPPING_KEY, Operation, Proc, SpawnCollector,
    SpawnRequest, Version,
};

use super::group_barrier_state::{GroupBarrierLog, GroupBarrierName};
use super::name_request::NameRequest;
use super::placement::Placement;
use super::unspecified::Unspecified;
use crate::Severity;
use crate::bytes::Bytes;
use crate::connections::Connections;
use crate::conversation::ReportedSizes;
use crate::finding::{Finding, PartyKind};
use crate::kvs::{KnownPuts, Kvs};
use crate::lookup_cache::LookupCache;
use crate::observation::ObservationText;

/// Length in bytes beyond which a server may reject a request. RFC 13 sets no limit for messages, but no operation needs a longer request.
pub(super) const MIN_LONG_REQUEST: usize = 8 * 1024;

/// Number of bytes that a server usually reads at a time.
pub(super) const USUAL_READ_SIZE: usize = 4096;

/// Maximum number of findings that are kept until the next call of [`Monitor::take_findings`]. A server that floods its clients may break
/// the same rule a million times.
pub(super) const FINDINGS_LIMIT: usize = 100;

/// Maximum number of excess processes. The monitor reports a server that starts more, because such a server has probably misread a number.
pub(super) const MAX_EXCESS_PROCESSES: u64 = 64;

/// The requirement that a server breaks if it does not serve a pair of the maximum length.
pub(super) const MAX_LENGTH_REQUIREMENT: &str = ids::RFC13_MAXES_HONOURED;

/// The requirement that only the newline ends a message, even if the message arrives in several writes.
pub(super) const SPLIT_WRITE_REQUIREMENT: &str = ids::RFC13_WIRE_NEWLINE;

pub(super) const COMPLETE_RESPONSE_REQUIREMENT: &str = ids::RFC13_RESPONSE_COMPLETE_ON_SUCCESS;

/// The reserved prefix of keys that the process manager itself provides.
pub(super) const RESERVED_PREFIX: &[u8] = b"PMI_";

/// Returns the requirement for the dialect of a message. `rule` contains the requirements for PMI-1 and PMI-2, in this order.
pub(super) fn cite(message: &Decoded<'_>, rule: [&'static str; 2]) -> &'static str {
    message.framing.pick(rule)
}

/// A request that has not been answered yet.
#[derive(Debug)]
pub(super) struct MonitoredRequest {
    /// The row of the protocol table; `None` if the message is not a request. The correct response is then unknown.
    pub(super) row: Option<&'static Exchange>,
    /// The operation, if RFC 13 defines it.
    pub(super) op: Option<Operation>,
    /// The `thrid` of a PMI-2 request, if the request contains one.
    pub(super) thrid: Option<Vec<u8>>,
    /// A rule of the draft that the request depends on, and that some known servers do not follow.
    pub(super) needs: Option<&'static str>,
    pub(super) detail: RequestDetail,
}

/// The properties of a request that are needed to judge the response.
#[derive(Debug)]
pub(super) enum RequestDetail {
    /// An init (not fullinit), with the version that it offers.
    Init(Version),
    /// A PMI-2 fullinit. `lacks_field` is true if the request omits a field that some servers need. `has_wrong_rank` is true if the request
    /// states a wrong rank.
    Fullinit {
        lacks_field: bool,
        has_wrong_rank: bool,
    },
    /// A put. `valid` is true if the server has no reason to refuse the put.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        valid: bool,
    },
    Get(GetRequest),
    /// A put of a node attribute. `valid` is true if the server has no reason to refuse the put.
    PutNode {
        key: Vec<u8>,
        valid: bool,
    },
    /// A get of a node attribute. If the request asks the server to wait for the attribute, `wait` is the requirement
    /// that a response without a value breaks. `existed` is true if the attribute was stored before the request.
    GetNode {
        key: Vec<u8>,
        wait: Option<&'static str>,
        existed: bool,
    },
    /// A request for the process mapping as an attribute of the job.
    Mapping,
    Name(NameRequest),
    /// A barrier of the whole group. The number of the barrier is stored only in PMI-2. In PMI-1, the next barrier_out ends the barrier.
    Barrier(Option<u64>),
    Spawn(SpawnRequest),
    Plain,
    /// A request that may have been answered already, because a response matched several pending requests.
    Unclear,
}

/// A request for the value of a key.
#[derive(Debug)]
pub(super) struct GetRequest {
    pub(super) key: Vec<u8>,
    /// The keyval space that the request names (PMI-1 only).
    pub(super) of: Option<Vec<u8>>,
    /// Number of barriers that the process had completed when it sent the request.
    pub(super) barriers_left: u64,
    /// The requirement that applies if the request contains a jobid.
    pub(super) rule: Option<&'static str>,
    pub(super) srcid: Option<i64>,
}

/// The outcome of singleton init.
#[derive(Debug)]
pub(super) enum SingletonState {
    /// A failure, which has been reported.
    Failed,
    /// Success, with the name of the keyval space.
    Done(Vec<u8>),
}

/// A process and its connection.
#[derive(Debug, Default)]
pub(super) struct MonitoredRank {
    /// The framing of the pending requests.
    pub(super) framing: Framing,
    pub(super) fullinit_sent: bool,
    pub(super) fullinit_accepted: bool,
    /// True if the last PMI-2 response to the process was a refusal.
    pub(super) refused: bool,
    /// The incomplete spawn request that the process is sending.
    pub(super) spawn: Option<SpawnCollector>,
    /// The lines of the incomplete spawn request.
    pub(super) spawn_lines: Vec<u8>,
    /// Unanswered requests, the oldest first.
    pub(super) pending: VecDeque<MonitoredRequest>,
    pub(super) started_manager: bool,
    /// The outcome of singleton init, if the process has requested a process manager itself.
    pub(super) singinit: Option<SingletonState>,
    /// True if the process's environment has been judged.
    pub(super) started: bool,
    /// True if the process's init has been answered with success.
    pub(super) joined: bool,
    pub(super) finalized: bool,
    /// True if the server has answered the process's finalize with a failure.
    pub(super) finalize_refused: bool,
    /// True if the server has closed the connection.
    pub(super) closed: bool,
    /// True if the process has closed the connection, or has ended.
    pub(super) is_gone: bool,
    /// True if the process's connection ended after a barrier_in that lacked its newline.
    pub(super) has_incomplete_barrier: bool,
    /// True if the process closed the connection with unread bytes.
    pub(super) left_unread: bool,
    pub(super) barriers_entered: u64,
    pub(super) barriers_left: u64,
    /// The version in the server's response to init.
    pub(super) answered_version: Option<Version>,
    /// The version in use; `None` means 1.1. A version above the client's offer counts only after the client has used it.
    pub(super) version: Option<Version>,
    /// The version that the process offered and the version in the server's response, if the server's version is
    /// higher.
    pub(super) version_above_offer: Option<(Version, Version)>,
    /// In PMI-1.2, the `group` of the last barrier of the whole group that the process entered: `WORLD`, or `None` if the key was missing.
    pub(super) world_spelling: Option<Vec<u8>>,
    /// The barriers over part of the process's group that the process has entered but not left.
    pub(super) open_barriers: Vec<GroupBarrierName>,
    /// The puts that the process must see because of barriers over part of its group.
    pub(super) required_puts: KnownPuts,
    pub(super) limits: Option<KvsLimits>,
    /// The value of PMI_RANK in the process's environment.
    pub(super) rank_variable: Option<String>,
    /// True if the server has sent an unreadable message on this connection. Only the first such message is reported.
    pub(super) unreadable: bool,
    /// True if the server has sent an unrequested message. The process may mistake the message for the response to a later request.
    pub(super) received_unsolicited: bool,
    /// True if the server has sent bytes on this connection that even a lenient parser rejects.
    pub(super) received_garbage: bool,
    /// True if the server has sent a message on this connection.
    pub(super) answered: bool,
    /// Number of pages of [`USUAL_READ_SIZE`] bytes that this process has written since the last response. Each write counts as at least
    /// one page.
    pub(super) unanswered_pages: usize,
    /// True if the process's last request is a put of a pair of the maximum length.
    pub(super) has_max_length_put: bool,
    /// True if the process's last request follows a put of a pair of the maximum length. A server that has not read the whole put treats
    /// the rest as part of this request.
    pub(super) follows_max_length_put: bool,
    /// True if the process sent its last request in several writes.
    pub(super) split_write: bool,
    /// True if the header of the process's last frame is not padded as in the draft.
    pub(super) has_unusual_header: bool,
    /// True if the process sent its last request in the same write as other requests.
    pub(super) joined_write: bool,
    /// True if the process has sent a spawn request.
    pub(super) spawns: bool,
    /// True if the process has sent an abort request.
    pub(super) aborts: bool,
    pub(super) init_sent: bool,
    /// True if the process has sent a request after it received bytes that are not a message. This violation is reported once.
    pub(super) continued_after_error: bool,
    /// True if the process has sent bytes that are not a request, or a request before the previous one was answered. It is then unknown
    /// which response belongs to which request, until all pending requests are answered.
    pub(super) lost_correlation: bool,
}

impl MonitoredRank {
    /// Returns the requests about names that have not been answered yet.
    pub(super) fn open_names(&self) -> impl Iterator<Item = &NameRequest> {
        self.pending.iter().filter_map(|pending| match &pending.detail {
            RequestDetail::Name(request) => Some(request),
            _ => None,
        })
    }

    /// Returns true if the version in use supports barriers over part of a group.
    pub(super) fn has_group_barriers(&self) -> bool {
        self.version.is_some_and(Version::has_group_barriers)
    }

    /// Returns true if the process's last request did not arrive in a write of its own.
    pub(super) fn is_fragmented(&self) -> bool {
        self.split_write || self.joined_write
    }

    /// Returns true if a barrier of the whole group has not been answered yet.
    pub(super) fn is_in_barrier(&self) -> bool {
        self.pending.iter().any(|pending| pending.op == Some(Operation::Barrier))
    }
}

/// The monitor's state of a process group.
#[derive(Debug, Default)]
pub(super) struct MonitoredGroup {
    pub(super) size: u32,
    pub(super) reported_sizes: ReportedSizes,
    /// The number of requested nodes or, if larger, the number of nodes that the group's processes report.
    pub(super) nodes: u32,
    /// The number of processes in the group that spawned this group; 0 for the first group.
    pub(super) parents: u32,
    pub(super) placement: Placement,
    /// The name of the keyval space: the kvsname in PMI-1, and the jobid in PMI-2.
    pub(super) names: [Option<Vec<u8>>; 2],
    /// The process mapping that was sent in PMI-1, and the one that was sent in PMI-2.
    pub(super) mappings: [Option<Vec<u8>>; 2],
    pub(super) kvs: Kvs,
    /// For each key, the rank that put the key first.
    pub(super) writers: HashMap<Vec<u8>, u32>,
    /// Keys whose values in the keyval space are unknown, for instance because they were put before the name of the keyval space was known.
    pub(super) unjudged_keys: HashSet<Vec<u8>>,
    /// The arguments of each program of a spawned group.
    pub(super) arguments: Vec<Vec<Bytes>>,
    pub(super) ranks: LookupCache<u32, MonitoredRank>,
    /// The number of the last barrier of the whole group that all processes are known to have entered.
    pub(super) entered_by_all: u64,
    /// Barriers over part of the group.
    pub(super) group_barriers: BTreeMap<GroupBarrierName, GroupBarrierLog>,
    /// For each key, the ranks whose PMI-2 get of the key found no value, each with the number of barriers that the rank had completed.
    pub(super) missed_gets: HashMap<Vec<u8>, BTreeMap<u32, u64>>,
    /// The values that processes have put for node attributes, by node and key.
    pub(super) node: HashMap<(u32, Vec<u8>), HashSet<Vec<u8>>>,
    /// The node attributes that the server has accepted.
    pub(super) node_attributes: HashSet<(u32, Vec<u8>)>,
    /// True if a key that is also a field name of the protocol has been put since the last barrier.
    pub(super) puts_protocol_words: bool,
    /// True if a key or a value of the maximum length has been put since the last barrier.
    pub(super) has_max_length_put: bool,
    /// The keys of pairs of the maximum length that have been put.
    pub(super) max_length_keys: HashSet<Vec<u8>>,
    /// The reason why the server may abort the program now: a client of the group broke the protocol, requested an abort or died.
    pub(super) may_abort: Option<Unspecified>,
    /// Ranks whose pending request has a form that parsers should accept but need not. The server may abort the program until it has
    /// answered the request with success.
    pub(super) irregular_ranks: HashSet<u32>,
    /// Keys of puts that lacked their newline when their connection ended.
    pub(super) incomplete_puts: HashSet<Vec<u8>>,
    /// The reason why the server's state for the group is unknown: a client sent bytes that are not a request, or a request out of order.
    /// RFC 13 does not specify whether these bytes or this request enter a barrier or put a value.
    pub(super) state_unknown: Option<Unspecified>,
}

/// Maximum size of a group. The monitor treats the size of a larger group as unknown.
pub(super) const MAX_PROCESSES: u64 = 1 << 20;

/// Maximum number of ranks that a finding names.
const MAX_NAMED_RANKS: usize = 16;

impl MonitoredGroup {
    /// Sets the requested size. If the number is too large, the size of the group counts as unknown.
    pub(super) fn set_requested_size(&mut self, processes: u64) {
        self.size = u32::try_from(processes).ok().filter(|_| processes <= MAX_PROCESSES).unwrap_or(0);
    }

    /// Records the size that a process of a spawned group received, and returns the size to expect from now on.
    pub(super) fn record_size(&mut self, reported: Option<u32>) -> u32 {
        self.size = self.reported_sizes.record(self.size, reported);
        self.size
    }

    /// Returns true if `is` holds for all processes of the group.
    pub(super) fn all(&self, is: impl Fn(&MonitoredRank) -> bool) -> bool {
        self.ranks.len() >= self.size as usize
            && (0..self.size).all(|rank| self.ranks.get(rank).is_some_and(&is))
    }

    /// Returns a list of the ranks that do not satisfy `is`, or `None` if all ranks satisfy it.
    pub(super) fn ranks_except(&self, is: impl Fn(&MonitoredRank) -> bool) -> Option<String> {
        let mut missing = (0..self.size).filter(|rank| !self.ranks.get(*rank).is_some_and(&is));
        let named: Vec<String> =
            missing.by_ref().take(MAX_NAMED_RANKS).map(|rank| rank.to_string()).collect();
        match missing.count() {
            _ if named.is_empty() => None,
            0 => Some(named.join(", ")),
            more => Some(format!("{} and {more} more", named.join(", "))),
        }
    }

    /// Returns true if all processes have entered this barrier of the whole group.
    pub(super) fn all_entered(&mut self, round: u64) -> bool {
        let known = self.entered_by_all >= round;
        if !known && self.all(|rank| rank.barriers_entered >= round) {
            self.entered_by_all = round;
        }
        self.entered_by_all >= round
    }
}

/// A model of PMI-1 and PMI-2 that reports violations by either side; see the [module documentation](super).
#[derive(Debug, Default)]
pub struct Monitor {
    pub(crate) connections: Connections,
    /// True if the bytes of the current event continue a message that began in an earlier event.
    pub(super) continues_message: bool,
    /// True if there was any activity on a connection that belongs to no process: bytes, a close, or a missing response.
    pub(super) has_stray_bytes: bool,
    /// True if the server writes tuples after values that extend to the end of the line. This violation has been
    /// reported.
    pub(super) appends_tuples: bool,
    /// True at index 0 if the server has accepted spawn arguments numbered from zero, and at index 1 if it has accepted spawn arguments
    /// numbered from one.
    pub(super) accepts_argument_bases: [bool; 2],
    /// The requirements that the scenario tests; `None` if there is no scenario.
    pub(super) focus: Option<Vec<String>>,
    /// The versions negotiated on the connections.
    pub(super) versions: BTreeSet<Version>,
    /// The first version above the client's offer that a server chose.
    pub(super) first_version: Option<Version>,
    pub(super) groups: BTreeMap<u32, MonitoredGroup>,
    /// The published names and their different ports, in the order in which each was last published.
    pub(super) names: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Names that were published and withdrawn.
    pub(super) unpublished: HashSet<Vec<u8>>,
    /// Names about which two ranks had pending requests at the same time, so the order of the requests is unknown.
    pub(super) contested_names: HashSet<Vec<u8>>,
    /// The number of complete spawn requests.
    pub(super) spawned: u32,
    /// The number of processes that spawn requests asked for. Requests that are otherwise invalid count as well.
    pub(super) processes_requested: u64,
    /// The number of processes that were started in spawned groups.
    pub(super) processes_spawned: u64,
    /// True if a spawn request could not be read, or was sent before the previous request was answered, or if a client sent a request that
    /// only the draft describes. It is then unknown which process was started for which request.
    pub(super) spawns_unknown: bool,
    /// True if a process of the first group requested an abort of the group with an exit code other than 0, or without an exit code.
    pub(super) aborted: bool,
    /// True if a process of the first group requested an abort of the group with exit code 0.
    pub(super) aborted_as_success: bool,
    /// True if the scenario has sent a message as the upstream of a proxy.
    pub(super) upstream_scripted: bool,
    /// True if at least one process was offered the wire protocol; `None` before the first process has started.
    pub(super) wire_offered: Option<bool>,
    /// The number of messages, including those that could not be read.
    pub(super) messages: usize,
    /// True if a client has sent a message that breaks the grammar, does not fit the state, or is ambiguous. Such a message need not cause
    /// a finding.
    pub(super) irregular: bool,
    /// True if the server has sent a response to which a client may react in any way. Such a response need not cause a finding.
    pub(super) irregular_response: bool,
    /// True if responses are inspected for `irregular_response`.
    pub(crate) inspects_responses: bool,
    /// The processes whose requests the server had not read when the current expectation was last checked.
    pub(super) not_read: BTreeSet<Proc>,
    /// True if only a timeout shows that the last response is missing.
    pub(super) lacks_proof: bool,
    pub(super) seq: u64,
    pub(super) findings: Vec<Finding>,
}

/// Returns the grammar requirement for a message of an operation: for example, `rfc13.abnf.c-get` for a get request and `rfc13.abnf.s-get`
/// for its response. For an operation that RFC 13 does not define, returns the rule for all messages.
pub(super) fn grammar_rule(direction: Direction, op: Operation) -> &'static str {
    let side = match direction {
        Direction::ToServer => 'c',
        Direction::FromServer => 's',
    };
    ids::find(&format!("rfc13.abnf.{side}-{}", op.rule())).unwrap_or(ids::RFC13_ABNF_PMI1)
}

/// Returns the grammar requirement for the request of an operation.
pub(super) fn request_rule(op: Operation) -> &'static str {
    grammar_rule(Direction::ToServer, op)
}

impl Monitor {
    /// Creates a monitor that has read no events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a monitor for a scenario that tests these requirements. A server that answers every offer with the same higher version
    /// breaks the requirement about the version in every scenario. The monitor then reports this violation only in scenarios that test the
    /// requirement.
    pub fn with_focus(requirements: Vec<String>) -> Self {
        Self { focus: Some(requirements), ..Self::default() }
    }

    /// Returns and removes the findings made so far.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Returns true if the server starts far more processes than requested. Such a server may never stop starting processes.
    pub fn starts_too_many(&self) -> bool {
        self.processes_spawned > self.processes_requested.saturating_add(MAX_EXCESS_PROCESSES)
    }

    /// Returns the number of process groups that spawn requests asked for.
    pub fn spawned(&self) -> u32 {
        self.spawned
    }

    /// Returns the versions negotiated on the connections, for example `1.1`, the lowest first.
    pub(crate) fn versions(&self) -> Vec<String> {
        self.versions.iter().map(Version::to_string).collect()
    }

    /// Returns whether processes have started, and none of them was offered the wire protocol.
    pub(crate) fn is_unoffered(&self) -> bool {
        self.wire_offered == Some(false)
    }

    /// Returns the number of messages to and from the processes.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Returns true if this party has sent a message that breaks the grammar, does not fit the state or is ambiguous. For a server, the
    /// result is known only if responses are inspected.
    pub(crate) fn is_irregular_of(&self, party: PartyKind) -> bool {
        if party == PartyKind::Client { self.irregular } else { self.irregular_response }
    }

    /// Returns true if a message in this direction is incomplete on any connection.
    pub(crate) fn is_mid_message(&self, direction: Direction) -> bool {
        let mut ranks = self.groups.values().flat_map(|group| group.ranks.values());
        self.process_connections().any(|(_, connection)| !connection.partial(direction).is_empty())
            || direction == Direction::ToServer && ranks.any(|rank| rank.spawn.is_some())
    }

    /// Returns true if a process and the server have negotiated this framing.
    pub fn has_negotiated(&self, framing: Framing) -> bool {
        self.process_connections().any(|(_, connection)| connection.negotiated() == Some(framing))
    }

    /// Returns the connections of processes, but not stray connections.
    pub(super) fn process_connections(&self) -> impl Iterator<Item = (Proc, &Connection)> {
        self.connections.iter().filter(|(p, _)| p.group != Proc::STRAY_GROUP)
    }

    /// Returns true if the server has sent this process an unreadable message. The message has been reported.
    pub(crate) fn has_unreadable_answer(&self, p: Proc) -> bool {
        self.find_rank(p).is_some_and(|r| r.unreadable)
    }

    /// Returns true if the server writes tuples after values that extend to the end of the line. This violation has
    /// been reported.
    pub(crate) fn has_tuples_after_values(&self) -> bool {
        self.appends_tuples
    }

    /// Returns the requirement that the server breaks if it has not read everything that these processes wrote. Ignores a process that has
    /// written more than one page, or more than once, since the server's last response, because the server may have read some of these
    /// bytes.
    pub(crate) fn unread_rule(&self, not_read: &BTreeSet<Proc>) -> Option<&'static str> {
        let mut ranks = not_read.iter().filter_map(|p| Some((*p, self.find_rank(*p)?)));
        let (p, _) = ranks.find(|(_, rank)| !rank.answered || rank.unanswered_pages <= 1)?;
        Some(self.connections.framing(p).pick(rules::REQUEST_ANSWERED))
    }

    /// Returns whether the server has accepted the init of a process.
    pub fn has_joined(&self, p: Proc) -> bool {
        self.find_rank(p).is_some_and(|r| r.joined)
    }

    /// Returns true if a process has sent an abort.
    pub fn has_aborted(&self, p: Proc) -> bool {
        self.find_rank(p).is_some_and(|r| r.aborts)
    }

    /// Returns true if a process has sent finalize.
    pub fn has_finalized(&self, p: Proc) -> bool {
        self.find_rank(p).is_some_and(|r| r.finalized)
    }

    /// Returns the framing of a process's connection.
    pub(crate) fn framing(&self, p: Proc) -> Framing {
        self.connections.framing(p)
    }

    /// Returns whether the server has sent a process a message that the process had not requested.
    pub(crate) fn received_unsolicited(&self, p: Proc) -> bool {
        self.find_rank(p).is_some_and(|r| r.received_unsolicited)
    }

    /// Returns the state of a process, or `None` if the monitor has not seen the process.
    pub(super) fn find_rank(&self, p: Proc) -> Option<&MonitoredRank> {
        self.groups.get(&p.group)?.ranks.get(p.rank)
    }

    pub(crate) fn is_put(&self, group: u32, key: &[u8]) -> bool {
        self.groups.get(&group).is_some_and(|group| group.kvs.contains(key))
    }

    pub(super) fn group(&mut self, id: u32) -> &mut MonitoredGroup {
        self.groups.entry(id).or_default()
    }

    pub(super) fn rank(&mut self, p: Proc) -> &mut MonitoredRank {
        self.group(p.group).ranks.get_or_insert_with(p.rank, MonitoredRank::default)
    }

    /// Adds the process group that a process has requested, with its size and its initial pairs.
    pub(super) fn requested_group<'a>(
        &mut self,
        p: Proc,
        size: u64,
        preput: impl IntoIterator<Item = &'a (Vec<u8>, Vec<u8>)>,
    ) {
        self.spawned += 1;
        let (id, MonitoredGroup { nodes, size: parents, .. }) = (self.spawned, self.group(p.group));
        let (nodes, parents) = (*nodes, *parents);
        let group = self.group(id);
        (group.nodes, group.parents) = (nodes, parents);
        group.set_requested_size(size);
        // The server sets the mapping of the new group, regardless of the request.
        let preput = preput.into_iter().filter(|(key, _)| key != MAPPING_KEY);
        preput.for_each(|(key, value)| group.kvs.preput(key, value));
    }

    /// Returns the reason why the server's behaviour towards this process cannot be judged, if there is one.
    pub fn unspecified(&self, p: Proc) -> Option<Unspecified> {
        let group = self.groups.get(&p.group);
        let unusual = group.filter(|g| !g.irregular_ranks.is_empty()).map(|_| Unspecified::AmbiguousRequest);
        group.and_then(|g| g.may_abort).or(unusual).or_else(|| self.unknown_state_reason(p))
    }

    /// Returns the reason why the server's state for the group of this process is unknown, if there is one.
    fn unknown_state_reason(&self, p: Proc) -> Option<Unspecified> {
        let spawn = (p.group != 0 && self.spawns_unknown).then_some(Unspecified::Spawn);
        spawn.or_else(|| self.groups.get(&p.group)?.state_unknown)
    }

    /// Returns true if the server may abort the program of this process. A missing response or a failure then proves nothing.
    pub(super) fn may_abort(&self, p: Proc) -> bool {
        self.groups.get(&p.group).is_some_and(|g| g.may_abort.is_some() || !g.irregular_ranks.is_empty())
    }

    /// Returns true if the server's state for the group of this process is unknown.
    pub(super) fn state_unknown(&self, p: Proc) -> bool {
        self.unknown_state_reason(p).is_some()
    }

    /// Records that the server may abort the program of a process from now on.
    pub(super) fn allow_abort(&mut self, p: Proc, why: Unspecified) {
        self.group(p.group).may_abort.get_or_insert(why);
    }

    /// Records that the server's state for the group of a process is unknown from now on.
    pub(super) fn forget_state(&mut self, p: Proc, why: Unspecified) {
        self.group(p.group).state_unknown.get_or_insert(why);
    }

    /// Returns true if the pending request of this process has a form that parsers should accept but need not.
    pub(super) fn is_irregular(&mut self, p: Proc) -> bool {
        self.group(p.group).irregular_ranks.contains(&p.rank)
    }

    /// Records that an irregular request has been answered. If `taken` is false, the server may have refused the request or understood it
    /// differently, so the server's state is unknown.
    pub(super) fn irregular_answered(&mut self, p: Proc, taken: bool) {
        if self.group(p.group).irregular_ranks.remove(&p.rank) && !taken {
            self.allow_abort(p, Unspecified::AmbiguousRequest);
        }
    }

    /// Records that, from now on, a server may read the messages of this process in more than one way.
    pub(super) fn lose_correlation(&mut self, p: Proc, why: Unspecified) {
        self.irregular = true;
        self.rank(p).lost_correlation = true;
        self.allow_abort(p, why);
        self.forget_state(p, why);
    }

    /// Records a request that servers may read in several ways. A server may abort the program because of this request.
    pub(super) fn irregular_sent(&mut self, p: Proc) {
        self.irregular = true;
        self.allow_abort(p, Unspecified::AmbiguousRequest);
    }

    /// Records that a process has sent a message that is not a request. The server may send any response, or no response.
    pub(super) fn record_unknown(&mut self, p: Proc) {
        self.lose_correlation(p, Unspecified::NotARequest);
        let unknown =
            MonitoredRequest { row: None, op: None, thrid: None, needs: None, detail: RequestDetail::Plain };
        self.rank(p).pending.push_back(unknown);
    }

    /// Returns true if another process has sent the beginning of a request, and may still send the rest.
    pub(super) fn others_mid_request(&self, p: Proc) -> bool {
        let begun = |of: Proc| !self.connections.partial(of, Direction::ToServer).is_empty();
        let of = |group: u32, rank: u32| Proc { group, rank };
        let ranks = self
            .groups
            .iter()
            .flat_map(|(group, g)| g.ranks.iter().map(move |(rank, r)| (of(*group, rank), r)));
        ranks
            .filter(|(of, r)| *of != p && !r.is_gone && !r.closed)
            .any(|(of, r)| r.spawn.is_some() || begun(of))
    }

    /// Reports a violation by the server.
    pub(super) fn server_error(
        &mut self,
        p: Proc,
        requirement: &str,
        expected: impl Into<String>,
        seen: impl Into<ObservationText>,
    ) {
        self.find(PartyKind::Server, p, requirement, None, expected.into(), seen.into());
    }

    /// Reports a client's violation that allows the server to abort. RFC 13 does not specify whether a server ignores an invalid
    /// request or counts it towards a barrier. Therefore no later finding against the server may depend on the request.
    pub(super) fn client_error(
        &mut self,
        p: Proc,
        requirement: &str,
        expected: impl Into<String>,
        seen: impl Into<ObservationText>,
    ) {
        self.server_may_abort(p);
        self.client_misuse(p, requirement, expected, seen);
    }

    /// Records that the server may abort because of a client's violation, and that the server's state for the group is unknown.
    pub(super) fn server_may_abort(&mut self, p: Proc) {
        self.allow_abort(p, Unspecified::RuleViolation);
        self.forget_state(p, Unspecified::RuleViolation);
    }

    /// Reports a client's violation that a server may not notice.
    pub(super) fn client_misuse(
        &mut self,
        p: Proc,
        requirement: &str,
        expected: impl Into<String>,
        seen: impl Into<ObservationText>,
    ) {
        self.find(PartyKind::Client, p, requirement, None, expected.into(), seen.into());
    }

    /// Adds a finding, unless the maximum number of findings has been reached.
    pub(super) fn find(
        &mut self,
        party: PartyKind,
        p: impl Into<Option<Proc>>,
        requirement: &str,
        at_most: Option<Severity>,
        expected: String,
        seen: ObservationText,
    ) {
        if self.findings.len() >= FINDINGS_LIMIT || (self.upstream_scripted && party == PartyKind::Server) {
            return;
        }
        // After activity on a stray connection, all incorrect messages from the server are attributed to the stray connection.
        let requirement = if self.has_stray_bytes && party == PartyKind::Server {
            ids::PMI_PORT_STRAYS_HARMLESS
        } else {
            requirement
        };
        self.findings.push(Finding {
            proc: p.into(),
            seq: self.seq,
            max_severity: at_most,
            kind: seen.kind,
            ..Finding::new(requirement, party, expected, seen.text)
        });
    }
}

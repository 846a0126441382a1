//! The state of a session whose scenario is being written, and the steps that have been written so far.

use pmi_scenario::ids;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write;

use pmi_judge::event::Exit;
use pmi_scenario::ast::Dialect;
use pmi_wire::protocol::Exchange;
use pmi_wire::{Connection, Direction, Framing, KvsLimits, Proc, SpawnAssembler};

use super::fold::{RecordedSteps, StepOrder, StepText};

/// Maximum length in bytes of a message in the session.
const MAX_MESSAGE: usize = 1 << 20;

/// Prefix of keys that the process manager provides.
pub(super) const RESERVED_PREFIX: &[u8] = b"PMI_";

/// The properties of a request that the response depends on.
pub(super) enum ScriptRequestDetail {
    Put {
        /// True if every server must accept the put.
        valid: bool,
    },
    Get {
        key: Vec<u8>,
    },
    Lookup {
        service: Vec<u8>,
    },
    Fullinit {
        /// True if a key that some servers require is missing.
        lacks_field: bool,
    },
    Plain,
}

/// A request that has not been answered yet.
pub(super) struct ScriptRequest {
    /// The row in the protocol table; `None` for a line that is not a known request.
    pub(super) row: Option<&'static Exchange>,
    pub(super) thrid: Option<Vec<u8>>,
    pub(super) detail: ScriptRequestDetail,
}

/// An event on a connection.
pub(super) enum ConnectionEvent {
    Message {
        direction: Direction,
        framing: Framing,
        text: Vec<u8>,
    },
    /// Bytes from the client that are not a message.
    Garbled(Vec<u8>),
    Closed {
        by_client: bool,
    },
}

pub(super) struct ScriptRank {
    pub(super) connection: Connection,
    /// True if the rank has received the name of its keyval space, or the id of its job.
    pub(super) has_name: bool,
    pub(super) has_written: bool,
    pub(super) pending: Vec<ScriptRequest>,
    /// Events after a fence that some rank has not entered yet. Hydra releases ranks early, but other servers do not.
    pub(super) events_after_fence: VecDeque<ConnectionEvent>,
    /// The lines of an incomplete spawn request.
    pub(super) block: Option<(SpawnAssembler, Vec<Vec<u8>>)>,
    pub(super) limits: Option<KvsLimits>,
    pub(super) barriers_entered: u64,
    pub(super) barriers_left: u64,
    pub(super) finalized: bool,
    pub(super) closed: bool,
}

impl Default for ScriptRank {
    fn default() -> Self {
        Self {
            connection: Connection::new(MAX_MESSAGE),
            has_name: false,
            has_written: false,
            pending: Vec::new(),
            events_after_fence: VecDeque::new(),
            block: None,
            limits: None,
            barriers_entered: 0,
            barriers_left: 0,
            finalized: false,
            closed: false,
        }
    }
}

#[derive(Default)]
pub(super) struct RecordedGroup {
    /// Number of requested processes; 0 if unknown.
    pub(super) size: u32,
    /// The name of the keyval space; in PMI-2, the job id.
    pub(super) name: Option<Vec<u8>>,
    /// For each node attribute, all values that were put.
    pub(super) node: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// For each key, its value, and the number of barriers that the putting rank had entered before the put.
    pub(super) values: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Keys that were put more than once.
    pub(super) repeated_keys: HashSet<Vec<u8>>,
    pub(super) preput: HashMap<Vec<u8>, Vec<u8>>,
}

/// A writer that turns a session into a scenario.
#[derive(Default)]
pub(super) struct ScenarioWriter {
    pub(super) dialect: Dialect,
    pub(super) ranks: u32,
    pub(super) exits: HashMap<Proc, Exit>,
    pub(super) members: BTreeMap<Proc, ScriptRank>,
    pub(super) groups: HashMap<u32, RecordedGroup>,
    pub(super) ports: HashMap<Vec<u8>, Vec<u8>>,
    pub(super) spawned: u32,
    pub(super) steps: RecordedSteps,
    pub(super) spawns: bool,
    pub(super) names: bool,
    /// True after a failure in the session. From then on, any process may end at any time.
    pub(super) has_failure: bool,
    /// The group that was aborted, if the failure was an abort.
    pub(super) aborted: Option<u32>,
    pub(super) exit: Option<Exit>,
    /// True after the session has ended. Events then no longer wait for a fence.
    pub(super) is_over: bool,
}

impl ScenarioWriter {
    /// Creates a writer for a session in a dialect. `exits` are the exits of the processes.
    pub(super) fn new(dialect: Dialect, exits: HashMap<Proc, Exit>) -> Self {
        Self { dialect, exits, ..Self::default() }
    }

    /// Returns the requirement to cite: `pmi1` or `pmi2`, depending on the dialect of the session.
    pub(super) fn cite(&self, pmi1: &'static str, pmi2: &'static str) -> &'static str {
        self.dialect.pick([pmi1, pmi2])
    }

    /// Returns the requirement to cite for an expectation that accepts any response.
    pub(super) fn any(&self) -> &'static str {
        self.cite(ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, ids::PMI2_COMMON_RESPONSE_NAME)
    }

    pub(super) fn rank(&mut self, p: Proc) -> &mut ScriptRank {
        self.members.entry(p).or_default()
    }

    pub(super) fn group(&mut self, id: u32) -> &mut RecordedGroup {
        self.groups.entry(id).or_default()
    }

    /// Adds a step at its recorded position.
    pub(super) fn step(&mut self, p: Proc, role: &'static str, cites: &'static str, text: String) {
        self.step_in(p, StepOrder::Fixed, role, cites, text);
    }

    /// Adds a step whose position may change as `order` permits.
    pub(super) fn step_in(
        &mut self,
        p: Proc,
        order: StepOrder,
        role: &'static str,
        cites: &'static str,
        text: String,
    ) {
        self.steps.push(p, order, StepText { role, cites, text });
    }
}

/// Returns whether a value is not empty and consists of visible ASCII characters. In RFC 13, the end of such a value is unambiguous.
pub(super) fn is_plain(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
}

/// Writes bytes in the scenario language.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (i, byte) in bytes.iter().enumerate() {
        let between = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_graphic());
        match byte {
            b'<' => text.push_str("<<"),
            b'$' => text.push_str("$$"),
            // The parser keeps a space between visible characters.
            b' ' if i > 0 && between(bytes.get(i - 1)) && between(bytes.get(i + 1)) => text.push(' '),
            b' ' if i == 0 && between(bytes.get(1)) => text.push(' '),
            b' ' => text.push_str("<sp>"),
            b'\t' => text.push_str("<tab>"),
            _ if byte.is_ascii_graphic() => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "<0x{byte:02x}>");
            }
        }
    }
    text
}

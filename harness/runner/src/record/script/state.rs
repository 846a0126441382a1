//! What has been seen of a session so far, and the steps that have come of it.

use pmi_scenario::ids;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write;

use pmi_judge::event::Exit;
use pmi_scenario::ast::Dialect;
use pmi_wire::pmi2::Command;
use pmi_wire::{Connection, Direction, Framing, Maxes, Operation, Proc, SpawnAssembler};

use super::fold::{Order, StepText, Steps};

/// Longest message that is written.
const LONGEST: usize = 1 << 20;

/// Keys that the process manager itself provides.
pub(super) const RESERVED: &[u8] = b"PMI_";

/// What a rank waits for that asks in lines.
pub(super) enum Asked {
    Op(Operation),
    Put { lawful: bool },
    Get { key: Vec<u8> },
    Lookup { service: Vec<u8> },
    Unknown,
}

/// What of a request in a frame matters for its answer.
pub(super) enum Detail {
    Put {
        lawful: bool,
    },
    Get {
        key: Vec<u8>,
    },
    GetNode {
        key: Vec<u8>,
    },
    GetJob {
        key: Vec<u8>,
    },
    Lookup {
        name: Vec<u8>,
    },
    /// `bare` if one of the keys is not there that some servers want.
    Fullinit {
        bare: bool,
    },
    Fence,
    Plain,
}

/// A request in a frame that has no answer yet.
pub(super) struct Pending {
    pub(super) command: Command,
    pub(super) thrid: Option<Vec<u8>>,
    pub(super) what: Detail,
}

/// What happens at a connection.
pub(super) enum Happening {
    StepText {
        direction: Direction,
        framing: Framing,
        text: Vec<u8>,
    },
    /// Bytes of the client's that are no message.
    Garbled(Vec<u8>),
    Closed {
        by_client: bool,
    },
}

pub(super) struct Rank {
    pub(super) connection: Connection,
    /// It was told the name of its keyval space, or the id of its job.
    pub(super) is_told_names: bool,
    /// It has written something.
    pub(super) spoke: bool,
    pub(super) asked: VecDeque<Asked>,
    pub(super) pending: Vec<Pending>,
    /// What happens behind a fence that not all have entered: Hydra does not keep anybody in it, others do.
    pub(super) behind_fence: VecDeque<Happening>,
    /// The lines of a spawn block so far.
    pub(super) block: Option<(SpawnAssembler, Vec<Vec<u8>>)>,
    pub(super) maxes: Option<Maxes>,
    pub(super) entered: u64,
    pub(super) left: u64,
    pub(super) finalized: bool,
    pub(super) closed: bool,
}

impl Default for Rank {
    fn default() -> Self {
        Self {
            connection: Connection::new(LONGEST),
            is_told_names: false,
            spoke: false,
            asked: VecDeque::new(),
            pending: Vec::new(),
            behind_fence: VecDeque::new(),
            block: None,
            maxes: None,
            entered: 0,
            left: 0,
            finalized: false,
            closed: false,
        }
    }
}

#[derive(Default)]
pub(super) struct Group {
    /// Number of processes that were asked for, 0 if that is not known.
    pub(super) size: u32,
    /// The id of the job, in PMI-2.
    pub(super) jobid: Option<Vec<u8>>,
    /// Attributes of the node, with all values that were put.
    pub(super) node: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    pub(super) kvsname: Option<Vec<u8>>,
    /// Values, who put them, and how many barriers that rank had entered before.
    pub(super) values: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Keys that were put more than once.
    pub(super) twice: HashSet<Vec<u8>>,
    pub(super) preput: HashMap<Vec<u8>, Vec<u8>>,
}

/// See the module's documentation.
pub(super) struct Writer {
    pub(super) dialect: Dialect,
    pub(super) ranks: u32,
    pub(super) exits: HashMap<Proc, Exit>,
    pub(super) members: BTreeMap<Proc, Rank>,
    pub(super) groups: HashMap<u32, Group>,
    pub(super) ports: HashMap<Vec<u8>, Vec<u8>>,
    pub(super) spawned: u32,
    pub(super) steps: Steps,
    pub(super) spawns: bool,
    pub(super) names: bool,
    /// Something went wrong, after which anything may end at any time.
    pub(super) trouble: bool,
    /// Which it was, where that was an abort.
    pub(super) aborted: Option<u32>,
    pub(super) exit: Option<Exit>,
    /// Nothing more comes.
    pub(super) is_over: bool,
}

impl Writer {
    /// For a session in which this was spoken, and whose processes have ended so.
    pub(super) fn new(dialect: Dialect, exits: HashMap<Proc, Exit>) -> Self {
        Self {
            dialect,
            ranks: 0,
            exits,
            members: BTreeMap::new(),
            groups: HashMap::new(),
            ports: HashMap::new(),
            spawned: 0,
            steps: Steps::default(),
            spawns: false,
            names: false,
            trouble: false,
            aborted: None,
            exit: None,
            is_over: false,
        }
    }

    /// What is cited, by dialect.
    pub(super) fn cite(&self, pmi1: &'static str, pmi2: &'static str) -> &'static str {
        match self.dialect {
            Dialect::Pmi1 => pmi1,
            Dialect::Pmi2 => pmi2,
        }
    }

    /// Cited where an answer may say anything.
    pub(super) fn any(&self) -> &'static str {
        self.cite(ids::RFC13_WIRE_RESPONSE_MATCHES_REQUEST, ids::PMI2_COMMON_RESPONSE_NAME)
    }

    pub(super) fn rank(&mut self, p: Proc) -> &mut Rank {
        self.members.entry(p).or_default()
    }

    pub(super) fn group(&mut self, id: u32) -> &mut Group {
        self.groups.entry(id).or_default()
    }

    /// Adds a step that stands where it was seen.
    pub(super) fn step(&mut self, p: Proc, role: char, cites: &'static str, text: String) {
        self.step_in(p, Order::Fixed, role, cites, text);
    }

    /// Adds a step that stands where its order lets it.
    pub(super) fn step_in(&mut self, p: Proc, order: Order, role: char, cites: &'static str, text: String) {
        self.steps.push(p, order, StepText { role, cites, text });
    }

    /// Where a request may stand that may hold a name: behind the answer that tells it, so that a rank which knows it from elsewhere
    /// comes after whoever has asked.
    pub(super) fn order_with_names(&mut self, p: Proc) -> Order {
        let group = self.group(p.group);
        let is_named = group.kvsname.is_some() || group.jobid.is_some();
        if is_named && !self.rank(p).is_told_names { Order::Fixed } else { Order::Free }
    }
}

/// The name that a group's kvsname gets.
pub(super) fn variable(group: u32) -> String {
    match group {
        0 => "kvs".into(),
        1 => "child_kvs".into(),
        n => format!("child{n}_kvs"),
    }
}

/// Whether RFC 13 leaves no doubt about where a value ends.
pub(super) fn is_plain(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
}

/// Bytes as the language writes them.
pub(in crate::record) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (i, byte) in bytes.iter().enumerate() {
        let between = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_graphic());
        match byte {
            b'<' => text.push_str("<<"),
            b'$' => text.push_str("$$"),
            // A blank that nothing can eat.
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

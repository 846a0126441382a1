//! One plain session of a program, and the ways to change it.

use pmi_wire::Operation as Op;

use crate::behaviour::Behaviour;
use crate::fault::catalogue::faults;
use crate::fault::row::Fault;

/// What a process does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Writes these bytes. `{kvs}` stands for the name of the keyval space that the process's group has been told,
    /// `{child}` for that of the spawned group, `{agent}` for a program that can be spawned.
    Write(Vec<u8>),
    /// Writes these bodies of PMI-2 in one write, each with its length before it.
    Frames(Vec<Vec<u8>>),
    /// Closes the connection and ends.
    Close,
}

/// A step of a session.
#[derive(Debug, Clone)]
pub struct SessionStep {
    /// Process group: 0, or 1 for the one that is spawned.
    pub group: u32,
    /// Rank in it.
    pub rank: u32,
    /// What it does.
    pub act: Act,
    /// It does so without waiting for the answer to what it wrote before.
    pub ahead: bool,
    /// The request that the plain session makes here.
    pub(super) op: Option<Op>,
}

impl SessionStep {
    /// Whether it writes this line.
    pub(super) fn says(&self, line: &str) -> bool {
        matches!(&self.act, Act::Write(bytes) if bytes == line.as_bytes())
    }
}

/// What the processes of a program write, in order, and the server that they get.
#[derive(Debug, Clone)]
pub struct Session {
    /// Size of group 0.
    pub ranks: u32,
    /// In order. A step of a process that is still waiting for an answer, and does not act ahead, is never reached.
    pub steps: Vec<SessionStep>,
    /// Most bytes in one write.
    pub piece: usize,
    /// What is odd about the server.
    pub server: Behaviour,
    /// Whether it is one of PMI-2.
    pub pmi2: bool,
    /// Whether it is one of PMI-1.2.
    pub pmi12: bool,
}

pub(super) const SPAWN: &str = "mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=1\nspawnssofar=1\narg0=-n\narg1=x\nargcnt=2\n\
     preput_num=2\npreput_key_0=pre0\npreput_val_0=a\npreput_key_1=pre1\npreput_val_1=b\ninfo_num=1\ninfo_key_0=wd\n\
     info_val_0=/tmp\nendcmd\n";

/// Two programs in one request.
pub(super) const SPAWN_TWO: &str = "mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=2\nspawnssofar=1\nargcnt=0\npreput_num=2\n\
     preput_key_0=pre0\npreput_val_0=a\npreput_key_1=pre1\npreput_val_1=b\ninfo_num=0\nendcmd\n\
     mcmd=spawn\nnprocs=1\nexecname={agent}\ntotspawns=2\nspawnssofar=2\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";

const LIST: [(u32, u32, Op, &str); 28] = [
    (0, 0, Op::Init, "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (0, 1, Op::Init, "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (0, 0, Op::Maxes, "cmd=get_maxes\n"),
    (0, 1, Op::Maxes, "cmd=get_maxes\n"),
    (0, 0, Op::Kvsname, "cmd=get_my_kvsname\n"),
    (0, 1, Op::Kvsname, "cmd=get_my_kvsname\n"),
    (0, 0, Op::Universe, "cmd=get_universe_size\n"),
    (0, 0, Op::Appnum, "cmd=get_appnum\n"),
    (0, 0, Op::Put, "cmd=put kvsname={kvs} key=card-0 value=tcp://10.0.0.1:4711\n"),
    (0, 1, Op::Put, "cmd=put kvsname={kvs} key=card-1 value=tcp://10.0.0.2:4711\n"),
    (0, 0, Op::Barrier, "cmd=barrier_in\n"),
    (0, 1, Op::Barrier, "cmd=barrier_in\n"),
    (0, 0, Op::Get, "cmd=get kvsname={kvs} key=card-1\n"),
    (0, 1, Op::Get, "cmd=get kvsname={kvs} key=card-0\n"),
    (0, 1, Op::Get, "cmd=get kvsname={kvs} key=PMI_process_mapping\n"),
    (0, 0, Op::Publish, "cmd=publish_name service=ocean port=tag#0$host\n"),
    (0, 1, Op::Lookup, "cmd=lookup_name service=ocean\n"),
    (0, 0, Op::Unpublish, "cmd=unpublish_name service=ocean\n"),
    (0, 0, Op::Spawn, SPAWN),
    (1, 0, Op::Init, "cmd=init pmi_version=1 pmi_subversion=1\n"),
    (1, 0, Op::Maxes, "cmd=get_maxes\n"),
    (1, 0, Op::Kvsname, "cmd=get_my_kvsname\n"),
    (1, 0, Op::Get, "cmd=get kvsname={kvs} key=pre1\n"),
    (1, 0, Op::Barrier, "cmd=barrier_in\n"),
    (1, 0, Op::Finalize, "cmd=finalize\n"),
    (0, 0, Op::Universe, "cmd=get_universe_size\n"),
    (0, 0, Op::Finalize, "cmd=finalize\n"),
    (0, 1, Op::Finalize, "cmd=finalize\n"),
];

pub(super) fn write(group: u32, rank: u32, op: Option<Op>, line: impl AsRef<[u8]>) -> SessionStep {
    SessionStep { group, rank, act: Act::Write(line.as_ref().to_vec()), ahead: false, op }
}

impl Session {
    /// The plain session of PMI-1.
    pub fn of_lines() -> Self {
        Self::of(LIST.iter().map(|(group, rank, op, line)| write(*group, *rank, Some(*op), line)).collect())
    }

    /// These steps, after which all processes close their connections.
    pub(super) fn of(mut steps: Vec<SessionStep>) -> Self {
        let closes = [(1, 0), (0, 0), (0, 1)];
        steps.extend(closes.map(|(group, rank)| SessionStep {
            group,
            rank,
            act: Act::Close,
            ahead: true,
            op: None,
        }));
        Self { ranks: 2, steps, piece: usize::MAX, server: Behaviour::default(), pmi2: false, pmi12: false }
    }

    /// Where the plain session first makes this request.
    pub(super) fn at(&self, op: Op) -> usize {
        self.steps.iter().position(|s| s.op == Some(op)).unwrap_or(0)
    }

    /// Where it last does.
    pub(super) fn last(&self, op: Op) -> usize {
        self.steps.iter().rposition(|s| s.op == Some(op)).unwrap_or(0)
    }

    /// The same process writes this too, at an offset from its first request of that kind.
    pub(super) fn beside(&mut self, op: Op, offset: usize, ahead: bool, line: &str) {
        let at = self.at(op);
        let step = SessionStep { ahead, ..write(self.steps[at].group, self.steps[at].rank, None, line) };
        self.steps.insert(at + offset, step);
    }

    /// Something else is written in its stead.
    pub(super) fn instead(&mut self, op: Op, line: impl AsRef<[u8]>) {
        let at = self.at(op);
        self.steps[at].act = Act::Write(line.as_ref().to_vec());
    }

    /// Something is written, and answered, before it.
    pub(super) fn before(&mut self, op: Op, line: &str) {
        self.beside(op, 0, false, line);
    }

    /// Something is written once it has been answered.
    pub(super) fn after(&mut self, op: Op, line: &str) {
        self.beside(op, 1, false, line);
    }

    /// Something is written while its answer is still to come.
    pub(super) fn meanwhile(&mut self, op: Op, line: &str) {
        self.beside(op, 1, true, line);
    }

    /// It is followed by another request in the same write, before any answer.
    pub(super) fn together(&mut self, op: Op, line: &str) {
        self.edit(op, |bytes| bytes.extend_from_slice(line.as_bytes()));
    }

    pub(super) fn edit(&mut self, op: Op, change: impl Fn(&mut Vec<u8>)) {
        let at = self.at(op);
        if let Act::Write(bytes) = &mut self.steps[at].act {
            change(bytes);
        }
    }

    /// Text in the request is replaced.
    pub(super) fn replace(&mut self, op: Op, from: &str, to: &str) {
        self.edit(op, |bytes| *bytes = String::from_utf8_lossy(bytes).replacen(from, to, 1).into_bytes());
    }

    /// No process makes requests of this kind.
    pub(super) fn without(&mut self, op: Op) {
        self.steps.retain(|s| s.op != Some(op));
    }

    /// The group that is spawned is not there.
    pub(super) fn childless(&mut self) {
        self.steps.retain(|s| s.group == 0 && s.op != Some(Op::Spawn));
    }

    /// The server has this fault.
    pub(super) fn against(&mut self, fault: &str) {
        self.server = faults().find(|f| f.name == fault).map(Fault::behaviour).unwrap_or_default();
    }
}

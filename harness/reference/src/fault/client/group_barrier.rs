//! The plain session of PMI-1.2, and what clients do otherwise in it.

use pmi_wire::Operation as Op;

use super::row::{ClientFault, ClientVariation, Rows};
use super::session::{Session, SessionStep, write};

const FORM: &[&str] = &["mpich-1.2.client.group-form"];
const MEMBER: &[&str] = &["mpich-1.2.client.member"];
const TAG_ONCE: &[&str] = &["mpich-1.2.client.tag-once"];
const FALLBACK: &[&str] = &["mpich-1.2.client.fallback"];
const LOCK_STEP: &[&str] = &["rfc13.wire.lock-step"];

const GROUPS: Rows = Rows(Session::of_groups);

const OFFER: &str = "cmd=init pmi_version=1 pmi_subversion=2\n";

/// What each process says, in order: rank, operation, line, and whether it is in a barrier then.
const LIST: [(u32, Op, &str, bool); 24] = [
    (0, Op::Init, OFFER, false),
    (1, Op::Init, OFFER, false),
    (0, Op::Maxes, "cmd=get_maxes\n", false),
    (1, Op::Maxes, "cmd=get_maxes\n", false),
    (0, Op::Kvsname, "cmd=get_my_kvsname\n", false),
    (1, Op::Kvsname, "cmd=get_my_kvsname\n", false),
    (0, Op::Put, "cmd=put kvsname={kvs} key=card-0 value=tcp://10.0.0.1:4711\n", false),
    (1, Op::Put, "cmd=put kvsname={kvs} key=card-1 value=tcp://10.0.0.2:4711\n", false),
    (0, Op::Barrier, "cmd=barrier_in group=0,1:42\n", false),
    (1, Op::Barrier, "cmd=barrier_in group=0,1:42\n", false),
    (0, Op::Get, "cmd=get kvsname={kvs} key=card-1\n", false),
    // Three at once, and requests meanwhile.
    (0, Op::Barrier, "cmd=barrier_in group=0,1:1\n", false),
    (0, Op::Barrier, "cmd=barrier_in group=WORLD:2\n", true),
    (0, Op::Barrier, "cmd=barrier_in\n", true),
    (0, Op::Get, "cmd=get kvsname={kvs} key=card-0\n", true),
    (1, Op::Barrier, "cmd=barrier_in group=WORLD:2\n", false),
    (1, Op::Barrier, "cmd=barrier_in\n", false),
    (1, Op::Barrier, "cmd=barrier_in group=0,1:1\n", false),
    (0, Op::Barrier, "cmd=barrier_in group=NODE:3\n", false),
    (1, Op::Barrier, "cmd=barrier_in group=NODE:3\n", false),
    (0, Op::Barrier, "cmd=barrier_in group=0:0\n", false),
    (1, Op::Appnum, "cmd=get_appnum\n", false),
    (0, Op::Finalize, "cmd=finalize\n", false),
    (1, Op::Finalize, "cmd=finalize\n", false),
];

impl Session {
    /// The plain session of PMI-1.2.
    pub fn of_groups() -> Self {
        let step = |(rank, op, line, ahead): &(u32, Op, &str, bool)| SessionStep {
            ahead: *ahead,
            ..write(0, *rank, Some(*op), line)
        };
        Self { pmi12: true, ..Self::of(LIST.iter().map(step).collect()) }
    }

    /// The first barrier of the first process is one of another group.
    fn first_group(&mut self, group: &str) {
        self.replace(Op::Barrier, "0,1:42", group);
    }

    /// Both offer 1.1, as a client of that does.
    fn offers_1_1(&mut self) {
        for _ in 0..2 {
            let at = self.steps.iter().position(|step| step.says(OFFER));
            if let Some(at) = at {
                self.steps[at] = write(
                    0,
                    self.steps[at].rank,
                    Some(Op::Init),
                    "cmd=init pmi_version=1 pmi_subversion=1\n",
                );
            }
        }
    }
}

pub(super) const FAULTS: &[ClientFault] = &[
    GROUPS.fault(
        "client-group-in-1-1",
        FALLBACK,
        "names a group though 1.1 was negotiated",
        Session::offers_1_1,
    ),
    GROUPS.fault(
        "client-group-of-old-server",
        FALLBACK,
        "names a group though the server is one of 1.1",
        |s| {
            s.pmi12 = false;
        },
    ),
    GROUPS.fault("client-group-word", FORM, "names a group of another kind", |s| s.first_group("SELF:42")),
    GROUPS.fault("client-group-empty", FORM, "names no group", |s| s.first_group("")),
    GROUPS.fault("client-group-comma-behind", FORM, "leaves a comma behind the last rank", |s| {
        s.first_group("0,1,:42");
    }),
    GROUPS.fault("client-group-negative-tag", FORM, "gives a negative tag", |s| s.first_group("0,1:-42")),
    GROUPS.fault("client-group-tag-word", FORM, "gives a word for a tag", |s| s.first_group("0,1:tag")),
    GROUPS.fault("client-group-outsider", MEMBER, "enters a barrier of others", |s| s.first_group("1:42")),
    GROUPS.fault("client-group-no-such-rank", MEMBER, "names a rank that there is not", |s| {
        s.first_group("0,7:42")
    }),
    GROUPS.fault("client-group-rank-twice", MEMBER, "names a rank twice", |s| s.first_group("0,1,1:42")),
    GROUPS.fault("client-group-same-tag", TAG_ONCE, "is in two barriers of the same tag", |s| {
        s.meanwhile(Op::Barrier, "cmd=barrier_in group=WORLD:42\n");
    }),
    GROUPS.fault(
        "client-group-tag-of-plain",
        TAG_ONCE,
        "is in a barrier of the tag 0 and in that without a group",
        |s| {
            s.instead(Op::Barrier, "cmd=barrier_in\n");
            s.meanwhile(Op::Barrier, "cmd=barrier_in group=0,1\n");
        },
    ),
    GROUPS.fault(
        "client-group-finalizes-inside",
        LOCK_STEP,
        "finalizes while it is in a barrier of a group",
        |s| {
            s.meanwhile(Op::Barrier, "cmd=finalize\n");
        },
    ),
];

pub(super) const VARIATIONS: &[ClientVariation] = &[
    GROUPS.vary("client-group-falls-back", "does without groups where the server is one of 1.1", |s| {
        s.pmi12 = false;
        s.steps.retain(|step| step.op != Some(Op::Barrier));
        s.beside(Op::Get, 0, false, "cmd=barrier_in\n");
        let second = write(0, 1, None, "cmd=barrier_in\n");
        let at = s.at(Op::Get);
        s.steps.insert(at, second);
    }),
    GROUPS.vary("client-group-order", "lists the ranks from the last to the first", |s| {
        s.first_group("1,0:42");
        let at = s.at(Op::Barrier) + 1;
        s.steps[at] = write(0, 1, Some(Op::Barrier), "cmd=barrier_in group=1,0:42\n");
    }),
    GROUPS.vary("client-group-tag-largest", "gives the largest tag", |s| {
        s.first_group("0,1:2147483647");
        let at = s.at(Op::Barrier) + 1;
        s.steps[at] = write(0, 1, Some(Op::Barrier), "cmd=barrier_in group=0,1:2147483647\n");
    }),
];

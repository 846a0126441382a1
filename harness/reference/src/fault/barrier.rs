//! The barrier.

use pmi_wire::Operation as Op;

use super::effect::{BarrierFault, Effect, For, On, When};
use super::{Draft, Fault, fault};

const OUT: For = For(Some(Op::Barrier), On::Ok);
const EARLY: &str = "rfc13.barrier.all-in-before-any-out";
const RELEASED: &str = "rfc13.barrier.released";

pub(super) const FAULTS: &[Fault] = &[
    fault("barrier-never-opens", &[RELEASED], "nobody leaves the barrier", Effect::Barrier(BarrierFault::Never), When::Always),
    fault("barrier-opens-once", &[RELEASED, "rfc13.barrier.generic"], "the third entry and all later ones wait for ever", Effect::Barrier(BarrierFault::Never), When::From(3)),
    fault("barrier-hundredth-entry-stuck", &[RELEASED, "rfc13.barrier.generic"], "the 100th entry is not counted", Effect::Barrier(BarrierFault::Never), When::Nth(100)),
    fault("barrier-stuck-with-five", &[RELEASED], "the barrier never opens with five ranks or more", Effect::Barrier(BarrierFault::Never), When::Ranks(5)),
    fault("barrier-stuck-on-two-nodes", &[RELEASED], "the barrier never opens on two nodes", Effect::Barrier(BarrierFault::Never), When::Nodes),
    fault("barrier-stuck-in-children", &[RELEASED], "the barrier of a spawned group never opens", Effect::Barrier(BarrierFault::Never), When::Spawned),
    fault("barrier-does-not-block", &[EARLY], "who enters is let out at once", Effect::Barrier(BarrierFault::AtOnce), When::Always),
    fault("barrier-tenth-does-not-block", &[EARLY], "the 10th entry is let out at once", Effect::Barrier(BarrierFault::AtOnce), When::Nth(10)),
    fault("barrier-does-not-block-children", &[EARLY], "the barrier of a spawned group does not block", Effect::Barrier(BarrierFault::AtOnce), When::Spawned),
    fault("barrier-one-short", &[EARLY], "the barrier opens when one is still missing", Effect::Barrier(BarrierFault::Short(1)), When::Always),
    fault("barrier-two-short-of-five", &[EARLY], "with five ranks the barrier opens at three", Effect::Barrier(BarrierFault::Short(2)), When::Ranks(5)),
    fault("barrier-half", &[EARLY], "the barrier opens when half have entered", Effect::Barrier(BarrierFault::Half), When::Always),
    fault("barrier-per-node", &[EARLY], "each node has a barrier of its own", Effect::Barrier(BarrierFault::PerNode), When::Nodes),
    fault("barrier-count-not-reset", &[EARLY], "after the first barrier none blocks", Effect::Barrier(BarrierFault::KeepsCount), When::Always),
    fault("barrier-every-second-short", &[EARLY], "every second barrier opens one short", Effect::Barrier(BarrierFault::Toggle), When::Always),
    fault("barrier-leaves-out-first", &[RELEASED], "rank 0 is not let out", Effect::Barrier(BarrierFault::LeavesOutFirst), When::Always),
    fault("barrier-leaves-out-last", &[RELEASED], "the last rank is not let out", Effect::Barrier(BarrierFault::LeavesOutLast), When::Always),
    fault("barrier-leaves-out-latest", &[RELEASED], "who enters last is not let out", Effect::Barrier(BarrierFault::LeavesOutLatest), When::Always),
    fault("barrier-leaves-out-odd-last", &[RELEASED], "the last rank of an odd group is not let out", Effect::Reply(OUT, Draft::silence), When::OddLast),
    fault("barrier-lets-all-out", &["rfc13.wire.lock-step", EARLY], "the first entry lets everybody out", Effect::Barrier(BarrierFault::ReleasesEverybody), When::Always),
    fault("barrier-needs-data", &["rfc13.barrier.generic", RELEASED], "a barrier without a put before it never opens", Effect::Barrier(BarrierFault::NeedsData), When::Always),
    fault("barrier-across-groups", &[EARLY], "entries of all groups count", Effect::Barrier(BarrierFault::AcrossGroups), When::Always),
    fault("barrier-leaver-counts", &[EARLY], "who finalizes or closes counts as entered", Effect::Barrier(BarrierFault::LeaverCounts), When::Always),
    fault("barrier-counts-entries", &[EARLY], "a rank that enters twice counts twice", Effect::Barrier(BarrierFault::CountsTwice), When::Always),
    fault("barrier-wipes-kvs", &["rfc13.put.visible-after-barrier"], "the KVS is emptied at each barrier", Effect::Barrier(BarrierFault::WipesKvs), When::Always),
    fault("barrier-out-twice", &["rfc13.wire.lock-step"], "barrier_out is sent twice", Effect::Reply(OUT, |d| d.copies = 2), When::Always),
    fault("barrier-fails", &[RELEASED], "every barrier fails", Effect::Reply(OUT, Draft::fail), When::Always),
    fault("barrier-fails-for-last-rank", &[RELEASED], "the barrier fails for the last rank", Effect::Reply(OUT, Draft::fail), When::LastRank),
    fault("barrier-fails-late", &[RELEASED, "rfc13.barrier.generic"], "the 100th barrier_out is a failure", Effect::Reply(OUT, Draft::fail), When::Nth(100)),
    fault("barrier-silent-late", &[RELEASED, "rfc13.barrier.generic"], "the 50th barrier_out is not sent", Effect::Reply(OUT, Draft::silence), When::Nth(50)),
];

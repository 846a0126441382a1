//! The systematic sessions at the start of a campaign against a server. They reliably find a fault at a single length, for which random
//! sessions would need hundreds of launches. Each session does one of the following:
//!
//! * cover all lengths or all bytes of a key, value, service name or port
//! * repeat an operation many times
//! * repeat the requests of an earlier job
//! * put keys that weak hashes confuse
//! * publish many names, and unpublish them one by one
//! * overlap an operation with every other operation

pub(super) mod calls;
pub(super) mod program_responses;

use arbitrary::Unstructured;
use pmi_scenario::ast::Dialect;

use crate::generate::server::free;
use crate::generate::server::jobs::{JobEnding, after_job};
use crate::generate::server::model::SessionModel;
use crate::generate::server::scope::SessionFeatures;
use crate::generate::server::swarm::{Sweep, VariedProperty};
use crate::generate::server::sweep::{RepeatedOperation, every_byte, plain_requests};
use crate::mutate::texts::{self, BYTE_POSITIONS, TextUse};
use crate::session::case::Case;
use crate::session::plan::PlannedStep;
use crate::session::statement::leave;

/// The content of a systematic session for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerSession {
    /// A sweep over these lengths or bytes. The number selects the position of a byte within the string.
    Texts(Sweep, Vec<i64>, u32),
    /// [`REPETITIONS`] repetitions of an operation.
    Repeated(RepeatedOperation),
    /// An earlier job that ends in this way, and a job that repeats its requests.
    Job(JobEnding),
    /// Puts of keys that weak hashes confuse.
    CollidingKeys,
    /// Many names, which are unpublished one by one.
    Withdrawals,
    /// An operation that overlaps with every other operation.
    Overlaps(&'static str),
}

/// Number of lengths or bytes in a session. In a longer session, a failure would take longer to examine.
const TEXTS_PER_SESSION: usize = 120;

/// Number of repetitions of an operation in a session. The number exceeds the largest value of a byte.
pub(crate) const REPETITIONS: u32 = 300;

/// The largest number that a systematic session can have.
const LAST_NUMBER: u64 = 4000;

/// Returns the index of a systematic session from its number, or `None` for other numbers. Sessions with odd numbers are random, so that a
/// server that responds slowly is tested with random sessions as well.
pub(crate) fn systematic_index(number: u64) -> Option<usize> {
    let may_be = number <= LAST_NUMBER && number.is_multiple_of(2);
    if may_be { usize::try_from(number / 2).ok() } else { None }
}

/// Merges lists of sessions, so that the sessions of each list are distributed evenly.
pub(crate) fn interleave<T>(kinds: Vec<Vec<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for (kind, sessions) in kinds.into_iter().enumerate() {
        let count = sessions.len();
        let place = |at: usize| ((2 * at + 1) << 20).checked_div(count).unwrap_or(0);
        all.extend(sessions.into_iter().enumerate().map(|(at, session)| ((place(at), kind), session)));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, session)| session).collect()
}

/// Returns the systematic session with this number, if any.
pub(crate) fn session(scope: SessionFeatures, number: u64) -> Option<Case> {
    let at = systematic_index(number)?;
    let spoken: Vec<Dialect> = scope.dialects.dialects().collect();
    let (round, turn) = (at.checked_div(spoken.len())?, at.checked_rem(spoken.len())?);
    let dialect = spoken[turn];
    let through = all(scope, dialect).into_iter().nth(round)?;
    Some(make_case(scope, dialect, &through))
}

fn all(scope: SessionFeatures, dialect: Dialect) -> Vec<ServerSession> {
    let lengths = |of| {
        let every: Vec<i64> = (1..=texts::longest(dialect, of)).collect();
        let sweep = Sweep { of, property: VariedProperty::Length };
        every
            .chunks(TEXTS_PER_SESSION)
            .map(|part| ServerSession::Texts(sweep, part.to_vec(), 0))
            .collect::<Vec<_>>()
    };
    let bytes = |of, place| {
        let sweep = Sweep { of, property: VariedProperty::Byte };
        let every = every_byte(dialect, of);
        every
            .chunks(TEXTS_PER_SESSION)
            .map(|part| ServerSession::Texts(sweep, part.to_vec(), place))
            .collect::<Vec<_>>()
    };
    let mut all = lengths(TextUse::Value);
    // Only the sessions with the shortest values come first. The others are added further below.
    let long = all.split_off(3.min(all.len()));
    all.extend(lengths(TextUse::Key));
    all.extend(
        [RepeatedOperation::Put, RepeatedOperation::Get, RepeatedOperation::Miss]
            .map(ServerSession::Repeated),
    );
    all.extend(bytes(TextUse::Value, 0));
    all.extend(bytes(TextUse::Key, 0));
    all.extend([ServerSession::Repeated(RepeatedOperation::Barrier), ServerSession::CollidingKeys]);
    // A bare proxy gets no earlier job, because the harness itself answers the name and spawn requests in its jobs.
    if !scope.upstream {
        all.extend(JobEnding::ALL.map(ServerSession::Job));
    }
    all.extend(
        plain_requests(dialect).into_iter().map(|op| ServerSession::Repeated(RepeatedOperation::Ask(op))),
    );
    all.extend(long);
    all.extend(
        (1..BYTE_POSITIONS)
            .flat_map(|place| [bytes(TextUse::Value, place), bytes(TextUse::Key, place)].concat()),
    );
    if scope.names {
        all.extend([ServerSession::Repeated(RepeatedOperation::Names), ServerSession::Withdrawals]);
        all.extend(
            [
                lengths(TextUse::Service),
                lengths(TextUse::Port),
                bytes(TextUse::Service, 2),
                bytes(TextUse::Port, 2),
            ]
            .concat(),
        );
    }
    if scope.free_ranks > 1 {
        all.extend(free::overlapping(scope).iter().map(|held| ServerSession::Overlaps(held)));
    }
    all
}

fn make_case(scope: SessionFeatures, dialect: Dialect, through: &ServerSession) -> Case {
    let ranks = scope.ranks.clamp(1, 2);
    // Without any decision bytes, every generator takes its first choice.
    let mut none = Unstructured::new(&[]);
    let mut model = SessionModel::joined(scope, dialect, ranks, &mut none);
    // The last process makes the requests, because a fault that affects only one process rarely affects the first.
    let rank = ranks - 1;
    let made = match through {
        ServerSession::Texts(sweep, all, place) => model.sweep_through(*sweep, all, *place),
        ServerSession::Repeated(operation) => model.repeat_times(*operation, rank, REPETITIONS),
        ServerSession::Overlaps(held) => return free::overlaps(scope, dialect, held),
        ServerSession::Job(ending) => return after_job(scope, dialect, *ending),
        ServerSession::CollidingKeys => model.put_colliding_keys(rank),
        ServerSession::Withdrawals => {
            model.unpublish_one_by_one(rank);
            Ok(())
        }
    };
    made.unwrap_or_else(|e| panic!("decisions never run out: {e}"));
    model.plan.push(PlannedStep::Stmt(leave(dialect)));
    model.into_case()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::generate::server::scope::DialectChoice;
    use crate::session::op::Op;
    use crate::session::testing::assert_round_trip;

    fn sessions(scope: SessionFeatures) -> Vec<Case> {
        (0..1000).filter_map(|number| session(scope, number)).collect()
    }

    #[test]
    fn sessions_are_sound_and_put_values_of_all_lengths() {
        for dialect in Dialect::ALL {
            let scope =
                SessionFeatures { dialects: DialectChoice::One(dialect), ..SessionFeatures::default() };
            let of = |used| {
                let is = |through: &ServerSession| match through {
                    ServerSession::Texts(sweep, all, 0)
                        if sweep.of == used && sweep.property == VariedProperty::Length =>
                    {
                        all.clone()
                    }
                    _ => Vec::new(),
                };
                all(scope, dialect).iter().flat_map(is).collect::<Vec<i64>>()
            };
            for used in [TextUse::Value, TextUse::Key, TextUse::Service, TextUse::Port] {
                assert!(of(used).into_iter().eq(1..=texts::longest(dialect, used)), "{used:?}");
            }
            let all = sessions(SessionFeatures { free_ranks: 2, ..scope });
            // The book states these numbers.
            let count = if dialect == Dialect::Pmi1 { 47 } else { 52 };
            assert_eq!(all.len(), count);
            for case in &all {
                assert!(
                    case.is_sound() && case.is_bounded() && case.ingredients.is_empty(),
                    "{}",
                    case.text()
                );
                assert_round_trip(case);
            }
            let text = |case: &Case| (case.text(), case.earlier.as_ref().map(|earlier| earlier.text()));
            let texts: BTreeSet<_> = all.iter().map(text).collect();
            assert_eq!(texts.len(), all.len());
        }
    }

    #[test]
    fn repeats_each_request_and_reads_back_each_put() {
        let scope = SessionFeatures::default();
        let times = |through: ServerSession, text: &str| {
            make_case(scope, Dialect::Pmi1, &through).text().matches(text).count()
        };
        let repeated = |operation| move |text: &str| times(ServerSession::Repeated(operation), text);
        assert_eq!(repeated(RepeatedOperation::Barrier)("1  send    cmd=barrier_in"), 300);
        assert_eq!(repeated(RepeatedOperation::Names)("send    cmd=publish_name"), 300);
        assert_eq!(repeated(RepeatedOperation::Miss)("key=missing"), 300);
        assert_eq!(repeated(RepeatedOperation::Get)("key=k1-0"), 1 + 300);
        let puts = repeated(RepeatedOperation::Put);
        // Each key occurs in its put, and in a get of the other process.
        assert_eq!((puts("send    cmd=put"), puts("0  send    cmd=get"), puts("key=k1-299")), (300, 300, 2));
        let appnum = Op::of(Dialect::Pmi1, "appnum").unwrap();
        assert!(plain_requests(Dialect::Pmi1).contains(&appnum));
        assert_eq!(repeated(RepeatedOperation::Ask(appnum))("send    cmd=get_appnum"), 300);
        let bytes = ServerSession::Texts(
            Sweep { of: TextUse::Value, property: VariedProperty::Byte },
            every_byte(Dialect::Pmi1, TextUse::Value),
            0,
        );
        let alike = |text: &str| times(ServerSession::CollidingKeys, text);
        assert_eq!((alike("send    cmd=put"), alike("0  send    cmd=get"), alike("key=hBBAa")), (16, 16, 2));
        let withdrawn = |text: &str| times(ServerSession::Withdrawals, text);
        assert_eq!(
            (withdrawn("send    cmd=unpublish_name"), withdrawn("send    cmd=lookup_name")),
            (16, 120)
        );
        // RFC 13 does not specify whether a trailing space or tab belongs to the value, so these two bytes are left out.
        assert_eq!(times(bytes, "send    cmd=put"), 94);
    }

    #[test]
    fn systematic_sessions_use_only_enabled_features() {
        let scope = SessionFeatures {
            dialects: DialectChoice::Any,
            ranks: 1,
            names: false,
            ..SessionFeatures::default()
        };
        for case in sessions(scope) {
            assert_eq!(case.ranks(), 1);
            let names = ["_name ", "cmd=name-"].iter().any(|part| case.text().contains(part));
            assert!(!names, "{}", case.text());
        }
    }
}

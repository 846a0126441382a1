//! The sessions with which a campaign against a server begins. They are not drawn: each goes through all lengths or all bytes of one text,
//! or does one thing very many times, or what an earlier job of the server has done as well. What is wrong at one length only is met
//! by them for sure, where draws would take hundreds of launches.

use arbitrary::Unstructured;
use pmi_scenario::ast::Dialect;

use super::jobs::{Ending, after_job};
use super::model::Model;
use super::scope::Scope;
use super::swarm::{Sweep, Varies};
use super::sweep::{Soak, every_byte, plain_requests};
use crate::case::Case;
use crate::plan::Planned;
use crate::statement::leave;
use crate::texts::{self, PLACES, Use};

/// What one session goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Through {
    /// These lengths or bytes, the latter at this place.
    Texts(Sweep, Vec<i64>, u32),
    /// One thing, [`TIMES`].
    Times(Soak),
    /// What an earlier job has done which ends so, once more.
    Job(Ending),
    /// Keys that weak hashes take for each other.
    Alike,
    /// Many names, of which one after the other is withdrawn.
    Withdrawals,
}

/// So many texts make a session; a failure in a longer one takes longer to be looked into.
const TEXTS: usize = 120;

/// More often than a byte can count.
pub(super) const TIMES: u32 = 300;

/// No number behind this is that of such a session.
const LAST: u64 = 4000;

/// How many such sessions come before that of this number, if it may be one: every second one is drawn, as those behind them are, so that
/// what is slow to answer is met with others as well.
pub(super) fn turn(number: u64) -> Option<usize> {
    let may_be = number <= LAST && number.is_multiple_of(2);
    if may_be { usize::try_from(number / 2).ok() } else { None }
}

/// Sessions of several kinds in one order, those of each kind evenly over the whole.
pub(super) fn spread<T>(kinds: Vec<Vec<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for (kind, sessions) in kinds.into_iter().enumerate() {
        let count = sessions.len();
        let place = |at: usize| ((2 * at + 1) << 20).checked_div(count).unwrap_or(0);
        all.extend(sessions.into_iter().enumerate().map(|(at, session)| ((place(at), kind), session)));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, session)| session).collect()
}

/// The session of this number, if it is one of these.
pub(crate) fn session(scope: Scope, number: u64) -> Option<Case> {
    let at = turn(number)?;
    let spoken: Vec<Dialect> = scope.spoken.dialects().collect();
    let (round, turn) = (at.checked_div(spoken.len())?, at.checked_rem(spoken.len())?);
    let dialect = spoken[turn];
    let through = all(scope, dialect).into_iter().nth(round)?;
    Some(made(scope, dialect, &through))
}

fn all(scope: Scope, dialect: Dialect) -> Vec<Through> {
    let lengths = |of| {
        let every: Vec<i64> = (1..=texts::longest(dialect, of)).collect();
        let sweep = Sweep { of, varies: Varies::Length };
        every.chunks(TEXTS).map(|part| Through::Texts(sweep, part.to_vec(), 0)).collect::<Vec<_>>()
    };
    let bytes = |of, place| {
        let sweep = Sweep { of, varies: Varies::Byte };
        let every = every_byte(dialect, of);
        every.chunks(TEXTS).map(|part| Through::Texts(sweep, part.to_vec(), place)).collect::<Vec<_>>()
    };
    let mut all = lengths(Use::Value);
    // Short ones are met before all others.
    let long = all.split_off(3.min(all.len()));
    all.extend(lengths(Use::Key));
    all.extend([Soak::Put, Soak::Get, Soak::Miss].map(Through::Times));
    all.extend(bytes(Use::Value, 0));
    all.extend(bytes(Use::Key, 0));
    all.extend([Through::Times(Soak::Barrier), Through::Alike]);
    // The jobs of a proxy alone have their names and their spawns from us.
    if !scope.upstream {
        all.extend(Ending::ALL.map(Through::Job));
    }
    all.extend(plain_requests(dialect).into_iter().map(|op| Through::Times(Soak::Ask(op))));
    all.extend(long);
    all.extend((1..PLACES).flat_map(|place| [bytes(Use::Value, place), bytes(Use::Key, place)].concat()));
    if scope.names {
        all.extend([Through::Times(Soak::Names), Through::Withdrawals]);
        all.extend(
            [lengths(Use::Service), lengths(Use::Port), bytes(Use::Service, 2), bytes(Use::Port, 2)].concat(),
        );
    }
    all
}

fn made(scope: Scope, dialect: Dialect, through: &Through) -> Case {
    let ranks = scope.ranks.clamp(1, 2);
    // Where decisions have come to their end, the first choice is taken.
    let mut none = Unstructured::new(&[]);
    let mut model = Model::joined(scope, dialect, ranks, &mut none);
    // By the last process, since most bugs that only one meets are not the first's.
    let rank = ranks - 1;
    let made = match through {
        Through::Texts(sweep, all, place) => model.sweep_through(*sweep, all, *place),
        Through::Times(soak) => model.soak_in(*soak, rank, TIMES),
        Through::Job(ending) => return after_job(scope, dialect, *ending),
        Through::Alike => model.put_alike(rank),
        Through::Withdrawals => {
            model.withdraw_in_turn(rank);
            Ok(())
        }
    };
    made.unwrap_or_else(|e| panic!("decisions have no end: {e}"));
    model.plan.push(Planned::Stmt(leave(dialect)));
    model.into_case()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::scope::Spoken;
    use super::*;
    use crate::op::Op;
    use crate::testing::read_again;

    fn sessions(scope: Scope) -> Vec<Case> {
        (0..1000).filter_map(|number| session(scope, number)).collect()
    }

    #[test]
    fn all_lengths_are_put_and_each_session_is_sound() {
        for (_, dialect) in Dialect::NAMES {
            let scope = Scope { spoken: Spoken::One(dialect), ..Scope::default() };
            let of = |used| {
                let is = |through: &Through| match through {
                    Through::Texts(sweep, all, 0) if sweep.of == used && sweep.varies == Varies::Length => {
                        all.clone()
                    }
                    _ => Vec::new(),
                };
                all(scope, dialect).iter().flat_map(is).collect::<Vec<i64>>()
            };
            for used in [Use::Value, Use::Key, Use::Service, Use::Port] {
                assert!(of(used).into_iter().eq(1..=texts::longest(dialect, used)), "{used:?}");
            }
            let all = sessions(scope);
            // As the book says.
            let count = if dialect == Dialect::Pmi1 { 41 } else { 46 };
            assert_eq!(all.len(), count);
            for case in &all {
                assert!(
                    case.is_sound() && case.is_bounded() && case.ingredients.is_empty(),
                    "{}",
                    case.text()
                );
                read_again(case);
            }
            let text = |case: &Case| (case.text(), case.earlier.as_ref().map(|earlier| earlier.text()));
            let texts: BTreeSet<_> = all.iter().map(text).collect();
            assert_eq!(texts.len(), all.len());
        }
    }

    #[test]
    fn each_thing_is_done_so_often_and_what_was_put_is_read() {
        let scope = Scope::default();
        let times =
            |through: Through, said: &str| made(scope, Dialect::Pmi1, &through).text().matches(said).count();
        let soaks = |soak| move |said: &str| times(Through::Times(soak), said);
        assert_eq!(soaks(Soak::Barrier)("1  C: cmd=barrier_in"), 300);
        assert_eq!(soaks(Soak::Names)("C: cmd=publish_name"), 300);
        assert_eq!(soaks(Soak::Miss)("key=missing"), 300);
        assert_eq!(soaks(Soak::Get)("key=k1-0"), 1 + 300);
        let puts = soaks(Soak::Put);
        // Once by who puts it, once by another.
        assert_eq!((puts("C: cmd=put"), puts("0  C: cmd=get"), puts("key=k1-299")), (300, 300, 2));
        let appnum = Op::of(Dialect::Pmi1, "appnum").unwrap();
        assert!(plain_requests(Dialect::Pmi1).contains(&appnum));
        assert_eq!(soaks(Soak::Ask(appnum))("C: cmd=get_appnum"), 300);
        let bytes = Through::Texts(
            Sweep { of: Use::Value, varies: Varies::Byte },
            every_byte(Dialect::Pmi1, Use::Value),
            0,
        );
        let alike = |said: &str| times(Through::Alike, said);
        assert_eq!((alike("C: cmd=put"), alike("0  C: cmd=get"), alike("key=hBBAa")), (16, 16, 2));
        let withdrawn = |said: &str| times(Through::Withdrawals, said);
        assert_eq!((withdrawn("C: cmd=unpublish_name"), withdrawn("C: cmd=lookup_name")), (16, 120));
        // What RFC 13 leaves open is left out: a blank and a tab at the end.
        assert_eq!(times(bytes, "C: cmd=put"), 94);
    }

    #[test]
    fn what_is_out_of_scope_is_not_asked_for() {
        let scope = Scope { spoken: Spoken::Any, ranks: 1, names: false, ..Scope::default() };
        for case in sessions(scope) {
            assert_eq!(case.ranks(), 1);
            let names = ["_name ", "cmd=name-"].iter().any(|part| case.text().contains(part));
            assert!(!names, "{}", case.text());
        }
    }
}

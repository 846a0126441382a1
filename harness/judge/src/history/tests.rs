//! Tests that compare the history check with a search through all orders of the operations, and with the result that follows from the
//! standard.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use pmi_wire::Proc;

use super::operation::{HistoryRequest, HistoryResponse, TimedOperation};
use super::*;

fn proc(rank: u32) -> Proc {
    Proc { group: 0, rank }
}

fn operation(
    rank: u32,
    [start, end]: [u64; 2],
    request: HistoryRequest,
    response: Option<HistoryResponse>,
) -> TimedOperation {
    TimedOperation { proc: proc(rank), start, end, request, response }
}

fn history(ranks: u32, mut operations: Vec<TimedOperation>) -> History {
    operations.sort_by_key(|operation| operation.start);
    let members = (0..ranks).map(|rank| (proc(rank), UNANSWERED)).collect();
    History { operations, members: BTreeMap::from([(0, members)]), ..History::default() }
}

/// A point in time at which an operation takes effect. A barrier has two points, its entry and its exit.
#[derive(Clone, Copy, PartialEq)]
struct HistoryPoint {
    operation: usize,
    is_exit: bool,
}

/// The state after some of the points have been processed, according to the literal text of the standards.
#[derive(Clone, Default)]
struct Model {
    /// For each put: the key, the value, the rank, and the number of barriers that this rank had entered before the
    /// put.
    pairs: Vec<(Vec<u8>, Vec<u8>, u32, usize)>,
    entered: [usize; 3],
    left: [usize; 3],
    port: Option<Vec<u8>>,
}

/// Returns whether an order of the remaining points explains all responses.
fn some_order(all: &[TimedOperation], ranks: u32, points: &[HistoryPoint], model: &Model) -> bool {
    if points.is_empty() {
        return true;
    }
    let may_be_first = |at: usize| {
        let first = &all[points[at].operation];
        points.iter().enumerate().all(|(other, point)| {
            let same_barrier = point.operation == points[at].operation && other < at;
            let earlier = all[point.operation].end < first.start;
            !same_barrier && !earlier
        })
    };
    (0..points.len()).filter(|at| may_be_first(*at)).any(|at| {
        let rest = [&points[..at], &points[at + 1..]].concat();
        let next = step(&all[points[at].operation], points[at].is_exit, ranks, model);
        next.iter().any(|next| some_order(all, ranks, &rest, next))
    })
}

/// Returns the possible states after a point. Returns an empty list if the response contradicts the state.
fn step(operation: &TimedOperation, is_exit: bool, ranks: u32, model: &Model) -> Vec<Model> {
    let rank = operation.proc.rank as usize;
    let mut next = model.clone();
    let is_done = operation.response == Some(HistoryResponse::Done);
    match (&operation.request, &operation.response) {
        (HistoryRequest::Put(key, value), _) => {
            next.pairs.push((key.clone(), value.clone(), rank as u32, model.entered[rank]));
        }
        (HistoryRequest::Get(key), Some(HistoryResponse::Found(value)))
            if !model.pairs.iter().any(|pair| pair.0 == *key && pair.1 == *value) =>
        {
            return Vec::new();
        }
        (HistoryRequest::Get(key), Some(HistoryResponse::Refused))
            if model.pairs.iter().any(|pair| pair.0 == *key && pair.3 < model.left[rank]) =>
        {
            return Vec::new();
        }
        (HistoryRequest::Barrier, _) if !is_exit => next.entered[rank] += 1,
        (HistoryRequest::Barrier, Some(_)) => {
            next.left[rank] += 1;
            if model.entered[..ranks as usize].iter().any(|entered| *entered < next.left[rank]) {
                return Vec::new();
            }
        }
        (HistoryRequest::Publish(_, port), response) => {
            next.port = Some(port.clone());
            let keeps =
                response.is_none() || *response == Some(HistoryResponse::Refused) || model.port.is_some();
            return if keeps { vec![next, model.clone()] } else { vec![next] };
        }
        (HistoryRequest::Unpublish(_), _) => {
            next.port = None;
            return if is_done { vec![next] } else { vec![next, model.clone()] };
        }
        (HistoryRequest::Lookup(_), Some(HistoryResponse::Found(found)))
            if model.port.as_ref() != Some(found) =>
        {
            return Vec::new();
        }
        (HistoryRequest::Lookup(_), Some(HistoryResponse::Refused)) if model.port.is_some() => {
            return Vec::new();
        }
        _ => {}
    }
    vec![next]
}

fn is_explained(history: &History, ranks: u32) -> bool {
    let all = &history.operations;
    let points = all.iter().enumerate().flat_map(|(operation, one)| {
        let exits = one.request == HistoryRequest::Barrier && one.response.is_some();
        [
            Some(HistoryPoint { operation, is_exit: false }),
            exits.then_some(HistoryPoint { operation, is_exit: true }),
        ]
    });
    some_order(all, ranks, &points.flatten().collect::<Vec<_>>(), &Model::default())
}

/// Generates a random history with up to six operations of two or three processes. Operations of the same process do not overlap.
fn draw(u: &mut Unstructured<'_>) -> Result<(History, u32)> {
    let ranks = u.int_in_range(2..=3)?;
    let names = u.arbitrary()?;
    let mut clock = vec![0; ranks as usize];
    let mut operations = Vec::new();
    for _ in 0..u.int_in_range(2..=6)? {
        let rank = u.int_in_range(0..=ranks - 1)?;
        // The times of different processes are never equal, as in a log, where each event has a unique number.
        let start: u64 = clock[rank as usize] + u.int_in_range(1..=4)?;
        let end = start + u.int_in_range(1..=6)?;
        clock[rank as usize] = end;
        let at = |time: u64| time * 10 + u64::from(rank);
        let (key, value) = (vec![u.int_in_range(b'k'..=b'l')?], vec![u.int_in_range(b'0'..=b'1')?]);
        let reads = match u.int_in_range(0..=2)? {
            0 => HistoryResponse::Refused,
            _ => HistoryResponse::Found(value.clone()),
        };
        let (request, response) = match (names, u.int_in_range(0..=3)?) {
            (false, 0) => (HistoryRequest::Put(key, value), HistoryResponse::Done),
            (false, 1) => (HistoryRequest::Barrier, HistoryResponse::Done),
            (false, _) => (HistoryRequest::Get(key), reads),
            (true, 0) => (HistoryRequest::Publish(b"n".into(), value), HistoryResponse::Done),
            (true, 1) => (
                HistoryRequest::Unpublish(b"n".into()),
                if u.ratio(1, 4)? { HistoryResponse::Refused } else { HistoryResponse::Done },
            ),
            (true, _) => (HistoryRequest::Lookup(b"n".into()), reads),
        };
        operations.push(operation(rank, [at(start), at(end)], request, Some(response)));
    }
    Ok((history(ranks, operations), ranks))
}

#[test]
fn checker_agrees_with_an_exhaustive_search() {
    let (mut explained, mut unexplained) = (0, 0);
    for seed in 0..20_000 {
        let mut bytes = [0; 256];
        let mut random = seed * 2 + 1_u64;
        for byte in &mut bytes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 56) as u8;
        }
        let small = history;
        let (history, ranks) = draw(&mut Unstructured::new(&bytes)).unwrap();
        let found = check(&history);
        let expected = is_explained(&history, ranks);
        assert_eq!(found.is_empty(), expected, "{seed}: {history:#?} {found:#?}");
        // Even without the other operations, the operations of a contradiction have no explanation.
        for contradiction in found {
            let part: Vec<_> =
                contradiction.operations.iter().map(|at| history.operations[*at].clone()).collect();
            if contradiction.rule != pmi_scenario::ids::rules::BARRIER_HOLDS {
                let others = contradiction.rule == pmi_scenario::ids::rules::PUT_VISIBLE;
                let ranks = if others { 0 } else { ranks };
                assert!(!is_explained(&small(ranks, part), ranks), "{seed}: {history:#?} {contradiction:#?}");
            }
        }
        *(if expected { &mut explained } else { &mut unexplained }) += 1;
    }
    assert!(explained > 2000 && unexplained > 2000, "{explained} {unexplained}");
}

const DONE: Option<HistoryResponse> = Some(HistoryResponse::Done);

fn found(value: &str) -> Option<HistoryResponse> {
    Some(HistoryResponse::Found(value.into()))
}

fn put(value: &str) -> HistoryRequest {
    HistoryRequest::Put(b"k".into(), value.into())
}

fn get() -> HistoryRequest {
    HistoryRequest::Get(b"k".into())
}

#[test]
fn get_during_a_put_returns_the_value_or_nothing() {
    let with = |response| {
        check(&history(
            2,
            vec![operation(0, [1, 4], put("whole"), DONE), operation(1, [2, 3], get(), response)],
        ))
    };
    assert_eq!(with(found("whole")), []);
    assert_eq!(with(Some(HistoryResponse::Refused)), []);
    assert_eq!(with(found("who"))[0].operations, [0, 1]);
}

#[test]
fn contradiction_lists_only_needed_operations() {
    let publish = |port: &str| HistoryRequest::Publish(b"n".into(), port.into());
    let lookup = || HistoryRequest::Lookup(b"n".into());
    let all = vec![
        operation(0, [1, 2], publish("a"), DONE),
        operation(1, [3, 4], lookup(), found("a")),
        operation(0, [5, 6], HistoryRequest::Unpublish(b"n".into()), DONE),
        operation(1, [7, 8], lookup(), Some(HistoryResponse::Refused)),
        operation(2, [9, 12], publish("b"), DONE),
        operation(1, [10, 11], lookup(), found("a")),
    ];
    let [contradiction] = &check(&history(3, all))[..] else { panic!() };
    assert_eq!((contradiction.at, &contradiction.operations[..]), (5, &[0, 2, 5][..]));
    assert_eq!(contradiction.rule, pmi_scenario::ids::rules::NAMES_WITHDRAWN);
}

#[test]
fn unanswered_operation_may_have_taken_effect() {
    let lookup = |response| operation(1, [2, 3], HistoryRequest::Lookup(b"n".into()), response);
    let publish = || operation(0, [1, UNANSWERED], HistoryRequest::Publish(b"n".into(), b"a".into()), None);
    for response in [found("a"), Some(HistoryResponse::Refused)] {
        assert_eq!(check(&history(2, vec![publish(), lookup(response)])), []);
    }
}

/// Measures the time for a long history: `cargo test -p pmi-judge checks_a_long_history -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn checks_a_long_history() {
    let (ranks, rounds) = (64, 100_000_u32 / 64 / 4);
    let mut operations = Vec::new();
    for round in 0..rounds {
        for rank in 0..ranks {
            let at = |slot: u64| {
                let start = (u64::from(round) * 4 + slot) * 1000 + u64::from(rank);
                [start, start + 500]
            };
            let (key, other) = (format!("{rank}-{round}"), format!("{}-{round}", (rank + 1) % ranks));
            let name = format!("name-{}", rank % 16);
            operations.push(operation(
                rank,
                at(0),
                HistoryRequest::Put(key.clone().into(), key.into()),
                DONE,
            ));
            operations.push(operation(rank, at(1), HistoryRequest::Barrier, DONE));
            operations.push(operation(rank, at(2), HistoryRequest::Get(other.clone().into()), found(&other)));
            operations.push(operation(
                rank,
                at(3),
                HistoryRequest::Publish(name.into(), b"port".into()),
                DONE,
            ));
        }
    }
    let history = history(ranks, operations);
    let start = std::time::Instant::now();
    let contradictions = check(&history);
    eprintln!("{} operations: {:?}, {contradictions:?}", history.operations.len(), start.elapsed());
}

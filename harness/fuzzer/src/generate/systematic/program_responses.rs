//! The systematic sessions at the start of a campaign against a program. A series of sessions covers all responses of one kind that a
//! server may send. The sessions reliably find a fault that depends on a single length, split position or failure response.

use std::collections::BTreeMap;

use pmi_faults::variations;
use pmi_scenario::ast::{ImplementationKind, Setting};

use super::interleave;
use crate::generate::trace::{
    MAX_SKIPPED_REQUESTS, RequestAction, RequestKind, ResponseReplacement, Trace, write,
};
use crate::mutate::ChangeSeries;
use crate::session::case::Case;
use crate::session::pieces::without_span;

/// The content of a systematic session for a program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProgramSession {
    /// A different change from the series is applied to each response. The number identifies the session within the series.
    ChangedResponses(ChangeSeries, usize),
    /// A single changed response, after which most programs end. The fields are the series, the kind of request, the occurrence of the
    /// request, and the index of the change for rank 0. Each further rank uses the next change.
    Ending(ChangeSeries, RequestKind, usize, usize),
    /// A setting of the server, with its value.
    Serve(Setting, u32),
    /// A variation of the server, by its name.
    Vary(&'static str),
}

/// Number of sessions of each kind that are played first. The remaining sessions rarely find further failures, so they are played after
/// the first sessions of all kinds.
const FIRST_SESSIONS: usize = 64;

/// Maximum length of the first write, in bytes. Most responses are shorter.
const LONGEST_FIRST_WRITE: u32 = 40;

/// Returns the settings and their values.
fn settings() -> Vec<ProgramSession> {
    let lengths = [64, 32, 128, 200, 63, 127, 50, 100, 47, 99];
    let name = lengths.map(|length| ProgramSession::Serve(Setting::KvsnameLength, length));
    let values =
        [4096, 65536, 256, 1_000_000, 64, 32].map(|most| ProgramSession::Serve(Setting::VallenMax, most));
    let keys = [32, 48, 256, 1024, 65536].map(|most| ProgramSession::Serve(Setting::KeylenMax, most));
    let late = [20, 1].map(|delay| ProgramSession::Serve(Setting::Delay, delay));
    let first =
        (1..=LONGEST_FIRST_WRITE).map(|bytes| ProgramSession::Serve(Setting::FirstWrite, bytes)).collect();
    interleave(vec![name.into(), values.into(), keys.into(), late.into(), first])
}

/// Returns all sessions for a program with this trace, in order.
pub(crate) fn all(trace: &Trace, mutate: bool) -> Vec<ProgramSession> {
    let valid = vec![settings(), variations().map(|v| ProgramSession::Vary(v.name)).collect()];
    if !mutate {
        return interleave(valid);
    }
    let lasting = |series| {
        let sessions = slots(trace).values().map(|slots| sessions(trace, series, slots)).max();
        (0..sessions.unwrap_or(0)).map(|session| ProgramSession::ChangedResponses(series, session)).collect()
    };
    let ending = |series| ending(trace, series);
    let mut kinds: Vec<Vec<ProgramSession>> = [
        [ChangeSeries::Texts, ChangeSeries::Splits, ChangeSeries::Orders].map(lasting).into(),
        [ChangeSeries::Refusals, ChangeSeries::Numbers, ChangeSeries::Mappings].map(ending).into(),
        valid,
    ]
    .concat();
    let rest =
        kinds.iter_mut().map(|sessions| sessions.split_off(sessions.len().min(FIRST_SESSIONS))).collect();
    [interleave(kinds), interleave(rest)].concat()
}

/// Returns the positions of the requests of each kind. A position consists of the index of the request among its rank's requests, and the
/// rank.
fn slots(trace: &Trace) -> BTreeMap<RequestKind, Vec<(usize, u32)>> {
    let mut slots: BTreeMap<RequestKind, Vec<(usize, u32)>> = BTreeMap::new();
    for (rank, requests) in (0..).zip(trace.exchanges()) {
        let mut times: BTreeMap<RequestKind, usize> = BTreeMap::new();
        for (at, exchange) in requests.iter().enumerate() {
            let before = times.entry(exchange.kind()).or_default();
            if *before < MAX_SKIPPED_REQUESTS {
                slots.entry(exchange.kind()).or_default().push((at, rank));
            }
            *before += 1;
        }
    }
    // Early requests come first, because an unusual response may end the program.
    slots.values_mut().for_each(|all| all.sort_unstable());
    slots
}

/// Returns the number of sessions that are needed to apply all changes of a series at these positions.
fn sessions(trace: &Trace, series: ChangeSeries, slots: &[(usize, u32)]) -> usize {
    let count = slots.first().map_or(0, |slot| trace.answer(*slot).series(series).len());
    count.div_ceil(slots.len().max(1))
}

/// Returns the sessions that change the response to one kind of request, differently for each process. There are sessions with failure
/// responses for every occurrence of the request; numbers and mappings are changed only in the first occurrence.
fn ending(trace: &Trace, series: ChangeSeries) -> Vec<ProgramSession> {
    let ranks = trace.exchanges().len().max(1);
    let mut passes: Vec<Vec<ProgramSession>> = Vec::new();
    for (kind, slots) in slots(trace) {
        let times = if series == ChangeSeries::Refusals { slots.len().div_ceil(ranks) } else { 1 };
        let count = slots.first().map_or(0, |slot| trace.answer(*slot).series(series).len());
        let needed = count.div_ceil(times * ranks);
        passes.resize_with(passes.len().max(needed), Vec::new);
        for (pass, all) in passes.iter_mut().enumerate().take(needed) {
            let from = |time| (pass * times + time) * ranks;
            all.extend((0..times).map(|time| ProgramSession::Ending(series, kind, time, from(time))));
        }
    }
    passes.concat()
}

/// Returns the case of a session.
pub(crate) fn make_case(trace: &Trace, through: ProgramSession) -> Case {
    let ranks = trace.exchanges().len() as u32;
    let mut case = Case::in_dialect(trace.dialect, ImplementationKind::Client, ranks, Vec::new());
    // The changed responses, by rank and by the index of the request.
    let mut targets: BTreeMap<u32, BTreeMap<usize, ResponseReplacement>> = BTreeMap::new();
    let mut strike = |series: ChangeSeries, (at, rank), index: usize| {
        let answer = trace.answer((at, rank));
        let all = answer.series(series);
        let Some(change) = all.get(index.checked_rem(all.len()).unwrap_or(0)) else { return };
        case.ingredients.insert(format!("{}:{}", series.mutation().name(), answer.op));
        let done = RequestAction::Respond(answer.changed(change));
        targets
            .entry(rank)
            .or_default()
            .insert(at, ResponseReplacement { replaces_all: false, action: done });
    };
    match through {
        ProgramSession::ChangedResponses(series, session) => {
            for slots in slots(trace).into_values() {
                let sessions = sessions(trace, series, &slots);
                for (turn, slot) in slots.into_iter().enumerate() {
                    // The changes of a series are divided among the positions. Over all sessions, each position gets a different range of
                    // changes.
                    let index = turn * sessions + session.checked_rem(sessions).unwrap_or(0);
                    strike(series, slot, index);
                }
            }
        }
        ProgramSession::Ending(series, kind, time, from) => {
            let of_kind = slots(trace).remove(&kind).unwrap_or_default();
            for rank in 0..ranks {
                let own = of_kind.iter().copied().filter(|(_, other)| *other == rank);
                // A program may retry after a failure response, so every second rank gets two failure responses.
                let twice = series == ChangeSeries::Refusals && rank % 2 == 1;
                for slot in own.skip(time).take(if twice { 2 } else { 1 }) {
                    strike(series, slot, from + rank as usize);
                }
            }
        }
        ProgramSession::Serve(setting, number) => {
            let name = Setting::NAMES.iter().find(|(_, s)| *s == setting).map_or("", |(name, _)| name);
            case.ingredients.insert(format!("serve:{name}"));
            case.scenario.server_setup.settings.push((without_span(setting), number));
        }
        ProgramSession::Vary(name) => {
            case.ingredients.insert(format!("vary:{name}"));
            case.scenario.server_setup.variations.push(without_span(name.to_owned()));
        }
    }
    let mut body = Vec::new();
    for (rank, targets) in targets {
        let mut next = 0;
        for (at, target) in targets {
            next = write(trace, &mut body, Some(rank), next, at, target);
        }
    }
    case.scenario.body.splice(0..0, body);
    case
}

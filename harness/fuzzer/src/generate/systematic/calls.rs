//! The systematic sessions at the start of a campaign against a library. They cover lengths, bytes, buffers, failure responses and orders
//! of calls. Some sessions repeat a single call many times.

use std::collections::BTreeMap;
use std::ops::Range;

use arbitrary::Unstructured;
use pmi_scenario::ast::{Arg, Expr, ImplementationKind, Statement};
use pmi_scenario::signature::{self, Param};

use super::{REPETITIONS, interleave};
use crate::generate::library::api::LibraryGenerator;
use crate::generate::library::call::{PlannedCall, out_argument};
use crate::generate::server::swarm::CallSwarm;
use crate::mutate::client_steps::{request_step, response_step};
use crate::mutate::texts::{self, TextUse};
use crate::mutate::{ChangeSeries, Mutation, ResponseChange, ResponseStep};
use crate::session::case::Case;

/// The content of a systematic session for a library.
#[derive(Debug, Clone)]
enum LibrarySession {
    /// Responses with systematic strings, for buffers that are exactly large enough and for buffers that are one byte too small. The fields
    /// are the kind of call and the indices of the strings.
    Responses(u32, Range<usize>),
    /// Arguments with systematic strings. The fields are the kind of call, the use of the strings, and their indices.
    Arguments(u32, TextUse, Range<usize>),
    /// Calls of this kind with buffers of every size in [`BUFFER_SIZES`].
    BufferSizes(u32),
    /// Many calls of the same kind. The second field is true if the requested value exists.
    Repeated(u32, bool),
    /// For each change of a series, a call of this kind with the changed response, and then a call with the correct response.
    Changes(u32, ChangeSeries),
    /// A program in which a response to the first call is changed. The fields select the request, the series and the change.
    Begin(u8, ChangeSeries, usize),
    /// A call of this kind before the library is initialized, and after it is finalized.
    Order(u32),
    /// A program that initializes the library twice or, if the field is true, finalizes it twice.
    RepeatedInit(bool),
}

const TEXTS_PER_SESSION: usize = 60;
/// Maximum number of changes to the first response.
const MAX_FIRST_CHANGES: usize = 16;
/// The default size of buffers. Every ordinary response fits into a buffer of this size.
const DEFAULT_BUFFER_SIZE: i64 = 64;
/// The sizes of buffers in a systematic session. Most responses are shorter than the largest size.
const BUFFER_SIZES: Range<i64> = 0..40;

/// Returns the session with this index, if any.
pub(crate) fn session(libraries: &LibraryGenerator, at: usize) -> Option<Case> {
    let through = all(libraries).into_iter().nth(at)?;
    Some(make_case(libraries, &through))
}

/// Returns the call with index `n` in its program, without random choices. `kind` selects the function.
fn call_of_kind(libraries: &LibraryGenerator, kind: u32, n: usize) -> PlannedCall {
    let decided = libraries.of_kind(kind, &mut Unstructured::new(&[]), &CallSwarm::default(), n, 1);
    decided.unwrap_or_else(|e| panic!("decisions never run out: {e}"))
}

/// Returns the call that begins a program, with one of the requests that it causes. `which` selects the request.
fn begin(libraries: &LibraryGenerator, which: u8) -> PlannedCall {
    let begun = libraries.begin(&mut Unstructured::new(&[which; 16]), 1);
    begun.unwrap_or_else(|e| panic!("decisions never run out: {e}"))
}

/// Maps each function's name to the number of the first kind of call for the function.
fn samples(libraries: &LibraryGenerator) -> BTreeMap<&'static str, u32> {
    let mut samples = BTreeMap::new();
    for (kind, function) in (0..).zip(libraries.functions()) {
        samples.entry(function.name).or_insert(kind);
    }
    samples
}

/// Returns the uses of the last two string arguments of a call that puts or publishes, in order. For other calls, the list is empty.
fn argument_uses(call: &PlannedCall) -> &'static [TextUse] {
    match &call.request {
        Some(_) if strings(call).len() < 2 => &[],
        Some(request) if request.op.is(&["put"]) => &[TextUse::Key, TextUse::Value],
        Some(request) if request.op.is(&["publish"]) => &[TextUse::Service, TextUse::Port],
        _ => &[],
    }
}

/// Returns the indices of the arguments that are strings.
fn strings(call: &PlannedCall) -> Vec<usize> {
    let params = signature::function(call.function).map_or(&[][..], |function| function.params);
    (0..params.len()).filter(|at| params[*at] == Param::Str).collect()
}

fn all(libraries: &LibraryGenerator) -> Vec<LibrarySession> {
    let samples = samples(libraries);
    let parts = |count: usize| {
        (0..count).step_by(TEXTS_PER_SESSION).map(move |at| at..(at + TEXTS_PER_SESSION).min(count))
    };
    let mut kinds: Vec<Vec<LibrarySession>> = Vec::new();
    let mut others = Vec::new();
    let (mut times, mut orders) = (Vec::new(), Vec::new());
    for (function, sample) in samples {
        let call = call_of_kind(libraries, sample, 0);
        for used in argument_uses(&call) {
            let all = parts(texts::systematic_texts(libraries.dialect, *used).len());
            kinds.push(all.map(|part| LibrarySession::Arguments(sample, *used, part)).collect());
        }
        if buffer_arguments(&call).is_some() {
            others.push(LibrarySession::BufferSizes(sample));
        }
        // If a library is not connected to the harness, spawns are not repeated, because each of them would start real processes.
        if libraries.uses_wire || !function.contains("pawn") {
            times.push(LibrarySession::Repeated(sample, true));
        }
        if libraries.mutate {
            orders.push(LibrarySession::Order(sample));
        }
        let Some(request) = call.request.as_ref().filter(|_| libraries.uses_wire) else { continue };
        let answer = request.answer(libraries.dialect);
        if let Some((_, used)) = answer.value_field().filter(|_| takes_text(function)) {
            let all = parts(texts::systematic_texts(libraries.dialect, used).len());
            kinds.push(all.map(|part| LibrarySession::Responses(sample, part)).collect());
            times.push(LibrarySession::Repeated(sample, false));
        }
        if libraries.mutate {
            others.extend(
                [ChangeSeries::Refusals, ChangeSeries::Splits]
                    .map(|series| LibrarySession::Changes(sample, series)),
            );
        }
    }
    if libraries.mutate {
        orders.extend([false, true].map(LibrarySession::RepeatedInit));
    }
    if libraries.mutate && libraries.uses_wire {
        let first = |series| {
            let of = |which| {
                let call = begin(libraries, which);
                let count = call.request.map_or(0, |r| r.answer(libraries.dialect).series(series).len());
                (0..count.min(MAX_FIRST_CHANGES)).map(move |at| LibrarySession::Begin(which, series, at))
            };
            // Several values of `which` may select the same request. Only the first of them is used.
            let mut firsts = BTreeMap::new();
            for which in 0..3 {
                let request = begin(libraries, which).request.map(|request| request.op.to_string());
                firsts.entry(request).or_insert(which);
            }
            firsts.into_values().flat_map(of).collect()
        };
        kinds.extend([ChangeSeries::Refusals, ChangeSeries::Numbers, ChangeSeries::Splits].map(first));
    }
    kinds.extend([others, times, orders]);
    interleave(kinds)
}

/// Returns whether a function fills a buffer with text.
fn takes_text(function: &str) -> bool {
    let params = signature::function(function).map_or(&[][..], |function| function.params);
    params.iter().any(|param| matches!(param, Param::OutText(_)))
}

/// Returns the indices of a buffer and of the argument that states its size. Returns `None` if the call has no buffer whose
/// size can vary.
fn buffer_arguments(call: &PlannedCall) -> Option<(usize, usize)> {
    let params = signature::function(call.function)?.params;
    params.iter().enumerate().find_map(|(at, param)| match param {
        // The two buffers of a ring share one size, so their size is not varied.
        _ if call.function == "PMIX_Ring" => None,
        Param::OutText(Some(size)) | Param::OutInts(Some(size)) => Some((at, *size)),
        _ => None,
    })
}

fn with_room(mut call: PlannedCall, room: i64) -> PlannedCall {
    if let Some((buffer, size)) = buffer_arguments(&call) {
        let name = match &call.args[buffer] {
            Arg::Out(name, _) => name.value.clone(),
            _ => return call,
        };
        call.args[buffer] = out_argument(&name, Some(room.max(0)));
        call.args[size] = Arg::Number(Expr::Number(room));
    }
    call
}

/// The steps of a session under construction.
struct LibrarySessionBuilder<'a> {
    libraries: &'a LibraryGenerator,
    body: Vec<Statement>,
    calls: usize,
}

impl LibrarySessionBuilder<'_> {
    /// Returns the next call of this kind.
    fn next(&mut self, sample: u32) -> PlannedCall {
        self.calls += 1;
        with_room(call_of_kind(self.libraries, sample, self.calls), DEFAULT_BUFFER_SIZE)
    }

    /// Adds a call, after the steps that determine the response to its request.
    fn answered(&mut self, call: PlannedCall, steps: Vec<ResponseStep>) {
        if let Some(request) = call.request.as_ref().filter(|_| self.libraries.uses_wire) {
            self.body.push(request_step(None, request.pattern.clone(), false));
            self.body.extend(steps.into_iter().map(|step| response_step(None, step)));
        }
        self.body.push(call.stmt());
    }

    /// Adds a call whose request receives the correct response. If the call requests a value, the value exists.
    fn plain(&mut self, call: PlannedCall) {
        match call.request.clone().filter(|request| request.depends_on_others()) {
            Some(request) => {
                let proper = request.answer(self.libraries.dialect).correct();
                self.answered(call, vec![proper]);
            }
            None => self.body.push(call.stmt()),
        }
    }

    fn changed(&mut self, call: PlannedCall, change: &ResponseChange) {
        let steps = call.request.as_ref().map(|r| r.answer(self.libraries.dialect).changed(change));
        self.answered(call, steps.unwrap_or_default());
    }
}

/// The failure response of most servers.
const REFUSED: ResponseChange = ResponseChange::Refuse("-1", None);

fn make_case(libraries: &LibraryGenerator, through: &LibrarySession) -> Case {
    let dialect = libraries.dialect;
    let mut maker = LibrarySessionBuilder { libraries, body: Vec::new(), calls: 0 };
    let mut case = Case::in_dialect(dialect, ImplementationKind::Library, 1, Vec::new());
    let changed =
        |mutation: Mutation, detail: &dyn std::fmt::Display| format!("{}:{detail}", mutation.name());
    let (mut begun, mut first) = (begin(libraries, 0), None);
    match through {
        LibrarySession::Order(sample) => {
            let call = maker.next(*sample);
            case.ingredients.insert(changed(Mutation::Order, &call.function));
            maker.plain(call);
        }
        LibrarySession::RepeatedInit(_) => {
            case.ingredients.insert(changed(Mutation::Repeat, &begun.function));
        }
        LibrarySession::Begin(which, series, at) => {
            begun = begin(libraries, *which);
            if let Some(request) = &begun.request {
                case.ingredients.insert(changed(series.mutation(), &request.op));
                first = Some(request.answer(dialect).series(*series).swap_remove(*at));
            }
        }
        _ => {}
    }
    match first {
        Some(change) => maker.changed(begun, &change),
        None => maker.body.push(begun.stmt()),
    }
    match through {
        LibrarySession::Responses(sample, part) => {
            // The session begins with a miss, which must not change later responses.
            let missed = maker.next(*sample);
            maker.changed(missed, &REFUSED);
            let used = maker.next(*sample).request.and_then(|r| Some(r.answer(dialect).value_field()?.1));
            for text in &texts::systematic_texts(dialect, used.unwrap_or(TextUse::Value))[part.clone()] {
                for room in [text.len() + 1, text.len()] {
                    let call = with_room(maker.next(*sample), room);
                    maker.changed(call, &ResponseChange::SetValue(text));
                }
            }
        }
        LibrarySession::Arguments(sample, used, part) => {
            for text in &texts::systematic_texts(dialect, *used)[part.clone()] {
                let mut call = maker.next(*sample);
                let strings = strings(&call);
                let back = if matches!(used, TextUse::Value | TextUse::Port) { 1 } else { 2 };
                if let Some(at) = strings.len().checked_sub(back) {
                    call.args[strings[at]] = Arg::Text(text.as_argument());
                }
                maker.plain(call);
            }
        }
        LibrarySession::BufferSizes(sample) => {
            for room in BUFFER_SIZES {
                let call = with_room(maker.next(*sample), room);
                maker.plain(call);
            }
        }
        LibrarySession::Repeated(sample, found) => {
            for _ in 0..REPETITIONS {
                let call = maker.next(*sample);
                match found {
                    true => maker.plain(call),
                    false => maker.changed(call, &REFUSED),
                }
            }
        }
        LibrarySession::Changes(sample, series) => {
            let first = maker.next(*sample);
            let Some(request) = first.request else { return case };
            case.ingredients.insert(changed(series.mutation(), &request.op));
            for change in request.answer(dialect).series(*series) {
                let call = maker.next(*sample);
                maker.changed(call, &change);
                let again = maker.next(*sample);
                maker.plain(again);
            }
            for other in samples(libraries).into_values() {
                let call = maker.next(other);
                maker.plain(call);
            }
        }
        LibrarySession::Begin(..) => {
            for sample in samples(libraries).into_values() {
                let call = maker.next(sample);
                maker.plain(call);
            }
        }
        LibrarySession::Order(_) => {}
        LibrarySession::RepeatedInit(ends) => {
            let again = if *ends { libraries.end() } else { begin(libraries, 0) };
            maker.body.push(again.stmt());
        }
    }
    maker.body.push(libraries.end().stmt());
    if let LibrarySession::Order(sample) = through {
        let call = maker.next(*sample);
        maker.plain(call);
    }
    case.scenario.body.splice(0..0, maker.body);
    case
}

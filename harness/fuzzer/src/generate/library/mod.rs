//! Cases for a library: calls to its functions, and the responses to its requests, with at most two mutations.

pub mod api;
pub(super) mod call;

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Arg, Dialect, Expr, ImplementationKind, Statement};
use pmi_scenario::signature::{self, Param};

use super::Generator;
use super::systematic::systematic_index;
use crate::generate::server::swarm::CallSwarm;
use crate::generate::systematic::calls;
use crate::mutate::client_steps::{request_step, response_step};
use crate::mutate::{Mutation, ResponseStep};
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::pieces::{letters, template};
use api::LibraryGenerator;
use call::{CallRequest, PlannedCall, negative, quoted};

impl Generator for LibraryGenerator {
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        let ranks = if self.uses_wire && self.ranks > 1 && valid.int_in_range(0..=4)? == 4 { 2 } else { 1 };
        let swarm = CallSwarm::draw(self.kinds(), valid)?;
        let mut calls = vec![self.begin(valid, ranks)?];
        for n in 0..swarm.calls(valid)? {
            let kind = swarm.kind(self.kinds(), valid)?;
            calls.push(self.of_kind(kind, valid, &swarm, n, ranks)?);
        }
        if !valid.ratio(1, 4)? {
            calls.push(self.end());
        }
        let u = mutations;
        let count = match percent(u)? {
            _ if !self.mutate => 0,
            0..10 => 0,
            10..70 => 1,
            _ => 2,
        };
        let asking: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].request.is_some()).collect();
        let mut changed = BTreeSet::new();
        let mut case = Case::in_dialect(self.dialect, ImplementationKind::Library, ranks, Vec::new());
        for _ in 0..count {
            if !self.uses_wire || u.ratio(1, 5)? {
                case.ingredients.extend(mutate_call(&mut calls, u)?);
            } else {
                changed.insert(pick(u, &asking)?);
            }
        }
        let body = &mut case.scenario.body;
        for (at, mut call) in calls.into_iter().enumerate() {
            match call.request.take().filter(|_| self.uses_wire) {
                Some(request) if changed.contains(&at) => {
                    case.ingredients.insert(mutate_response(&request, self.dialect, ranks, body, u)?);
                }
                // No process puts the requested key or publishes the requested name, so the harness has to supply the response.
                Some(request)
                    if request.depends_on_others() && valid.ratio(if swarm.found { 5 } else { 1 }, 6)? =>
                {
                    let found = request.answer(self.dialect).correct();
                    body.extend([request_step(None, request.pattern, false), response_step(None, found)]);
                }
                _ => {}
            }
            body.push(call.stmt());
        }
        Ok(case)
    }

    fn fixed(&self, number: u64) -> Option<Case> {
        calls::session(self, systematic_index(number)?)
    }
}

/// A generator of cases for a library that has several APIs.
impl Generator for Vec<LibraryGenerator> {
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        valid.choose(self)?.generate(valid, mutations)
    }

    /// Returns a systematic case. The APIs take turns.
    fn fixed(&self, number: u64) -> Option<Case> {
        let at = systematic_index(number)?;
        calls::session(self.get(at.checked_rem(self.len())?)?, at.checked_div(self.len())?)
    }
}

/// Returns a case that shows whether a library uses the harness's connection. The case calls init and a barrier.
pub(crate) fn probe_case(dialect: Dialect) -> Case {
    let libraries = LibraryGenerator { dialect, has_ring: false, ranks: 1, mutate: false, uses_wire: true };
    let calls = ["init", "barrier"].map(|operation| libraries.plain(operation).stmt());
    Case::in_dialect(dialect, ImplementationKind::Library, 1, calls.into())
}

/// Replaces an argument of a call with an unusual one, or moves or repeats a call. Returns the name of the mutation, or `None` if the calls
/// stay unchanged. The stated size of a buffer never exceeds its actual size.
fn mutate_call(calls: &mut Vec<PlannedCall>, u: &mut Unstructured<'_>) -> Result<Option<String>> {
    let at = u.choose_index(calls.len())?;
    let function = calls[at].function;
    if u.ratio(1, 2)? {
        let again = u.arbitrary()?;
        let moved = if again { calls[at].clone() } else { calls.remove(at) };
        let to = u.int_in_range(0..=calls.len())?;
        calls.insert(to, moved);
        let mutation = if again { Mutation::Repeat } else { Mutation::Order };
        return Ok(Some(format!("{}:{function}", mutation.name())));
    }
    // The arguments of a spawn are left unchanged, because its arrays must have the length that one of these arguments states.
    let spawns = calls[at].request.as_ref().is_some_and(|request| request.op.is_spawn());
    if spawns || calls[at].args.is_empty() {
        return Ok(None);
    }
    let args = &mut calls[at].args;
    let which = u.choose_index(args.len())?;
    // RFC 13 defines errors for NULL and for negative lengths. The PMI-2 header does not mention them, so PMI-2 functions do not get such
    // arguments.
    let has_errors = function.starts_with("PMI_");
    let params = signature::function(function).map_or(&[][..], |f| f.params);
    let is_length = params
        .iter()
        .any(|param| matches!(param, Param::OutText(Some(i)) | Param::OutInts(Some(i)) if *i == which));
    args[which] = match &args[which] {
        Arg::Out(..) if !has_errors => return Ok(None),
        Arg::Number(_) if !has_errors && is_length => Arg::Number(Expr::Number(0)),
        // A list argument has its own format, so it is not changed.
        Arg::Text(_) if params.get(which) != Some(&Param::Str) => return Ok(None),
        Arg::Text(_) => match u.int_in_range(0..=6)? {
            0 if has_errors => Arg::Null,
            0 => quoted("a;b;;c"),
            1 => quoted(""),
            2 => quoted("a b"),
            3 => quoted("a=b"),
            _ => Arg::Text(template(vec![letters(pick(u, &[64, 256, 5000])?)])),
        },
        Arg::Out(..) => Arg::Null,
        // A null argument is already unusual, so it stays unchanged.
        Arg::Null => return Ok(None),
        Arg::Number(_) => match u.int_in_range(0..=2)? {
            0 => Arg::Number(Expr::Number(0)),
            1 => negative(1),
            _ => negative(1_000_000_000),
        },
    };
    Ok(Some(format!("argument:{function}")))
}

/// Adds steps that answer a request with a mutated response, on one rank or on all ranks. Returns the name of the mutation.
fn mutate_response(
    request: &CallRequest,
    dialect: Dialect,
    ranks: u32,
    body: &mut Vec<Statement>,
    u: &mut Unstructured<'_>,
) -> Result<String> {
    // All processes get the same response to a barrier. Otherwise, some could wait in the barrier forever after others have left it.
    let one = ranks > 1 && !request.is_collective() && u.arbitrary()?;
    let rank = if one { Some(u.int_in_range(0..=ranks - 1)?) } else { None };
    let answer = request.answer(dialect);
    let (mutation, all) = answer.mutated(u)?;
    body.push(request_step(rank, request.pattern.clone(), false));
    body.extend(all.into_iter().map(|step| match step {
        // The scenario of a library, unlike that of a program, has no step for the correct response, so the response is written out.
        ResponseStep::Correct => response_step(rank, answer.correct()),
        step => response_step(rank, step),
    }));
    Ok(format!("{}:{}", mutation.name(), request.op))
}

#[cfg(test)]
mod tests {
    use pmi_scenario::ast::{Step, StepAction};

    use super::*;
    use crate::generate::case_from_number;
    use crate::session::testing::{assert_round_trip, mutations_of};

    const LIBRARIES: LibraryGenerator =
        LibraryGenerator { dialect: Dialect::Pmi1, has_ring: true, ranks: 4, mutate: true, uses_wire: true };
    const PMI2_LIBRARIES: LibraryGenerator = LibraryGenerator { dialect: Dialect::Pmi2, ..LIBRARIES };

    #[test]
    fn library_sessions_contain_every_mutation() {
        for libraries in [LIBRARIES, PMI2_LIBRARIES] {
            let changed = mutations_of(&libraries, 3000, |_| ());
            let all = Mutation::of_responses(libraries.dialect.framing()).iter();
            let all = all.map(|mutation| mutation.name());
            for name in all.chain(["argument", "order", "repeat"].map(str::to_owned)) {
                assert!(changed.contains(&name), "{name}: {changed:?}");
            }
        }
    }

    #[test]
    fn calls_every_function_with_all_its_arguments() {
        for libraries in [LIBRARIES, PMI2_LIBRARIES] {
            let mut called = BTreeSet::new();
            for number in 0..1000 {
                let case = case_from_number(&libraries, 5, number);
                for statement in &case.scenario.body {
                    if let Statement::Step(Step { action: StepAction::Call(call), .. }) = statement {
                        let name = call.function.as_ref().unwrap().value.as_str();
                        let function = signature::function(name).unwrap();
                        assert_eq!(call.args.len(), function.params.len(), "{name}");
                        called.insert(function.name);
                    }
                }
            }
            let of_api = signature::functions(libraries.dialect).iter().map(|function| function.name);
            // No case calls an abort function, because such a call does not return.
            let missing: Vec<_> =
                of_api.filter(|name| !called.contains(name) && !name.ends_with("_Abort")).collect();
            assert_eq!(missing, Vec::<&str>::new());
        }
    }

    #[test]
    fn systematic_sessions_are_distinct_and_round_trip() {
        for libraries in [LIBRARIES, PMI2_LIBRARIES, LibraryGenerator { uses_wire: false, ..LIBRARIES }] {
            let all: Vec<Case> = (0..2000).filter_map(|number| libraries.fixed(number)).collect();
            all.iter().for_each(assert_round_trip);
            let mut texts = BTreeSet::new();
            for case in &all {
                assert!(texts.insert(case.text()), "{}", case.text());
            }
            let all: String = texts.into_iter().collect();
            let names = signature::functions(libraries.dialect).iter().map(|f| f.name);
            // A count of 0 is allowed, because some functions are never called.
            let few = |name: &&str| (1..300).contains(&all.matches(&format!("{name}(")).count());
            let is_once = |name: &&str| name.ends_with("_Init") || name.ends_with("_Finalize");
            let missing: Vec<&str> = names.filter(few).filter(|name| !is_once(name)).collect();
            assert!(missing.iter().all(|name| !libraries.uses_wire && name.contains("pawn")), "{missing:?}");
            assert!(libraries.uses_wire || !all.contains("send    "));
        }
    }

    #[test]
    fn library_sessions_use_only_enabled_features() {
        for number in 0..300 {
            let text =
                case_from_number(&LibraryGenerator { uses_wire: false, ..LIBRARIES }, 3, number).text();
            assert!(
                text.contains("ranks 1\n") && !text.contains("send    ") && !text.contains("expect  "),
                "{text}"
            );
            let plain = case_from_number(&LibraryGenerator { mutate: false, ..LIBRARIES }, 3, number);
            assert!(plain.ingredients.is_empty());
        }
    }
}

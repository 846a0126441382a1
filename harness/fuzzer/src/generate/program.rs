//! Cases for a program: the server's responses to the program's requests, with at most two mutations. The requests are known from plain
//! runs of the program.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use pmi_faults::variations;
use pmi_scenario::ast::{ImplementationKind, Setting};

use super::Generator;
use super::systematic::systematic_index;
use super::trace::{MAX_SKIPPED_REQUESTS, RequestAction, ResponseReplacement, Trace, TracedRequest, write};
use crate::generate::systematic::program_responses;
use crate::mutate::Mutation;
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::op::Op;
use crate::session::pieces::without_span;

/// A generator of cases for a program.
#[derive(Debug)]
pub struct ProgramGenerator {
    /// The program's requests in one or more plain runs, in which the server does nothing unusual.
    pub traces: Vec<Trace>,
    /// True if responses are mutated. Otherwise, the server is unusual but sends only valid responses.
    pub mutate: bool,
}

impl Generator for ProgramGenerator {
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Result<Case> {
        // Prefer traces with many processes, because they cover more.
        let (one, other) = (valid.choose_index(self.traces.len())?, valid.choose_index(self.traces.len())?);
        let trace = &self.traces[one.max(other)];
        let mut maker = ProgramSessionBuilder {
            trace,
            u: mutations,
            case: Case::in_dialect(
                trace.dialect,
                ImplementationKind::Client,
                trace.exchanges().len() as u32,
                Vec::new(),
            ),
        };
        let unusual = percent(valid)?;
        if unusual < 15 || !self.mutate {
            maker.vary(valid)?;
        } else if unusual < 30 {
            maker.serve(valid)?;
        }
        let count = match percent(maker.u)? {
            _ if !self.mutate => 0,
            0..50 if unusual < 30 => 0,
            0..65 => 1,
            _ => 2,
        };
        maker.mutate(count)?;
        Ok(maker.case)
    }

    fn fixed(&self, number: u64) -> Option<Case> {
        let at = systematic_index(number)?;
        // The last trace has the most processes, so it covers the most.
        let trace = self.traces.last()?;
        let through = program_responses::all(trace, self.mutate).into_iter().nth(at)?;
        Some(program_responses::make_case(trace, through))
    }
}

struct ProgramSessionBuilder<'a, 'b, 'c> {
    trace: &'a Trace,
    u: &'b mut Unstructured<'c>,
    case: Case,
}

impl ProgramSessionBuilder<'_, '_, '_> {
    fn vary(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let all: Vec<&str> = variations().map(|v| v.name).collect();
        for _ in 0..u.int_in_range(1..=2)? {
            let name = pick(u, &all)?;
            if self.case.ingredients.insert(format!("vary:{name}")) {
                self.case.scenario.server_setup.variations.push(without_span(name.to_owned()));
            }
        }
        Ok(())
    }

    fn serve(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (setting, numbers): (_, &[u32]) = match u.int_in_range(0..=5)? {
            // If the dialect has no request for the limits, the limits are constant, so the length of the keyval space's name is set
            // instead.
            0..3 if Op::of(self.trace.dialect, "maxes").is_none() => {
                (Setting::KvsnameLength, &[32, 63, 64, 127, 200])
            }
            0 => (Setting::KeylenMax, &[20, 32, 48, 256, 1024, 65536]),
            1 | 2 => (Setting::VallenMax, &[32, 64, 256, 4096, 65536, 1_000_000]),
            3 => (Setting::KvsnameLength, &[32, 63, 64, 127, 200]),
            4 => (Setting::Delay, &[1, 5]),
            _ => (Setting::FirstWrite, &[1, 2, 5, 6, 7, 12, 31, 63, 64, 100, 127, 128]),
        };
        let name = Setting::NAMES.iter().find(|(_, s)| *s == setting).map_or("", |(name, _)| name);
        self.case.ingredients.insert(format!("serve:{name}"));
        self.case.scenario.server_setup.settings.push((without_span(setting), pick(u, numbers)?));
        Ok(())
    }

    fn mutate(&mut self, count: usize) -> Result<()> {
        let ranks = self.trace.exchanges().len() as u32;
        let mut targets: BTreeMap<Option<u32>, BTreeMap<usize, ResponseReplacement>> = BTreeMap::new();
        // Change values often, because programs receive values of any length and content from other processes.
        if count > 0 && self.u.ratio(1, 4)? {
            targets.insert(None, self.values()?);
        }
        let (mut processes, mut kind) = (Vec::new(), None);
        if count > 0 && ranks > 1 && self.u.ratio(1, 2)? {
            // Change the response to the same request in every process. This is possible because a failure in one process does not
            // affect the requests of the others.
            processes.extend((0..ranks).map(Some));
            kind = self.kind(&self.trace.exchanges()[0])?;
        }
        for _ in processes.len()..count {
            let rank = self.u.int_in_range(0..=ranks - 1)?;
            processes.push(if ranks == 1 || self.u.ratio(2, 5)? { None } else { Some(rank) });
        }
        for process in processes {
            let kind = match kind {
                Some(kind) => Some(kind),
                None => self.kind(&self.trace.exchanges()[process.unwrap_or(0) as usize])?,
            };
            // Processes with different mappings may wait for each other forever, which is not a bug in the program. Usually, the same
            // mapping is therefore sent to all processes.
            let is_mapping = kind.is_some_and(|(_, mapping)| mapping);
            let process = if is_mapping && self.u.ratio(3, 4)? { None } else { process };
            let requests = &self.trace.exchanges()[process.unwrap_or(0) as usize];
            if let Some((at, target)) = self.target(requests, kind, ranks)? {
                let targets = targets.entry(process).or_default();
                // A program may retry after a failure response, so the response to the retry may be changed as well.
                let same = |e: &TracedRequest| (e.op, e.mapping) == (requests[at].op, requests[at].mapping);
                let next = (at + 1..requests.len()).find(|next| same(&requests[*next]));
                if let Some(next) = next.filter(|_| !target.replaces_all)
                    && self.u.ratio(1, 4)?
                {
                    targets.insert(next, target.clone());
                }
                targets.insert(at, target);
            }
        }
        let mut body = Vec::new();
        for (process, targets) in targets {
            let mut next = 0;
            for (at, target) in targets {
                next = write(self.trace, &mut body, process, next, at, target);
            }
        }
        // The new steps come before the step that requires the program to end.
        self.case.scenario.body.splice(0..0, body);
        Ok(())
    }

    /// Returns replacements for responses that contain a value from another process, by the index of the request. Each replacement contains
    /// a mutated value.
    fn values(&mut self) -> Result<BTreeMap<usize, ResponseReplacement>> {
        let mut targets = BTreeMap::new();
        for (at, exchange) in self.trace.exchanges()[0].iter().enumerate().take(MAX_SKIPPED_REQUESTS) {
            if let Some(response) = self.trace.answer_to(exchange).mutate(Mutation::Value, self.u)? {
                self.case.ingredients.insert(format!("{}:{}", Mutation::Value.name(), exchange.op));
                targets.insert(
                    at,
                    ResponseReplacement { replaces_all: false, action: RequestAction::Respond(response) },
                );
            }
        }
        Ok(targets)
    }

    /// Draws a kind of request. All kinds are equally likely, so that a kind with many requests does not crowd out the others.
    fn kind(&mut self, requests: &[TracedRequest]) -> Result<Option<(Op, bool)>> {
        let kinds: BTreeSet<(Op, bool)> = requests.iter().map(|e| (e.op, e.mapping)).collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        if kinds.is_empty() { Ok(None) } else { pick(self.u, &kinds).map(Some) }
    }

    /// Draws a request of this kind and a replacement for its response. Returns the index of the request and the replacement, or `None` if
    /// no request is of this kind.
    fn target(
        &mut self,
        requests: &[TracedRequest],
        kind: Option<(Op, bool)>,
        ranks: u32,
    ) -> Result<Option<(usize, ResponseReplacement)>> {
        let same: Vec<usize> =
            (0..requests.len()).filter(|i| Some((requests[*i].op, requests[*i].mapping)) == kind).collect();
        if same.is_empty() {
            return Ok(None);
        }
        let mut at = pick(self.u, &same)?;
        let mut every = self.u.ratio(1, 6)?;
        if requests[..at].iter().filter(|e| e.matches_pattern_of(&requests[at])).count()
            > MAX_SKIPPED_REQUESTS
        {
            (at, every) = (same[0], true);
        }
        let exchange = &requests[at];
        let kind = exchange.op;
        if ranks > 1 && self.u.ratio(1, 30)? {
            self.case.ingredients.insert(format!("death:{kind}"));
            return Ok(Some((at, ResponseReplacement { replaces_all: false, action: RequestAction::Kill })));
        }
        let (mutation, response) = self.trace.answer_to(exchange).mutated(self.u)?;
        self.case.ingredients.insert(format!("{}:{kind}", mutation.name()));
        Ok(Some((at, ResponseReplacement { replaces_all: every, action: RequestAction::Respond(response) })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::case_from_number;
    use crate::generate::trace::tests::{pmi2_trace, trace};
    use crate::mutate::ResponseStep;
    use crate::mutate::client_steps::{pattern, request_step, response_step};
    use crate::session::testing::{assert_round_trip, mutations, mutations_of};
    use pmi_wire::{Framing, Operation};

    fn programs(mutate: bool) -> ProgramGenerator {
        ProgramGenerator { traces: vec![trace(1), trace(3)], mutate }
    }

    /// Returns the systematic sessions.
    fn fixed(programs: &ProgramGenerator) -> Vec<Case> {
        let trace = programs.traces.last().unwrap();
        let all = program_responses::all(trace, programs.mutate).into_iter();
        all.map(|through| program_responses::make_case(trace, through)).collect()
    }

    #[test]
    fn systematic_sessions_are_distinct_and_round_trip() {
        for traces in [vec![trace(1), trace(3)], vec![pmi2_trace(1), pmi2_trace(3)]] {
            let all = fixed(&ProgramGenerator { traces, mutate: true });
            all.iter().for_each(assert_round_trip);
            assert!(all.iter().all(|case| case.ranks() == 3 && case.ingredients.len() < 20));
            let changed: BTreeSet<String> = all.iter().flat_map(mutations).collect();
            for name in ["value", "pieces", "order", "refusal", "number", "mapping", "vary", "serve"] {
                assert!(changed.contains(name), "{name}: {changed:?}");
            }
            let texts: BTreeSet<String> = all.iter().map(Case::text).collect();
            assert_eq!(texts.len(), all.len());
        }
    }

    #[test]
    fn splits_each_response_and_refuses_each_request() {
        let all: String = fixed(&programs(true)).iter().map(Case::text).collect();
        for at in 1.."cmd=barrier_out rc=0".len() {
            let (first, second) = "cmd=barrier_out rc=0".split_at(at);
            let first = first.trim_end();
            assert!(all.contains(first) && all.contains(second.trim_start()), "{first}");
        }
        for answer in ["maxes", "my_kvsname", "put_result", "barrier_out", "get_result", "finalize_ack"] {
            for code in ["-1", "1", "256", "2147483648"] {
                assert!(all.contains(&format!("cmd={answer} rc={code}\n")), "{answer} {code}");
            }
        }
        assert!(all.contains("cmd=get_result rc=-1 msg=<fill 100>"));
    }

    #[test]
    fn unmutated_systematic_session_has_only_the_end_step() {
        for case in fixed(&programs(false)) {
            assert_eq!(case.scenario.body, [crate::session::statement::end_step()], "{}", case.text());
        }
    }

    #[test]
    fn program_sessions_contain_every_mutation() {
        let of_frames = [
            "dialect pmi-2",
            "thrid=$thrid",
            "send    <bytes>",
            "send    <line> cmd=response_to_init",
            "send    <body>",
        ];
        for (traces, framing, parts) in [
            (vec![trace(1), trace(3)], Framing::Lines, &[][..]),
            (vec![pmi2_trace(1), pmi2_trace(3)], Framing::Frames, &of_frames[..]),
        ] {
            let mut texts = String::new();
            let programs = ProgramGenerator { traces, mutate: true };
            let changed = mutations_of(&programs, 3000, |case| texts += &case.text());
            let all = Mutation::of_responses(framing).iter().map(|mutation| mutation.name());
            for name in all.chain(["vary", "serve", "death"].map(str::to_owned)) {
                assert!(changed.contains(&name), "{name}: {changed:?}");
            }
            for part in parts {
                assert!(texts.contains(part), "{part}");
            }
        }
    }

    #[test]
    fn unmutated_random_session_has_only_the_end_step() {
        let programs = programs(false);
        for number in 0..300 {
            let case = case_from_number(&programs, 3, number);
            assert_eq!(case.scenario.body, [crate::session::statement::end_step()], "{}", case.text());
        }
    }

    #[test]
    fn response_change_may_target_a_later_request() {
        let trace = trace(1);
        let target = || ResponseReplacement {
            replaces_all: false,
            action: RequestAction::Respond(vec![ResponseStep::Close]),
        };
        let mut body = Vec::new();
        let next = write(&trace, &mut body, Some(0), 0, 3, target());
        write(&trace, &mut body, Some(0), next, 6, target());
        let mapping = request_step(Some(0), pattern(Operation::Get.into(), true), false);
        let get = request_step(Some(0), pattern(Operation::Get.into(), false), false);
        let close = || response_step(Some(0), ResponseStep::Close);
        assert_eq!(body, [mapping, close(), get, close()]);
    }
}

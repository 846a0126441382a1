//! Checks whether a library meets the expectations of the scenario.

use std::time::Duration;

use pmi_scenario::ast::Grade;
use pmi_wire::{Framing, Proc};

use super::{LibraryJudge, LibraryRequest, PendingCall, api};
use crate::Severity;
use crate::event::{Exit, SilenceProof};
use crate::expectation::ExpectationState;
use crate::expectation::{
    Captures, Choice, Expectation, ExpectationKind, Matcher, Mismatch, Pattern, ReturnCode,
};
use crate::observation::{IncompleteMessage, NO_PROOF_SUFFIX};
use crate::unjudged::{LoadFailure, UnjudgedReason};

/// The proof that no more data will arrive, and the time that the runner waited.
type SilenceEvidence = Option<(SilenceProof, Duration)>;

fn describe_silence((proof, waited): (SilenceProof, Duration)) -> String {
    match proof {
        SilenceProof::Idle => "nothing: the process waits, and no message is on its way to it".into(),
        SilenceProof::Polled | SilenceProof::Unread | SilenceProof::Timeout => {
            format!("nothing for {waited:?}{NO_PROOF_SUFFIX}")
        }
    }
}

/// The next input of a step within a call.
enum CallInput {
    Request(LibraryRequest),
    /// The call or the process has ended, or the process remains silent, so no request will arrive.
    None,
    /// No request has arrived yet.
    Open,
}

impl LibraryJudge {
    /// Checks whether an expectation has been met or broken, and adds the captured values to `captures`.
    pub(crate) fn check(
        &mut self,
        p: Proc,
        expectation: &Expectation,
        silence: SilenceEvidence,
        captures: &mut Captures,
    ) -> ExpectationState {
        if let Some(why) = &self.process(p).missing {
            // The scenarios about the library's file report missing functions, so this scenario is not judged.
            self.unjudged = Some(UnjudgedReason::NoSuchFunction(why.clone()));
            return ExpectationState::Broken;
        }
        let cites = expectation.cites.as_str();
        match &expectation.kind {
            ExpectationKind::Started => self.check_start(p, cites, silence),
            ExpectationKind::SendsRequest(patterns) => {
                self.check_request(p, cites, patterns, silence, captures)
            }
            ExpectationKind::OneOf(choices) => self.check_choices(p, cites, choices, silence, captures),
            ExpectationKind::Silence => match self.next_input(p, silence) {
                CallInput::Request(request) => self.report_broken(p, cites, "no request", request.shown()),
                CallInput::None => ExpectationState::Met,
                CallInput::Open => ExpectationState::Pending,
            },
            ExpectationKind::Close => {
                match (self.process(p).closed || self.process(p).exit.is_some(), silence) {
                    (true, _) => ExpectationState::Met,
                    (false, Some(silence)) => self.report_broken(
                        p,
                        cites,
                        "the library closes its connection",
                        describe_silence(silence),
                    ),
                    (false, None) => ExpectationState::Pending,
                }
            }
            ExpectationKind::Returns { code, outs } => {
                self.check_return(p, cites, code, outs, silence, captures)
            }
            ExpectationKind::IsEnded => self.check_end(p, cites, silence),
            ExpectationKind::ExitsAsInstructed => match (self.process(p).exit, silence) {
                (Some(_), _) => ExpectationState::Met,
                (None, Some(silence)) => self.report_hang(p, cites, "the process exits", silence),
                (None, None) => ExpectationState::Pending,
            },
            // Other expectations do not apply to libraries.
            _ => ExpectationState::Met,
        }
    }

    fn check_start(&mut self, p: Proc, cites: &str, silence: SilenceEvidence) -> ExpectationState {
        let process = self.process(p);
        let why = match (&process.loaded, process.exit) {
            (Some(None), None) => return ExpectationState::Met,
            (Some(None), Some(_)) => return self.report_end(p, cites),
            (Some(Some(why)), _) => LoadFailure::Refused(why.clone()),
            (None, Some(Exit::Signal(_))) => return ExpectationState::Broken,
            (None, Some(exit)) if process.started => LoadFailure::Ended(exit),
            (None, Some(_)) => LoadFailure::LauncherEnded(p.rank),
            (None, None) => match silence {
                None => return ExpectationState::Pending,
                Some(_) if process.started => LoadFailure::TimedOut,
                Some((_, waited)) => LoadFailure::NoReport(p.rank, waited),
            },
        };
        self.unjudged = Some(UnjudgedReason::Unloadable(why));
        ExpectationState::Broken
    }

    fn next_input(&mut self, p: Proc, silence: SilenceEvidence) -> CallInput {
        let process = self.process(p);
        match process.held_requests.pop_front() {
            Some(request) => CallInput::Request(request),
            None if process.returned.is_some() || process.exit.is_some() || silence.is_some() => {
                CallInput::None
            }
            None => CallInput::Open,
        }
    }

    /// Describes the behaviour of a call that did not make the expected request.
    fn describe_missing_request(&mut self, p: Proc) -> String {
        let process = self.process(p);
        let Some(function) = process.function() else { return "no call has begun".to_owned() };
        let name = function.name;
        match (&process.returned, process.end()) {
            (Some(returned), _) => {
                format!(
                    "{name} returned {} without sending the request",
                    function.result_name(returned.result)
                )
            }
            (None, Some(end)) => format!("the process ended in {name}: {end}"),
            (None, None) => format!("{name} sends no request and waits"),
        }
    }

    fn check_request(
        &mut self,
        p: Proc,
        cites: &str,
        patterns: &[Pattern],
        silence: SilenceEvidence,
        captures: &mut Captures,
    ) -> ExpectationState {
        loop {
            match self.next_input(p, silence) {
                CallInput::Open => return ExpectationState::Pending,
                CallInput::None => {
                    let shown = patterns.first().map_or("", |pattern| &pattern.shown);
                    let seen = self.describe_missing_request(p);
                    return self.report_waiting_call(p, cites, shown, seen);
                }
                CallInput::Request(request) => match request.matches(patterns) {
                    Some(found) => {
                        *captures = found;
                        self.process(p).consumed_request = Some(request);
                        return ExpectationState::Met;
                    }
                    None => self.unscripted_requests.push((p, request)),
                },
            }
        }
    }

    fn check_choices(
        &mut self,
        p: Proc,
        cites: &str,
        choices: &[Choice],
        silence: SilenceEvidence,
        captures: &mut Captures,
    ) -> ExpectationState {
        loop {
            let next = self.next_input(p, silence);
            if matches!(next, CallInput::Open) {
                return ExpectationState::Pending;
            }
            let closed = self.process(p).closed;
            let chosen = choices.iter().find_map(|choice| {
                let found = match (&choice.kind, &next) {
                    (ExpectationKind::SendsRequest(patterns), CallInput::Request(request)) => {
                        request.matches(patterns)?
                    }
                    (ExpectationKind::Silence, CallInput::None) => Captures::new(),
                    (ExpectationKind::Close, CallInput::None) if closed => Captures::new(),
                    _ => return None,
                };
                Some((choice, found))
            });
            match (chosen, next) {
                (Some((choice, found)), next) => {
                    *captures = found;
                    return self.check_chosen(p, cites, choice, next);
                }
                (None, CallInput::Request(request)) => self.unscripted_requests.push((p, request)),
                (None, _) => {
                    let seen = self.describe_missing_request(p);
                    return self.report_broken(p, cites, "one of the outcomes that the scenario lists", seen);
                }
            }
        }
    }

    fn check_chosen(&mut self, p: Proc, cites: &str, choice: &Choice, next: CallInput) -> ExpectationState {
        let seen = match &next {
            CallInput::Request(request) => request.shown(),
            _ => self.describe_missing_request(p),
        };
        let process = self.process(p);
        match next {
            CallInput::Request(request) => process.consumed_request = Some(request),
            // The scenario cannot answer a missing request, so the remaining steps of this process are skipped.
            _ => process.skips_steps = true,
        }
        let (at_most, state) = match choice.grade {
            Grade::Pass => return ExpectationState::Met,
            Grade::Note => (Some(Severity::Note), ExpectationState::Met),
            Grade::Warn => (Some(Severity::Warn), ExpectationState::Met),
            Grade::Fail => (None, ExpectationState::Broken),
        };
        let cites = choice.cites.as_deref().unwrap_or(cites);
        self.find(Some(p), cites, at_most, "a better outcome among those that the scenario lists", seen);
        state
    }

    fn check_return(
        &mut self,
        p: Proc,
        cites: &str,
        code: &ReturnCode,
        outs: &[(String, Matcher)],
        silence: SilenceEvidence,
        captures: &mut Captures,
    ) -> ExpectationState {
        let process = self.process(p);
        let Some(function) = process.function() else { return ExpectationState::Met };
        let name = function.name;
        let Some(returned) = process.returned.take() else {
            return match (process.exit, silence) {
                (Some(_), _) => self.report_end(p, cites),
                (None, Some(silence)) => self.report_hang(p, cites, &format!("{name} returns"), silence),
                (None, None) => ExpectationState::Pending,
            };
        };
        process.call = None;
        if !code.matches(returned.result) {
            let mut seen = format!("it returned {}", function.result_name(returned.result));
            if let Some((earlier, request)) =
                process.unanswered_success.filter(|(earlier, _)| *earlier != name)
            {
                seen += &format!("; {earlier} had succeeded without a complete response to its {request}");
            }
            return self.report_broken(p, cites, format!("{name} returns {code}"), seen);
        }
        for (out, matcher) in outs {
            let held = returned.outs.iter().find(|(n, _)| n == out).map(|(_, held)| held);
            let seen = held.and_then(|held| held.text(name));
            if let Err(Mismatch(what)) = matcher.matches(Framing::Lines, out, seen.as_deref(), captures) {
                let seen = match seen {
                    Some(seen) => format!("{out}={}", seen.escape_ascii()),
                    None => format!("{out} was not set"),
                };
                return self.report_broken(p, cites, format!("{name}: {what}"), seen);
            }
        }
        ExpectationState::Met
    }

    fn check_end(&mut self, p: Proc, cites: &str, silence: SilenceEvidence) -> ExpectationState {
        let process = self.process(p);
        if let Some(returned) = process.returned.take() {
            let Some(PendingCall { function, .. }) = process.call.take() else {
                return ExpectationState::Broken;
            };
            // `api::returned` already reports a return from an abort.
            if api::is_abort(function) {
                return ExpectationState::Broken;
            }
            let seen = format!("it returned {}", function.result_name(returned.result));
            return self.report_broken(p, cites, "the process ends", seen);
        }
        match (process.exit, silence) {
            (Some(_), _) => self.report_end(p, cites),
            (None, Some(silence)) => self.report_hang(p, cites, "the process ends", silence),
            (None, None) => ExpectationState::Pending,
        }
    }

    /// Reports the end of a process, unless the end was expected or has already been reported. The process's remaining steps are skipped.
    fn report_end(&mut self, p: Proc, cites: &str) -> ExpectationState {
        let process = self.process(p);
        let (Some(exit), Some(end)) = (process.exit, process.end()) else { return ExpectationState::Pending };
        process.skips_steps = true;
        let function = process.call.take().map(|call| call.function);
        if std::mem::replace(&mut process.end_judged, true)
            || function.is_some_and(api::is_abort)
            || process.may_end(exit)
        {
            return ExpectationState::Met;
        }
        let seen = format!(
            "the process ended {}: {end}",
            function.map_or("between calls".to_owned(), |f| format!("in {}", f.name))
        );
        self.report_broken(p, cites, "the call returns", seen)
    }

    fn report_hang(
        &mut self,
        p: Proc,
        cites: &str,
        expected: &str,
        silence: (SilenceProof, Duration),
    ) -> ExpectationState {
        self.hung = true;
        self.report_waiting_call(p, cites, expected, describe_silence(silence))
    }

    /// Reports a call that hangs or ends without the expected result. If the last request of the process is incomplete, this function
    /// reports the incomplete request instead.
    fn report_waiting_call(
        &mut self,
        p: Proc,
        cites: &str,
        expected: &str,
        seen: String,
    ) -> ExpectationState {
        let process = self.process(p);
        let unended = IncompleteMessage::new(process.framing, &process.partial_request, &seen);
        match unended.filter(|_| process.is_in_call()) {
            Some(IncompleteMessage { rule, expected, seen }) => {
                self.report_broken(p, rule, expected, seen.text)
            }
            None => self.report_broken(p, cites, expected, seen),
        }
    }

    fn report_broken(
        &mut self,
        p: Proc,
        cites: &str,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> ExpectationState {
        // The consequences of a crash are not reported as separate findings.
        let crashes = matches!(self.process(p).exit, Some(Exit::Signal(_))) && self.crashed.is_some();
        if !crashes {
            self.find(Some(p), cites, None, expected, seen);
        }
        ExpectationState::Broken
    }
}

//! Checks whether a library meets the expectations of the scenario.

use std::time::Duration;

use pmi_scenario::ast::Grade;
use pmi_wire::Proc;

use super::{BegunCall, LibraryJudge, Request, api};
use crate::Severity;
use crate::event::{Exit, SilenceProof};
use crate::expectation::Standing;
use crate::expectation::{Captures, Choice, Expectation, Expected, Matcher, Misfit, Pattern, ReturnCode};
use crate::seen::{NO_PROOF, Unended};
use crate::unjudged::{Unjudged, Unloadable};

/// The proof that nothing more will come, and how long the runner waited for it.
type Nothing = Option<(SilenceProof, Duration)>;

fn silence((proof, waited): (SilenceProof, Duration)) -> String {
    match proof {
        SilenceProof::Idle => "nothing: the process waits, and nothing is due to it".into(),
        SilenceProof::Polled | SilenceProof::Unread | SilenceProof::Timeout => {
            format!("nothing for {waited:?}{NO_PROOF}")
        }
    }
}

/// The next input of a step within a call.
enum Next {
    Request(Request),
    /// No request will come: the call is over or waits for something else.
    None,
    /// Nothing has come yet.
    Open,
}

impl LibraryJudge {
    /// Checks whether an expectation is met or broken by now, and adds its captures.
    pub(crate) fn weigh(
        &mut self,
        p: Proc,
        expectation: &Expectation,
        nothing: Nothing,
        captures: &mut Captures,
    ) -> Standing {
        if let Some(why) = &self.process(p).missing {
            // RFC 13 requires all functions, and the scenarios about the library's file report those that are missing.
            self.unjudged = Some(Unjudged::NoSuchFunction(why.clone()));
            return Standing::Broken;
        }
        let cites = expectation.cites.as_str();
        match &expectation.what {
            Expected::Started => self.weigh_start(p, cites, nothing),
            Expected::Asks(patterns) => self.weigh_request(p, cites, patterns, nothing, captures),
            Expected::OneOf(choices) => self.weigh_choices(p, cites, choices, nothing, captures),
            Expected::Silence => match self.next(p, nothing) {
                Next::Request(request) => self.broken(p, cites, "no request", request.shown()),
                Next::None => Standing::Met,
                Next::Open => Standing::Open,
            },
            Expected::Close => match (self.process(p).closed || self.process(p).exit.is_some(), nothing) {
                (true, _) => Standing::Met,
                (false, Some(nothing)) => {
                    self.broken(p, cites, "the library closes its connection", silence(nothing))
                }
                (false, None) => Standing::Open,
            },
            Expected::Returns { code, outs } => self.weigh_return(p, cites, code, outs, nothing, captures),
            Expected::Ended => self.weigh_end(p, cites, nothing),
            Expected::ExitsAsTold => match (self.process(p).exit, nothing) {
                (Some(_), _) => Standing::Met,
                (None, Some(nothing)) => self.hangs(p, cites, "the process exits", nothing),
                (None, None) => Standing::Open,
            },
            // Other expectations do not apply to libraries.
            _ => Standing::Met,
        }
    }

    fn weigh_start(&mut self, p: Proc, cites: &str, nothing: Nothing) -> Standing {
        let process = self.process(p);
        let why = match (&process.loaded, process.exit) {
            (Some(None), None) => return Standing::Met,
            (Some(None), Some(_)) => return self.ended(p, cites),
            (Some(Some(why)), _) => Unloadable::Refused(why.clone()),
            (None, Some(Exit::Signal(_))) => return Standing::Broken,
            (None, Some(exit)) if process.started => Unloadable::Ended(exit),
            (None, Some(_)) => Unloadable::LauncherEnded(p.rank),
            (None, None) => match nothing {
                None => return Standing::Open,
                Some(_) if process.started => Unloadable::Stuck,
                Some((_, waited)) => Unloadable::Unseen(p.rank, waited),
            },
        };
        self.unjudged = Some(Unjudged::Unloadable(why));
        Standing::Broken
    }

    /// Returns the next request that waits for the scenario.
    fn next(&mut self, p: Proc, nothing: Nothing) -> Next {
        let process = self.process(p);
        match process.held_requests.pop_front() {
            Some(request) => Next::Request(request),
            None if process.returned.is_some() || process.exit.is_some() || nothing.is_some() => Next::None,
            None => Next::Open,
        }
    }

    /// Describes what a call did instead of making the expected request.
    fn without(&mut self, p: Proc) -> String {
        let process = self.process(p);
        let Some(function) = process.function() else { return "there is no call".to_owned() };
        let name = function.name;
        match (&process.returned, process.end()) {
            (Some(returned), _) => {
                format!("{name} returned {} without it", function.result_name(returned.result))
            }
            (None, Some(end)) => format!("the process ended in {name}, {end}"),
            (None, None) => format!("{name} asks for nothing and waits"),
        }
    }

    fn weigh_request(
        &mut self,
        p: Proc,
        cites: &str,
        patterns: &[Pattern],
        nothing: Nothing,
        captures: &mut Captures,
    ) -> Standing {
        loop {
            match self.next(p, nothing) {
                Next::Open => return Standing::Open,
                Next::None => {
                    let shown = patterns.first().map_or("", |pattern| &pattern.shown);
                    let seen = self.without(p);
                    return self.waits(p, cites, shown, seen);
                }
                Next::Request(request) => match request.fits(patterns) {
                    Some(found) => {
                        *captures = found;
                        self.process(p).taken = Some(request);
                        return Standing::Met;
                    }
                    None => self.beside.push((p, request)),
                },
            }
        }
    }

    fn weigh_choices(
        &mut self,
        p: Proc,
        cites: &str,
        choices: &[Choice],
        nothing: Nothing,
        captures: &mut Captures,
    ) -> Standing {
        loop {
            let next = self.next(p, nothing);
            if matches!(next, Next::Open) {
                return Standing::Open;
            }
            let closed = self.process(p).closed;
            let chosen = choices.iter().find_map(|choice| {
                let found = match (&choice.what, &next) {
                    (Expected::Asks(patterns), Next::Request(request)) => request.fits(patterns)?,
                    (Expected::Silence, Next::None) => Captures::new(),
                    (Expected::Close, Next::None) if closed => Captures::new(),
                    _ => return None,
                };
                Some((choice, found))
            });
            match (chosen, next) {
                (Some((choice, found)), next) => {
                    *captures = found;
                    return self.chosen(p, cites, choice, next);
                }
                (None, Next::Request(request)) => self.beside.push((p, request)),
                (None, _) => {
                    let seen = self.without(p);
                    return self.broken(p, cites, "one of the outcomes that the scenario names", seen);
                }
            }
        }
    }

    fn chosen(&mut self, p: Proc, cites: &str, choice: &Choice, next: Next) -> Standing {
        let seen = match &next {
            Next::Request(request) => request.shown(),
            _ => self.without(p),
        };
        let process = self.process(p);
        match next {
            Next::Request(request) => process.taken = Some(request),
            // Without the request, the scenario has nothing to answer, and the rest of this process's steps is skipped.
            _ => process.over = true,
        }
        let (at_most, standing) = match choice.grade {
            Grade::Pass => return Standing::Met,
            Grade::Note => (Some(Severity::Note), Standing::Met),
            Grade::Warn => (Some(Severity::Warn), Standing::Met),
            Grade::Fail => (None, Standing::Broken),
        };
        let cites = choice.cites.as_deref().unwrap_or(cites);
        self.find(Some(p), cites, at_most, "another of the outcomes that the scenario names", seen);
        standing
    }

    fn weigh_return(
        &mut self,
        p: Proc,
        cites: &str,
        code: &ReturnCode,
        outs: &[(String, Matcher)],
        nothing: Nothing,
        captures: &mut Captures,
    ) -> Standing {
        let process = self.process(p);
        let Some(function) = process.function() else { return Standing::Met };
        let name = function.name;
        let Some(returned) = process.returned.take() else {
            return match (process.exit, nothing) {
                (Some(_), _) => self.ended(p, cites),
                (None, Some(nothing)) => self.hangs(p, cites, &format!("{name} returns"), nothing),
                (None, None) => Standing::Open,
            };
        };
        process.call = None;
        if !code.fits(returned.result) {
            let seen = format!("it returned {}", function.result_name(returned.result));
            return self.broken(p, cites, format!("{name} returns {code}"), seen);
        }
        for (out, matcher) in outs {
            let held = returned.outs.iter().find(|(n, _)| n == out).map(|(_, held)| held);
            let seen = held.and_then(|held| held.text(name));
            if let Err(Misfit(what)) = matcher.fits(out, seen.as_deref(), captures) {
                let seen = match seen {
                    Some(seen) => format!("{out}={}", seen.escape_ascii()),
                    None => format!("{out} was not set"),
                };
                return self.broken(p, cites, format!("{name}: {what}"), seen);
            }
        }
        Standing::Met
    }

    fn weigh_end(&mut self, p: Proc, cites: &str, nothing: Nothing) -> Standing {
        let process = self.process(p);
        if let Some(returned) = process.returned.take() {
            // Every return of PMI_Abort is reported elsewhere.
            let Some(BegunCall { function, .. }) = process.call.take() else { return Standing::Broken };
            if api::is_abort(function) {
                return Standing::Broken;
            }
            let seen = format!("the call returned {}", function.result_name(returned.result));
            return self.broken(p, cites, "the process ends", seen);
        }
        match (process.exit, nothing) {
            (Some(_), _) => self.ended(p, cites),
            (None, Some(nothing)) => self.hangs(p, cites, "the process ends", nothing),
            (None, None) => Standing::Open,
        }
    }

    /// Handles the end of a process. The rest of its steps is skipped, and the end is reported once.
    fn ended(&mut self, p: Proc, cites: &str) -> Standing {
        let process = self.process(p);
        let (Some(exit), Some(end)) = (process.exit, process.end()) else { return Standing::Open };
        process.over = true;
        let function = process.call.take().map(|call| call.function);
        if std::mem::replace(&mut process.done, true)
            || function.is_some_and(api::is_abort)
            || process.may_end(exit)
        {
            return Standing::Met;
        }
        let seen = format!("the process ended in {}, {end}", function.map_or("between calls", |f| f.name));
        self.broken(p, cites, "the call returns", seen)
    }

    fn hangs(&mut self, p: Proc, cites: &str, expected: &str, nothing: (SilenceProof, Duration)) -> Standing {
        self.hung = true;
        self.waits(p, cites, expected, silence(nothing))
    }

    /// Reports a call that waits or ends without the expected result. An incomplete request explains why the call waits.
    fn waits(&mut self, p: Proc, cites: &str, expected: &str, seen: String) -> Standing {
        let process = self.process(p);
        let unended = Unended::new(process.framing, &process.begun, &seen);
        match unended.filter(|_| process.is_in_call()) {
            Some(Unended { rule, expected, seen }) => self.broken(p, rule, expected, seen.text),
            None => self.broken(p, cites, expected, seen),
        }
    }

    fn broken(
        &mut self,
        p: Proc,
        cites: &str,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Standing {
        // The consequences of a crash are part of the crash's finding.
        let crashes = matches!(self.process(p).exit, Some(Exit::Signal(_))) && self.crashed.is_some();
        if !crashes {
            self.find(Some(p), cites, None, expected, seen);
        }
        Standing::Broken
    }
}

//! `A:` steps: calls, and what they return.

use super::*;
use pmi_judge::SeenKind;

impl Player<'_> {
    pub(super) fn begin(&mut self, rank: u32, call: &Call, scripted: bool) -> Result<(), Stop> {
        let Some(name) = &call.function else { return Ok(()) };
        if self.ranks[rank as usize].pending.is_some() {
            return Err(Stop::Scenario("the call before has not returned".into()));
        }
        let Some(function) = signature::function(&name.value) else {
            return Err(Stop::Scenario(format!("RFC 13 has no function {}", name.value)));
        };
        self.scope.enter(rank, self.scenario.ranks);
        let arguments = call.args.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
        self.start(rank)?;
        self.ended_before(rank)?;
        self.others_settle(rank)?;
        if function.name == "PMI_Barrier" {
            self.ranks[rank as usize].barriers += 1;
        }
        let shown = arguments.iter().map(show).collect::<Vec<_>>().join(", ");
        self.recorder.record(What::Called {
            proc: proc(rank),
            function: function.name.to_owned(),
            arguments: shown,
        });
        self.processes.call(rank, function.name, arguments.clone());
        self.ranks[rank as usize].pending = Some(Pending { function, arguments, scripted });
        Ok(())
    }

    /// A process that is gone cannot be called.
    pub(super) fn ended_before(&mut self, rank: u32) -> Result<(), Stop> {
        if self.ranks[rank as usize].exit.is_some() { self.ended(rank) } else { Ok(()) }
    }

    /// Calls of other ranks that have begun either return or wait: what they do must not depend on how fast they are.
    pub(super) fn others_settle(&mut self, rank: u32) -> Result<(), Stop> {
        for other in 0..self.scenario.ranks {
            if other != rank && self.ranks[other as usize].pending.is_some() {
                // Of processes under a launcher only time can tell that they wait.
                let launched = self.library.server.is_some();
                let wait = if launched { self.limits.silence } else { self.limits.step };
                self.pump_for(wait, Some(other), |s| {
                    let state = &s.ranks[other as usize];
                    state.returned.is_some() || state.exit.is_some() || state.not_called.is_some()
                })?;
                if let Some(returned) = self.ranks[other as usize].returned.take() {
                    self.early(other, &returned);
                    self.ranks[other as usize].returned = Some(returned);
                }
            }
        }
        Ok(())
    }

    /// A barrier that lets a process out before all are in.
    pub(super) fn early(&mut self, rank: u32, returned: &Returned) {
        let rounds = self.ranks[rank as usize].barriers;
        let barrier =
            self.ranks[rank as usize].pending.as_ref().is_some_and(|p| p.function.name == "PMI_Barrier");
        let missing =
            (0..self.scenario.ranks).find(|r| self.ranks[*r as usize].barriers < rounds && *r != rank);
        if let Some(missing) = missing.filter(|_| barrier && returned.result == 0) {
            let expected = "PMI_Barrier blocks until all processes have entered it";
            let seen = format!("it returned PMI_SUCCESS before rank {missing} had called it");
            // The same duty twice over, in the words of the API and of the protocol: what the scenario tests is cited.
            let all_in = "rfc13.barrier.all-in-before-any-out";
            let tested = self.scenario.requires.iter().any(|r| r.value == all_in);
            let id = if tested { all_in } else { "rfc13.api.barrier" };
            self.find(Some(rank), id, None, expected, seen);
            if let Some(finding) = self.own.last_mut() {
                finding.kind = Some(SeenKind::EarlyBarrierExit);
            }
        }
    }

    pub(super) fn argument(&self, arg: &Arg) -> Result<Argument, Stop> {
        Ok(match arg {
            Arg::Text(text) => Argument::Text(Bytes(self.scope.text(text)?)),
            Arg::Number(expr) => {
                let number = self.scope.number(expr)?;
                let number = i32::try_from(number)
                    .map_err(|_| Stop::Scenario(format!("{number} does not fit an int")))?;
                Argument::Number(number)
            }
            Arg::Null => Argument::Null,
            Arg::Out(name, size) => {
                let size = size.as_ref().map(|size| self.scope.number(size)).transpose()?;
                Argument::Out(name.value.clone(), size.map(|n| usize::try_from(n).unwrap_or(0)))
            }
        })
    }

    pub(super) fn end(&mut self, rank: u32, call: &Call, cites: bool) -> Result<(), Stop> {
        let Some(function) = self.ranks[rank as usize].pending.as_ref().map(|p| p.function) else {
            return Err(Stop::Scenario("no call has begun".into()));
        };
        if let Some(pending) = &mut self.ranks[rank as usize].pending {
            pending.scripted = false;
        }
        let proof = self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            state.returned.is_some() || state.exit.is_some() || state.not_called.is_some()
        })?;
        let wanted = call.result.as_ref().map(|r| r.value.as_str()).unwrap_or_default();
        if let Some((missing, why)) = self.ranks[rank as usize].not_called.take() {
            self.ranks[rank as usize].pending = None;
            return match missing {
                false => Err(Stop::Scenario(why)),
                // RFC 13: not even those that it calls optional should be missing, which its own scenario says.
                true if wanted == "any" || wanted == "fail" => Ok(()),
                true => Err(self.broken(Some(rank), format!("{} is called", function.name), why)),
            };
        }
        let Some(returned) = self.ranks[rank as usize].returned.take() else {
            if self.ranks[rank as usize].exit.is_some() {
                return self.ended(rank);
            }
            return Err(self.hangs(rank, &format!("{} returns", function.name), proof));
        };
        self.early(rank, &returned);
        self.take_return(rank, &returned);
        // Where a scenario is about errors, what has to succeed is its control, and cites what it is about.
        if wanted == "PMI_SUCCESS" && !cites && self.cited.ends_with(".errors") {
            self.cited = function.does.to_owned();
        }
        let good = match wanted {
            "any" => true,
            "fail" | "PMI_ERR_INVALID_KVS" => returned.result != 0,
            number => signature::code(number).or_else(|| number.parse().ok()) == Some(returned.result),
        };
        let code = signature::code_name(returned.result);
        if !good {
            let wanted = if wanted == "fail" { "an error" } else { wanted };
            let name = function.name;
            return Err(self.broken(
                Some(rank),
                format!("{name} returns {wanted}"),
                format!("it returned {code}"),
            ));
        }
        self.scope.enter(rank, self.scenario.ranks);
        for (name, expected) in &call.outs {
            let Some((_, held)) = returned.outs.iter().find(|(n, _)| *n == name.value) else {
                return Err(Stop::Scenario(format!("the call has no out argument {}", name.value)));
            };
            let seen = text_of(function, held);
            match value_fits(&mut self.scope, &name.value, expected, seen.as_deref()) {
                Ok(()) => {}
                Err(Misfit::Scenario(what)) => return Err(Stop::Scenario(what)),
                Err(Misfit::Message(what)) => {
                    let seen = match seen {
                        Some(seen) => format!("{}={}", name.value, seen.escape_ascii()),
                        None => format!("{} was not set", name.value),
                    };
                    return Err(self.broken(Some(rank), format!("{}: {what}", function.name), seen));
                }
            }
        }
        Ok(())
    }

    /// Books a return, and judges what can be judged of every one.
    pub(super) fn take_return(&mut self, rank: u32, returned: &Returned) {
        let Some(Pending { function, .. }) = self.ranks[rank as usize].pending.take() else { return };
        let out = |(name, held): &(String, Held)| {
            let mut text = format!("{name}=").into_bytes();
            text.extend(text_of(function, held).unwrap_or_else(|| b"(unset)".to_vec()));
            text.truncate(SHOWN);
            Bytes(text)
        };
        self.recorder.record(What::Returned {
            proc: proc(rank),
            function: function.name.to_owned(),
            result: returned.result,
            outs: returned.outs.iter().filter(|(_, held)| *held != Held::Opaque).map(out).collect(),
        });
        if function.name == "PMI_Barrier" && returned.result != 0 {
            self.ranks[rank as usize].barriers -= 1;
        }
        for breach in api::returned(function, returned) {
            self.find(Some(rank), breach.requirement, breach.at_most, breach.expected, breach.seen);
        }
    }
}

/// An argument as the scenario writes it.
fn show(argument: &Argument) -> String {
    match argument {
        Argument::Text(text) => {
            let text = format!("{text}");
            format!("\"{}\"", &text[..text.floor_char_boundary(SHOWN)])
        }
        Argument::Number(number) => number.to_string(),
        Argument::Null => "NULL".to_owned(),
        Argument::Out(name, None) => format!("&{name}"),
        Argument::Out(name, Some(size)) => format!("&{name}[{size}]"),
    }
}

/// What an out argument holds, as text. The order of clique ranks is open: they come sorted.
fn text_of(function: &signature::Function, held: &Held) -> Option<Vec<u8>> {
    match held {
        Held::Int(number) => number.map(|n| n.to_string().into_bytes()),
        Held::Text(text) => text.as_ref().map(|text| text.0.clone()),
        Held::Ints(all) => {
            let mut set: Vec<i32> = all.iter().copied().flatten().collect();
            if function.name == "PMI_Get_clique_ranks" {
                set.sort_unstable();
            }
            Some(set.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into_bytes())
        }
        Held::Opaque => None,
    }
}

//! `C:` and `S:` steps: what the library asks, and what it is told.

use super::*;

impl Player<'_> {
    pub(super) fn client_step(&mut self, rank: u32, action: &Action) -> Result<(), Stop> {
        if self.ranks[rank as usize].pending.is_none() {
            return match action {
                Action::Message { lines, .. } => {
                    let rule = Rule { pattern: lines.clone(), replies: Vec::new() };
                    self.ranks[rank as usize].rules.push(rule);
                    Ok(())
                }
                Action::Close => self.expect_close(rank),
                _ => Err(Stop::Scenario("outside of a call, a library says nothing".into())),
            };
        }
        match action {
            Action::Message { lines, .. } => {
                let expected = self.shown(lines);
                if self.await_request(rank, lines)? {
                    return Ok(());
                }
                let seen = self.without(rank);
                Err(self.broken(Some(rank), expected, seen))
            }
            Action::OneOf(alternatives) => self.expect_one_of(rank, alternatives),
            Action::Silence => {
                if let Some(asked) = self.await_any(rank)? {
                    let seen = asked.shown();
                    return Err(self.broken(Some(rank), "no request", seen));
                }
                Ok(())
            }
            Action::Close => self.expect_close(rank),
            _ => Err(Stop::Scenario("a library does not do that".into())),
        }
    }

    pub(super) fn shown(&self, lines: &[Template]) -> String {
        let Some(first) = lines.first() else { return String::new() };
        let text = self.source.text.get(first.span.start..first.span.end).unwrap_or_default();
        text[..text.floor_char_boundary(SHOWN)].to_owned()
    }

    /// What a call did that was to ask for something.
    pub(super) fn without(&mut self, rank: u32) -> String {
        let state = &self.ranks[rank as usize];
        let name = state.pending.as_ref().map_or("the call", |p| p.function.name);
        match (&state.returned, state.exit) {
            (Some(returned), _) => {
                format!("{name} returned {} without it", signature::code_name(returned.result))
            }
            (None, Some(exit)) => format!("the process ended in {name}, {exit}"),
            (None, None) => format!("{name} asks for nothing and waits"),
        }
    }

    /// The next request of a pending call; `None` if it returns, ends or waits without one.
    pub(super) fn await_any(&mut self, rank: u32) -> Result<Option<Asked>, Stop> {
        self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            !state.asked.is_empty() || state.returned.is_some() || state.exit.is_some()
        })?;
        Ok(self.ranks[rank as usize].asked.pop_front())
    }

    /// Waits for a request of this form; others that come before it are answered. False if it does not come.
    pub(super) fn await_request(&mut self, rank: u32, pattern: &[Template]) -> Result<bool, Stop> {
        while let Some(asked) = self.await_any(rank)? {
            self.scope.enter(rank, self.scenario.ranks);
            if self.matches(pattern, &asked)? {
                self.introduce(rank, &asked);
                self.ranks[rank as usize].answering = Some(asked);
                return Ok(true);
            }
            self.serve(rank, asked)?;
        }
        Ok(false)
    }

    /// Whether a request has this form: the lines of a spawn request in order, others of it between them.
    pub(super) fn matches(&mut self, pattern: &[Template], asked: &Asked) -> Result<bool, Stop> {
        let mut lines = asked.lines.iter();
        for expected in pattern {
            loop {
                let Some(line) = lines.next() else { return Ok(false) };
                let fitting = match asked.is_spawn() {
                    true => block_line_fits(&mut self.scope, expected, line),
                    false => fits(&mut self.scope, expected, line),
                };
                match fitting {
                    Ok(()) => break,
                    Err(Misfit::Scenario(what)) => return Err(Stop::Scenario(what)),
                    Err(Misfit::Message(_)) => {}
                }
            }
        }
        Ok(true)
    }

    pub(super) fn expect_one_of(&mut self, rank: u32, alternatives: &[Alternative]) -> Result<(), Stop> {
        loop {
            let asked = self.await_any(rank)?;
            self.scope.enter(rank, self.scenario.ranks);
            for alternative in alternatives {
                let fitting = match (&alternative.action, &asked) {
                    (Action::Message { lines, .. }, Some(asked)) => self.matches(lines, asked)?,
                    (Action::Silence, None) => true,
                    (Action::Close, None) => self.ranks[rank as usize].closed,
                    _ => false,
                };
                if !fitting {
                    continue;
                }
                let seen = asked.as_ref().map_or_else(|| self.without(rank), Asked::shown);
                // Without the request there is nothing to answer, and so nothing to go on with.
                self.ranks[rank as usize].let_go |= asked.is_none();
                self.ranks[rank as usize].answering = asked;
                let cited = alternative.cites.as_ref().map_or(self.cited.clone(), |c| c.value.clone());
                let at_most = match alternative.grade {
                    Grade::Pass => return Ok(()),
                    Grade::Note => Some(Severity::Note),
                    Grade::Warn => Some(Severity::Warn),
                    Grade::Fail => None,
                };
                self.find(
                    Some(rank),
                    &cited,
                    at_most,
                    "another of the outcomes that the scenario names",
                    seen,
                );
                return if at_most.is_some() { Ok(()) } else { Err(Stop::Broken) };
            }
            let Some(asked) = asked else {
                let seen = self.without(rank);
                return Err(self.broken(Some(rank), "one of the outcomes that the scenario names", seen));
            };
            self.serve(rank, asked)?;
        }
    }

    pub(super) fn expect_close(&mut self, rank: u32) -> Result<(), Stop> {
        let proof = self
            .pump(Some(rank), |s| s.ranks[rank as usize].closed || s.ranks[rank as usize].exit.is_some())?;
        match proof {
            None => Ok(()),
            Some(proof) => {
                let seen = self.silence(proof);
                Err(self.broken(Some(rank), "the library closes its connection", seen))
            }
        }
    }

    pub(super) fn server_step(&mut self, rank: u32, action: &Action) -> Result<(), Stop> {
        let reply = match action {
            Action::Message { mode, lines } => Reply::Write(*mode, lines.clone()),
            Action::Empty => Reply::Newline,
            Action::Close => Reply::Close,
            Action::Silence => Reply::Nothing,
            _ => return Err(Stop::Scenario("we cannot do that as the process manager".into())),
        };
        if self.ranks[rank as usize].pending.is_some() {
            let asked = self.ranks[rank as usize].answering.take();
            self.reply(rank, asked.as_ref(), &reply)?;
            self.ranks[rank as usize].answering = asked;
            return Ok(());
        }
        match self.ranks[rank as usize].rules.last_mut() {
            Some(rule) => {
                rule.replies.push(reply);
                Ok(())
            }
            None => {
                self.start(rank)?;
                self.reply(rank, None, &reply)
            }
        }
    }

    pub(super) fn reply(&mut self, rank: u32, asked: Option<&Asked>, reply: &Reply) -> Result<(), Stop> {
        self.scope.enter(rank, self.scenario.ranks);
        let (mode, lines) = match reply {
            Reply::Nothing => return Ok(()),
            Reply::Close => {
                self.ranks[rank as usize].wronged = true;
                self.recorder.record(What::ClosedByServer { proc: proc(rank) });
                self.processes.close(rank);
                self.ranks[rank as usize].closed = true;
                return Ok(());
            }
            Reply::Newline => {
                self.send(rank, b"\n");
                return Ok(());
            }
            Reply::Write(mode, lines) => (*mode, lines),
        };
        let writes = self.scope.message(mode, lines)?;
        let text = writes.concat();
        self.ranks[rank as usize].wronged |= mode.partial || !answers(asked, &text);
        for bytes in writes {
            self.send(rank, &bytes);
        }
        Ok(())
    }

    pub(super) fn send(&mut self, rank: u32, bytes: &[u8]) {
        self.recorder.record(What::FromServer { proc: proc(rank), bytes: Bytes(bytes.to_vec()) });
        self.processes.send(rank, bytes);
    }

    /// Answers a request by the scenario's rules, or else as the reference server does.
    pub(super) fn serve(&mut self, rank: u32, asked: Asked) -> Result<(), Stop> {
        self.scope.enter(rank, self.scenario.ranks);
        let rules = std::mem::take(&mut self.ranks[rank as usize].rules);
        let mut found = None;
        for rule in rules.iter().rev() {
            if self.matches(&rule.pattern, &asked)? {
                found = Some(rule.replies.clone());
                break;
            }
        }
        self.ranks[rank as usize].rules = rules;
        if let Some(replies) = found {
            self.introduce(rank, &asked);
            return replies.iter().try_for_each(|reply| self.reply(rank, Some(&asked), reply));
        }
        self.ask_server(rank, &asked);
        self.relay();
        Ok(())
    }

    /// Lets the reference server know whom it has before it, where the scenario answers init.
    pub(super) fn introduce(&mut self, rank: u32, asked: &Asked) {
        if asked.is("init") {
            self.ask_server(rank, asked);
            while let Incoming::Event(_) = self.server.next(Instant::now(), false) {}
        }
    }

    pub(super) fn ask_server(&mut self, rank: u32, asked: &Asked) {
        let mut text = asked.lines.join(&b'\n');
        text.push(b'\n');
        self.server.send(proc(rank), &text);
    }

    /// Carries out what the reference server does.
    pub(super) fn relay(&mut self) {
        while let Incoming::Event(what) = self.server.next(Instant::now(), false) {
            match what {
                What::FromServer { proc, bytes } if proc.group == 0 => self.send(proc.rank, &bytes.0),
                What::ClosedByServer { proc } if proc.group == 0 => {
                    let state = &mut self.ranks[proc.rank as usize];
                    if !std::mem::replace(&mut state.closed, true) {
                        self.recorder.record(What::ClosedByServer { proc });
                        self.processes.close(proc.rank);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Checks a line of a spawn request: one tuple, whose value runs to the end of the line.
fn block_line_fits(scope: &mut Scope, expected: &Template, line: &[u8]) -> Result<(), Misfit> {
    let split = memchr::memchr(b'=', line).map(|at| (&line[..at], &line[at + 1..]));
    match (expected.message_fields().first(), split) {
        (Some(field), Some((key, value))) if field.key.as_bytes() == key => {
            value_fits(scope, &field.key, &field.value, Some(value))
        }
        _ if expected.literal().is_some_and(|text| text.as_bytes() == line) => Ok(()),
        _ => Err(Misfit::Message("another line".into())),
    }
}

/// `totspawns` and `spawnssofar`, as the lines of a spawn request have them last.
pub(super) fn counted(block: &[Vec<u8>]) -> Option<(u64, u64)> {
    let last = |key: &str| {
        let found = block.iter().rev().find_map(|line| line.strip_prefix(key.as_bytes()))?;
        std::str::from_utf8(found).ok()?.parse().ok()
    };
    Some((last("totspawns=")?, last("spawnssofar=")?))
}

/// Whether what we say is a response to what was asked.
fn answers(asked: Option<&Asked>, text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\n") else { return false };
    let Ok(response) = Response::parse(line, ValueReading::ToEndOfLine) else { return false };
    let request = asked.and_then(|asked| asked.lines.first());
    match request {
        Some(first) if first.starts_with(b"mcmd=spawn") => response.operation() == pmi_wire::Operation::Spawn,
        Some(first) => Request::parse(first, ValueReading::ToEndOfLine)
            .is_ok_and(|request| request.operation() == response.operation()),
        None => false,
    }
}

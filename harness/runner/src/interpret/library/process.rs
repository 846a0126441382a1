//! The processes that make the calls: how they start, and how they end.

use std::collections::BTreeMap;

use super::*;
use pmi_judge::crash::Cause;

impl Player<'_> {
    pub(super) fn start(&mut self, rank: u32) -> Result<(), Stop> {
        let state = &mut self.ranks[rank as usize];
        if std::mem::replace(&mut state.started, true) {
            return Ok(());
        }
        let env: BTreeMap<String, String> =
            state.env.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
        if self.library.server.is_some() {
            return self.await_loaded(rank);
        }
        let started = self.processes.start(rank, self.library, &env);
        started.map_err(|e| Stop::unplayable(format!("cannot start the process of rank {rank}: {e}")))?;
        self.recorder.record(What::Started { proc: proc(rank), env, args: Vec::new(), bad_fd: None });
        self.await_loaded(rank)
    }

    pub(super) fn await_loaded(&mut self, rank: u32) -> Result<(), Stop> {
        self.pump(Some(rank), |s| {
            let state = &s.ranks[rank as usize];
            state.loaded.is_some() || state.exit.is_some()
        })?;
        match (self.ranks[rank as usize].loaded.clone(), self.ranks[rank as usize].exit) {
            (Some(None), _) => Ok(()),
            (Some(Some(why)), _) => {
                self.unloadable = true;
                Err(Stop::unplayable(format!("the library cannot be loaded: {why}")))
            }
            (None, Some(Exit::Signal(signal))) => {
                self.crashed.get_or_insert(("the library, while it was loaded,".to_owned(), signal));
                Err(Stop::Broken)
            }
            (None, exit) => {
                self.unloadable = true;
                if self.library.server.is_some() {
                    let how = if exit.is_some() {
                        "the launcher ended before it did".to_owned()
                    } else {
                        format!("no sign of life within {:?} (--timeout)", self.limits.step)
                    };
                    let why = format!("rank {rank} did not report: {how}");
                    return Err(Stop::unplayable(why));
                }
                let how =
                    exit.map_or("it does not return".to_owned(), |exit| format!("the process ended, {exit}"));
                Err(Stop::unplayable(format!("the library cannot be loaded: {how}")))
            }
        }
    }

    pub(super) fn process_step(&mut self, rank: u32, action: &ProcessAction) -> Result<(), Stop> {
        match action {
            ProcessAction::Env(name, value) => {
                if self.ranks[rank as usize].started {
                    return Err(Stop::Scenario("the environment is set before the first call".into()));
                }
                let value = match value.pieces.as_slice() {
                    [Piece::Typed(Kind::Absent)] => None,
                    _ => Some(String::from_utf8_lossy(&self.scope.text(value)?).into_owned()),
                };
                self.ranks[rank as usize].env.insert(name.value.clone(), value);
                Ok(())
            }
            ProcessAction::Started => self.start(rank),
            ProcessAction::Ended => {
                let over = |s: &mut Self| {
                    let state = &s.ranks[rank as usize];
                    state.exit.is_some() || state.returned.is_some()
                };
                let proof = self.pump(Some(rank), over)?;
                if let Some(returned) = self.ranks[rank as usize].returned.take() {
                    let aborts = |p: &Pending| p.function.name == "PMI_Abort";
                    let judged = self.ranks[rank as usize].pending.as_ref().is_some_and(aborts);
                    self.take_return(rank, &returned);
                    if judged {
                        return Err(Stop::Broken);
                    }
                    let code = signature::code_name(returned.result);
                    return Err(self.broken(
                        Some(rank),
                        "the process ends",
                        format!("the call returned {code}"),
                    ));
                }
                match (self.ranks[rank as usize].exit, proof) {
                    (Some(_), _) => self.ended(rank),
                    (None, proof) => Err(self.hangs(rank, "the process ends", proof)),
                }
            }
            ProcessAction::Exit(status) => {
                self.dismiss(rank);
                self.processes.exit(rank, *status);
                self.pump(Some(rank), |s| s.ranks[rank as usize].exit.is_some()).map(drop)
            }
            ProcessAction::Kill(signal) => {
                self.dismiss(rank);
                self.processes.kill(rank, *signal);
                self.pump(Some(rank), |s| s.ranks[rank as usize].exit.is_some()).map(drop)
            }
            ProcessAction::Args(_)
            | ProcessAction::Ends(_)
            | ProcessAction::Over
            | ProcessAction::Copes
            | ProcessAction::SameOutput
            | ProcessAction::JobExit(_)
            | ProcessAction::Logged => {
                Err(Stop::Scenario("this cannot be said of a process that loads a library".into()))
            }
        }
    }

    pub(super) fn dismiss(&mut self, rank: u32) {
        self.ranks[rank as usize].done = true;
        self.ranks[rank as usize].let_go = true;
        self.recorder.record(What::Ended { proc: proc(rank), ours: true });
    }

    pub(super) fn job_step(&mut self, step: &Step) -> Result<(), Stop> {
        match &step.action {
            Action::Process(ProcessAction::Logged) => {
                let wait = self.limits.silence;
                self.pump_for(wait, None, |s| s.output)?;
                if self.output {
                    return Ok(());
                }
                Err(self.broken(None, "a message on stderr or stdout that tells what went wrong", "nothing"))
            }
            _ => Err(Stop::Scenario("a library has no job; `P: ends` is how a process ends".into())),
        }
    }

    /// Judges the end of a process that was not ours, once. It leaves nothing to go on with.
    pub(super) fn ended(&mut self, rank: u32) -> Result<(), Stop> {
        let state = &mut self.ranks[rank as usize];
        let Some(exit) = state.exit else { return Ok(()) };
        state.let_go = true;
        if std::mem::replace(&mut state.done, true) {
            return Ok(());
        }
        let pending = state.pending.take();
        if let Some(Pending { function, arguments, .. }) = &pending
            && function.name == "PMI_Abort"
        {
            return self.aborted(rank, arguments, exit);
        }
        let call = pending.as_ref().map_or("between calls", |p| p.function.name);
        // RFC 13 has who detects a protocol error abort the program.
        let aborts = match exit {
            Exit::Signal(signal) => Cause::of(signal) == Cause::Abort,
            Exit::Code(code) => code != 0,
        };
        if self.ranks[rank as usize].wronged && aborts {
            return Ok(());
        }
        if let Exit::Signal(signal) = exit {
            self.crashed.get_or_insert((format!("the library, in {call},"), signal));
            return Err(Stop::Broken);
        }
        Err(self.broken(Some(rank), "the call returns", format!("the process ended in {call}, {exit}")))
    }

    /// RFC 13: the message goes to standard error, then the process exits with the code.
    pub(super) fn aborted(&mut self, rank: u32, arguments: &[Argument], exit: Exit) -> Result<(), Stop> {
        let message = match arguments.get(1) {
            Some(Argument::Text(text)) => text.0.clone(),
            _ => Vec::new(),
        };
        let unseen = self.ranks[rank as usize].unseen;
        let stderr = &self.ranks[rank as usize].stderr;
        if memchr::memmem::find(stderr, &message).is_none() {
            let expected = format!("\"{}\" on standard error", message.escape_ascii());
            let seen = format!("\"{}\"", stderr.escape_ascii());
            self.find(Some(rank), "rfc13.abort.stderr", None, expected, seen);
        }
        let code = match arguments.first() {
            Some(Argument::Number(code)) => Exit::Code(code & 0xff),
            _ => exit,
        };
        if exit != code && !unseen {
            self.find(Some(rank), "rfc13.abort.exit-code", None, code.to_string(), exit.to_string());
        }
        Ok(())
    }
}

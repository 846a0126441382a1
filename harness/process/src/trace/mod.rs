//! Locates crashes, as a debugger does.
//!
//! A traced process stops before each signal is delivered, so that its tracer can inspect it. A tracer waits for any child, which would
//! interfere with this process's own waits for launches. Therefore, the tracer is a small separate process, started for each examined
//! scenario. Until the scenario ends, each process started by the scenario's thread requests tracing before it executes its own program.
//! The tracer also traces the descendants of these processes. The tracer reports only its observations of dead processes. This module
//! interprets the observations after the scenario has ended.
//!
//! Nothing depends on the tracer. If the tracer ends, the kernel releases all traced processes. The tracer ends when this process does.

pub mod foreign;
pub mod trace_request;
pub mod tracer;
mod unwind;

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pmi_judge::event::EventKind;

use super::child::Child;
use super::connection::pair;
use crate::observe::tree::MARK;
use trace_request::with_tracer;
use tracer::{NAME, TracerReport};
use unwind::backtrace;

/// Maximum time for a tracer to return its observations at the end.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a tracer's observations in bytes.
const MAX_REPORT: u64 = 64 << 20;

/// Runs `play` and returns its result. Also returns an [`EventKind::Backtrace`] for each process that is started by this thread during the
/// run and killed by a signal. If tracing failed and nothing was observed, returns an [`EventKind::Untraced`] with the reason instead. The
/// processes must have ended when `play` returns.
///
/// `program` is this binary, which can act as a tracer.
pub fn traced<T>(program: &Path, play: impl FnOnce() -> T) -> (T, Vec<EventKind>) {
    match Tracer::start(program) {
        Ok(tracer) => {
            let pid = tracer.child.pid().as_raw_nonzero().get();
            let done = with_tracer(tracer.connection.as_raw_fd(), pid, play);
            (done, tracer.into_events())
        }
        Err(error) => (play(), vec![EventKind::Untraced { why: format!("cannot start a tracer: {error}") }]),
    }
}

struct Tracer {
    child: Child,
    connection: UnixStream,
}

impl Tracer {
    fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        let mut command = Command::new(program);
        command.arg0(NAME).env_remove(MARK);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Child::start(command)?;
        Ok(Self { child, connection: ours.into() })
    }

    fn into_events(mut self) -> Vec<EventKind> {
        let untraced = |why: String| vec![EventKind::Untraced { why }];
        match self.read_report() {
            Ok(report) => {
                let seen = report
                    .snapshots
                    .iter()
                    .map(|dead| EventKind::Backtrace(Box::new(backtrace(dead))))
                    .collect();
                match report.refusal {
                    Some(why) if report.snapshots.is_empty() => untraced(why),
                    _ => seen,
                }
            }
            Err(error) => untraced(format!("the tracer is not responding: {error}")),
        }
    }

    fn read_report(&mut self) -> io::Result<TracerReport> {
        self.connection.shutdown(Shutdown::Write)?;
        self.connection.set_read_timeout(Some(REPORT_TIMEOUT))?;
        let mut text = Vec::new();
        (&self.connection).take(MAX_REPORT).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.child.signal(rustix::process::Signal::KILL);
        self.child.wait();
    }
}

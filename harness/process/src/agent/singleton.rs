//! A singleton that requests a process manager. It waits for the connection, and sends the same messages as MPICH's client.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use pmi_judge::event::Bytes;
use pmi_wire::singleton::{MAX_LINE, RESPONSE, STREAMS, SingletonInfo};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::port::read_lines;
use super::protocol::SingletonDialogue;

/// Environment variable that contains the descriptor number of the listening socket.
pub const LISTENER: &str = "PMI_CONFORM_LISTENER";

/// Environment variable that contains the maximum time for the process manager to connect, in milliseconds.
pub const PATIENCE: &str = "PMI_CONFORM_PATIENCE";

/// The result of [`wait`]: the dialogue, and the connection or the error.
pub(super) type SingletonResult = (SingletonDialogue, io::Result<OwnedFd>);

/// Waits for a process manager, if the runner has passed a listening socket to this process.
pub(super) fn wait() -> Option<SingletonResult> {
    let number: i32 = std::env::var(LISTENER).ok()?.parse().ok().filter(|n| *n > 2)?;
    #[expect(unsafe_code, reason = "the descriptor is inherited, and its number comes from the environment")]
    // SAFETY: the runner has passed the descriptor to this process, and nothing else in this process owns it.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut singinit = SingletonDialogue::default();
    let patience = Duration::from_millis(std::env::var(PATIENCE).ok()?.parse().ok()?);
    let connection = answer(&listener, patience, &mut singinit).map(OwnedFd::from);
    Some((singinit, connection))
}

fn answer(
    listener: &TcpListener,
    patience: Duration,
    singinit: &mut SingletonDialogue,
) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let mut stream = accept(listener, deadline)?;
    stream.set_nodelay(true)?;
    singinit.request = line(&mut stream, deadline)?;
    let answer = format!("{RESPONSE}\n").into_bytes();
    stream.write_all(&answer)?;
    singinit.answer = Bytes(answer);
    singinit.reply = line(&mut stream, deadline)?;
    let info = SingletonInfo::parse(singinit.reply.0.trim_ascii_end()).map_err(io::Error::other)?;
    for n in 0..if info.streams { STREAMS } else { 0 } {
        // Bytes on these connections are ignored, but the connections must stay open.
        let stream = accept(listener, deadline).map_err(|error| {
            io::Error::other(format!(
                "cannot accept a connection for standard streams ({n} of {STREAMS} accepted): {error}"
            ))
        })?;
        std::mem::forget(stream);
    }
    Ok(stream)
}

fn accept(listener: &TcpListener, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "no process manager has connected")),
        _ => Ok(listener.accept()?.0),
    }
}

/// Reads a line. If the line is incomplete, returns the received part, so that it can be reported and judged.
fn line(stream: &mut TcpStream, deadline: Instant) -> io::Result<Bytes> {
    read_lines(stream, 1, MAX_LINE, deadline).map(|(line, _)| Bytes(line))
}

//! A process that nobody has started by a process manager, and that has asked for one: it waits for the connection, and says what
//! MPICH's client says.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use pmi_judge::event::Bytes;
use pmi_wire::singleton::{ANSWER, Info, LONGEST, STREAMS};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::port::read_lines;
use super::protocol::Singinit;

/// Holds the number of the socket that listens.
pub(crate) const LISTENER: &str = "PMI_CONFORM_LISTENER";

/// Holds how many milliseconds the process manager has to come: one that does not is found out by the end of them.
pub(crate) const PATIENCE: &str = "PMI_CONFORM_PATIENCE";

/// What came of it: what was said, and the connection or why there is none.
pub(super) type Came = (Singinit, io::Result<OwnedFd>);

/// Waits where the runner has given us a socket that listens.
pub(super) fn wait() -> Option<Came> {
    let number: i32 = std::env::var(LISTENER).ok()?.parse().ok().filter(|n| *n > 2)?;
    #[expect(unsafe_code, reason = "the descriptor is inherited, and its number comes from the environment")]
    // SAFETY: the runner has put it there for us, and nothing else here owns it.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut singinit = Singinit::default();
    let patience = Duration::from_millis(std::env::var(PATIENCE).ok()?.parse().ok()?);
    let connection = answer(&listener, patience, &mut singinit).map(OwnedFd::from);
    Some((singinit, connection))
}

fn answer(listener: &TcpListener, patience: Duration, singinit: &mut Singinit) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let mut stream = accept(listener, deadline)?;
    stream.set_nodelay(true)?;
    singinit.asked = line(&mut stream, deadline)?;
    let said = format!("{ANSWER}\n").into_bytes();
    stream.write_all(&said)?;
    singinit.said = Bytes(said);
    singinit.told = line(&mut stream, deadline)?;
    let info = Info::parse(singinit.told.0.trim_ascii_end()).map_err(io::Error::other)?;
    for n in 0..if info.streams { STREAMS } else { 0 } {
        // What comes over them is nothing to us; but they are to stay open.
        let stream = accept(listener, deadline)
            .map_err(|error| io::Error::other(format!("{n} connections of {STREAMS}: {error}")))?;
        std::mem::forget(stream);
    }
    Ok(stream)
}

fn accept(listener: &TcpListener, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody connects")),
        _ => Ok(listener.accept()?.0),
    }
}

/// Whatever has come is told, and judged, be it a whole line or not.
fn line(stream: &mut TcpStream, deadline: Instant) -> io::Result<Bytes> {
    read_lines(stream, 1, LONGEST, deadline).map(|(line, _)| Bytes(line))
}

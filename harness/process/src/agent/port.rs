//! The connection of a process through PMI_PORT: the process connects to the server and sends its id.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pmi_wire::port::{LINES, MAX_RESPONSE, address, initack};

/// Maximum time to wait for a response. After this time, the server counts as unresponsive.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Environment variable through which a scenario requests that processes send initack in two pieces. Its name does not begin with `PMI_`,
/// because launchers may drop variables with this prefix.
const INITACK_VARIABLE: &str = "CONFORM_INITACK";

/// The pause between the two pieces, during which the server reads the first piece.
const PAUSE_BETWEEN_PIECES: Duration = Duration::from_millis(100);

/// The reason why PMI_PORT cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PmiPortError {
    #[error("PMI_PORT: \"{0}\" is not HOST:PORT")]
    NoAddress(String),
    #[error("PMI_ID is not set")]
    NoId,
    #[error("PMI_PORT={0}: {1}")]
    Refused(String, io::Error),
    #[error("PMI_PORT={0}: incomplete response to initack ({1} of {LINES} lines): \"{2}\"")]
    Short(String, usize, String),
}

/// A connection whose process has identified itself.
pub(super) struct IdentifiedConnection {
    pub(super) connection: OwnedFd,
    pub(super) initack: Vec<u8>,
    /// The server's response to initack.
    pub(super) response: Vec<u8>,
}

/// Connects if `PMI_PORT` is set and `PMI_FD` is not. Otherwise, returns `None`.
pub(super) fn connect() -> Option<Result<IdentifiedConnection, PmiPortError>> {
    if std::env::var_os("PMI_FD").is_some() {
        return None;
    }
    let port = std::env::var_os("PMI_PORT")?.to_string_lossy().into_owned();
    Some(greet(port))
}

fn greet(port: String) -> Result<IdentifiedConnection, PmiPortError> {
    let at = address(&port).ok_or_else(|| PmiPortError::NoAddress(port.clone()))?;
    let id = std::env::var("PMI_ID").map_err(|_| PmiPortError::NoId)?;
    let refused = |error| PmiPortError::Refused(port.clone(), error);
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    let at =
        at.to_socket_addrs().map_err(refused)?.next().ok_or_else(|| PmiPortError::NoAddress(port.clone()))?;
    let mut stream = TcpStream::connect_timeout(&at, RESPONSE_TIMEOUT).map_err(refused)?;
    // Requests and responses are short and alternate, so delaying a request to fill a packet would only waste time.
    stream.set_nodelay(true).map_err(refused)?;
    let request = format!("{}\n", initack(&id)).into_bytes();
    // A scenario sets this variable in the launcher's environment to have the initack sent in two pieces.
    let (first, rest) = match std::env::var_os(INITACK_VARIABLE) {
        Some(_) => request.split_at(request.len() / 2),
        None => (&request[..], &[][..]),
    };
    stream.write_all(first).map_err(refused)?;
    if !rest.is_empty() {
        std::thread::sleep(PAUSE_BETWEEN_PIECES);
        stream.write_all(rest).map_err(refused)?;
    }
    let (received, is_cut) = read_lines(&mut stream, LINES, MAX_RESPONSE, deadline).map_err(refused)?;
    if is_cut {
        return Err(PmiPortError::Short(port, lines(&received), received.escape_ascii().to_string()));
    }
    Ok(IdentifiedConnection { connection: stream.into(), initack: request, response: received })
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|b| **b == b'\n').count()
}

/// Reads until `count` lines or `longest` bytes have arrived. Returns the bytes, and true if the deadline or the end of the stream was
/// reached first. Reads byte by byte, because the bytes after the last line belong to the protocol.
pub(super) fn read_lines(
    stream: &mut TcpStream,
    count: usize,
    longest: usize,
    deadline: Instant,
) -> io::Result<(Vec<u8>, bool)> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while lines(&text) < count && text.len() < longest {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0]),
            Ok(_) | Err(_) => return Ok((text, true)),
        }
    }
    Ok((text, false))
}

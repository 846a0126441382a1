//! Identifies the process that connects to a tap's port: the tap's program, or another process on this machine. The tap passes its own port
//! to the program, in place of the process manager's port.

use std::fs;
use std::net::TcpStream;
use std::os::fd::AsFd;

use pmi_process::observe::{procfs, tcp, tree};
use pmi_wire::port::initack;
use rustix::net::{RecvFlags, recv};

/// Environment variable that contains the address (HOST:PORT) to which a process without PMI_FD connects.
pub(crate) const PORT: &str = "PMI_PORT";

/// The identity of the process at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerIdentity {
    OwnProgram,
    Stranger,
    Unknown,
}

/// Returns whether a connection to the tap's port comes from an unrelated process instead of the tap's program. A process belongs to the
/// program if it is a descendant of the tap, or if its environment contains the port. If the process is unknown, the first bytes decide:
/// only the program sends an initack with the tap's PMI_ID. If no bytes have arrived yet, the connection counts as the program's.
pub(crate) fn is_stranger(client: &TcpStream, port: &str) -> bool {
    match other_end(client, port) {
        PeerIdentity::OwnProgram => false,
        PeerIdentity::Stranger => true,
        PeerIdentity::Unknown => peeked_bytes(client).is_some_and(|line| !is_own_initack(&line)),
    }
}

fn other_end(client: impl AsFd, port: &str) -> PeerIdentity {
    let Some(end) = tcp::ends(client).and_then(tcp::find_peer) else { return PeerIdentity::Unknown };
    // Inode 0 means that the connection is closed, so its process is unknown.
    if end.inode == 0 {
        return PeerIdentity::Unknown;
    }
    let me = procfs::own_pid();
    let family = tree::descendants(me);
    if tcp::find_owner(end.inode, &family).is_some() {
        return PeerIdentity::OwnProgram;
    }
    if let Some(owner) = tcp::find_owner(end.inode, &tree::all_processes()) {
        let has_port = tree::variable_of(owner, PORT).is_some_and(|value| value == port);
        return if has_port { PeerIdentity::OwnProgram } else { PeerIdentity::Stranger };
    }
    // The owner's descriptors cannot be read. If those of all descendants can be read, the owner is not a descendant.
    let all_are_seen = family.iter().all(|pid| fs::read_dir(format!("/proc/{pid}/fd")).is_ok());
    if all_are_seen { PeerIdentity::Stranger } else { PeerIdentity::Unknown }
}

/// Returns the first bytes that have arrived, and leaves them in the socket. The result is empty if the connection has ended before any
/// bytes arrived, and `None` if nothing has arrived yet.
fn peeked_bytes(client: &TcpStream) -> Option<Vec<u8>> {
    let mut start = [0; 256];
    let (length, _) = recv(client, &mut start[..], RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    Some(start[..length].to_vec())
}

/// Returns whether the bytes begin with an initack that contains the PMI_ID of this process. The program has the same PMI_ID.
fn is_own_initack(bytes: &[u8]) -> bool {
    let id = std::env::var("PMI_ID").unwrap_or_default();
    bytes.starts_with(format!("{}\n", initack(&id)).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Command, Stdio};

    use super::*;

    /// Starts a child that connects to the port, and returns the child and its connection. The child's environment does not contain the
    /// port, so only its ancestry identifies it.
    fn visit(listener: &TcpListener, script: &str) -> (std::process::Child, TcpStream) {
        let at = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{at}; {script}");
        let child = Command::new("bash")
            .args(["-c", &script])
            .env_remove(PORT)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        (child, listener.accept().unwrap().0)
    }

    #[test]
    fn connection_of_a_descendant_belongs_to_the_program() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut child, client) = visit(&listener, "read line");
        assert_eq!(other_end(&client, "127.0.0.1:1"), PeerIdentity::OwnProgram);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn closed_connection_is_identified_by_its_message() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for (message, stranger) in
            [("cmd=initack pmiid=4711", true), ("cmd=initack pmiid=", false), ("", true)]
        {
            let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let client = listener.accept().unwrap().0;
            let line = if message.is_empty() { String::new() } else { format!("{message}\n") };
            ours.write_all(line.as_bytes()).unwrap();
            drop(ours);
            // The kernel may report the end of a connection with a delay.
            while peeked_bytes(&client).is_none() || other_end(&client, "") != PeerIdentity::Unknown {
                std::thread::yield_now();
            }
            assert_eq!(is_stranger(&client, ""), stranger, "{message}");
        }
    }
}

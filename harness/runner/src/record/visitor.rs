//! Who connects to the port that a tap has put in the place of the process manager's: the program, or somebody else on this machine.

use std::fs;
use std::net::TcpStream;
use std::os::fd::AsFd;

use pmi_wire::port::initack;
use rustix::net::{RecvFlags, recv};

use crate::process::{procfs, tcp, tree};

/// Holds HOST:PORT where the process manager connects no descriptor before.
pub(super) const PORT: &str = "PMI_PORT";

/// What can be told of who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visitor {
    Ours,
    Stranger,
    Unknown,
}

/// Whether the other end of a connection to the tap's port is not of its program: not of a descendant of this process, nor of one that
/// has the port in its environment, as those have that have left their parents. Where that cannot be seen, what has been said there
/// decides; and who has said nothing is no stranger.
pub(super) fn is_stranger(client: &TcpStream, port: &str) -> bool {
    match other_end(client, port) {
        Visitor::Ours => false,
        Visitor::Stranger => true,
        Visitor::Unknown => said(client).is_some_and(|line| !is_ours(&line)),
    }
}

fn other_end(client: impl AsFd, port: &str) -> Visitor {
    let Some(end) = tcp::ends(client).and_then(tcp::other_end) else { return Visitor::Unknown };
    // One that is closed is nobody's any more.
    if end.inode == 0 {
        return Visitor::Unknown;
    }
    let me = procfs::own_pid();
    let family = tree::descendants(me);
    if tcp::owner(end.inode, &family).is_some() {
        return Visitor::Ours;
    }
    if let Some(owner) = tcp::owner(end.inode, &tree::everybody()) {
        let is_told = tree::variable_of(owner, PORT).is_some_and(|told| told == port);
        return if is_told { Visitor::Ours } else { Visitor::Stranger };
    }
    // It is of another user, unless it is of one of ours whose descriptors nobody may look at.
    let all_are_seen = family.iter().all(|pid| fs::read_dir(format!("/proc/{pid}/fd")).is_ok());
    if all_are_seen { Visitor::Stranger } else { Visitor::Unknown }
}

/// What has been said so far, which stays there to be read. Empty where the connection has ended without a word, and `None` where it has
/// not ended.
fn said(client: &TcpStream) -> Option<Vec<u8>> {
    let mut start = [0; 256];
    let (length, _) = recv(client, &mut start[..], RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    Some(start[..length].to_vec())
}

/// Whether a process says so who it is that was told our id.
fn is_ours(said: &[u8]) -> bool {
    let id = std::env::var("PMI_ID").unwrap_or_default();
    said.starts_with(format!("{}\n", initack(&id)).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Command, Stdio};

    use super::*;

    /// A connection of a child that lacks the port in its environment, so that only its descent can make it ours.
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
    fn a_descendant_is_no_stranger() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut child, client) = visit(&listener, "read line");
        assert_eq!(other_end(&client, "127.0.0.1:1"), Visitor::Ours);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn of_who_is_gone_what_was_said_decides() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for (said, stranger) in [("cmd=initack pmiid=4711", true), ("cmd=initack pmiid=", false), ("", true)]
        {
            let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let client = listener.accept().unwrap().0;
            let line = if said.is_empty() { String::new() } else { format!("{said}\n") };
            ours.write_all(line.as_bytes()).unwrap();
            drop(ours);
            // The kernel brings the end over by itself, in its own time.
            while self::said(&client).is_none() || other_end(&client, "") != Visitor::Unknown {
                std::thread::yield_now();
            }
            assert_eq!(is_stranger(&client, ""), stranger, "{said}");
        }
    }
}

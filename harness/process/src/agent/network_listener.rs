//! The runner's listener for agents on other machines: an address that the runner announces, and a token that each peer must send.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::relay::{self, Route};
use crate::nonblocking;

/// Maximum number of rejected connections that are reported, so that repeated attempts do not fill a terminal.
const MAX_REJECTIONS_REPORTED: usize = 10;

/// The options for agents on other machines: the address given with `--listen`, and the path of the agent.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    address: IpAddr,
    /// The allowed ports; `None` allows any port.
    ports: Option<RangeInclusive<u16>>,
    /// The path of the agent on the machines where the processes run.
    pub agent: PathBuf,
    /// The function that prints a report about a rejected connection.
    report: fn(&str),
    reported: Arc<AtomicUsize>,
}

/// The reason why the runner cannot listen on an address, with a remedy if there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ListenError(String);

impl ListenOptions {
    /// Parses `ADDRESS`, `ADDRESS:PORT` or `ADDRESS:FIRST-LAST`. The range must contain at least `launches` ports.
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is invalid, or if the runner cannot listen on this address.
    pub fn parse(text: &str, launches: usize, agent: PathBuf, report: fn(&str)) -> Result<Self, ListenError> {
        let wrong = |why: &str| ListenError(format!("\"{text}\": {why}"));
        let (host, ports) = match text.parse::<IpAddr>() {
            Ok(_) => (text, None),
            Err(_) => match text.rsplit_once(':') {
                Some((host, ports)) => (host.trim_start_matches('[').trim_end_matches(']'), Some(ports)),
                None => (text, None),
            },
        };
        let ports = ports
            .map(|ports| {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let port = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
                let (first, last) = (port(first)?, port(last)?);
                (first <= last).then_some(first..=last)
            })
            .map(|ports| ports.ok_or_else(|| wrong("write ADDRESS, ADDRESS:PORT or ADDRESS:FIRST-LAST")))
            .transpose()?;
        let address = (host, 0).to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| wrong("unknown host or address"))?.ip();
        if address.is_unspecified() {
            return Err(wrong("write the address at which other machines reach this machine"));
        }
        if let Some(few) = ports.as_ref().filter(|ports| ports.len() < launches) {
            let (few, first) = (few.len(), few.start());
            let last = usize::from(*first) + launches - 1;
            return Err(wrong(&format!(
                "too few ports ({few}) for {launches} simultaneous launches: write {host}:{first}-{last}, or omit the ports"
            )));
        }
        let this = Self { address, ports, agent, report, reported: Arc::default() };
        // Open a listener now, so that an error is reported before the first launch.
        match NetworkListener::open(&this) {
            Ok(_) => Ok(this),
            Err(error) => Err(wrong(&error.to_string())),
        }
    }
}

/// A listener for the agents of one launch.
pub(super) struct NetworkListener {
    listener: TcpListener,
    route: Route,
    listen: ListenOptions,
}

impl NetworkListener {
    pub(super) fn open(listen: &ListenOptions) -> io::Result<Self> {
        let ports = listen.ports.clone().unwrap_or(0..=0);
        let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
        for port in ports {
            match TcpListener::bind(SocketAddr::new(listen.address, port)) {
                Ok(listener) => {
                    nonblocking(&listener)?;
                    let route = Route { address: listener.local_addr()?, token: token()? };
                    return Ok(Self { listener, route, listen: listen.clone() });
                }
                Err(error) => failed = error,
            }
        }
        Err(io::Error::new(
            failed.kind(),
            format!("cannot listen for agents at {}: {failed}", listen.address),
        ))
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Returns the path of the agent on other machines.
    pub(super) fn agent(&self) -> &PathBuf {
        &self.listen.agent
    }

    pub(super) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, from) = self.listener.accept()?;
        // The connection also works without these options, but responses take longer, and unreachable peers are not detected.
        let _ = relay::prepare(&stream);
        Ok((stream, from))
    }

    pub(super) fn is_token(&self, token: &str) -> bool {
        token == self.route.token
    }

    pub(super) fn report_rejection(&self, from: SocketAddr) {
        let before = self.listen.reported.fetch_add(1, Ordering::Relaxed);
        if before < MAX_REJECTIONS_REPORTED {
            let more = if before + 1 == MAX_REJECTIONS_REPORTED {
                "; further rejections are not reported"
            } else {
                ""
            };
            let here = self.route.address;
            (self.listen.report)(&format!(
                "{from} connected to {here} without the token of this launch and was rejected{more}"
            ));
        }
    }
}

/// Returns a random, unguessable string of hexadecimal digits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let read = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    if read < bytes.len() {
        return Err(io::Error::other("cannot get random numbers from the system"));
    }
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, launches: usize) -> Result<ListenOptions, ListenError> {
        ListenOptions::parse(text, launches, PathBuf::from("/agent"), |_| {})
    }

    #[test]
    fn rejects_invalid_listen_addresses() {
        assert!(parse("127.0.0.1", 8).unwrap().ports.is_none());
        assert!(parse("localhost", 8).unwrap().address.is_loopback());
        for (text, launches, expected) in [
            ("0.0.0.0", 1, "at which other machines reach this machine"),
            ("127.0.0.1:none", 1, "write ADDRESS"),
            ("127.0.0.1:9-8", 1, "write ADDRESS"),
            ("127.0.0.1:40000", 2, "127.0.0.1:40000-40001"),
            ("192.0.2.1", 1, "cannot listen"),
            ("no such host.invalid", 1, "unknown host or address"),
        ] {
            let error = parse(text, launches).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn each_launch_has_its_own_token() {
        let listen = parse("127.0.0.1", 1).unwrap();
        let (one, two) = (NetworkListener::open(&listen).unwrap(), NetworkListener::open(&listen).unwrap());
        assert!(one.is_token(&one.route.token) && !one.is_token(&two.route.token) && !one.is_token(""));
    }
}

//! Connections whose process is not yet known: those that processes make themselves (`PMI_PORT`), and the one that the server makes to a
//! process that requests a process manager (singleton init).
//!
//! Any process that can reach the port can connect. A silent connection is kept open. A connection that sends too much, or anything other
//! than an initack, is closed. Neither affects the other connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use pmi_process::agent::channel::Channel;
use pmi_process::agent::listener::AgentListener;
use pmi_process::agent::protocol::{AgentOrder, Hello};
use pmi_process::connection::{NonBlockingStream, ReceiveResult};
use pmi_process::reactor::{Reactor, ReactorKey, WatchMode};
use pmi_process::{context, is_aborted_connection, lacks_descriptors};
use pmi_wire::port::MAX_RESPONSE;

use pmi_judge::event::Bytes;

/// Maximum number of connections that have not sent any data yet. If there are more, the oldest is closed.
const MAX_SILENT_CONNECTIONS: usize = 1024;

/// A connection that is not assigned to a process yet.
struct PendingConnection {
    number: u64,
    connection: NonBlockingStream,
    key: ReactorKey,
    received: Vec<u8>,
}

/// The listening socket, and the connections that it has accepted.
#[derive(Default)]
pub(super) struct Listener {
    /// The listening socket; `None` if this process connects to the process that has requested a process manager.
    listener: Option<TcpListener>,
    /// The socket for programs that processes have started as their process manager.
    agent_listener: Option<AgentListener>,
    /// The programs that have reported on `agent_listener`, each with the number of the connection that it has passed on.
    managers: Vec<(u64, Channel)>,
    pending: Vec<PendingConnection>,
    next: u64,
}

/// The first line that was received on a connection.
pub(super) struct FirstLine {
    /// The line without its newline.
    pub(super) line: Vec<u8>,
    /// The bytes after the line, which belong to the protocol.
    pub(super) rest: Vec<u8>,
}

impl Listener {
    /// Listens on a free port of `address`.
    pub(super) fn open<S: Copy>(address: IpAddr, reactor: &mut Reactor<S>, source: S) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).map_err(context(address))?;
        listener.set_nonblocking(true)?;
        reactor.add(&listener, source, WatchMode::Read)?;
        Ok(Self { listener: Some(listener), ..Self::default() })
    }

    /// Connects to a process on this machine that has requested a process manager, and sends `welcome`.
    pub(super) fn connect<S: Copy>(
        port: u16,
        welcome: Vec<u8>,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
    ) -> io::Result<Self> {
        let mut listener = Self::default();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        listener.add(stream.into(), welcome, reactor, source)?;
        Ok(listener)
    }

    /// Creates a listener for reports from the programs that a process starts as its process manager.
    pub(super) fn with_agent_listener<S: Copy>(
        listener: AgentListener,
        reactor: &mut Reactor<S>,
        source: S,
    ) -> io::Result<Self> {
        listener.watch(reactor, source)?;
        Ok(Self { agent_listener: Some(listener), ..Self::default() })
    }

    /// Reads the report of a program that a process has started as its process manager, and returns the program's arguments. If the program
    /// has a connection to the process, sends `welcome` on it.
    pub(super) fn receive_manager<S: Copy>(
        &mut self,
        id: u64,
        welcome: Vec<u8>,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
    ) -> io::Result<Option<Vec<Bytes>>> {
        let report = self.agent_listener.as_mut().and_then(|listener| listener.receive_hello(id, reactor));
        let Some((Hello::Manager { args }, mut control)) = report else { return Ok(None) };
        if let Some(connection) = control.take_descriptor() {
            let number = self.add(connection, welcome, reactor, source)?;
            if self.managers.len() < MAX_SILENT_CONNECTIONS {
                self.managers.push((number, control));
            }
        }
        Ok(Some(args))
    }

    /// Stops the process manager that has passed on a rejected connection.
    pub(super) fn dismiss(&mut self, pending: u64) {
        self.end_managers(1, |number| number == pending);
    }

    /// Stops the process managers whose connections are no longer pending. Called only when no process has a connection.
    pub(super) fn end_idle_managers(&mut self) {
        let connections: Vec<u64> = self.pending.iter().map(|pending| pending.number).collect();
        self.end_managers(0, |number| !connections.contains(&number));
    }

    fn end_managers(&mut self, status: u8, is_ended: impl Fn(u64) -> bool) {
        for (_, manager) in self.managers.extract_if(.., |(number, _)| is_ended(*number)) {
            let mut manager = manager;
            manager.send(&AgentOrder::Exit(status));
        }
    }

    /// Returns whether no pending connection is left.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a connection, and sends `welcome` on it. Returns the number of the connection.
    pub(super) fn add<S: Copy>(
        &mut self,
        stream: OwnedFd,
        welcome: Vec<u8>,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
    ) -> io::Result<u64> {
        let stream = TcpStream::from(stream);
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut connection = NonBlockingStream::new(OwnedFd::from(stream));
        // The socket buffer of a new connection has room for the whole message.
        connection.push(welcome);
        connection.flush();
        let key = reactor.add(&connection, source(self.next), WatchMode::Read)?;
        self.pending.push(PendingConnection { number: self.next, connection, key, received: Vec::new() });
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Returns the address that `PMI_PORT` must contain.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Accepts new connections. `source` returns the reactor's source for a connection to the port, and `agent` for a connection to the
    /// socket in the scratch folder.
    pub(super) fn accept<S: Copy>(
        &mut self,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
        agent: impl Fn(u64) -> S,
    ) {
        if let Some(listener) = &mut self.agent_listener {
            listener.accept(reactor, agent);
        }
        while let Some(accepted) = self.listener.as_ref().map(TcpListener::accept) {
            match accepted {
                Ok((stream, _)) => {
                    if self.add(stream.into(), Vec::new(), reactor, &source).is_ok()
                        && self.pending.len() > MAX_SILENT_CONNECTIONS
                    {
                        self.close_oldest(reactor);
                    }
                }
                // Make room now, because connections that are already waiting are not reported again.
                Err(error) if lacks_descriptors(&error) && !self.pending.is_empty() => {
                    self.close_oldest(reactor);
                }
                Err(error) if is_aborted_connection(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn close_oldest<S: Copy>(&mut self, reactor: &mut Reactor<S>) {
        let oldest = self.pending.remove(0);
        reactor.remove(oldest.key);
        self.dismiss(oldest.number);
    }

    /// Reads from a connection. Returns `None` if the connection's first line is incomplete. Closes a connection that has ended, or whose
    /// first line is longer than an initack can be.
    pub(super) fn read<S: Copy>(&mut self, number: u64, reactor: &mut Reactor<S>) -> Option<FirstLine> {
        let at = self.pending.iter().position(|pending| pending.number == number)?;
        let pending = &mut self.pending[at];
        let mut buffer = [0; MAX_RESPONSE];
        match pending.connection.receive(&mut buffer) {
            ReceiveResult::Nothing => return None,
            ReceiveResult::Bytes(n) => {
                reactor.after_read(pending.key, n, buffer.len());
                pending.received.extend_from_slice(&buffer[..n]);
                if let Some(end) = pending.received.iter().position(|b| *b == b'\n') {
                    let rest = pending.received.split_off(end + 1);
                    pending.received.pop();
                    return Some(FirstLine { line: std::mem::take(&mut pending.received), rest });
                }
                if pending.received.len() <= MAX_RESPONSE {
                    return None;
                }
            }
            ReceiveResult::End => {}
        }
        self.take(number, reactor);
        self.dismiss(number);
        None
    }

    /// Removes a connection, either to assign it to its process or to close it.
    pub(super) fn take<S: Copy>(
        &mut self,
        number: u64,
        reactor: &mut Reactor<S>,
    ) -> Option<NonBlockingStream> {
        let at = self.pending.iter().position(|pending| pending.number == number)?;
        let pending = self.pending.remove(at);
        reactor.remove(pending.key);
        Some(pending.connection)
    }
}

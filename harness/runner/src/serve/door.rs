//! Where processes come in that make their connections themselves (`PMI_PORT`), until they have said who they are; and where we
//! come in to a process that has asked for us (singleton init).
//!
//! Anybody on this machine can connect. Who says nothing, too much or something else than an initack waits or is sent away, and
//! hurts nobody else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use pmi_wire::port::LONGEST;

use crate::agent::channel::Channel;
use crate::agent::protocol::{Hello, Order};
use crate::agent::reception::Reception;
use crate::process::connection::{NonBlockingStream, Received};
use crate::process::reactor::{Key, Reactor, Wanted};
use crate::process::{context, has_hung_up, lacks_descriptors};
use pmi_judge::event::Bytes;

/// Most connections on which nothing has been said yet; beyond that, the oldest is closed.
const WAITING: usize = 1024;

/// A connection that nobody has a name for.
struct Guest {
    number: u64,
    connection: NonBlockingStream,
    key: Key,
    heard: Vec<u8>,
}

/// The socket that listens, and who has come in by it.
#[derive(Default)]
pub(super) struct Door {
    /// None where it is we who connect.
    listener: Option<TcpListener>,
    /// Where those report that a process has started for its process manager, and those that have, by the number of the guest
    /// that each has brought.
    reception: Option<Reception>,
    managers: Vec<(u64, Channel)>,
    guests: Vec<Guest>,
    next: u64,
}

/// What a guest has said first.
pub(super) struct FirstLine {
    /// Without the newline.
    pub(super) line: Vec<u8>,
    /// What came behind it, which belongs to the protocol.
    pub(super) rest: Vec<u8>,
}

impl Door {
    /// Listens on a free port of this address.
    pub(super) fn open<S: Copy>(address: IpAddr, reactor: &mut Reactor<S>, source: S) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).map_err(context(address))?;
        listener.set_nonblocking(true)?;
        reactor.add(&listener, source, Wanted::Read)?;
        Ok(Self { listener: Some(listener), ..Self::default() })
    }

    /// Connects to a process on this machine that has asked for us, and says `welcome`.
    pub(super) fn call<S: Copy>(
        port: u16,
        welcome: Vec<u8>,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
    ) -> io::Result<Self> {
        let mut door = Self::default();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        door.take_in(stream.into(), welcome, reactor, source)?;
        Ok(door)
    }

    /// Hears of those that a process has started for its process manager.
    pub(super) fn at_reception<S: Copy>(
        reception: Reception,
        reactor: &mut Reactor<S>,
        source: S,
    ) -> io::Result<Self> {
        reception.watch(reactor, source)?;
        Ok(Self { reception: Some(reception), ..Self::default() })
    }

    /// Hears what has come to the reception: what it was started with. If it has a connection to the process, `welcome` is said there.
    pub(super) fn hear_manager<S: Copy>(
        &mut self,
        id: u64,
        welcome: Vec<u8>,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
    ) -> io::Result<Option<Vec<Bytes>>> {
        let heard = self.reception.as_mut().and_then(|reception| reception.greet(id, reactor));
        let Some((Hello::Manager { args }, mut control)) = heard else { return Ok(None) };
        if let Some(connection) = control.take_descriptor() {
            let number = self.take_in(connection, welcome, reactor, source)?;
            if self.managers.len() < WAITING {
                self.managers.push((number, control));
            }
        }
        Ok(Some(args))
    }

    /// Has a process manager end that has brought a guest who was sent away: nobody needs it.
    pub(super) fn dismiss(&mut self, guest: u64) {
        self.end_managers(1, |number| number == guest);
    }

    /// Has the process managers end whose guests were let in and are gone.
    pub(super) fn nothing_to_manage(&mut self) {
        let guests: Vec<u64> = self.guests.iter().map(|guest| guest.number).collect();
        self.end_managers(0, |number| !guests.contains(&number));
    }

    fn end_managers(&mut self, status: u8, who: impl Fn(u64) -> bool) {
        for (_, manager) in self.managers.extract_if(.., |(number, _)| who(*number)) {
            let mut manager = manager;
            manager.send(&Order::Exit(status));
        }
    }

    /// Whether nobody is left who may still say who it is.
    pub(super) fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    /// Takes in a connection, on which `welcome` is said; the number of the guest.
    pub(super) fn take_in<S: Copy>(
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
        // A new connection takes so little at once.
        connection.push(welcome);
        connection.flush();
        let key = reactor.add(&connection, source(self.next), Wanted::Read)?;
        self.guests.push(Guest { number: self.next, connection, key, heard: Vec::new() });
        self.next += 1;
        Ok(self.next - 1)
    }

    /// What `PMI_PORT` is to hold.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Lets in who has come: as `source` by the port, as `newcomer` to the reception.
    pub(super) fn accept<S: Copy>(
        &mut self,
        reactor: &mut Reactor<S>,
        source: impl Fn(u64) -> S,
        newcomer: impl Fn(u64) -> S,
    ) {
        if let Some(reception) = &mut self.reception {
            reception.accept(reactor, newcomer);
        }
        while let Some(accepted) = self.listener.as_ref().map(TcpListener::accept) {
            match accepted {
                Ok((stream, _)) => {
                    if self.take_in(stream.into(), Vec::new(), reactor, &source).is_ok()
                        && self.guests.len() > WAITING
                    {
                        self.send_oldest_away(reactor);
                    }
                }
                // Those who wait now are not told of again.
                Err(error) if lacks_descriptors(&error) && !self.guests.is_empty() => {
                    self.send_oldest_away(reactor);
                }
                Err(error) if has_hung_up(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn send_oldest_away<S: Copy>(&mut self, reactor: &mut Reactor<S>) {
        let oldest = self.guests.remove(0);
        reactor.remove(oldest.key);
        self.dismiss(oldest.number);
    }

    /// Reads from a guest; `None` if its first line is not whole. One that ends, or says more than an initack can have without
    /// ending its line, is closed.
    pub(super) fn read<S: Copy>(&mut self, number: u64, reactor: &mut Reactor<S>) -> Option<FirstLine> {
        let at = self.guests.iter().position(|guest| guest.number == number)?;
        let guest = &mut self.guests[at];
        let mut buffer = [0; LONGEST];
        match guest.connection.receive(&mut buffer) {
            Received::Nothing => return None,
            Received::Bytes(n) => {
                reactor.after_read(guest.key, n, buffer.len());
                guest.heard.extend_from_slice(&buffer[..n]);
                if let Some(end) = guest.heard.iter().position(|b| *b == b'\n') {
                    let rest = guest.heard.split_off(end + 1);
                    guest.heard.pop();
                    return Some(FirstLine { line: std::mem::take(&mut guest.heard), rest });
                }
                if guest.heard.len() <= LONGEST {
                    return None;
                }
            }
            Received::End => {}
        }
        self.take(number, reactor);
        self.dismiss(number);
        None
    }

    /// Gives up a guest's connection: to its process, or to be closed.
    pub(super) fn take<S: Copy>(
        &mut self,
        number: u64,
        reactor: &mut Reactor<S>,
    ) -> Option<NonBlockingStream> {
        let at = self.guests.iter().position(|guest| guest.number == number)?;
        let guest = self.guests.remove(at);
        reactor.remove(guest.key);
        Some(guest.connection)
    }
}

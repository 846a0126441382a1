//! The other end of a TCP connection whose two ends are on this host.
//!
//! For a local socket, the kernel reports the process that created the other end, and the number of bytes that the other side has not read.
//! For TCP, it reports neither through the socket: bytes count as delivered when they are in the other side's queue. `sock_diag(7)` reports
//! the unread bytes and the inode of the other socket, if that socket is in the same network namespace. (`/proc/net/tcp` contains the same
//! information, but takes a hundred times as long.)

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname, netlink, recv,
    sendto, socket_with,
};

/// Length of `struct nlmsghdr`.
const HEADER_LENGTH: usize = 16;

/// The protocol number of TCP, `IPPROTO_TCP`.
const TCP: u8 = 6;

/// `INET_DIAG_INFO`: the attribute that contains `struct tcp_info`.
const INFO_ATTRIBUTE: u16 = 2;

/// Length of `struct inet_diag_msg`, which precedes the attributes.
const MESSAGE_LENGTH: usize = 72;

/// Offset of `tcpi_notsent_bytes` in `struct tcp_info`.
const NOT_SENT_OFFSET: usize = 144;

/// The state of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerState {
    /// Number of bytes that have arrived at the other end and have not been read.
    pub(crate) unread: usize,
    /// Number of bytes that were written at the other end but are held back by the kernel, because of Nagle's algorithm or because this end
    /// has no room. Bytes that only lack an acknowledgement do not count: they have arrived, because both ends are on this host.
    pub(crate) in_transit: usize,
    /// The inode of the other end's socket, which identifies the process.
    pub inode: u64,
}

/// The addresses of the two ends of a connection, with this process's end first.
pub type Ends = (SocketAddr, SocketAddr);

/// Returns the addresses of the two ends of a TCP connection, or `None` for any other descriptor.
pub fn ends(connection: impl AsFd) -> Option<Ends> {
    let here = SocketAddr::try_from(getsockname(&connection).ok()?).ok()?;
    let there = SocketAddr::try_from(getpeername(&connection).ok()??).ok()?;
    // An IPv6 socket may have an IPv4 peer, whose address is then written as IPv6. Such an address is converted to IPv4.
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Some((canonical(here), canonical(there)))
}

/// Looks up the other end of a connection. Returns `None` if it is on another host or in another network namespace.
pub fn find_peer((ours, other): Ends) -> Option<PeerState> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    );
    let kernel = kernel.ok()?;
    let kernel_address = netlink::SocketAddrNetlink::new(0, 0);
    sendto(&kernel, &build_query(other, ours), SendFlags::empty(), &kernel_address).ok()?;
    let mut answer = [0; 512];
    let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::empty()).ok()?;
    read_answer(answer.get(..length)?)
}

/// Builds `struct nlmsghdr` and `struct inet_diag_req_v2`, which query the socket at `local` that is connected to `remote`.
fn build_query(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut text = Vec::with_capacity(HEADER_LENGTH + 56);
    text.extend(u32::try_from(HEADER_LENGTH + 56).unwrap_or_default().to_ne_bytes());
    text.extend(BY_FAMILY.to_ne_bytes());
    text.extend(REQUEST.to_ne_bytes());
    // The sequence number and the sender, which the kernel ignores.
    text.extend([0; 8]);
    // The family, the protocol, the extensions, padding, and a mask of all states.
    text.extend([family.as_raw() as u8, TCP, 1 << (INFO_ATTRIBUTE - 1), 0]);
    text.extend(u32::MAX.to_ne_bytes());
    text.extend(local.port().to_be_bytes());
    text.extend(remote.port().to_be_bytes());
    text.extend(address(local.ip()));
    text.extend(address(remote.ip()));
    // The query matches any interface, and contains no cookie.
    text.extend(0_u32.to_ne_bytes());
    text.extend([0xff; 8]);
    text
}

/// Parses `struct nlmsghdr`, `struct inet_diag_msg` and its attributes.
fn read_answer(answer: &[u8]) -> Option<PeerState> {
    const ERROR: u16 = 2;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == ERROR {
        return None;
    }
    let (received, inode) = (word(HEADER_LENGTH + 56)?, word(HEADER_LENGTH + 68)?);
    let short = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let mut at = HEADER_LENGTH + MESSAGE_LENGTH;
    let mut held_back = 0;
    while let (Some(length @ 4..), Some(kind)) = (short(at), short(at + 2)) {
        if kind == INFO_ATTRIBUTE && usize::from(length) >= 4 + NOT_SENT_OFFSET + 4 {
            held_back = word(at + 4 + NOT_SENT_OFFSET)?;
        }
        at += usize::from(length).next_multiple_of(4);
    }
    Some(PeerState { unread: received as usize, in_transit: held_back as usize, inode: inode.into() })
}

/// Returns the process among `pids` that has the socket with this inode open.
pub fn find_owner(inode: u64, pids: &[i32]) -> Option<i32> {
    let name = format!("socket:[{inode}]");
    let has = |pid: &&i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).ok();
        open.into_iter().flatten().flatten().any(|fd| {
            fs::read_link(fd.path())
                .is_ok_and(|target| target.as_os_str().as_encoded_bytes() == name.as_bytes())
        })
    };
    pids.iter().find(has).copied()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::*;
    use crate::observe::procfs;

    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn counts_bytes_that_the_peer_has_not_read() {
        let (mut ours, mut other) = pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        assert_eq!(ends(std::io::stdin()), None);
        assert_eq!(find_peer(ends(&ours).unwrap()).map(|end| end.unread), Some(0));
        ours.write_all(b"12345").unwrap();
        // The kernel may deliver the bytes with a delay.
        while find_peer(ends(&ours).unwrap()).unwrap().unread < 5 {
            std::thread::yield_now();
        }
        other.read_exact(&mut [0; 3]).unwrap();
        let end = find_peer(ends(&ours).unwrap()).unwrap();
        assert_eq!(end.unread, 2);
        let me = procfs::own_pid();
        assert_eq!(find_owner(end.inode, &[1, me]), Some(me));
        assert_eq!(find_owner(end.inode, &[]), None);
    }

    #[test]
    fn counts_bytes_that_are_still_in_transit() {
        let (ours, mut other) = pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        rustix::net::sockopt::set_socket_recv_buffer_size(&ours, 4096).unwrap();
        assert_eq!(find_peer(ends(&ours).unwrap()).map(|end| end.in_transit), Some(0));
        other.set_nonblocking(true).unwrap();
        // Fill the receive buffer of this end, so that further bytes remain with the sender.
        while other.write(&[0; 4096]).is_ok() {}
        assert!(find_peer(ends(&ours).unwrap()).unwrap().in_transit > 0);
    }

    #[test]
    fn finds_ipv6_peer_of_an_ipv4_connection() {
        let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else { return };
        let ours = TcpStream::connect((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port())).unwrap();
        let _other = listener.accept().unwrap();
        assert_eq!(find_peer(ends(&ours).unwrap()).map(|end| end.unread), Some(0));
    }
}

//! Capture files for Wireshark (pcapng): each connection is a TCP stream, and its first packet names the scenario and the process. The
//! plugin that decodes the messages is in `wireshark`.
//!
//! The connections of most processes are sockets without addresses, so the addresses here are invented. Process R of group G has the
//! address 10.G.R, and the server listens on [`SERVER`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

use pmi_judge::event::{Event, EventKind};
use pmi_wire::{Direction, Proc};

use super::run::Run;
use super::text;

/// The server's address, from a network that is reserved for documentation. The plugin registers for `PORT`.
const SERVER: [u8; 4] = [192, 0, 2, 1];
pub(super) const PORT: u16 = 1313;
/// The link type of packets that contain raw IPv4.
const LINK_TYPE: u32 = 101;
/// Maximum payload of a packet, in bytes. The length field of a packet has 16 bits.
const MAX_PAYLOAD: usize = 32 * 1024;

/// Maximum length of a scenario's name, in characters.
const MAX_NAME: usize = 200;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;

struct Stream {
    client: [u8; 4],
    port: u16,
    /// The next sequence number of the client and of the server.
    next: [u32; 2],
}

struct Capture<'a> {
    out: &'a mut dyn Write,
    /// Number of connections so far.
    connections: u16,
}

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut capture = Capture { out, connections: 0 };
    // The header states the byte order, version 1.0, and an unspecified section length.
    capture.block(0x0A0D_0D0A, &[0x1A2B_3C4D, 1, u32::MAX, u32::MAX], &[])?;
    capture.block(1, &[LINK_TYPE, 0], &[])?;
    let mut start = 0;
    for scenario in run.results.iter().map(|result| &result.scenario).chain(&run.cut) {
        let events = run.events.get(scenario).map(Vec::as_slice).unwrap_or_default();
        capture.scenario(scenario, events, start)?;
        // The times of each scenario begin at 0, so a scenario is shifted by the durations of the scenarios before it.
        start += events.last().map_or(0, |event| event.time_us);
    }
    Ok(())
}

impl Capture<'_> {
    fn scenario(&mut self, scenario: &str, events: &[Event], start: u64) -> io::Result<()> {
        let mut streams: BTreeMap<Proc, Stream> = BTreeMap::new();
        for event in events {
            let time = start + event.time_us;
            let (proc, direction, bytes, flags) = match &event.kind {
                EventKind::Greeted { proc, initack, response } => {
                    let line = [&initack.0[..], b"\n"].concat();
                    let stream = self.stream(&mut streams, *proc, scenario, time)?;
                    self.send(stream, Direction::ToServer, &line, PUSH, time)?;
                    (*proc, Direction::FromServer, &response.0[..], PUSH)
                }
                EventKind::ClosedByClient { proc } => (*proc, Direction::ToServer, &[][..], FIN),
                EventKind::ClosedByServer { proc } => (*proc, Direction::FromServer, &[][..], FIN),
                kind => match kind.message_bytes() {
                    Some((proc, direction, bytes)) => (proc, direction, bytes, PUSH),
                    None => continue,
                },
            };
            let stream = self.stream(&mut streams, proc, scenario, time)?;
            self.send(stream, direction, bytes, flags, time)?;
            // The sequence number skips the bytes that the log omits, so Wireshark reports a lost segment.
            stream.next[side(direction)] += event.cut as u32;
        }
        Ok(())
    }

    /// Returns the connection of a process. The first event of the process opens the connection.
    fn stream<'s>(
        &mut self,
        streams: &'s mut BTreeMap<Proc, Stream>,
        proc: Proc,
        scenario: &str,
        time: u64,
    ) -> io::Result<&'s mut Stream> {
        let vacant = match streams.entry(proc) {
            Entry::Occupied(open) => return Ok(open.into_mut()),
            Entry::Vacant(vacant) => vacant,
        };
        self.connections = self.connections.wrapping_add(1);
        let [.., high, low] = proc.rank.to_be_bytes();
        let client = [10, proc.group.to_be_bytes()[3], high, low];
        let mut stream = Stream { client, port: 1024 + self.connections % 64_000, next: [0; 2] };
        let comment = format!("{}: process {proc}", text::clip(&text::clean(scenario), MAX_NAME));
        self.packet(&mut stream, Direction::ToServer, SYN, &[], time, &comment)?;
        self.packet(&mut stream, Direction::FromServer, SYN | ACK, &[], time, "")?;
        self.packet(&mut stream, Direction::ToServer, ACK, &[], time, "")?;
        Ok(vacant.insert(stream))
    }

    fn send(
        &mut self,
        stream: &mut Stream,
        direction: Direction,
        bytes: &[u8],
        flags: u8,
        time: u64,
    ) -> io::Result<()> {
        let mut parts: Vec<&[u8]> = bytes.chunks(MAX_PAYLOAD).collect();
        if flags == FIN {
            parts.push(&[]);
        }
        parts.into_iter().try_for_each(|part| self.packet(stream, direction, flags | ACK, part, time, ""))
    }

    /// Writes a packet. The checksums are 0, because Wireshark does not verify them by default.
    fn packet(
        &mut self,
        stream: &mut Stream,
        direction: Direction,
        flags: u8,
        payload: &[u8],
        time: u64,
        comment: &str,
    ) -> io::Result<()> {
        let (from, to) = (side(direction), 1 - side(direction));
        let ends = [(stream.client, stream.port), (SERVER, PORT)];
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend(ends[from].0.iter().chain(&ends[to].0));
        packet.extend([ends[from].1, ends[to].1].into_iter().flat_map(u16::to_be_bytes));
        packet.extend([stream.next[from], stream.next[to]].into_iter().flat_map(u32::to_be_bytes));
        packet.extend([0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        packet.extend(payload);
        stream.next[from] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);

        let mut body = packet.clone();
        body.resize(body.len().next_multiple_of(4), 0);
        if !comment.is_empty() {
            body.extend([1, comment.len() as u16].into_iter().flat_map(u16::to_le_bytes));
            body.extend(comment.as_bytes());
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend([0; 4]);
        }
        let length = packet.len() as u32;
        self.block(6, &[0, (time >> 32) as u32, time as u32, length, length], &body)
    }

    fn block(&mut self, kind: u32, numbers: &[u32], body: &[u8]) -> io::Result<()> {
        let length = 12 + 4 * numbers.len() as u32 + body.len() as u32;
        let head: Vec<u8> =
            [&[kind, length], numbers].concat().into_iter().flat_map(u32::to_le_bytes).collect();
        self.out.write_all(&head)?;
        self.out.write_all(body)?;
        self.out.write_all(&length.to_le_bytes())
    }
}

fn side(direction: Direction) -> usize {
    usize::from(direction == Direction::FromServer)
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Verbosity, render, tests};
    use super::*;
    use pmi_judge::event::Bytes;
    use pmi_judge::verdict::Verdict;

    /// Returns the bytes that were sent in each direction of each connection, by source and destination.
    fn streams(capture: &[u8]) -> BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>> {
        let mut streams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
        let number = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap()) as usize;
        let mut at = 0;
        while at < capture.len() {
            let (kind, length) = (number(at), number(at + 4));
            assert!(length.is_multiple_of(4) && number(at + length - 4) == length, "block at {at}");
            if kind == 6 {
                let packet = &capture[at + 28..at + 28 + number(at + 20)];
                assert_eq!(usize::from(packet[2]) << 8 | usize::from(packet[3]), packet.len());
                let end = |address: usize, port: usize| {
                    [&packet[address..address + 4], &packet[port..port + 2]].concat()
                };
                let stream = streams.entry((end(12, 20), end(16, 22))).or_default();
                // The SYN consumes one sequence number.
                let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap()) as usize;
                if packet[33] & SYN == 0 {
                    assert_eq!(sequence, stream.len() + 1);
                }
                stream.extend(&packet[40..]);
            }
            at += length;
        }
        streams
    }

    #[test]
    fn capture_contains_the_bytes_of_each_process() {
        let proc = |rank| Proc { group: 0, rank };
        let long = vec![b'x'; 2 * MAX_PAYLOAD + 1];
        let to = |rank, bytes: &[u8]| EventKind::ToServer { proc: proc(rank), bytes: Bytes(bytes.to_vec()) };
        let from =
            |rank, bytes: &[u8]| EventKind::FromServer { proc: proc(rank), bytes: Bytes(bytes.to_vec()) };
        let kinds = [
            to(0, b"cmd=in"),
            to(1, b"cmd=get_maxes\n"),
            to(0, b"it\n"),
            from(0, &long),
            EventKind::ClosedByServer { proc: proc(0) },
        ];
        let events: Vec<Event> =
            kinds.into_iter().zip(0..).map(|(kind, seq)| Event::new(seq, kind)).collect();
        let results = vec![tests::result("a/1", Verdict::Pass), tests::result("a/2", Verdict::Pass)];
        let of_scenario = |name: &str| (name.to_owned(), events.clone());
        let run = Run {
            results,
            events: [of_scenario("a/1"), of_scenario("a/2")].into(),
            cut: Vec::new(),
            ..tests::run()
        };
        let mut capture = Vec::new();
        render(&run, Format::Pcapng, Verbosity::Normal, &mut capture).unwrap();
        let mut seen: Vec<Vec<u8>> = streams(&capture).into_values().collect();
        seen.sort();
        let once = [&b"cmd=init\n"[..], b"cmd=get_maxes\n", &long, b""].map(<[u8]>::to_vec);
        let mut expected = [once.clone(), once].concat();
        expected.sort();
        assert!(seen == expected, "{} streams", seen.len());
        let names = |name: &[u8]| capture.windows(name.len()).filter(|window| window == &name).count();
        assert_eq!([names(b"a/1: process 0"), names(b"a/2: process 1")], [1, 1]);
    }
}

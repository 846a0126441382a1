//! Benchmarks for parsing KVS traffic and process mappings.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use pmi_wire::{Decoded, Direction, Framer, Framing, Message, Operation, ProcessMapping, ValueReading};

const READINGS: [ValueReading; 2] = [ValueReading::ToEndOfLine, ValueReading::ToBlank];
/// The lengths of an address, of a long business card, and of a value just under Hydra's `vallen_max`.
const LENGTHS: [usize; 3] = [32, 256, 1000];

fn main() {
    divan::main();
}

/// Returns lines with a total size of about 1 MiB.
fn traffic(length: usize, mut write: impl FnMut(&[u8], &[u8], &mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let value = b"0123456789ABCDEF".repeat(length.div_ceil(16));
    for i in 0.. {
        if bytes.len() >= 1 << 20 {
            break;
        }
        write(format!("P{i}-businesscard").as_bytes(), &value[..length], &mut bytes);
    }
    bytes
}

fn puts(length: usize) -> Vec<u8> {
    traffic(length, |key, value, out| {
        let fields = [("kvsname", b"kvs_4711_0".to_vec()), ("key", key.to_vec()), ("value", value.to_vec())];
        out.extend(Operation::Put.exchange().write_request(Framing::Lines, &fields));
    })
}

fn get_results(length: usize) -> Vec<u8> {
    traffic(length, |_, value, out| {
        out.extend_from_slice(b"cmd=get_result rc=0 msg=success value=");
        out.extend_from_slice(value);
        out.push(b'\n');
    })
}

fn cases() -> impl Iterator<Item = (ValueReading, usize)> {
    READINGS.into_iter().flat_map(|reading| LENGTHS.map(|length| (reading, length)))
}

/// Pushes bytes into a framer in chunks, as they would arrive from a socket, and passes each line to `each`.
fn lines(bytes: &[u8], mut each: impl FnMut(&[u8])) {
    let mut framer = Framer::new(4096);
    for chunk in bytes.chunks(1 << 16) {
        framer.push(chunk);
        while let Some(line) = framer.next_line() {
            each(line.unwrap());
        }
    }
}

#[divan::bench(args = LENGTHS)]
fn frame(bencher: Bencher, length: usize) {
    let bytes = puts(length);
    bencher.counter(BytesCount::of_slice(&bytes)).bench(|| lines(&bytes, |line| _ = black_box(line)));
}

#[divan::bench(args = cases())]
fn frame_and_message(bencher: Bencher, (reading, length): (ValueReading, usize)) {
    let bytes = puts(length);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench(|| lines(&bytes, |line| _ = black_box(Message::parse(line, reading).unwrap())));
}

#[divan::bench(args = cases())]
fn frame_and_request(bencher: Bencher, (reading, length): (ValueReading, usize)) {
    let bytes = puts(length);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench(|| lines(&bytes, |line| _ = black_box(Decoded::line(Direction::ToServer, line, reading))));
}

#[divan::bench(args = cases())]
fn frame_and_response(bencher: Bencher, (reading, length): (ValueReading, usize)) {
    let bytes = get_results(length);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench(|| lines(&bytes, |line| _ = black_box(Decoded::line(Direction::FromServer, line, reading))));
}

const RANKS: u32 = 4096 * 256;

#[divan::bench]
fn mapping_expand_block(bencher: Bencher) {
    let mapping = ProcessMapping::parse(b"(vector,(0,4096,256))").unwrap();
    bencher.counter(ItemsCount::new(RANKS)).bench(|| black_box(&mapping).expand(RANKS));
}

#[divan::bench]
fn mapping_compress_block(bencher: Bencher) {
    let nodes: Vec<u32> = (0..RANKS).map(|rank| rank / 256).collect();
    bencher.counter(ItemsCount::new(RANKS)).bench(|| ProcessMapping::compress(black_box(&nodes)));
}

#[divan::bench]
fn mapping_compress_cyclic(bencher: Bencher) {
    let nodes: Vec<u32> = (0..RANKS).map(|rank| rank % 4096).collect();
    bencher.counter(ItemsCount::new(RANKS)).bench(|| ProcessMapping::compress(black_box(&nodes)));
}

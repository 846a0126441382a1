//! Target: the parser of spawn requests, the only requests that consist of several lines.
//!
//! Input: a byte that selects whether lines or the fields of a request follow, and the lines or the fields (see `input`).

use arbitrary::Unstructured;
use pmi_wire::{SpawnCollector, SpawnError, SpawnLimits, SpawnProgram, SpawnRequest};

use crate::input::{Arena, byte, number};
use crate::{memory, planted};

const LIMITS: SpawnLimits = SpawnLimits { max_bytes: 2048, max_elements: 16, max_programs: 8 };

/// Checks that arbitrary lines are parsed without a panic and within the limits. A printed request must be parsed as the same request, even
/// if the lines of a block are reordered.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    if *kind < 128 {
        lines(rest);
    } else {
        fields(rest);
    }
}

fn lines(text: &[u8]) {
    let before = memory::live();
    let mut collector = SpawnCollector::new(LIMITS);
    let mut begun = 0;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if !collector.in_request() {
            begun = at;
        }
        match collector.push_line(line) {
            Ok(Some(request)) => {
                assert!(!collector.in_request(), "the collector is still in a request that has ended");
                check_request(&request);
            }
            Ok(None) => {
                assert!(collector.in_request(), "the collector is not in a request, but has returned none")
            }
            Err(SpawnError { line, kind: fault }) => {
                assert!(
                    line >= 1 && line <= at - begun + 1,
                    "the error is in line {line}, but the request has {} lines: {fault}",
                    at - begun + 1
                );
                assert!(!collector.in_request(), "the collector did not drop an invalid request");
                assert!(!fault.to_string().is_empty());
            }
        }
    }
    // The factor is large, because even a line of a few bytes occupies a tree node.
    memory::check(before, 64 * LIMITS.max_bytes, "the collector");
}

fn check_request(request: &SpawnRequest) {
    assert!(!request.programs.is_empty() && request.programs.len() as u64 <= LIMITS.max_programs);
    for program in &request.programs {
        for elements in [program.args.len(), program.preput.len(), program.info.len()] {
            assert!(elements as u64 <= LIMITS.max_elements);
        }
        assert_eq!(program.totspawns.max(1), request.programs.len() as u64);
    }
    // The default limits apply here, because printed numbers may be slightly longer than the parsed ones.
    assert_eq!(collect(&print(request), false).as_ref(), Some(request), "printing changes the request");
}

fn fields(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let turned = byte(&mut u) & 1 == 1;
    let total = u64::from(byte(&mut u) % 3) + 1;
    let programs = (1..=total).map(|number| program(&mut u, number, total)).collect();
    let request = SpawnRequest { programs };
    assert_eq!(collect(&print(&request), turned), Some(request));
}

fn program(u: &mut Unstructured<'_>, spawnssofar: u64, totspawns: u64) -> SpawnProgram {
    let mut arena = Arena::new();
    let base = u64::from(byte(u) & 1);
    let text = |u: &mut Unstructured<'_>, arena: &mut Arena| {
        let text = arena.string(u);
        arena.get(text).to_vec()
    };
    let key = |u: &mut Unstructured<'_>, arena: &mut Arena| {
        let text = arena.word(u);
        arena.get(text).to_vec()
    };
    let mut execname = text(u, &mut arena);
    execname.push(b'x');
    SpawnProgram {
        nprocs: number(u),
        execname,
        totspawns,
        spawnssofar,
        args: (base..base + u64::from(byte(u) % 5)).map(|index| (index, text(u, &mut arena))).collect(),
        preput: (0..byte(u) % 4).map(|_| (key(u, &mut arena), text(u, &mut arena))).collect(),
        info: (0..byte(u) % 4).map(|_| (text(u, &mut arena), text(u, &mut arena))).collect(),
    }
}

fn print(request: &SpawnRequest) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    for program in &request.programs {
        program.write_to(&mut out);
    }
    if planted::is("third-argument-lost") && request.programs.len() > 1 {
        let text = String::from_utf8_lossy(&out).replace("arg2=", "argh=");
        return text.into_bytes();
    }
    out
}

/// Parses a request. If `turned` is true, the lines within its blocks are reversed first.
fn collect(text: &[u8], turned: bool) -> Option<SpawnRequest> {
    let mut collector = SpawnCollector::new(SpawnLimits::default());
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines.pop(), Some(&b""[..]), "the last line does not end with a newline");
    let mut result = None;
    for block in lines.split_inclusive_mut(|line| *line == b"endcmd") {
        let inner = block.len() - 1;
        if turned {
            block[1..inner].reverse();
        }
        for line in block {
            assert_eq!(result, None, "a request ended early");
            result = match collector.push_line(line) {
                Ok(result) => result,
                Err(error) => panic!("{error}: {}", line.escape_ascii()),
            };
        }
    }
    result
}

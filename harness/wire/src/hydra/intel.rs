//! The encoding of the control protocol of Intel MPI's proxy. The headers and commands of this protocol differ from those of MPICH's
//! protocol. The module does no I/O.
//!
//! The proxy sends no init record, and forwards the fields of requests rather than their text. This module restores the text, so that all
//! families look the same to users of the codecs.

use super::record::{BODY_MAX, CodecError, ProxyMessage, ReceivedFrame};
use super::unread::Unread;
use super::vector::GroupLaunch;

const HEAD: usize = 20;

fn int(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |four| i32::from_ne_bytes(*four))
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    (0..bytes.len() / 4).map(|i| int(bytes, i * 4)).collect()
}

/// Splits `bytes` into strings of the given lengths, without their terminating NULs. Returns `None` if a length is negative or `bytes` is
/// too short.
fn split_strings(mut bytes: &[u8], lengths: &[i32]) -> Option<Vec<Vec<u8>>> {
    let mut list = Vec::new();
    for length in lengths {
        let (head, tail) = bytes.split_at_checked(usize::try_from(*length).ok()?)?;
        list.push(head.strip_suffix(b"\0").unwrap_or(head).to_vec());
        bytes = tail;
    }
    Some(list)
}

/// Parses a list of strings: their count, their lengths and the strings themselves.
fn read_list(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let count = usize::try_from(int(body, 0)).ok()?;
    let lengths = body.get(4..count.checked_mul(4)?.checked_add(4)?)?;
    split_strings(&body[4 + lengths.len()..], &ints(lengths))
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = (items.len() as i32).to_ne_bytes().to_vec();
    out.extend(items.iter().flat_map(|item| (item.len() as i32).to_ne_bytes()));
    out.extend(items.iter().flatten());
    out
}

fn frame(kind: i32, numbers: [i32; 3], body: &[u8]) -> Vec<u8> {
    let head = [kind, body.len() as i32, numbers[0], numbers[1], numbers[2]];
    let mut out: Vec<u8> = head.into_iter().flat_map(i32::to_ne_bytes).collect();
    out.extend_from_slice(body);
    out
}

fn string(text: &[u8]) -> Vec<u8> {
    [text, b"\0"].concat()
}

/// Returns the next complete record.
pub(super) fn next(unread: &mut Unread) -> Result<Option<ReceivedFrame>, CodecError> {
    let rest = unread.rest();
    if rest.len() < HEAD {
        return Ok(None);
    }
    let (kind, length) = (int(rest, 0), int(rest, 4));
    let numbers = [int(rest, 8), int(rest, 12), int(rest, 16)];
    let wrong = CodecError::Length { command: kind, length };
    let size = match kind {
        // This command has no body, regardless of its length field.
        16 => 0,
        17..=27 => usize::try_from(length).ok().filter(|n| *n <= BODY_MAX).ok_or(wrong.clone())?,
        _ => return Err(CodecError::Command(kind)),
    };
    let Some(body) = rest.get(HEAD..HEAD + size) else { return Ok(None) };
    let text = body.strip_suffix(b"\0").unwrap_or(body);
    let request = |route, parts: &[&[u8]]| ProxyMessage::Request { route, text: parts.concat() };
    let what = match kind {
        16 => request(0, &[b"cmd=barrier_in"]),
        17 | 18 => ProxyMessage::Output { stderr: kind == 18, bytes: body.to_vec() },
        19 => ProxyMessage::Puts(pairs(body, numbers[1]).ok_or(wrong)?),
        20 => ProxyMessage::Pids(ints(&body[..body.len() / 2])),
        21 => ProxyMessage::Ended(
            ints(&body[..body.len() / 2]).into_iter().map(|code| (code & 0xff) << 8).collect(),
        ),
        22 => ProxyMessage::Request { route: numbers[1], text: spawn(text) },
        23 => match read_list(body).as_deref() {
            Some([service, port]) => {
                request(numbers[2], &[b"cmd=publish_name service=", service, b" port=", port])
            }
            _ => return Err(wrong),
        },
        24 => request(numbers[2], &[b"cmd=unpublish_name service=", text]),
        25 => request(numbers[2], &[b"cmd=lookup_name service=", text]),
        27 => request(0, &[b"cmd=abort exitcode=", numbers[0].to_string().as_bytes()]),
        _ => return Err(CodecError::Command(kind)),
    };
    unread.read(HEAD + size);
    Ok(Some(ReceivedFrame { group: None, message: what }))
}

/// Returns a spawn request as its client wrote it. Restores the first and last line of each program's block, which the proxy may leave out.
fn spawn(text: &[u8]) -> Vec<u8> {
    let mut out = b"mcmd=spawn\n".to_vec();
    let mut begun = false;
    for line in text.split(|b| *b == b'\n') {
        let first = line.starts_with(b"nprocs=");
        if first && begun {
            out.extend_from_slice(b"endcmd\nmcmd=spawn\n");
        }
        begun |= first;
        if !matches!(line, b"" | b"endcmd" | b"mcmd=spawn") {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
    out.extend_from_slice(b"endcmd");
    out
}

/// Parses alternating keys and values: first their lengths, and then the strings.
fn pairs(body: &[u8], count: i32) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let size = usize::try_from(count).ok()?.checked_mul(8)?;
    let lengths = ints(body.get(..size)?);
    let strings = split_strings(&body[size..], &lengths)?;
    Some(strings.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

pub(super) fn launch(launch: &GroupLaunch) -> Vec<u8> {
    let mut out = frame(0, [0; 3], b"");
    let spawned = launch.parent.iter().map(|_| b"PMI_SPAWNED=1".to_vec()).collect::<Vec<_>>();
    out.extend(frame(1, [0; 3], &list(&spawned)));
    let dir = launch.blocks.iter().find_map(|b| b.program.dir.clone());
    if let Some(dir) = dir.or_else(|| launch.dir.clone()) {
        out.extend(frame(2, [0; 3], &string(&dir)));
    }
    for block in &launch.blocks {
        let (argv, none) = (list(&block.program.argv), list(&[]));
        let count = block.total_count as i32;
        out.extend(frame(3, [count, argv.len() as i32, none.len() as i32], &[argv, none].concat()));
    }
    out.extend(frame(8, [0; 3], &string(&launch.mapping)));
    out.extend(frame(4, [0; 3], &string(&launch.kvsname)));
    out.extend(frame(5, [0; 3], b""));
    out.extend(frame(15, [0; 3], b""));
    out
}

pub(super) fn response(group: i32, proxy: i32, route: i32, text: &[u8]) -> Vec<u8> {
    frame(11, [proxy, group, route], text)
}

pub(super) fn barrier_out() -> Vec<u8> {
    frame(6, [0; 3], b"")
}

pub(super) fn cache(group: i32, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let strings: Vec<Vec<u8>> = pairs.iter().flat_map(|(k, v)| [string(k), string(v)]).collect();
    let mut body: Vec<u8> = strings.iter().flat_map(|s| (s.len() as i32).to_ne_bytes()).collect();
    body.extend(strings.into_iter().flatten());
    frame(7, [group, pairs.len() as i32, 0], &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intel_decoder_reads_requests_byte_by_byte() {
        let mut unread = Unread::default();
        let mut barrier = frame(16, [0; 3], b"");
        barrier[4] = 99;
        let mut publish = frame(23, [0, 0, 7], &list(&[b"svc".to_vec(), b"p=1".to_vec()]));
        publish.extend(frame(27, [5, 0, 0], b""));
        publish.extend(frame(21, [0; 3], &[3_i32, 0, 0, 0].map(i32::to_ne_bytes).concat()));
        let up = |unread: &mut Unread| next(unread).unwrap().map(|r| r.message);
        for byte in barrier.iter().chain(&publish) {
            unread.push(&[*byte]);
            if unread.rest().len() < HEAD {
                assert_eq!(next(&mut unread), Ok(None));
            }
            if let Some(ProxyMessage::Request { route, text }) = up(&mut unread) {
                let expected: (i32, &[u8]) = match &text[4..7] {
                    b"bar" => (0, b"cmd=barrier_in"),
                    b"pub" => (7, b"cmd=publish_name service=svc port=p=1"),
                    _ => (0, b"cmd=abort exitcode=5"),
                };
                assert_eq!((route, &text[..]), expected);
            }
        }
        assert_eq!(unread.rest(), b"");
    }

    #[test]
    fn intel_decoder_reads_puts_and_rejects_bad_counts() {
        let some = vec![(b"k".to_vec(), b"v 1".to_vec()), (b"k2".to_vec(), Vec::new())];
        let mut bytes = cache(0, &some);
        bytes[0] = 19;
        let mut unread = Unread::default();
        unread.push(&bytes);
        assert_eq!(next(&mut unread).unwrap().unwrap().message, ProxyMessage::Puts(some));
        for (kind, body) in [(19, &b"\xff\xff\xff\x7f"[..]), (23, b"\xff\xff\xff\xff"), (3, b"")] {
            let mut unread = Unread::default();
            unread.push(&frame(kind, [0, i32::MAX, 0], body));
            assert!(next(&mut unread).is_err());
        }
    }
}

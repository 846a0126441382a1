//! Mutations of the names and values in requests. The bytes that matter to an implementation are unknown, and a launch takes as long as
//! hundreds of requests, so one session changes many bytes. If the original case reads a value back, the mutated case does so too.

use std::collections::HashMap;

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{ImplementationKind, Piece, Statement, Template};

use crate::session::decisions::{percent, pick};
use crate::session::statement::{AwaitedResponse, ServerStep, sent, sent_mut, wait};

/// Keys of fields that contain a name.
const NAMES: [&[u8]; 3] = [b"key", b"service", b"name"];
/// Keys of fields that contain the data stored under a name.
const CONTENTS: [&[u8]; 2] = [b"value", b"port"];

/// Percentage of names and contents that are changed.
const CHANGE_PERCENT: u32 = 50;

/// Characters with a special meaning in some syntax.
const PUNCTUATION: &[u8] = b"%$\\'\"`{}<>()[]/:,.*?-_+@#&|~^!";

/// Changes some names and contents in a line.
pub(crate) fn contents(line: &mut Template, u: &mut Unstructured<'_>) -> Result<()> {
    rewrite(line, |_, old| if percent(u)? < CHANGE_PERCENT { other(old, u) } else { Ok(old.to_vec()) })
}

/// Changes some names and contents. A name is changed in the same way wherever it occurs.
pub(super) fn change(body: &mut [Statement], u: &mut Unstructured<'_>) -> Result<()> {
    let mut renamed: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for line in
        body.iter_mut().filter_map(|statement| sent_mut(statement, ImplementationKind::Server)).flatten()
    {
        rewrite(line, |key, old| {
            if CONTENTS.contains(&key) {
                return if percent(u)? < CHANGE_PERCENT { other(old, u) } else { Ok(old.to_vec()) };
            }
            if let Some(new) = renamed.get(old) {
                return Ok(new.clone());
            }
            let new = if percent(u)? < CHANGE_PERCENT { other(old, u)? } else { old.to_vec() };
            renamed.insert(old.to_vec(), new.clone());
            Ok(new)
        })?;
    }
    Ok(())
}

/// Replicates a request many times, with different names or contents. If later requests ask for the original name, requests for the new
/// names are added.
pub(super) fn replicate_request(body: &mut Vec<Statement>, u: &mut Unstructured<'_>) -> Result<()> {
    let has_name = |statement: &Statement| name_of(statement).is_some();
    let all: Vec<usize> = (0..body.len()).filter(|at| has_name(&body[*at])).collect();
    if all.is_empty() {
        return Ok(());
    }
    // Prefer puts, which cover more than gets.
    let puts: Vec<usize> = all.iter().copied().filter(|at| !requests_content(&body[*at])).collect();
    let any = puts.is_empty() || u.ratio(1, 4)?;
    let at = pick(u, if any { &all } else { &puts })?;
    let (Some((rank, old)), requests) = (name_of(&body[at]), requests_content(&body[at])) else {
        return Ok(());
    };
    let reads = (at + 1..body.len()).find(|later| {
        requests_content(&body[*later]) && name_of(&body[*later]).is_some_and(|(_, name)| name == old)
    });
    // Half of the time, filler letters are removed, so that content of the maximum length has room for other bytes.
    let shorter: bool = u.arbitrary()?;
    let (mut made, mut read) = (Vec::new(), Vec::new());
    for number in 0..pick(u, &[32, 100])? {
        let other_name = requests || u.arbitrary()?;
        let name =
            if other_name { other(&old, u)? } else { [&old[..], number.to_string().as_bytes()].concat() };
        let mut new = |statement: &Statement, rank| -> Result<[Statement; 2]> {
            let mut statement = statement.clone();
            for line in sent_mut(&mut statement, ImplementationKind::Server).into_iter().flatten() {
                line.pieces.retain(|piece| !(shorter && matches!(piece, Piece::Fill(_))));
                rewrite(line, |key, text| match (CONTENTS.contains(&key), other_name) {
                    (true, true) => Ok(text.to_vec()),
                    (true, false) => other(text, u),
                    (false, _) => Ok(name.clone()),
                })?;
            }
            Ok([statement, wait(rank, AwaitedResponse::Optional)])
        };
        made.extend(new(&body[at], rank)?);
        if let Some(later) = reads
            && let Some((rank, _)) = name_of(&body[later])
        {
            read.extend(new(&body[later], rank)?);
        }
    }
    // The new gets follow the responses to the original requests.
    if let Some(later) = reads {
        let after = text_after(body, later);
        body.splice(after..after, read);
    }
    let after = text_after(body, at);
    body.splice(after..after, made);
    Ok(())
}

/// Returns the position after a request and its response.
fn text_after(body: &[Statement], at: usize) -> usize {
    let answered = body.get(at + 1).and_then(ServerStep::of);
    at + if matches!(answered, Some(ServerStep::Wait { .. })) { 2 } else { 1 }
}

/// Returns whether a request asks for contents instead of containing them.
fn requests_content(statement: &Statement) -> bool {
    let mut found = false;
    for line in sent(statement, ImplementationKind::Server).into_iter().flatten() {
        // The result can be ignored, because the closure never fails.
        let _ = rewrite(&mut line.clone(), |key, old| {
            found |= CONTENTS.contains(&key);
            Ok(old.to_vec())
        });
    }
    !found
}

/// Returns the rank that makes a request, and the name in the request. Returns `None` unless the request is a single message with a name.
fn name_of(statement: &Statement) -> Option<(u32, Vec<u8>)> {
    let Some(ServerStep::Write { rank, lines: [line], partial: false, .. }) = ServerStep::of(statement)
    else {
        return None;
    };
    let mut name = None;
    let _ = rewrite(&mut line.clone(), |key, old| {
        if NAMES.contains(&key) {
            name = Some(old.to_vec());
        }
        Ok(old.to_vec())
    });
    Some((rank, name?))
}

/// Replaces the names and contents that occur literally in a line.
fn rewrite(line: &mut Template, mut new: impl FnMut(&[u8], &[u8]) -> Result<Vec<u8>>) -> Result<()> {
    for piece in &mut line.pieces {
        let Piece::Literal { bytes, .. } = piece else { continue };
        let mut all = Vec::new();
        for tuple in bytes.split_inclusive(|b| b" ;".contains(b)) {
            let end = tuple.len() - usize::from(tuple.ends_with(b" ") || tuple.ends_with(b";"));
            let (text, after) = tuple.split_at(end);
            match text.iter().position(|b| *b == b'=') {
                // If no literal value follows the equals sign, the value is in the next piece and stays unchanged.
                Some(equals) if equals + 1 < end => {
                    let (key, old) = (&text[..equals], &text[equals + 1..]);
                    let known = NAMES.contains(&key) || CONTENTS.contains(&key);
                    all.extend_from_slice(&text[..=equals]);
                    all.extend(if known { new(key, old)? } else { old.to_vec() });
                }
                _ => all.extend_from_slice(text),
            }
            all.extend_from_slice(after);
        }
        *bytes = all;
    }
    Ok(())
}

/// Returns a copy of `old` in which up to two bytes are replaced, inserted or removed.
fn other(old: &[u8], u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut new = old.to_vec();
    for _ in 0..u.int_in_range(1..=2)? {
        let last = new.len().saturating_sub(1);
        let at = match u.int_in_range(0..=2)? {
            0 => u.int_in_range(0..=last.min(3))?,
            1 => last - u.int_in_range(0..=last.min(1))?,
            _ => u.int_in_range(0..=last)?,
        };
        let byte = match percent(u)? {
            0..35 => u.int_in_range(b'a'..=b'z')?,
            35..70 => pick(u, PUNCTUATION)?,
            70..80 => u.int_in_range(b'0'..=b'9')?,
            80..90 => u.int_in_range(b'A'..=b'Z')?,
            // Repeat a byte of the string.
            90..95 => pick(u, &new)?,
            _ => u.int_in_range(0x80..=0xff)?,
        };
        match percent(u)? {
            0..65 => new[at] = byte,
            65..90 => new.insert(at + u.int_in_range(0..=1)?, byte),
            _ if new.len() > 1 => drop(new.remove(at)),
            _ => {}
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::decisions::draw_bytes;
    use crate::session::pieces::{bytes_of, literal, template};
    use crate::session::statement::write_as;
    use pmi_scenario::ast::Encoding;

    fn body(lines: &[&str]) -> Vec<Statement> {
        let write = |text: &&str| write_as(0, Encoding::Dialect, vec![template(vec![literal(*text)])], false);
        lines.iter().map(write).collect()
    }

    fn texts(body: &[Statement]) -> Vec<Vec<u8>> {
        body.iter()
            .filter_map(|statement| sent(statement, ImplementationKind::Server))
            .flatten()
            .map(bytes_of)
            .collect()
    }

    #[test]
    fn key_mutation_applies_to_every_use_of_the_key() {
        let lines =
            ["cmd=put kvsname=a key=one value=one", "cmd=get kvsname=a key=one", "cmd=get key= thrid=7"];
        let mut differ = 0;
        for number in 0..200 {
            let mut body = body(&lines);
            change(&mut body, &mut Unstructured::new(&draw_bytes(3, number))).unwrap();
            let texts = texts(&body);
            let key = texts[1].strip_prefix(b"cmd=get kvsname=a key=".as_slice()).unwrap();
            let put = [b"cmd=put kvsname=a key=", key, b" value="].concat();
            assert!(texts[0].starts_with(&put), "{texts:?}");
            assert_eq!(texts[2], lines[2].as_bytes());
            differ += usize::from(key != b"one");
        }
        assert!((60..140).contains(&differ), "{differ}");
    }

    #[test]
    fn each_replicated_put_is_read_back() {
        let lines = ["cmd=put kvsname=a key=one value=1", "cmd=barrier_in", "cmd=get kvsname=a key=one"];
        let mut most = 0;
        for number in 0..50 {
            let mut body = body(&lines);
            replicate_request(&mut body, &mut Unstructured::new(&draw_bytes(3, number))).unwrap();
            let texts = texts(&body);
            let barrier = texts.iter().position(|line| line == b"cmd=barrier_in").unwrap();
            let key = |line: &Vec<u8>| {
                let text = line.split(|b| *b == b' ').find_map(|tuple| tuple.strip_prefix(b"key="));
                text.unwrap().to_vec()
            };
            let put: Vec<_> = texts[..barrier].iter().map(key).collect();
            let got: Vec<_> = texts[barrier + 1..].iter().map(key).collect();
            assert!(put.len() == 1 || put == got, "{put:?} {got:?}");
            most = most.max(put.len());
        }
        assert_eq!(most, 101);
    }
}

//! Steps that change bytes: a value, a key, a name, the process mapping, a request, or the bytes of a read.

use pmi_wire::port::Greeting;
use pmi_wire::{HEADER, MappingForm, frame_length, place, protocol};

use super::line::command;
use super::step::{Editable, UnknownStep, VerbAndArguments, byte, fill, number};
use crate::circumstances::Circumstances;

impl Editable for Vec<u8> {
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep> {
        let filled = |text| fill(text, circumstances).into_bytes();
        match words {
            ["if-empty"] => return Ok(self.is_empty()),
            ["if-length", length] => return Ok(self.len() == number::<usize>(length)?),
            ["if-longer", length] => return Ok(self.len() > number::<usize>(length)?),
            ["if-is", text] => return Ok(*self == text.as_bytes()),
            ["if-has", text] => return Ok(self.contains(&byte(text)?)),
            ["if-starts", text] => return Ok(self.starts_with(text.as_bytes())),
            ["if-ends", text] => return Ok(self.ends_with(text.as_bytes())),
            ["if-several"] => return Ok(circumstances.size > 1),
            ["clear"] => self.clear(),
            ["set", text] => *self = filled(text),
            ["append", text] => self.extend(filled(text)),
            ["prepend", text] => drop(self.splice(0..0, filled(text))),
            ["truncate", length] => self.truncate(number(length)?),
            ["drop-first"] => *self = self.split_off(1.min(self.len())),
            ["drop-last"] => self.truncate(self.len().saturating_sub(1)),
            ["drop-last", count] => self.truncate(self.len().saturating_sub(number(count)?)),
            ["pad", with, length] => self.resize(number(length)?, byte(with)?),
            ["cut", at] => {
                let at = byte(at)?;
                self.truncate(self.iter().position(|b| *b == at).unwrap_or(self.len()));
            }
            ["cut-second", at] => {
                let at = byte(at)?;
                let second = self.iter().enumerate().filter(|(_, b)| **b == at).nth(1);
                self.truncate(second.map_or(self.len(), |(at, _)| at));
            }
            ["without", bytes] => self.retain(|b| !bytes.as_bytes().contains(b)),
            ["swap", from, to] => {
                let (from, to) = (byte(from)?, byte(to)?);
                self.iter_mut().filter(|b| **b == from).for_each(|b| *b = to);
            }
            ["replace", from, to] => {
                if let Some(at) = memchr::memmem::find(self, from.as_bytes()) {
                    self.splice(at..at + from.len(), filled(to)).for_each(drop);
                }
            }
            ["dedup", repeated] => {
                let repeated = byte(repeated)?;
                self.dedup_by(|a, b| *a == repeated && *b == repeated);
            }
            ["trim"] => *self = self.trim_ascii().to_vec(),
            ["reverse"] => self.reverse(),
            ["lower"] => self.make_ascii_lowercase(),
            ["upper"] => self.make_ascii_uppercase(),
            ["seven-bits"] => self.iter_mut().for_each(|b| *b &= 0x7f),
            ["bump", by] => {
                let by: i64 = number(&fill(by, circumstances))?;
                *self = (decimal(self).unwrap_or(0) + by).to_string().into_bytes();
            }
            ["modulo", by] => {
                let by: i64 = number(by)?;
                *self = decimal(self).map_or(self.clone(), |n| (n % by).to_string().into_bytes());
            }
            ["number"] => *self = decimal(self).map_or(self.clone(), |n| n.to_string().into_bytes()),
            ["sum"] => *self = self.iter().map(|b| u32::from(*b)).sum::<u32>().to_string().into_bytes(),
            ["correct-command", way] => return correct_command(self, way),
            _ => return read(self, words).or_else(|_| name(self, words, circumstances)),
        }
        Ok(true)
    }
}

fn decimal(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Returns the length of the first frame, including its header.
pub(crate) fn first_frame(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().and_then(|header| frame_length(*header)).map(|length| HEADER + length)
}

/// Replaces an unknown command with a similar known command. Depending on `way`, the known command is a prefix of the unknown command,
/// begins with the unknown command, or differs from the unknown command only in case.
fn correct_command(bytes: &mut Vec<u8>, way: &str) -> Result<bool, UnknownStep> {
    let word = command(bytes).to_ascii_lowercase();
    let is_similar = |known: &[u8]| match way {
        "longer" => word.starts_with(known),
        "shorter" => known.starts_with(&word),
        _ => known == word,
    };
    if !matches!(way, "longer" | "shorter" | "case") {
        return Err(UnknownStep);
    }
    let requests = || protocol::all_exchanges().map(|exchange| exchange.request.as_bytes());
    if word.is_empty() || requests().any(|known| known == command(bytes)) {
        return Ok(true);
    }
    if let Some(known) = requests().find(|known| is_similar(known)) {
        let start = b"cmd=".len();
        bytes.splice(start..start + word.len(), known.iter().copied()).for_each(drop);
    }
    Ok(true)
}

/// Applies a step to the bytes of a read.
fn read(bytes: &mut Vec<u8>, words: VerbAndArguments) -> Result<bool, UnknownStep> {
    let first_frame = first_frame(bytes);
    match words {
        ["first-line"] => {
            bytes.truncate(bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |end| end + 1));
        }
        ["whole-lines"] => bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1)),
        ["end-line"] if !bytes.ends_with(b"\n") => bytes.push(b'\n'),
        ["end-line"] => {}
        ["reverse-lines"] => {
            let mut lines: Vec<_> = bytes.split_inclusive(|b| *b == b'\n').collect();
            lines.reverse();
            *bytes = lines.concat();
        }
        ["first-frame"] => bytes.truncate(first_frame.unwrap_or(bytes.len())),
        ["whole-frames"] => {
            if first_frame != Some(bytes.len()) && !bytes.ends_with(b"\n") {
                bytes.clear();
            }
        }
        _ => return Err(UnknownStep),
    }
    Ok(true)
}

/// Applies a step to the name of a keyval space, the process mapping, or the greeting at a port.
fn name(
    bytes: &mut Vec<u8>,
    words: VerbAndArguments,
    circumstances: &Circumstances,
) -> Result<bool, UnknownStep> {
    let Circumstances { group, size, nodes, .. } = *circumstances;
    let places = place(size, nodes);
    let mapping = |blocks: Vec<String>| format!("(vector,{})", blocks.join(",")).into_bytes();
    let block = |text: &str, node: u32| {
        let here = places.iter().filter(|place| **place == node).count() as u32;
        fill(text, &Circumstances { rank: node, size: here, ..*circumstances })
    };
    let nodes = 0..nodes.min(size);
    match words {
        ["longest"] => {
            bytes.resize(255, b'n');
            bytes.splice(..1, group.to_string().bytes()).for_each(drop);
            bytes.truncate(255);
        }
        ["shortest"] => {
            let visible: Vec<u8> = (b'!'..=b'~').filter(|b| *b != b'=' && *b != b';').collect();
            let (group, count) = (group as usize, visible.len());
            let second = (group >= count).then(|| visible[group / count % count]);
            *bytes = [visible[(group + 64) % count]].into_iter().chain(second).collect();
        }
        ["digits"] => {
            bytes.iter_mut().filter(|b| !b.is_ascii_digit()).for_each(|b| *b = b'0' + *b % 10);
        }
        ["greet", size, rank] => {
            let value = |text| number(&fill(text, circumstances));
            *bytes = Greeting { size: value(size)?, rank: value(rank)? }.lines(false).into();
        }
        ["mpich"] => {
            if let MappingForm::Rfc(mapping) = MappingForm::classify(bytes) {
                *bytes = mapping.mpich().to_string().into_bytes();
            }
        }
        ["mpich-repeated"] => {
            let ranks = |run: &[u32]| format!("[{}]x{}", run[0], run.len());
            *bytes = mapping(places.chunk_by(|a, b| a == b).map(ranks).collect());
        }
        // Here, `{rank}` is the node, and `{size}` the number of ranks on it.
        ["blocks", text] => *bytes = mapping(nodes.map(|node| block(text, node)).collect()),
        ["block-for-each-rank"] => {
            let blocks = nodes.map(|node| {
                let here = places.iter().filter(|place| **place == node).count();
                vec![format!("({node},1,1)"); here].join(",")
            });
            *bytes = mapping(blocks.collect());
        }
        ["room-to-spare"] => {
            let last = nodes.end.saturating_sub(1);
            let text = |node| if node == last { "({rank},1,{size+3})" } else { "({rank},1,{size})" };
            *bytes = mapping(nodes.map(|node| block(text(node), node)).collect());
        }
        _ => return Err(UnknownStep),
    }
    Ok(true)
}

//! The spawn request: several lines in PMI-1 (RFC 13, "Spawn Operation" and the rule `C:spawn`), and a single frame in PMI-2.

use crate::error::DecodeError;
use crate::grammar::{
    Rule, first_bad_byte, is_blank, is_string, is_uint, is_word, parse_int, parse_uint, trim_blanks,
};
use crate::pmi2::{Body, write_tuple};
use crate::protocol::{self, Framing};
use crate::writer::put_tuple;
use memchr::memchr;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// A program in a spawn request: a block from `mcmd=spawn` to `endcmd`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpawnProgram {
    /// The requested number of processes.
    pub nprocs: u64,
    /// The name of the executable, a `string`.
    pub execname: Vec<u8>,
    /// The number of programs in the request; 0 in a parsed frame, because a frame does not repeat the number in each program.
    pub totspawns: u64,
    /// The number of this program, starting at 1; 0 in a parsed frame, in which programs have no numbers.
    pub spawnssofar: u64,
    /// The arguments in index order, each with its index as written.
    pub args: Vec<(u64, Vec<u8>)>,
    /// Keys (`word`) and values to put into the new keyval space, in index order. Indices start at 0. In a parsed frame, the first program
    /// has all pairs.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
    /// Info keys and values, in index order. Indices start at 0.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SpawnProgram {
    /// Returns the index of the first argument: 0 in the RFC, 1 in MPICH. Returns `None` if there are no arguments.
    pub fn args_base(&self) -> Option<u64> {
        self.args.first().map(|(index, _)| *index)
    }

    /// Appends the block, including its newlines, in the order of the RFC's rule. The bytes of the fields are not checked.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut line = |key: &str, value: &[u8]| {
            put_tuple(out, key, value);
            out.push(b'\n');
        };
        let number = |number: usize| number.to_string().into_bytes();
        line("mcmd", b"spawn");
        line("nprocs", self.nprocs.to_string().as_bytes());
        line("execname", &self.execname);
        line("totspawns", self.totspawns.to_string().as_bytes());
        line("spawnssofar", self.spawnssofar.to_string().as_bytes());
        for (index, arg) in &self.args {
            line(&format!("arg{index}"), arg);
        }
        line("argcnt", &number(self.args.len()));
        for (name, pairs) in [("preput", &self.preput), ("info", &self.info)] {
            line(&format!("{name}_num"), &number(pairs.len()));
            for (index, (key, value)) in pairs.iter().enumerate() {
                line(&format!("{name}_key_{index}"), key);
                line(&format!("{name}_val_{index}"), value);
            }
        }
        out.extend_from_slice(b"endcmd\n");
    }
}

/// A spawn request: the programs in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpawnRequest {
    /// The programs. A parsed request has at least one program.
    pub programs: Vec<SpawnProgram>,
}

impl SpawnRequest {
    /// Returns the number of requested processes.
    pub fn processes(&self) -> u64 {
        self.programs.iter().fold(0, |n, program| n.saturating_add(program.nprocs))
    }

    /// Reads the body of a frame. The keys of a program follow its `subcmd`. Returns `None` for a request without programs. Such requests
    /// exist in the draft, which defines a separate message for each program.
    pub(crate) fn of_body(body: &Body<'_>) -> Result<Option<Self>, DecodeError> {
        let mut sections = vec![SpawnSection::default()];
        for tuple in body.tuples() {
            if tuple.key == b"subcmd" {
                sections.push(SpawnSection::default());
            }
            if let Some(last) = sections.last_mut() {
                last.add(tuple.key, body.unescape(tuple.value))?;
            }
        }
        let head = &sections[0];
        let ncmds = head.count("ncmds", None)?;
        let preput = head.pairs("preputcount", ["ppkey", "ppval"])?;
        if sections.len() == 1 && !head.0.contains_key(&b"maxprocs"[..]) && ncmds > 0 {
            return Ok(None);
        }
        let mut programs = sections[1..].iter().map(SpawnSection::program).collect::<Result<Vec<_>, _>>()?;
        match programs.first_mut() {
            Some(first) if sections.len() as u64 - 1 == ncmds => first.preput = preput,
            _ => return Err(SpawnSection::bad("ncmds", "the number of programs")),
        }
        Ok(Some(Self { programs }))
    }

    /// Appends the body of a frame in the order of the draft. The preput pairs of all programs come first, and the arguments of each
    /// program are numbered from 0.
    pub fn write_body(&self, thrid: Option<&[u8]>, out: &mut Vec<u8>) {
        write_tuple(out, "cmd", b"spawn");
        thrid.into_iter().for_each(|thrid| write_tuple(out, "thrid", thrid));
        write_tuple(out, "ncmds", self.programs.len().to_string().as_bytes());
        let preput: Vec<_> = self.programs.iter().flat_map(|program| &program.preput).collect();
        write_pairs(out, "preputcount", ["ppkey", "ppval"], &preput);
        for program in &self.programs {
            write_tuple(out, "subcmd", &program.execname);
            write_tuple(out, "maxprocs", program.nprocs.to_string().as_bytes());
            write_tuple(out, "argc", program.args.len().to_string().as_bytes());
            for (i, (_, arg)) in program.args.iter().enumerate() {
                write_tuple(out, &format!("argv{i}"), arg);
            }
            let info: Vec<_> = program.info.iter().collect();
            write_pairs(out, "infokeycount", ["infokey", "infoval"], &info);
        }
    }
}

/// Appends the number of pairs, and the pairs under numbered keys.
fn write_pairs(out: &mut Vec<u8>, count: &str, [key, value]: [&str; 2], pairs: &[&(Vec<u8>, Vec<u8>)]) {
    write_tuple(out, count, pairs.len().to_string().as_bytes());
    for (i, (own_key, own_value)) in pairs.iter().enumerate() {
        write_tuple(out, &format!("{key}{i}"), own_key);
        write_tuple(out, &format!("{value}{i}"), own_value);
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The keys and values in a section of a spawn request in a frame: the section before the first `subcmd`, or that of a program.
#[derive(Default)]
struct SpawnSection(HashMap<Vec<u8>, Vec<u8>>);

impl SpawnSection {
    /// Maximum number of programs, arguments or pairs.
    const MAX_COUNT: u64 = 100_000;

    fn bad(key: &'static str, expected: &'static str) -> DecodeError {
        DecodeError::BadValue { key, rule: Rule::Uint, expected }
    }

    /// Adds a tuple. A key of the command may occur only once in a section (requirement `pmi2.common.tuples`). For other keys, the first
    /// value counts.
    fn add(&mut self, key: &[u8], value: Cow<'_, [u8]>) -> Result<(), DecodeError> {
        if !self.0.contains_key(key) {
            self.0.insert(key.to_vec(), value.into_owned());
            return Ok(());
        }
        let key = String::from_utf8_lossy(key);
        let mut known =
            protocol::by_request(Framing::Frames, b"spawn").into_iter().flat_map(|row| row.arguments);
        let is_known = known.any(|field| field.matches_key(&key)) || key == "cmd";
        if is_known { Err(DecodeError::RepeatedKey(key.into_owned().into())) } else { Ok(()) }
    }

    /// Returns the number under a key. If the key is missing, returns `default`, or an error if `default` is `None`.
    fn number(&self, key: &'static str, default: Option<u64>) -> Result<u64, DecodeError> {
        match (self.0.get(key.as_bytes()), default) {
            (Some(value), _) => parse_uint(value).ok_or(DecodeError::value(key, Rule::Uint, Framing::Frames)),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(DecodeError::MissingKey(key.into())),
        }
    }

    /// Returns the number of programs, arguments or pairs under a key. If the key is missing, returns `default`, or an error if `default`
    /// is `None`. Also returns an error if the number exceeds the limit.
    fn count(&self, key: &'static str, default: Option<u64>) -> Result<u64, DecodeError> {
        let value = self.number(key, default)?;
        let is_bounded = value <= Self::MAX_COUNT;
        if is_bounded { Ok(value) } else { Err(Self::bad(key, "a number within the server's limits")) }
    }

    /// Returns the values of `count` numbered keys.
    fn list(&self, prefix: &str, count: u64) -> Result<Vec<Vec<u8>>, DecodeError> {
        let value = |i| {
            let key = format!("{prefix}{i}");
            self.0.get(key.as_bytes()).cloned().ok_or(DecodeError::MissingKey(key.into()))
        };
        (0..count).map(value).collect()
    }

    /// Returns the numbered pairs under two keys. The value of `count` is the number of pairs.
    fn pairs(&self, count: &'static str, keys: [&str; 2]) -> Result<Pairs, DecodeError> {
        let count = self.count(count, Some(0))?;
        Ok(self.list(keys[0], count)?.into_iter().zip(self.list(keys[1], count)?).collect())
    }

    fn program(&self) -> Result<SpawnProgram, DecodeError> {
        let argc = self.count("argc", Some(0))?;
        let info = self.pairs("infokeycount", ["infokey", "infoval"]);
        Ok(SpawnProgram {
            execname: self.0.get(&b"subcmd"[..]).cloned().unwrap_or_default(),
            nprocs: self.number("maxprocs", None)?,
            args: (0..).zip(self.list("argv", argc)?).collect(),
            info: info?,
            ..SpawnProgram::default()
        })
    }
}

/// Limits for a spawn request. They keep a peer from exhausting the reader's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnLimits {
    /// Maximum number of bytes in a request, including newlines.
    pub max_bytes: usize,
    /// Maximum number of elements of each kind (arguments, preput pairs, info pairs) in a block.
    pub max_elements: u64,
    /// Maximum number of programs in a request.
    pub max_programs: u64,
}

impl Default for SpawnLimits {
    /// Returns limits of 1 MiB, 1024 programs, and 65536 elements of each kind in a program.
    fn default() -> Self {
        Self { max_bytes: 1 << 20, max_elements: 1 << 16, max_programs: 1 << 10 }
    }
}

/// An error in a spawn request, with its line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} contains an error: {kind}")]
pub struct SpawnError {
    /// The number of the line within the block; `mcmd=spawn` is line 1. Missing keys are detected at `endcmd`.
    pub line: usize,
    /// The kind of the error.
    pub kind: SpawnErrorKind,
}

/// The kind of an error in a spawn request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpawnErrorKind {
    /// A line came before `mcmd=spawn`.
    #[error("the block does not begin with \"mcmd=spawn\"")]
    OutsideBlock,
    /// A message for a different operation, or another `mcmd`, came before `endcmd`. The RFC forbids this.
    #[error("another message before \"endcmd\"")]
    Interspersed,
    /// A byte is neither space, tab nor visible ASCII.
    #[error("byte 0x{byte:02x} at offset {at} is neither space, tab nor visible ASCII")]
    BadByte {
        /// The byte's offset in the line.
        at: usize,
        /// The invalid byte.
        byte: u8,
    },
    /// A line has no `=` or no key.
    #[error("the line is neither key=value nor \"endcmd\"")]
    Malformed,
    /// A value does not match its rule.
    #[error("the value of \"{key}\" is not {expected}")]
    BadValue {
        /// The key of the value.
        key: String,
        /// The rule for the value.
        expected: Rule,
    },
    /// The index in a key such as `arg-1` is not an unsigned integer.
    #[error("the index in \"{key}\" is not an unsigned integer below 2^64")]
    BadIndex {
        /// The key with the invalid index.
        key: String,
        /// The rule for the index: an `int` for arguments, and a `uint` for pairs.
        expected: Rule,
    },
    /// A key appears more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(String),
    /// A key that each block requires is missing.
    #[error("the key \"{0}\" is missing")]
    MissingKey(&'static str),
    /// The key of a pair is missing, because either its index was skipped or only the other half of the pair is present.
    #[error("the key \"{0}\" is missing")]
    MissingElement(String),
    /// The argument with this number is missing, but a later argument is present. The numbers begin with 0 or 1.
    #[error("the key \"arg{0}\" is missing")]
    MissingArgument(u64),
    /// A count disagrees with the number of elements.
    #[error("\"{key}\" is {declared}, but the number of elements is {seen}")]
    CountMismatch {
        /// The count's key.
        key: &'static str,
        /// The value of the count.
        declared: u64,
        /// The number of elements.
        seen: u64,
    },
    /// The request exceeds a limit in [`SpawnLimits`].
    #[error("more than {limit} {what}")]
    TooMany {
        /// The limited quantity.
        what: &'static str,
        /// The value of the limit.
        limit: u64,
    },
    /// `totspawns` or `spawnssofar` is inconsistent with the blocks before it.
    #[error("\"{key}\" is {found} instead of {expected}")]
    Numbering {
        /// The key with the unexpected value.
        key: &'static str,
        /// The expected value.
        expected: u64,
        /// The actual value.
        found: u64,
    },
}

/// Assembles a program from the lines of its block. The lines between the first and the last may be in any order.
///
/// Arguments may be numbered from 0 (the RFC) or from 1 (MPICH). After a block or an error, the next `mcmd=spawn` begins a new block.
#[derive(Debug, Clone)]
pub struct SpawnAssembler {
    limits: SpawnLimits,
    block: Option<PartialSpawnProgram>,
    /// Number of lines in the current block.
    lines: usize,
}

#[derive(Debug, Clone, Default)]
struct PartialSpawnProgram {
    bytes: usize,
    execname: Option<Vec<u8>>,
    /// The values, indexed by position in [`NUMBERS`].
    numbers: [Option<u64>; NUMBERS.len()],
    /// The elements, indexed by position in [`INDEXED`].
    indexed: [BTreeMap<u64, Vec<u8>>; INDEXED.len()],
}

const NUMBERS: [&str; 6] = ["nprocs", "totspawns", "spawnssofar", "argcnt", "preput_num", "info_num"];
const INDEXED: [&str; 5] = ["arg", "preput_key_", "preput_val_", "info_key_", "info_val_"];

impl SpawnAssembler {
    /// Creates an assembler that accepts blocks within the limits.
    pub fn new(limits: SpawnLimits) -> Self {
        Self { limits, block: None, lines: 0 }
    }

    /// Returns whether a line, given without its newline, begins a spawn request.
    pub fn is_spawn_start(line: &[u8]) -> bool {
        trim_blanks(line) == b"mcmd=spawn"
    }

    /// Returns whether a block has begun but not ended.
    pub fn in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Adds a line without its newline. Returns the program at `endcmd`.
    ///
    /// # Errors
    ///
    /// Returns an error if the line or the block is invalid. The block is then dropped.
    pub fn push_line(&mut self, line: &[u8]) -> Result<Option<SpawnProgram>, SpawnError> {
        if self.block.is_none() {
            self.lines = 0;
        }
        self.lines += 1;
        self.take(line).map_err(|fault| {
            self.block = None;
            SpawnError { line: self.lines, kind: fault }
        })
    }

    fn take(&mut self, line: &[u8]) -> Result<Option<SpawnProgram>, SpawnErrorKind> {
        let Some(draft) = &mut self.block else {
            if !Self::is_spawn_start(line) {
                return Err(SpawnErrorKind::OutsideBlock);
            }
            self.block =
                Some(PartialSpawnProgram { bytes: line.len() + 1, ..PartialSpawnProgram::default() });
            return Ok(None);
        };
        draft.bytes = draft.bytes.saturating_add(line.len() + 1);
        if draft.bytes > self.limits.max_bytes {
            return Err(SpawnErrorKind::TooMany { what: "bytes", limit: self.limits.max_bytes as u64 });
        }
        if trim_blanks(line) == b"endcmd" {
            return match self.block.take() {
                Some(draft) => draft.finish().map(Some),
                None => Ok(None),
            };
        }
        draft.line(line, &self.limits).map(|()| None)
    }
}

impl PartialSpawnProgram {
    fn line(&mut self, line: &[u8], limits: &SpawnLimits) -> Result<(), SpawnErrorKind> {
        if let Some(at) = first_bad_byte(line) {
            return Err(SpawnErrorKind::BadByte { at, byte: line[at] });
        }
        let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
        let line = &line[blanks..];
        let equals = memchr(b'=', line).filter(|at| *at > 0).ok_or(SpawnErrorKind::Malformed)?;
        let (key, value) = (&line[..equals], &line[equals + 1..]);
        if matches!(key, b"cmd" | b"mcmd") {
            return Err(SpawnErrorKind::Interspersed);
        }
        let name = || String::from_utf8_lossy(key).into_owned();
        if key == b"execname" {
            if !is_string(value) {
                return Err(SpawnErrorKind::BadValue { key: name(), expected: Rule::String });
            }
            return set_once(&mut self.execname, value.to_vec(), name);
        }
        if let Some(i) = NUMBERS.iter().position(|number| number.as_bytes() == key) {
            let number = parse_uint(trim_blanks(value))
                .ok_or_else(|| SpawnErrorKind::BadValue { key: name(), expected: Rule::Uint })?;
            let (what, limit) = match NUMBERS[i] {
                "totspawns" => ("programs", limits.max_programs),
                "argcnt" => ("arguments", limits.max_elements),
                "preput_num" => ("preput elements", limits.max_elements),
                "info_num" => ("info elements", limits.max_elements),
                _ => ("", u64::MAX),
            };
            if number > limit {
                return Err(SpawnErrorKind::TooMany { what, limit });
            }
            return set_once(&mut self.numbers[i], number, name);
        }
        let indexed = INDEXED.iter().enumerate().find_map(|(i, prefix)| {
            let index = key.strip_prefix(prefix.as_bytes())?;
            // "argument1" is an unknown key, which is ignored, but "arg-1" has an invalid index.
            let signs = index.iter().take_while(|byte| b"+-".contains(byte)).count();
            is_uint(&index[signs..]).then_some((i, index))
        });
        let Some((i, index)) = indexed else {
            return Ok(());
        };
        let (index, expected) = match INDEXED[i] {
            "arg" => (parse_int(index).and_then(|index| u64::try_from(index).ok()), Rule::Int),
            _ => (parse_uint(index), Rule::Uint),
        };
        let index = index.ok_or_else(|| SpawnErrorKind::BadIndex { key: name(), expected })?;
        if INDEXED[i] == "preput_key_" && !is_word(value) {
            return Err(SpawnErrorKind::BadValue { key: name(), expected: Rule::Word });
        }
        if self.indexed[i].len() as u64 >= limits.max_elements {
            return Err(SpawnErrorKind::TooMany { what: "elements", limit: limits.max_elements });
        }
        match self.indexed[i].insert(index, value.to_vec()) {
            None => Ok(()),
            Some(_) => Err(SpawnErrorKind::RepeatedKey(name())),
        }
    }

    fn finish(self) -> Result<SpawnProgram, SpawnErrorKind> {
        let [args, preput_keys, preput_vals, info_keys, info_vals] = self.indexed;
        let mut numbers = [0; NUMBERS.len()];
        for ((number, found), key) in numbers.iter_mut().zip(self.numbers).zip(NUMBERS) {
            *number = found.ok_or(SpawnErrorKind::MissingKey(key))?;
        }
        let [nprocs, totspawns, spawnssofar, argcnt, preput_num, info_num] = numbers;
        let base = u64::from(!args.contains_key(&0));
        if let Some(index) = first_missing_index(&args, base) {
            return Err(SpawnErrorKind::MissingArgument(index));
        }
        count("argcnt", argcnt, args.len())?;
        Ok(SpawnProgram {
            nprocs,
            execname: self.execname.ok_or(SpawnErrorKind::MissingKey("execname"))?,
            totspawns,
            spawnssofar,
            args: args.into_iter().collect(),
            preput: pairs("preput", preput_num, preput_keys, preput_vals)?,
            info: pairs("info", info_num, info_keys, info_vals)?,
        })
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, name: impl Fn() -> String) -> Result<(), SpawnErrorKind> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(SpawnErrorKind::RepeatedKey(name())),
    }
}

fn first_missing_index(elements: &BTreeMap<u64, Vec<u8>>, base: u64) -> Option<u64> {
    elements.keys().zip(base..).find(|(index, expected)| *index != expected).map(|(_, expected)| expected)
}

fn count(key: &'static str, declared: u64, seen: usize) -> Result<(), SpawnErrorKind> {
    let seen = seen as u64;
    if declared == seen { Ok(()) } else { Err(SpawnErrorKind::CountMismatch { key, declared, seen }) }
}

fn pairs(
    name: &str,
    declared: u64,
    keys: BTreeMap<u64, Vec<u8>>,
    mut values: BTreeMap<u64, Vec<u8>>,
) -> Result<Pairs, SpawnErrorKind> {
    if let Some(index) = values.keys().find(|index| !keys.contains_key(index)) {
        return Err(SpawnErrorKind::MissingElement(format!("{name}_key_{index}")));
    }
    if let Some(index) = first_missing_index(&keys, 0) {
        return Err(SpawnErrorKind::MissingElement(format!("{name}_key_{index}")));
    }
    count(if name == "info" { "info_num" } else { "preput_num" }, declared, keys.len())?;
    keys.into_iter()
        .map(|(index, key)| match values.remove(&index) {
            Some(value) => Ok((key, value)),
            None => Err(SpawnErrorKind::MissingElement(format!("{name}_val_{index}"))),
        })
        .collect()
}

/// Collects all blocks of a spawn request. As in MPICH, a request has `totspawns` blocks, and `spawnssofar` is the number of the block,
/// starting at 1. The RFC's wire protocol does not specify requests with several programs.
#[derive(Debug, Clone)]
pub struct SpawnCollector {
    assembler: SpawnAssembler,
    programs: Vec<SpawnProgram>,
    /// Number of bytes in the current request, which is limited by [`SpawnLimits::max_bytes`].
    bytes: usize,
}

impl SpawnCollector {
    /// Creates a collector that accepts requests within the limits.
    pub fn new(limits: SpawnLimits) -> Self {
        Self { assembler: SpawnAssembler::new(limits), programs: Vec::new(), bytes: 0 }
    }

    /// Returns whether a request has begun but not ended. If so, the next line belongs to this request.
    pub fn in_request(&self) -> bool {
        self.assembler.in_block() || !self.programs.is_empty()
    }

    /// Adds a line without its newline. Returns the request at the `endcmd` of its last program.
    ///
    /// # Errors
    ///
    /// Returns an error if the line, the block or the request is invalid. The request is then dropped, and the next `mcmd=spawn` begins a
    /// new request.
    pub fn push_line(&mut self, line: &[u8]) -> Result<Option<SpawnRequest>, SpawnError> {
        if !self.in_request() {
            self.bytes = 0;
        }
        self.take(line).inspect_err(|_| {
            self.assembler.block = None;
            self.programs.clear();
        })
    }

    fn take(&mut self, line: &[u8]) -> Result<Option<SpawnRequest>, SpawnError> {
        self.bytes = self.bytes.saturating_add(line.len() + 1);
        let limit = self.assembler.limits.max_bytes;
        if self.bytes > limit {
            let fault = SpawnErrorKind::TooMany { what: "bytes", limit: limit as u64 };
            let line = if self.assembler.in_block() { self.assembler.lines + 1 } else { 1 };
            return Err(SpawnError { line, kind: fault });
        }
        let Some(program) = self.assembler.push_line(line)? else { return Ok(None) };
        let number = self.programs.len() as u64 + 1;
        let total = self.programs.first().map_or(program.totspawns.max(1), |first| first.totspawns);
        let order = [("totspawns", total, program.totspawns), ("spawnssofar", number, program.spawnssofar)];
        if let Some((key, expected, found)) = order.into_iter().find(|(_, expected, found)| expected != found)
        {
            let fault = SpawnErrorKind::Numbering { key, expected, found };
            return Err(SpawnError { line: self.assembler.lines, kind: fault });
        }
        self.programs.push(program);
        if number < total {
            return Ok(None);
        }
        Ok(Some(SpawnRequest { programs: std::mem::take(&mut self.programs) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, Direction};
    use rstest::rstest;

    /// A request in the format of MPICH's client, which numbers arguments from 1.
    const MPICH: &str = "mcmd=spawn\nnprocs=2\nexecname=./child\ntotspawns=1\nspawnssofar=1\narg1=-v\narg2=a b=c\n\
        argcnt=2\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$description#h$\n\
        info_num=1\ninfo_key_0=wdir\ninfo_val_0=/tmp dir\nendcmd\n";

    const MINIMAL: [&str; 9] = [
        "mcmd=spawn",
        "nprocs=1",
        "execname=a",
        "totspawns=1",
        "spawnssofar=1",
        "argcnt=0",
        "preput_num=0",
        "info_num=0",
        "endcmd",
    ];

    fn collect(limits: SpawnLimits, text: &str) -> Result<Option<SpawnRequest>, SpawnError> {
        let mut collector = SpawnCollector::new(limits);
        let mut result = None;
        for line in text.lines() {
            assert!(result.is_none(), "ended before {line}");
            result = collector.push_line(line.as_bytes())?;
            assert_eq!(collector.in_request(), result.is_none());
        }
        Ok(result)
    }

    /// Returns the error in the minimal block after replacing some lines.
    fn fault(replace: &[(&str, &str)]) -> Option<SpawnError> {
        let mut text = MINIMAL.join("\n");
        for (from, to) in replace {
            assert!(text.contains(from));
            text = text.replace(from, to);
        }
        collect(SpawnLimits::default(), &text).err()
    }

    #[test]
    fn mpich_spawn_request_round_trips() {
        let request = collect(SpawnLimits::default(), MPICH).unwrap().unwrap();
        let [program] = &request.programs[..] else { panic!("{request:?}") };
        assert_eq!(program.args, [(1, b"-v".to_vec()), (2, b"a b=c".to_vec())]);
        assert_eq!(program.args_base(), Some(1));
        assert_eq!(program.info, [(b"wdir".to_vec(), b"/tmp dir".to_vec())]);
        let mut out = Vec::new();
        program.write_to(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), MPICH);
    }

    #[test]
    fn accepts_blanks_and_reordered_or_extra_keys() {
        let mut lines: Vec<&str> = MPICH.lines().collect();
        let last = lines.len() - 1;
        lines[1..last].reverse();
        lines.insert(3, "argument=no index");
        lines.insert(4, "argument1=no index either");
        lines.insert(5, "info_key_x0=no index");
        let ordered = collect(SpawnLimits::default(), MPICH).unwrap();
        assert_eq!(collect(SpawnLimits::default(), &lines.join("\n")), Ok(ordered));
        assert_eq!(fault(&[("nprocs=1", " \tnprocs= 1 "), ("endcmd", "\tendcmd ")]), None);
    }

    #[rstest]
    #[case(&[("argcnt=0", "argcnt=1")], 9, r#""argcnt" is 1, but the number of elements is 0"#)]
    #[case(&[("argcnt=0", "arg0=a\nargcnt=0")], 10, r#""argcnt" is 0, but the number of elements is 1"#)]
    #[case(&[("argcnt=0", "arg0=a\narg2=b\nargcnt=2")], 11, r#"the key "arg1" is missing"#)]
    #[case(&[("argcnt=0", "arg2=a\nargcnt=1")], 10, r#"the key "arg1" is missing"#)]
    #[case(&[("argcnt=0", "arg-1=a\nargcnt=1")], 6, r#"the index in "arg-1" is not an unsigned integer"#)]
    #[case(&[("argcnt=0", "arg+-1=a\nargcnt=1")], 6, r#"the index in "arg+-1" is not an unsigned integer"#)]
    #[case(&[("argcnt=0", "arg99999999999999999999=a")], 6, "is not an unsigned integer below 2^64")]
    #[case(&[("argcnt=0", "arg1=a\narg01=b\nargcnt=2")], 7, r#"the key "arg01" appears more than once"#)]
    #[case(&[("preput_num=0", "preput_num=1\npreput_key_0=k")], 10, r#""preput_val_0" is missing"#)]
    #[case(&[("preput_num=0", "preput_num=1\npreput_val_0=k")], 10, r#""preput_key_0" is missing"#)]
    #[case(&[("preput_num=0", "preput_num=1\npreput_key_1=k\npreput_val_1=v")], 11, r#""preput_key_0" is missing"#)]
    #[case(&[("preput_num=0", "preput_num=1\npreput_key_0=k k")], 8, r#""preput_key_0" is not one or more"#)]
    #[case(&[("info_num=0", "info_num=2\ninfo_key_0=k\ninfo_val_0=v")], 11, r#""info_num" is 2, but the number of elements is 1"#)]
    #[case(&[("nprocs=1", "nprocs=-1")], 2, r#"the value of "nprocs" is not an unsigned"#)]
    #[case(&[("nprocs=1\n", "")], 8, r#"the key "nprocs" is missing"#)]
    #[case(&[("execname=a\n", "")], 8, r#"the key "execname" is missing"#)]
    #[case(&[("execname=a", "execname=")], 3, r#"the value of "execname" is not one or more"#)]
    #[case(&[("execname=a", "execname=a\nexecname=a")], 4, r#"the key "execname" appears more than once"#)]
    #[case(&[("nprocs=1", "nprocs=1\nnprocs=1")], 3, r#"the key "nprocs" appears more than once"#)]
    #[case(&[("mcmd=spawn\n", "")], 1, r#"does not begin with "mcmd=spawn""#)]
    #[case(&[("execname=a", "mcmd=spawn")], 3, r#"another message before "endcmd""#)]
    #[case(&[("execname=a", "cmd=barrier_in")], 3, r#"another message before "endcmd""#)]
    #[case(&[("execname=a", "execname")], 3, "neither key=value nor")]
    #[case(&[("execname=a", "=a")], 3, "neither key=value nor")]
    #[case(&[("execname=a", "")], 3, "neither key=value nor")]
    #[case(&[("execname=a", "execname=\u{e9}")], 3, "byte 0xc3 at offset 9")]
    #[case(&[("totspawns=1", "totspawns=0")], 9, r#""totspawns" is 0 instead of 1"#)]
    #[case(&[("spawnssofar=1", "spawnssofar=0")], 9, r#""spawnssofar" is 0 instead of 1"#)]
    #[case(&[("totspawns=1", "totspawns=1025")], 4, "more than 1024 programs")]
    #[case(&[("argcnt=0", "argcnt=65537")], 6, "more than 65536 arguments")]
    fn spawn_errors_state_the_line_and_the_cause(
        #[case] replace: &[(&str, &str)],
        #[case] line: usize,
        #[case] text: &str,
    ) {
        let error = fault(replace).expect("a fault");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.line, line, "{error}");
    }

    #[test]
    fn requires_consecutive_numbers_and_equal_totals() {
        let block = |total: u64, number: u64| {
            MINIMAL
                .join("\n")
                .replace("totspawns=1", &format!("totspawns={total}"))
                .replace("spawnssofar=1", &format!("spawnssofar={number}"))
                + "\n"
        };
        let run = |blocks: &[(u64, u64)]| {
            let text: String = blocks.iter().map(|(total, number)| block(*total, *number)).collect();
            collect(SpawnLimits::default(), &text).map(|r| r.map(|r| r.programs.len())).map_err(|e| e.kind)
        };
        assert_eq!(run(&[(3, 1), (3, 2), (3, 3)]), Ok(Some(3)));
        assert_eq!(run(&[(3, 1), (3, 2)]), Ok(None));
        let numbering = |key, expected, found| Err(SpawnErrorKind::Numbering { key, expected, found });
        assert_eq!(run(&[(3, 1), (3, 3)]), numbering("spawnssofar", 2, 3));
        assert_eq!(run(&[(3, 1), (2, 2)]), numbering("totspawns", 3, 2));
    }

    #[test]
    fn limits_bytes_and_elements_of_a_block() {
        let limits = SpawnLimits { max_bytes: 1000, max_elements: 10, max_programs: 1 };
        let mut assembler = SpawnAssembler::new(limits);
        for (line, what) in
            [("x=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", "bytes"), ("arg", "elements")]
        {
            assert_eq!(assembler.push_line(b"mcmd=spawn"), Ok(None));
            let error = (0..100)
                .find_map(|i| {
                    let line = if what == "elements" { format!("arg{i}=") } else { line.to_owned() };
                    assembler.push_line(line.as_bytes()).err()
                })
                .expect("a bound");
            assert!(matches!(error.kind, SpawnErrorKind::TooMany { what: w, .. } if w == what), "{error}");
            assert!(!assembler.in_block());
        }
        for line in &MINIMAL[..8] {
            assert_eq!(assembler.push_line(line.as_bytes()), Ok(None));
        }
        assert!(assembler.push_line(b"endcmd").unwrap().is_some());
    }

    #[test]
    fn programs_of_a_request_share_its_byte_limit() {
        let block = MINIMAL.join("\n") + "\n";
        let limits = SpawnLimits { max_bytes: block.len() * 2, ..SpawnLimits::default() };
        let text = |total: usize| -> String {
            (1..=total)
                .map(|i| {
                    block
                        .replace("totspawns=1", &format!("totspawns={total}"))
                        .replace("far=1", &format!("far={i}"))
                })
                .collect()
        };
        assert!(collect(limits, &text(2)).is_ok());
        let error = collect(limits, &text(3)).unwrap_err();
        assert!(matches!(error.kind, SpawnErrorKind::TooMany { what: "bytes", .. }), "{error}");
    }

    #[rstest]
    #[case(b"mcmd=spawn", true)]
    #[case(b" mcmd=spawn\t", true)]
    #[case(b"mcmd=spawn\r", false)]
    #[case(b"cmd=spawn", false)]
    fn recognizes_the_start_of_a_spawn_request(#[case] line: &[u8], #[case] start: bool) {
        assert_eq!(SpawnAssembler::is_spawn_start(line), start);
    }

    #[test]
    fn frames_may_request_any_number_of_processes() {
        let body = b"cmd=spawn;ncmds=1;subcmd=a;maxprocs=100001;";
        let decoded = Decoded::new(Direction::ToServer, Framing::Frames, body);
        assert_eq!(decoded.error(), None);
        assert_eq!(decoded.spawn().map(SpawnRequest::processes), Some(100_001));
    }

    #[rstest]
    #[case("ncmds=1;subcmd=a;maxprocs=1;maxprocs=2;", Some("maxprocs"))]
    #[case("ncmds=1;ncmds=1;subcmd=a;maxprocs=1;", Some("ncmds"))]
    #[case("thrid=1;thrid=1;ncmds=1;subcmd=a;maxprocs=1;", Some("thrid"))]
    #[case("ncmds=1;subcmd=a;maxprocs=1;argc=1;argv0=x;argv0=y;", Some("argv0"))]
    #[case("ncmds=1;subcmd=a;maxprocs=1;x=1;x=2;", None)]
    #[case("ncmds=2;subcmd=a;maxprocs=1;subcmd=a;maxprocs=1;", None)]
    fn known_keys_may_repeat_only_in_another_program(#[case] tuples: &str, #[case] key: Option<&str>) {
        let body = format!("cmd=spawn;{tuples}");
        let decoded = Decoded::new(Direction::ToServer, Framing::Frames, body.as_bytes());
        let expected = key.map(|key| DecodeError::RepeatedKey(key.to_owned().into()));
        assert_eq!(decoded.error(), expected.as_ref());
    }

    #[test]
    fn spawn_requests_in_frames_round_trip() {
        let text = |end: &str| [b"a;b;;\n\0 =", end.as_bytes()].concat();
        let program = SpawnProgram {
            execname: text("x"),
            nprocs: 3,
            args: vec![(0, text("0")), (1, Vec::new())],
            info: vec![(text("key"), text("value"))],
            ..SpawnProgram::default()
        };
        let first = SpawnProgram { preput: vec![(text("k"), text("v"))], ..program.clone() };
        let request = SpawnRequest { programs: vec![first, program] };
        let mut body = Vec::new();
        request.write_body(Some(b"t;1"), &mut body);
        let decoded = Decoded::new(Direction::ToServer, Framing::Frames, &body);
        assert_eq!(decoded.spawn(), Some(&request), "{:?}", decoded.error());
        assert_eq!(decoded.value("thrid").as_deref(), Some(&b"t;1"[..]));
    }
}

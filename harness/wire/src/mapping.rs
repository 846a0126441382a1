//! `PMI_process_mapping`: which ranks share a node (RFC 13, "Local Process Group Information").

use crate::grammar::parse_uint;
use crate::protocol::Framing;
use std::fmt;
use thiserror::Error;

/// A block of a process mapping: consecutive nodes, each with the same number of consecutive ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MappingBlock {
    /// The id of the first node.
    pub first_node: u64,
    /// The number of nodes.
    pub nodes: u64,
    /// The number of processes on each node.
    pub ppn: u64,
}

/// A mapping of ranks to nodes: rank 0 is the first process of the first block, and so on.
///
/// `Display` writes the RFC's form, which [`ProcessMapping::parse`] reads. A mapping without blocks is written as an empty string, the
/// RFC's form of an unknown mapping.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessMapping {
    /// The blocks in order.
    pub blocks: Vec<MappingBlock>,
}

/// A syntax error in a process mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {expected} at offset {at}")]
pub struct MappingError {
    /// The offset in bytes.
    pub at: usize,
    /// The input that the grammar requires at this offset.
    pub expected: &'static str,
}

/// The error for a mapping that does not cover all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the mapping covers only the first {covered} ranks")]
pub struct TooFewRanks {
    /// The number of covered ranks, starting with rank 0.
    pub covered: u64,
}

/// The key of the process mapping, which the server provides.
pub const MAPPING_KEY: &[u8] = b"PMI_process_mapping";

/// The form of a value of `PMI_process_mapping`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingForm {
    /// A mapping in the RFC's form.
    Rfc(ProcessMapping),
    /// The empty value: the mapping is unknown.
    Unknown,
    /// A mapping in MPICH's form, which also allows white space between elements, a bare node id for a node with a single process
    /// (`(vector,0)`), and repetition (`(vector,[(0,2,1)]x2)`).
    Mpich(ProcessMapping),
    /// The value is not a mapping. The error describes the first violation of the RFC's form.
    NotAMapping(MappingError),
}

impl MappingForm {
    /// Parses a value of `PMI_process_mapping` in all known forms.
    pub fn classify(value: &[u8]) -> Self {
        if value.is_empty() {
            return Self::Unknown;
        }
        match ProcessMapping::parse(value) {
            Ok(mapping) => Self::Rfc(mapping),
            Err(error) => parse(value, true).map_or(Self::NotAMapping(error), Self::Mpich),
        }
    }

    /// Returns the mapping if its form is allowed in a message of this framing. PMI-1 requires RFC 13's form. For PMI-2, no standard
    /// defines the form, and MPICH's servers and clients support both forms.
    pub fn allowed(&self, framing: Framing) -> Option<&ProcessMapping> {
        match self {
            Self::Rfc(mapping) => Some(mapping),
            Self::Mpich(mapping) => (framing == Framing::Frames).then_some(mapping),
            Self::Unknown | Self::NotAMapping(_) => None,
        }
    }
}

impl ProcessMapping {
    /// Parses the RFC's form, which requires at least one block and forbids white space.
    ///
    /// # Errors
    ///
    /// Returns an error if the value violates the grammar, or if a number is 2^64 or more.
    pub fn parse(value: &[u8]) -> Result<Self, MappingError> {
        parse(value, false)
    }

    /// Returns the node of each of the first `size` ranks.
    ///
    /// Takes time and memory proportional to `size` and the number of blocks, regardless of the numbers in the blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the mapping covers fewer than `size` ranks. Nodes with ids of 2^32 and above are ignored.
    pub fn expand(&self, size: u32) -> Result<Vec<u32>, TooFewRanks> {
        let covered = self.covered();
        if covered < u64::from(size) { Err(TooFewRanks { covered }) } else { Ok(self.nodes(size as usize)) }
    }

    /// Returns the node of each of the first `size` ranks. After the last block, starts over with the first one, as MPICH does.
    ///
    /// # Errors
    ///
    /// Returns an error if the blocks cover no ranks, or if they reach a node id of 2^32 or more before they cover `size` ranks.
    pub fn expand_wrapping(&self, size: u32) -> Result<Vec<u32>, TooFewRanks> {
        let covered = self.covered();
        let cut = self.blocks.iter().any(|block| block.usable_nodes() < block.nodes);
        if covered >= u64::from(size) {
            return Ok(self.nodes(size as usize));
        }
        if covered == 0 || cut {
            return Err(TooFewRanks { covered });
        }
        let round = self.nodes(covered as usize);
        Ok(round.iter().copied().cycle().take(size as usize).collect())
    }

    /// Returns a short mapping for ranks on these nodes. Consecutive ranks on the same node form a run, and runs of the same length on
    /// consecutive nodes form a block.
    pub fn compress(nodes: &[u32]) -> Self {
        let mut blocks: Vec<MappingBlock> = Vec::new();
        for run in nodes.chunk_by(|a, b| a == b) {
            let (node, ppn) = (u64::from(run[0]), run.len() as u64);
            match blocks.last_mut() {
                Some(block) if block.ppn == ppn && block.first_node + block.nodes == node => block.nodes += 1,
                _ => blocks.push(MappingBlock { first_node: node, nodes: 1, ppn }),
            }
        }
        Self { blocks }
    }

    /// Returns the form that MPICH has written since 4.1. A node with a single process is written as its id, and a repeated sequence of
    /// blocks is written once, followed by the repeat count. [`MappingForm::classify`] reads this form.
    pub fn mpich(&self) -> impl fmt::Display + use<'_> {
        MpichForm(&self.blocks)
    }

    /// Returns the number of ranks before the first node whose id does not fit into 32 bits.
    fn covered(&self) -> u64 {
        let mut covered = 0u64;
        for block in &self.blocks {
            covered = covered.saturating_add(block.usable_nodes().saturating_mul(block.ppn));
            if block.usable_nodes() < block.nodes {
                break;
            }
        }
        covered
    }

    /// Returns the nodes of the first `size` ranks, which must be covered.
    fn nodes(&self, size: usize) -> Vec<u32> {
        let mut nodes = Vec::with_capacity(size);
        for block in self.blocks.iter().filter(|block| block.ppn > 0) {
            for offset in 0..block.usable_nodes() {
                let room = size - nodes.len();
                if room == 0 {
                    return nodes;
                }
                let count = usize::try_from(block.ppn).map_or(room, |ppn| ppn.min(room));
                nodes.resize(nodes.len() + count, (block.first_node + offset) as u32);
            }
        }
        nodes
    }
}

impl MappingBlock {
    /// Returns the number of nodes whose ids fit into 32 bits. If the block has no processes, returns the number of all nodes, because no
    /// rank uses their ids.
    fn usable_nodes(&self) -> u64 {
        if self.ppn == 0 {
            return self.nodes;
        }
        self.nodes.min((1u64 << 32).saturating_sub(self.first_node))
    }
}

impl fmt::Display for ProcessMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blocks.is_empty() {
            return Ok(());
        }
        f.write_str("(vector")?;
        for MappingBlock { first_node, nodes, ppn } in &self.blocks {
            write!(f, ",({first_node},{nodes},{ppn})")?;
        }
        f.write_str(")")
    }
}

/// Maximum number of blocks in a repeated sequence. The limit keeps the search for repetitions in a long mapping fast.
const MAX_REPEATED_PART: usize = 64;

struct MpichForm<'a>(&'a [MappingBlock]);

impl MpichForm<'_> {
    /// Returns the length and the repeat count of the leading sequence whose repetitions cover the most blocks.
    fn repetition(rest: &[MappingBlock]) -> Option<(usize, usize)> {
        let times = |period: usize| {
            let first = &rest[..period];
            (period, rest.chunks(period).take_while(|chunk| *chunk == first).count())
        };
        let periods =
            (1..=(rest.len() / 2).min(MAX_REPEATED_PART)).map(times).filter(|(_, times)| *times > 1);
        periods.rev().max_by_key(|(period, times)| period * times)
    }
}

impl fmt::Display for MpichForm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = |f: &mut fmt::Formatter<'_>, block: &MappingBlock| match block {
            MappingBlock { first_node, nodes: 1, ppn: 1 } => write!(f, "{first_node}"),
            MappingBlock { first_node, nodes, ppn } => write!(f, "({first_node},{nodes},{ppn})"),
        };
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("(vector")?;
        let mut at = 0;
        while at < self.0.len() {
            f.write_str(",")?;
            let repeated = Self::repetition(&self.0[at..]);
            let (period, times) = repeated.unwrap_or((1, 1));
            f.write_str(if repeated.is_some() { "[" } else { "" })?;
            for (number, each) in self.0[at..at + period].iter().enumerate() {
                f.write_str(if number > 0 { "," } else { "" })?;
                block(f, each)?;
            }
            if repeated.is_some() {
                write!(f, "]x{times}")?;
            }
            at += period * times;
        }
        f.write_str(")")
    }
}

fn parse(value: &[u8], mpich: bool) -> Result<ProcessMapping, MappingError> {
    let mut reader = MappingReader { value, at: 0, mpich };
    reader.expect("(", "\"(vector,\"")?;
    reader.expect("vector", "\"vector,\"")?;
    reader.expect(",", "\",\"")?;
    let mut blocks = Vec::new();
    reader.list(&mut blocks, 0)?;
    reader.expect(")", "\",\" or \")\"")?;
    reader.skip();
    if reader.at < value.len() {
        return Err(MappingError { at: reader.at, expected: "the end of the value" });
    }
    Ok(ProcessMapping { blocks })
}

/// Maximum nesting of repetitions in MPICH's form.
const MAX_REPETITION_DEPTH: u32 = 8;
/// Maximum number of blocks to which a repetition may expand. Without this limit, a few bytes could expand to a huge mapping.
const MAX_REPEATED_BLOCKS: usize = 1 << 16;

struct MappingReader<'a> {
    value: &'a [u8],
    at: usize,
    /// True if MPICH's forms are accepted as well.
    mpich: bool,
}

impl MappingReader<'_> {
    fn list(&mut self, blocks: &mut Vec<MappingBlock>, depth: u32) -> Result<(), MappingError> {
        loop {
            self.item(blocks, depth)?;
            if self.expect(",", "").is_err() {
                return Ok(());
            }
        }
    }

    /// Parses an item: a block or, in MPICH's form, a bare node id for a node with a single process or `[list]xCOUNT`.
    fn item(&mut self, blocks: &mut Vec<MappingBlock>, depth: u32) -> Result<(), MappingError> {
        self.skip();
        let start = self.at;
        if self.mpich && self.value.get(self.at).is_some_and(u8::is_ascii_digit) {
            blocks.push(MappingBlock { first_node: self.uint()?, nodes: 1, ppn: 1 });
            return Ok(());
        }
        if self.mpich && depth < MAX_REPETITION_DEPTH && self.expect("[", "").is_ok() {
            let first = blocks.len();
            self.list(blocks, depth + 1)?;
            self.expect("]", "\"]\"")?;
            self.expect("x", "\"x\" and a count")?;
            let (count, length) = (self.uint()?, blocks.len() - first);
            let total = usize::try_from(count).ok().and_then(|count| count.checked_mul(length));
            if count == 0 || total.is_none_or(|total| total > MAX_REPEATED_BLOCKS) {
                return Err(MappingError {
                    at: start,
                    expected: "a repetition that has a count of at least 1 and expands to at most 65,536 blocks",
                });
            }
            for _ in 1..count {
                blocks.extend_from_within(first..first + length);
            }
            return Ok(());
        }
        self.expect("(", "\"(\" at the start of a block")?;
        let first_node = self.uint()?;
        self.expect(",", "\",\"")?;
        let nodes = self.uint()?;
        self.expect(",", "\",\"")?;
        let ppn = self.uint()?;
        self.expect(")", "\")\" at the end of a block")?;
        blocks.push(MappingBlock { first_node, nodes, ppn });
        Ok(())
    }

    fn skip(&mut self) {
        if self.mpich {
            self.at += self.value[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        }
    }

    fn expect(&mut self, literal: &str, expected: &'static str) -> Result<(), MappingError> {
        self.skip();
        if !self.value[self.at..].starts_with(literal.as_bytes()) {
            return Err(MappingError { at: self.at, expected });
        }
        self.at += literal.len();
        Ok(())
    }

    fn uint(&mut self) -> Result<u64, MappingError> {
        self.skip();
        let rest = &self.value[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = parse_uint(&rest[..digits])
            .ok_or(MappingError { at: self.at, expected: "an unsigned integer below 2^64" })?;
        self.at += digits;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn expand(mapping: &str, size: u32) -> Result<Vec<u32>, TooFewRanks> {
        ProcessMapping::parse(mapping.as_bytes()).unwrap().expand(size)
    }

    // These cases are the examples in the RFC's table.
    #[rstest]
    #[case("(vector,(0,2,2))", &[0, 0, 1, 1])]
    #[case("(vector,(0,2,1),(0,2,1))", &[0, 1, 0, 1])]
    #[case("(vector,(0,2,4))", &[0, 0, 0, 0, 1, 1, 1, 1])]
    #[case("(vector,(0,2,1),(0,2,1),(0,2,1),(0,2,1))", &[0, 1, 0, 1, 0, 1, 0, 1])]
    #[case("(vector,(0,2,2),(2,2,4))", &[0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3])]
    #[case("(vector,(0,4,1),(0,4,1),(2,2,1),(2,2,1))", &[0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 2, 3])]
    fn rfc_examples_round_trip(#[case] text: &str, #[case] nodes: &[u32]) {
        let mapping = ProcessMapping::parse(text.as_bytes()).unwrap();
        assert_eq!(mapping.expand(nodes.len() as u32).unwrap(), nodes);
        assert_eq!(ProcessMapping::compress(nodes), mapping);
        assert_eq!(mapping.to_string(), text);
    }

    #[test]
    fn large_rfc_example_round_trips() {
        let nodes = expand("(vector,(0,4096,256))", 4096 * 256).unwrap();
        assert!(nodes.iter().enumerate().all(|(rank, node)| rank / 256 == *node as usize));
        assert_eq!(ProcessMapping::compress(&nodes).to_string(), "(vector,(0,4096,256))");
    }

    #[rstest]
    #[case("", 0, r#""(vector,""#)]
    #[case("vector,(0,1,1)", 0, r#""(vector,""#)]
    #[case("(matrix,(0,1,1))", 1, r#""vector,""#)]
    #[case("(vector)", 7, r#"",""#)]
    #[case("(vector,)", 8, r#""(" at the start of a block"#)]
    #[case("(vector,0)", 8, r#""(" at the start of a block"#)]
    #[case("(vector,(0,1))", 12, r#"",""#)]
    #[case("(vector,(0,1,))", 13, "an unsigned integer below 2^64")]
    #[case("(vector,(0,-1,1))", 11, "an unsigned integer below 2^64")]
    #[case("(vector,(0,18446744073709551616,1))", 11, "an unsigned integer below 2^64")]
    #[case("(vector,(0,1,1,1))", 14, r#"")" at the end of a block"#)]
    #[case("(vector,(0,1,1)", 15, r#""," or ")""#)]
    #[case("(vector,(0,1,1),)", 16, r#""(" at the start of a block"#)]
    #[case("(vector,(0,2,1)x2)", 15, r#""," or ")""#)]
    #[case("(vector,(0,1,1)) ", 16, "the end of the value")]
    #[case("(vector, (0,1,1))", 8, r#""(" at the start of a block"#)]
    fn mapping_errors_state_the_offset(
        #[case] text: &str,
        #[case] at: usize,
        #[case] expected: &'static str,
    ) {
        assert_eq!(ProcessMapping::parse(text.as_bytes()), Err(MappingError { at, expected }));
    }

    #[rstest]
    #[case("(vector,(0,1,1))", "rfc")]
    #[case("", "unknown")]
    #[case("(vector, (0,1,1), (1,5,3), (6,2, 5))", "mpich")] // from MPICH's own tests
    #[case(" (vector,(0,1,1))\t", "mpich")]
    #[case("(vector,0)", "mpich")] // from Hydra 4.3 and 5.0, one rank
    #[case("(vector,(0,2,2),2,0)", "mpich")] // Hydra since 4.1: 2, 2 and 1 ranks, then 1 more on node 0
    #[case("(vector,[(0,2,1)]x2)", "mpich")]
    #[case("(vector,[(0,2,1)]x18446744073709551615)", "none")]
    #[case("(vector,[[[[[[[[[[[0]x2]x2]x2]x2]x2]x2]x2]x2]x2]x2]x2)", "none")]
    #[case("(vector,[0]x0)", "none")]
    #[case("(vector, (1,1,1), (0,2,2),)", "none")]
    #[case("(vector, (1.11, 2,2))", "none")]
    #[case("XXX, (1,1))", "none")]
    #[case(" ", "none")]
    fn classifies_mapping_forms(#[case] text: &str, #[case] form: &str) {
        let found = match MappingForm::classify(text.as_bytes()) {
            MappingForm::Rfc(_) => "rfc",
            MappingForm::Unknown => "unknown",
            MappingForm::Mpich(_) => "mpich",
            MappingForm::NotAMapping(_) => "none",
        };
        assert_eq!(found, form);
    }

    #[rstest]
    #[case::of_rfc13("(vector,(0,2,1))", [true, true])]
    #[case::of_mpich("(vector,0)", [false, true])]
    #[case::repeated_part("(vector,[(0,2,1)]x2)", [false, true])]
    #[case::unknown("", [false, false])]
    #[case::not_a_mapping("(vector)", [false, false])]
    fn pmi1_allows_only_the_rfc13_form(#[case] text: &str, #[case] allowed: [bool; 2]) {
        let form = MappingForm::classify(text.as_bytes());
        assert_eq!([Framing::Lines, Framing::Frames].map(|framing| form.allowed(framing).is_some()), allowed);
    }

    #[test]
    fn expansion_reports_missing_and_drops_extra_ranks() {
        assert_eq!(expand("(vector,(0,2,2))", 5), Err(TooFewRanks { covered: 4 }));
        assert_eq!(expand("(vector,(0,2,2))", 3), Ok(vec![0, 0, 1]));
        assert_eq!(expand("(vector,(0,2,2))", 0), Ok(vec![]));
        assert_eq!(expand("(vector,(0,0,5),(0,5,0),(3,1,1))", 1), Ok(vec![3]));
    }

    #[test]
    fn parses_mpich_forms_as_blocks() {
        for (form, blocks) in [
            ("(vector,(0,1,2),1)", "(vector,(0,1,2),(1,1,1))"),
            ("(vector,[(0,2,1)]x2)", "(vector,(0,2,1),(0,2,1))"),
            ("(vector,[0,1]x2,5)", "(vector,(0,1,1),(1,1,1),(0,1,1),(1,1,1),(5,1,1))"),
        ] {
            let expected = MappingForm::Mpich(ProcessMapping::parse(blocks.as_bytes()).unwrap());
            assert_eq!(MappingForm::classify(form.as_bytes()), expected, "{form}");
        }
    }

    // The expected texts are the output of Hydra 4.3.2 and 5.0.2 for these placements.
    #[rstest]
    #[case(&[0], "(vector,0)")]
    #[case(&[0, 1], "(vector,(0,2,1))")]
    #[case(&[0, 1, 0, 1], "(vector,[(0,2,1)]x2)")]
    #[case(&[0, 1, 0, 1, 0, 1, 0], "(vector,[(0,2,1)]x3,0)")]
    #[case(&[0, 0, 1, 2], "(vector,(0,1,2),(1,2,1))")]
    #[case(&[0, 0, 1, 2, 0, 0], "(vector,(0,1,2),(1,2,1),(0,1,2))")]
    #[case(&[0, 0, 1, 2, 0, 0, 1], "(vector,(0,1,2),(1,2,1),(0,1,2),1)")]
    fn mpich_form_merges_adjacent_repeats(#[case] nodes: &[u32], #[case] text: &str) {
        let mapping = ProcessMapping::compress(nodes);
        assert_eq!(mapping.mpich().to_string(), text);
    }

    #[test]
    fn mapping_of_no_ranks_is_empty() {
        let mapping = ProcessMapping::compress(&[]);
        assert_eq!((mapping.to_string(), mapping.mpich().to_string()), (String::new(), String::new()));
    }

    #[test]
    fn wrapping_expansion_restarts_at_the_first_block() {
        let mapping = ProcessMapping::parse(b"(vector,(0,3,1),(5,1,2))").unwrap();
        assert_eq!(mapping.expand_wrapping(12).unwrap(), [0, 1, 2, 5, 5, 0, 1, 2, 5, 5, 0, 1]);
        assert_eq!(mapping.expand_wrapping(2).unwrap(), [0, 1]);
        let nothing = ProcessMapping::parse(b"(vector,(0,0,1),(0,1,0))").unwrap();
        assert_eq!(nothing.expand_wrapping(1), Err(TooFewRanks { covered: 0 }));
        assert_eq!(nothing.expand_wrapping(0), Ok(vec![]));
    }

    #[test]
    fn huge_blocks_do_not_slow_expansion() {
        const MAX: u64 = u64::MAX;
        for (blocks, size, expected) in [
            (vec![(0, MAX, MAX)], 3, Ok(vec![0, 0, 0])),
            (vec![(0, MAX, 1)], 3, Ok(vec![0, 1, 2])),
            (vec![(MAX, MAX, 0), (7, 1, MAX)], 2, Ok(vec![7, 7])),
            (vec![(MAX, 0, MAX), (7, 1, MAX)], 2, Ok(vec![7, 7])),
            (vec![(0, 1, 1), (MAX, MAX, MAX), (0, 9, 9)], 2, Err(TooFewRanks { covered: 1 })),
            (vec![(u64::from(u32::MAX), 2, 1)], 1, Ok(vec![u32::MAX])),
            (vec![(u64::from(u32::MAX), 2, 1)], 2, Err(TooFewRanks { covered: 1 })),
            (vec![(0, 1, 1)], u32::MAX, Err(TooFewRanks { covered: 1 })),
        ] {
            let blocks = blocks
                .into_iter()
                .map(|(first_node, nodes, ppn)| MappingBlock { first_node, nodes, ppn })
                .collect();
            let mapping = ProcessMapping { blocks };
            assert_eq!(mapping.expand(size), expected, "{mapping}");
            if mapping.covered() > 1 {
                assert_eq!(mapping.expand_wrapping(size), expected, "{mapping}");
            }
            assert_eq!(ProcessMapping::parse(mapping.to_string().as_bytes()), Ok(mapping));
        }
    }
}

//! Target: the parser and printer of `PMI_process_mapping`, compared with a model that places the ranks one by one.
//!
//! Input: a byte that selects whether a value or the nodes of the ranks follow, two bytes that state the number of ranks, and the value or
//! the nodes.

use pmi_wire::{MappingForm, ProcessMapping, TooFewRanks};

use crate::planted;

/// Checks that parsing reverses printing, that compression is lossless, and that each rank is on the node that a naive reading of the
/// blocks assigns to it.
pub fn run(data: &[u8]) {
    let [form, low, high, rest @ ..] = data else { return };
    let size = u32::from(*low) + (u32::from(high & 0xf) << 8);
    if *form < 160 {
        value(rest, size);
    } else {
        nodes(&ranks(rest, form % 3));
    }
}

fn value(value: &[u8], size: u32) {
    let form = MappingForm::classify(value);
    let strict = ProcessMapping::parse(value);
    let mapping = match (form, strict) {
        (MappingForm::Unknown, Err(_)) => return assert!(value.is_empty()),
        (MappingForm::Rfc(mapping), Ok(same)) => {
            assert_eq!(mapping, same);
            mapping
        }
        (MappingForm::Mpich(mapping), Err(error)) => {
            assert!(error.at <= value.len());
            mapping
        }
        (MappingForm::NotAMapping(error), Err(same)) => {
            assert_eq!(error, same);
            return assert!(error.at <= value.len());
        }
        (form, strict) => panic!("classified as {form:?}, parsed as {strict:?}"),
    };
    assert!(!mapping.blocks.is_empty());
    let printed = mapping.to_string();
    assert_eq!(ProcessMapping::parse(printed.as_bytes()).as_ref(), Ok(&mapping));

    let mut laid = ExpectedMapping::default();
    lay_out(&mapping, size, &mut laid);
    let mut expanded = mapping.expand(size);
    if planted::is("second-block-of-three-shifted")
        && let (Ok(nodes), [_, second, _, ..]) = (&mut expanded, &*mapping.blocks)
        && second.ppn == 3
        && let Some(last) = nodes.last_mut()
    {
        *last = last.wrapping_add(1);
    }
    match expanded {
        Ok(nodes) => {
            assert_eq!(nodes, laid.nodes, "wrong nodes for the ranks of {printed}");
            let compressed = ProcessMapping::compress(&nodes);
            assert_eq!(
                compressed.expand(size),
                Ok(nodes),
                "compressing {printed} changes the nodes of its ranks"
            );
            assert!(compressed.blocks.len() <= size as usize);
        }
        Err(TooFewRanks { covered }) => {
            assert_eq!(covered, laid.nodes.len() as u64, "wrong number of ranks covered by {printed}");
            assert!(covered < u64::from(size));
        }
    }
    // After the last block, MPICH continues with the first block, unless all blocks are empty.
    match mapping.expand_wrapping(size) {
        Ok(nodes) => {
            assert_eq!(nodes.len(), size as usize);
            let covered = laid.nodes.len();
            assert!(covered > 0 || size == 0);
            assert!(!laid.cut || covered == size as usize);
            assert!(nodes.chunks(covered.max(1)).all(|round| laid.nodes.starts_with(round)));
        }
        Err(_) => assert!(laid.nodes.is_empty() || laid.cut),
    }
}

/// Returns the node of every rank: arbitrary node ids, a few node ids, or blocks of equal size as process managers place them.
fn ranks(bytes: &[u8], form: u8) -> Vec<u32> {
    match form {
        0 => bytes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect(),
        1 => bytes.iter().map(|byte| u32::from(byte & 7)).collect(),
        _ => {
            let mut next = 0;
            let blocks = bytes.iter().take(64).map(|byte| {
                let (nodes, ppn) = (u32::from(byte & 3) + 1, usize::from(byte >> 2 & 3) + 1);
                let first = next + u32::from(byte >> 4 & 3).saturating_sub(2);
                next = first + nodes;
                (first..next).flat_map(move |node| std::iter::repeat_n(node, ppn))
            });
            blocks.flatten().collect()
        }
    }
}

fn nodes(nodes: &[u32]) {
    let mut mapping = ProcessMapping::compress(nodes);
    if planted::is("compress-joins-unequal-runs")
        && let [.., a, b] = &mut *mapping.blocks
        && a.ppn == b.ppn + 1
        && a.first_node + a.nodes == b.first_node
        && a.nodes == 2
    {
        b.ppn = a.ppn;
    }
    assert_eq!(
        mapping.expand(nodes.len() as u32).as_deref(),
        Ok(nodes),
        "compressing the mapping changes its nodes"
    );
    // In MPICH's form, a repeated sequence of blocks is written once, with a repeat count.
    let short = mapping.mpich().to_string();
    match MappingForm::classify(short.as_bytes()) {
        MappingForm::Unknown => assert!(nodes.is_empty()),
        MappingForm::Rfc(same) | MappingForm::Mpich(same) => {
            assert_eq!(
                same.expand(nodes.len() as u32).as_deref(),
                Ok(nodes),
                "wrong nodes for the ranks of {short}"
            );
        }
        MappingForm::NotAMapping(error) => panic!("{short}: {error}"),
    }
    let printed = mapping.to_string();
    match MappingForm::classify(printed.as_bytes()) {
        MappingForm::Unknown => assert!(nodes.is_empty()),
        form => assert_eq!(form, MappingForm::Rfc(mapping)),
    }
}

/// The expected placement of ranks.
#[derive(Default)]
struct ExpectedMapping {
    /// The nodes of the first ranks.
    nodes: Vec<u32>,
    /// True if the placement ended at a node whose id does not fit into 32 bits.
    cut: bool,
}

fn lay_out(mapping: &ProcessMapping, size: u32, laid: &mut ExpectedMapping) {
    // A block without processes places no rank, so its nodes do not matter.
    for block in mapping.blocks.iter().filter(|block| block.ppn > 0) {
        for offset in 0..block.nodes {
            let node = u128::from(block.first_node) + u128::from(offset);
            let Ok(node) = u32::try_from(node) else {
                laid.cut = true;
                return;
            };
            for _ in 0..block.ppn {
                if laid.nodes.len() == size as usize {
                    return;
                }
                laid.nodes.push(node);
            }
            if laid.nodes.len() == size as usize {
                break;
            }
        }
    }
}

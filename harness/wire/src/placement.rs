/// Places `size` ranks on `nodes` nodes, in blocks whose sizes are as equal as possible. Returns the node id of every rank.
///
/// The first `size % nodes` nodes get one rank more than the others. No node is empty if `size >= nodes`.
pub fn place(size: u32, nodes: u32) -> Vec<u32> {
    let nodes = used_nodes(size, nodes);
    let (share, extra) = (size / nodes, size % nodes);
    (0..nodes).flat_map(|n| std::iter::repeat_n(n, (share + u32::from(n < extra)) as usize)).collect()
}

/// Returns the node id of a rank, as placed by [`place`]. Returns `None` if `rank >= size`.
pub fn node_of(rank: u32, size: u32, nodes: u32) -> Option<u32> {
    if rank >= size {
        return None;
    }
    let nodes = used_nodes(size, nodes);
    let (share, extra) = (size / nodes, size % nodes);
    // The number of ranks on the nodes that have one rank more than the others.
    let on_larger = extra * share + extra;
    Some(if rank < on_larger { rank / (share + 1) } else { extra + (rank - on_larger) / share })
}

/// Returns the number of nodes that receive ranks. It is at least 1.
fn used_nodes(size: u32, nodes: u32) -> u32 {
    nodes.clamp(1, size.max(1))
}

#[cfg(test)]
mod tests {
    use super::{node_of, place};

    #[test]
    fn placement_blocks_are_even_and_in_order() {
        assert_eq!(place(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(place(1, 4), [0]);
        assert_eq!(place(4, 1), [0; 4]);
        assert_eq!(place(0, 3), Vec::<u32>::new());
    }

    #[test]
    fn node_of_each_rank_agrees_with_placement() {
        for (size, nodes) in (0..=20).flat_map(|size| (0..=20).map(move |nodes| (size, nodes))) {
            let each: Vec<u32> = (0..size).filter_map(|rank| node_of(rank, size, nodes)).collect();
            assert_eq!(each, place(size, nodes), "{size} ranks on {nodes} nodes");
            assert_eq!((node_of(size, size, nodes), node_of(size + 1, size, nodes)), (None, None));
        }
        assert_eq!(node_of(u32::MAX - 1, u32::MAX, 1), Some(0));
        assert_eq!(node_of(u32::MAX - 1, u32::MAX, u32::MAX), Some(u32::MAX - 1));
    }
}

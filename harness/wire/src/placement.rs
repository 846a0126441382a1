/// Places `size` ranks on `nodes` nodes in blocks that are as even as possible. Returns the node id of every rank.
///
/// The first `size % nodes` nodes get one more rank. No node is empty if `size >= nodes`.
pub fn place(size: u32, nodes: u32) -> Vec<u32> {
    let nodes = nodes.clamp(1, size.max(1));
    let (share, extra) = (size / nodes, size % nodes);
    (0..nodes).flat_map(|n| std::iter::repeat_n(n, (share + u32::from(n < extra)) as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn blocks_are_even_and_in_order() {
        assert_eq!(place(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(place(1, 4), [0]);
        assert_eq!(place(4, 1), [0; 4]);
        assert_eq!(place(0, 3), Vec::<u32>::new());
    }
}

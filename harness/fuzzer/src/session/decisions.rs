//! The bytes from which generators draw their decisions. They are derived from a seed and the number of a case, or come from a fuzzer that
//! learns which bytes lead to new coverage. After the last byte, generators take the first choice in every decision.

use arbitrary::{Result, Unstructured};

/// Number of bytes drawn for a case, which is more than any case needs.
const CASE_BYTES: usize = 16 << 10;

/// Returns the decision bytes of the case with this seed and number. Neighbouring seeds and numbers yield unrelated bytes.
pub(crate) fn draw_bytes(seed: u64, number: u64) -> Vec<u8> {
    // The finalizer of SplitMix64.
    let mut x = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut bytes = vec![0; CASE_BYTES];
    fastrand::Rng::with_seed(x ^ (x >> 31)).fill(&mut bytes);
    bytes
}

/// Splits the bytes into decisions on valid input and decisions on mutations. The mutations stay the same when only the bytes of the valid
/// case change.
pub(crate) fn split(bytes: &[u8]) -> (Unstructured<'_>, Unstructured<'_>) {
    let (mutations, valid) = bytes.split_at(bytes.len() / 4);
    (Unstructured::new(valid), Unstructured::new(mutations))
}

/// Draws a number below 100.
pub(crate) fn percent(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok((u32::from(u.arbitrary::<u16>()?) * 100) >> 16)
}

pub(crate) fn pick<T: Copy>(u: &mut Unstructured<'_>, choices: &[T]) -> Result<T> {
    u.choose(choices).copied()
}

/// Shuffles a slice. If no decision bytes are left, the order does not change.
pub(crate) fn shuffle<T>(u: &mut Unstructured<'_>, things: &mut [T]) -> Result<()> {
    for at in 1..things.len() {
        let other = u.int_in_range(0..=at)?;
        things.swap(at, at - other);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_deterministic_and_default_to_first_item() {
        assert_eq!(draw_bytes(7, 1), draw_bytes(7, 1));
        assert!(draw_bytes(7, 1) != draw_bytes(7, 2) && draw_bytes(7, 1) != draw_bytes(8, 1));
        let mut u = Unstructured::new(&[]);
        assert_eq!((percent(&mut u), pick(&mut u, &[3, 4])), (Ok(0), Ok(3)));
        let mut order = [0, 1, 2, 3];
        shuffle(&mut u, &mut order).unwrap();
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn percentages_are_evenly_distributed() {
        let mut seen = [0; 100];
        for number in 0..200 {
            let bytes = draw_bytes(1, number);
            let mut u = Unstructured::new(&bytes);
            (0..100).for_each(|_| seen[percent(&mut u).unwrap() as usize] += 1);
        }
        assert!(seen.iter().all(|n| (120..280).contains(n)), "{seen:?}");
    }
}

//! The C interface to the mutations of campaigns, for the fuzzers of other projects. The C header is `include/pmi_mutator.h`.

use std::ffi::c_int;
use std::slice;

use pmi_fuzzer::generate::stream::mutated;
use pmi_scenario::ast::Dialect;

/// The number of PMI-2 in the C header. Any other number selects PMI-1.
const PMI_2: c_int = 2;

/// Mutates the messages sent in one direction of a connection in place, and returns the new number of bytes.
///
/// # Safety
///
/// `data` must point to `most` writable bytes, of which the first `size` are the input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmi_mutate(
    data: *mut u8,
    size: usize,
    most: usize,
    seed: u32,
    protocol: c_int,
) -> usize {
    if data.is_null() || most == 0 {
        return 0;
    }
    // SAFETY: the caller guarantees that the memory is valid and that no other code accesses it during the call.
    let room = unsafe { slice::from_raw_parts_mut(data, most) };
    let dialect = if protocol == PMI_2 { Dialect::Pmi2 } else { Dialect::Pmi1 };
    let new = mutated(&room[..size.min(most)], dialect, seed.into(), most);
    room[..new.len()].copy_from_slice(&new);
    new.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutation_is_deterministic_and_fits_the_buffer() {
        let line = b"cmd=put kvsname=kvs key=a value=b\n";
        let once = |seed: u32, protocol| {
            let mut room = [0xee; 80];
            room[..line.len()].copy_from_slice(line);
            // SAFETY: the buffer has more than 64 bytes.
            let size = unsafe { pmi_mutate(room.as_mut_ptr(), line.len(), 64, seed, protocol) };
            assert!(size <= 64 && room[64..] == [0xee; 16]);
            room[..size].to_vec()
        };
        let mut differ = 0;
        for seed in 0..500 {
            for protocol in [1, PMI_2] {
                assert_eq!(once(seed, protocol), once(seed, protocol));
                differ += usize::from(once(seed, protocol) != line);
            }
        }
        assert!(differ > 800, "{differ}");
        // SAFETY: for a null pointer, the function returns before it accesses memory.
        assert_eq!(unsafe { pmi_mutate(std::ptr::null_mut(), 0, 10, 1, 1) }, 0);
    }
}

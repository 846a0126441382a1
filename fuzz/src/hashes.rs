//! Deterministic keys for hash maps.
//!
//! With random keys, the path through a map would differ between runs. The coverage and the comparisons from which libFuzzer learns words
//! would then differ as well. The standard library gets its keys from the function `getrandom`, which this module replaces.

use std::ffi::{c_uint, c_void};

/// Fills the buffer with the same bytes every time.
///
/// # Safety
///
/// As for getrandom(2), `buffer` must have room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _: c_uint) -> isize {
    // SAFETY: the caller ensures that the buffer has `length` bytes.
    unsafe { buffer.cast::<u8>().write_bytes(0x5a, length) };
    length as isize
}

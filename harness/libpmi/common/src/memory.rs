//! Conversion of C arguments into Rust values, and of results into C buffers.
#![expect(unsafe_code, reason = "dereferences pointers passed by C callers")]

use std::ffi::{CStr, c_char, c_int};

/// Returns a string; `None` for NULL.
///
/// # Safety
///
/// `pointer` must be NULL, or NUL-terminated and valid as long as the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns the strings of a NULL-terminated list; no strings for NULL.
///
/// # Safety
///
/// `list` must be NULL, or a NULL-terminated list of NUL-terminated strings.
pub unsafe fn strings(list: *const *const c_char) -> Vec<Vec<u8>> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller; the loop stops at NULL, the end of the list.
    (0..).map_while(|i| unsafe { text(*list.add(i)) }).map(<[u8]>::to_vec).collect()
}

/// Writes an integer. Returns `None` for NULL.
///
/// # Safety
///
/// `pointer` must be writable or NULL.
pub unsafe fn set(pointer: *mut c_int, value: c_int) -> Option<()> {
    // SAFETY: the pointer is not NULL, and therefore writable.
    (!pointer.is_null()).then(|| unsafe { pointer.write(value) })
}

/// Writes a string and a NUL. Returns `None` if they do not fit into `length` bytes.
///
/// # Safety
///
/// If `length` is more than 0, `buffer` must have `length` bytes.
pub unsafe fn copy_out(text: &[u8], buffer: *mut c_char, length: c_int) -> Option<()> {
    let fits = usize::try_from(length).is_ok_and(|length| text.len() < length);
    // SAFETY: the text and its NUL fit.
    fits.then(|| unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    })
}

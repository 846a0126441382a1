//! Conversion of C arguments into Rust values, and of results into C buffers.
#![expect(unsafe_code, reason = "reads and writes through the pointers of C callers")]

use std::ffi::{CStr, c_char, c_int};

/// Returns a string; `None` for NULL.
///
/// # Safety
///
/// `pointer` is NULL, or NUL-terminated and valid as long as the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the same conditions as for this function.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns the strings of a list that ends with NULL; none for NULL.
///
/// # Safety
///
/// `list` is NULL, or a list of NUL-terminated strings that ends with NULL.
pub unsafe fn strings(list: *const *const c_char) -> Vec<Vec<u8>> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the same conditions as for this function; the loop stops at NULL, the end of the list.
    (0..).map_while(|i| unsafe { text(*list.add(i)) }).map(<[u8]>::to_vec).collect()
}

/// Writes an integer; returns `None` for NULL.
///
/// # Safety
///
/// `pointer` is writable or NULL.
pub unsafe fn set(pointer: *mut c_int, value: c_int) -> Option<()> {
    // SAFETY: the same conditions as for this function, and the pointer is not NULL.
    (!pointer.is_null()).then(|| unsafe { pointer.write(value) })
}

/// Writes a string with its NUL, if it fits into `length` bytes.
///
/// # Safety
///
/// `buffer` has `length` bytes, if that is more than 0.
pub unsafe fn copy_out(text: &[u8], buffer: *mut c_char, length: c_int) -> Option<()> {
    let fits = usize::try_from(length).is_ok_and(|length| text.len() < length);
    // SAFETY: the text and its NUL fit.
    fits.then(|| unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    })
}

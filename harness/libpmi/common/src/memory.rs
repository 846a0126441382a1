//! Conversion of C arguments into Rust values, and of results into C buffers.
#![expect(unsafe_code, reason = "dereferences pointers passed by C callers")]

use std::ffi::{CStr, c_char, c_int};

use crate::call::Code;

/// Returns the bytes of a C string, or `None` for NULL.
///
/// # Safety
///
/// `pointer` must be NULL, or point to a NUL-terminated string that is valid for as long as the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns the strings of a NULL-terminated list, or an empty list for NULL.
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

/// Checks an output argument before a request is made.
///
/// # Errors
///
/// Returns an error if `pointer` is NULL.
pub fn not_null<T>(pointer: *mut T) -> Result<(), Code> {
    if pointer.is_null() { Err(Code::InvalidArg) } else { Ok(()) }
}

/// Writes an integer.
///
/// # Errors
///
/// Returns an error if `pointer` is NULL.
///
/// # Safety
///
/// `pointer` must be writable or NULL.
pub unsafe fn set(pointer: *mut c_int, value: c_int) -> Result<(), Code> {
    // SAFETY: the pointer is not NULL here, so the caller guarantees that it is writable.
    not_null(pointer).map(|()| unsafe { pointer.write(value) })
}

/// Writes a string and a NUL.
///
/// # Errors
///
/// Returns an error if `buffer` is NULL, or if the string and the NUL do not fit into `length` bytes.
///
/// # Safety
///
/// `buffer` must be NULL, or point to at least `length` writable bytes.
pub unsafe fn copy_out(text: &[u8], buffer: *mut c_char, length: c_int) -> Result<(), Code> {
    not_null(buffer)?;
    let fits = usize::try_from(length).is_ok_and(|length| text.len() < length);
    // SAFETY: the text and its NUL fit into the buffer.
    fits.then(|| unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    })
    .ok_or(Code::InvalidLength)
}

/// Returns a string argument.
///
/// # Errors
///
/// Returns the error `otherwise` for NULL.
///
/// # Safety
///
/// `pointer` must be NULL, or point to a NUL-terminated string that is valid for as long as the result is used.
pub unsafe fn required<'a>(pointer: *const c_char, otherwise: Code) -> Result<&'a [u8], Code> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(pointer) }.ok_or(otherwise)
}

/// Converts a number to the integer type of C.
///
/// # Errors
///
/// Returns an error if the number is too large.
pub fn int(number: u64) -> Result<c_int, Code> {
    c_int::try_from(number).map_err(|_| Code::Fail)
}

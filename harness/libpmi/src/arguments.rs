//! What C passes, and what it gets back.
#![expect(unsafe_code, reason = "reads and writes through the pointers of C callers")]

use std::ffi::{CStr, c_char, c_int};

use pmi_wire::SpawnProgram;

use crate::code::Code;

/// `PMI_keyval_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Keyval {
    /// A NUL-terminated string.
    pub key: *const c_char,
    /// A NUL-terminated string.
    pub val: *mut c_char,
}

/// Keys and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A string, `None` for NULL.
///
/// # Safety
///
/// NUL-terminated and alive as long as it is used, or NULL.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as for this function.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Sets an integer.
///
/// # Safety
///
/// Writable, or NULL.
pub(crate) unsafe fn set(pointer: *mut c_int, value: c_int) -> Result<(), Code> {
    if pointer.is_null() {
        return Err(Code::InvalidArg);
    }
    // SAFETY: as for this function, and not NULL.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes a string with its NUL, if `length` bytes have room for it.
///
/// # Safety
///
/// `buffer` has `length` bytes, if that is more than 0.
pub(crate) unsafe fn copy_out(text: &[u8], buffer: *mut c_char, length: c_int) -> Result<(), Code> {
    if usize::try_from(length).is_ok_and(|length| text.len() < length) {
        // SAFETY: the text and its NUL fit.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            buffer.add(text.len()).write(0);
        }
        Ok(())
    } else {
        Err(Code::InvalidLength)
    }
}

/// The arguments of `PMI_Spawn_multiple`.
pub(crate) struct Programs {
    pub(crate) count: c_int,
    pub(crate) cmds: *const *const c_char,
    pub(crate) argvs: *const *const *const c_char,
    pub(crate) maxprocs: *const c_int,
    pub(crate) info_keyval_sizes: *const c_int,
    pub(crate) info_keyval_vectors: *const *const Keyval,
    pub(crate) preput_keyval_size: c_int,
    pub(crate) preput_keyval_vector: *const Keyval,
}

impl Programs {
    /// Copies them. No arguments, no infos and no preput may also be said by NULL.
    ///
    /// # Safety
    ///
    /// The arrays are as long as `count` and the sizes say, lists of arguments end with NULL, and strings with a NUL.
    pub(crate) unsafe fn read(&self) -> Result<Vec<SpawnProgram>, Code> {
        let count = usize::try_from(self.count).ok().filter(|n| *n > 0).ok_or(Code::InvalidArg)?;
        if self.cmds.is_null() || self.maxprocs.is_null() {
            return Err(Code::InvalidArg);
        }
        // SAFETY: as for this function.
        let preput = unsafe { pairs(self.preput_keyval_vector, self.preput_keyval_size) }?;
        (0..count)
            .map(|i| {
                // SAFETY: `i` is below `count`, which the arrays have elements for.
                unsafe {
                    let execname = text(*self.cmds.add(i)).ok_or(Code::InvalidArg)?;
                    let nprocs = u64::try_from(*self.maxprocs.add(i)).map_err(|_| Code::InvalidArg)?;
                    let argv = if self.argvs.is_null() { std::ptr::null() } else { *self.argvs.add(i) };
                    let (size, info) = if self.info_keyval_sizes.is_null() {
                        (0, std::ptr::null())
                    } else {
                        let vectors = self.info_keyval_vectors;
                        let info = if vectors.is_null() { std::ptr::null() } else { *vectors.add(i) };
                        (*self.info_keyval_sizes.add(i), info)
                    };
                    Ok(SpawnProgram {
                        nprocs,
                        execname: execname.to_vec(),
                        args: (0..).zip(strings(argv)).collect(),
                        preput: preput.clone(),
                        info: pairs(info, size)?,
                        ..SpawnProgram::default()
                    })
                }
            })
            .collect()
    }
}

/// A list that ends with NULL; an empty one for NULL.
///
/// # Safety
///
/// As it says, of NUL-terminated strings.
unsafe fn strings(list: *const *const c_char) -> Vec<Vec<u8>> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: as for this function: NULL is found before the list's end.
    (0..).map_while(|i| unsafe { text(*list.add(i)) }).map(<[u8]>::to_vec).collect()
}

/// Keys and values of a vector.
///
/// # Safety
///
/// The vector has `size` pairs of NUL-terminated strings, or is NULL.
unsafe fn pairs(vector: *const Keyval, size: c_int) -> Result<Pairs, Code> {
    let size = usize::try_from(size).map_err(|_| Code::InvalidArg)?;
    if size > 0 && vector.is_null() {
        return Err(Code::InvalidArg);
    }
    (0..size)
        .map(|i| {
            // SAFETY: below `size`.
            let (key, value) = unsafe {
                let pair = *vector.add(i);
                (text(pair.key), text(pair.val))
            };
            Ok((key.ok_or(Code::InvalidArg)?.to_vec(), value.ok_or(Code::InvalidArg)?.to_vec()))
        })
        .collect()
}

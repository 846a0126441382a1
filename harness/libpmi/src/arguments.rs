//! The arguments of `PMI_Spawn_multiple`.
#![expect(unsafe_code, reason = "dereferences pointers passed by C callers")]

use std::ffi::{c_char, c_int};

use pmi_c_api::{Code, strings, text};
use pmi_wire::SpawnProgram;

/// The C type `PMI_keyval_t`: a key and its value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Keyval {
    /// The key, a NUL-terminated string.
    pub key: *const c_char,
    /// The value, a NUL-terminated string.
    pub val: *mut c_char,
}

type KeyvalPairs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) struct SpawnMultipleArguments {
    pub(crate) count: c_int,
    pub(crate) cmds: *const *const c_char,
    pub(crate) argvs: *const *const *const c_char,
    pub(crate) maxprocs: *const c_int,
    pub(crate) info_keyval_sizes: *const c_int,
    pub(crate) info_keyval_vectors: *const *const Keyval,
    pub(crate) preput_keyval_size: c_int,
    pub(crate) preput_keyval_vector: *const Keyval,
}

impl SpawnMultipleArguments {
    /// Copies the programs. A NULL list of arguments, infos or preput pairs counts as empty.
    ///
    /// # Safety
    ///
    /// The arrays must have the lengths that `count` and the sizes specify. Lists of arguments must be NULL-terminated, and strings must be
    /// NUL-terminated.
    pub(crate) unsafe fn read(&self) -> Result<Vec<SpawnProgram>, Code> {
        let count = usize::try_from(self.count).ok().filter(|n| *n > 0).ok_or(Code::InvalidArg)?;
        if self.cmds.is_null() || self.maxprocs.is_null() {
            return Err(Code::InvalidArg);
        }
        // SAFETY: guaranteed by the caller.
        let preput = unsafe { pairs(self.preput_keyval_vector, self.preput_keyval_size) }?;
        (0..count)
            .map(|i| {
                // SAFETY: `i` is below `count`, the length of the arrays.
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

/// Returns copies of the pairs in a vector.
///
/// # Safety
///
/// The vector must be NULL or contain `size` pairs of NUL-terminated strings.
unsafe fn pairs(vector: *const Keyval, size: c_int) -> Result<KeyvalPairs, Code> {
    let size = usize::try_from(size).map_err(|_| Code::InvalidArg)?;
    if size > 0 && vector.is_null() {
        return Err(Code::InvalidArg);
    }
    (0..size)
        .map(|i| {
            // SAFETY: `i` is below `size`, the length of the vector.
            let (key, value) = unsafe {
                let pair = *vector.add(i);
                (text(pair.key), text(pair.val))
            };
            Ok((key.ok_or(Code::InvalidArg)?.to_vec(), value.ok_or(Code::InvalidArg)?.to_vec()))
        })
        .collect()
}

//! The arguments of `PMI2_Job_Spawn`.
#![expect(unsafe_code, reason = "dereferences pointers passed by C callers")]

use std::ffi::{c_char, c_int, c_void};

use pmi_c_api::{Code, text};
use pmi_wire::SpawnProgram;

/// `MPID_Info`: a key and its value. The library ignores the other members.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Info {
    handle: c_int,
    pobj_mutex: c_int,
    ref_count: c_int,
    next: *mut c_void,
    key: *const c_char,
    value: *const c_char,
}

type InfoPair = (Vec<u8>, Vec<u8>);

impl Info {
    /// Returns a copy of the pair.
    ///
    /// # Safety
    ///
    /// The strings must be NUL-terminated or NULL.
    unsafe fn pair(&self) -> Result<InfoPair, Code> {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { (text(self.key), text(self.value)) };
        Ok((key.ok_or(Code::InvalidArg)?.to_vec(), value.ok_or(Code::InvalidArg)?.to_vec()))
    }
}

/// The programs to start: arrays with an element for each command.
pub(crate) struct Programs {
    pub(crate) count: c_int,
    pub(crate) cmds: *const *const c_char,
    pub(crate) argcs: *const c_int,
    pub(crate) argvs: *const *const *const c_char,
    pub(crate) maxprocs: *const c_int,
    pub(crate) info_keyval_sizes: *const c_int,
    pub(crate) info_keyval_vectors: *const *const Info,
}

/// Returns an element of an array that may be NULL.
///
/// # Safety
///
/// The array must be NULL or longer than `index`.
unsafe fn element<T: Copy>(array: *const T, index: usize) -> Option<T> {
    // SAFETY: guaranteed by the caller.
    (!array.is_null()).then(|| unsafe { *array.add(index) })
}

/// Converts a size from the integer type of C.
fn size(number: Option<c_int>) -> Result<usize, Code> {
    usize::try_from(number.unwrap_or(0)).map_err(|_| Code::InvalidArg)
}

impl Programs {
    /// Copies the programs. A NULL list of arguments or infos counts as empty.
    ///
    /// # Safety
    ///
    /// The arrays must have the lengths that `count` and the sizes specify, and strings must be NUL-terminated.
    pub(crate) unsafe fn read(&self) -> Result<Vec<SpawnProgram>, Code> {
        let count = usize::try_from(self.count).ok().filter(|n| *n > 0).ok_or(Code::InvalidArg)?;
        (0..count)
            .map(|i| {
                // SAFETY: `i` is below `count`, the length of the arrays.
                unsafe {
                    let command = element(self.cmds, i).and_then(|c| text(c)).ok_or(Code::InvalidArg)?;
                    let maxprocs = element(self.maxprocs, i).and_then(|n| u64::try_from(n).ok());
                    let argv = element(self.argvs, i).filter(|list| !list.is_null());
                    let argc = if argv.is_some() { size(element(self.argcs, i))? } else { 0 };
                    let info = element(self.info_keyval_vectors, i).filter(|list| !list.is_null());
                    let pairs = if info.is_some() { size(element(self.info_keyval_sizes, i))? } else { 0 };
                    let arg = |at| argv.and_then(|list| text(*list.add(at))).map(<[u8]>::to_vec);
                    let args: Vec<Vec<u8>> =
                        (0..argc).map(arg).collect::<Option<_>>().ok_or(Code::InvalidArg)?;
                    Ok(SpawnProgram {
                        execname: command.to_vec(),
                        nprocs: maxprocs.ok_or(Code::InvalidArg)?,
                        args: (0..).zip(args).collect(),
                        info: (0..pairs)
                            .filter_map(|at| info.map(|list| (*list.add(at)).pair()))
                            .collect::<Result<_, _>>()?,
                        ..SpawnProgram::default()
                    })
                }
            })
            .collect()
    }
}

/// Returns the pairs for the keyval space of the new job, from an array of pointers to pairs.
///
/// # Safety
///
/// The array must be NULL or contain `length` pointers to pairs.
pub(crate) unsafe fn preput(array: *const *const Info, length: c_int) -> Result<Vec<InfoPair>, Code> {
    let length = size(Some(length))?;
    (0..length)
        .map(|i| {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let info = element(array, i).filter(|info| !info.is_null()).ok_or(Code::InvalidArg)?;
                (*info).pair()
            }
        })
        .collect()
}

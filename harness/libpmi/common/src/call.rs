//! A wrapper for all C API calls, and the return codes, which have the same values in PMI-1 and PMI-2.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// The return codes that the libraries use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// PMI_SUCCESS.
    Success = 0,
    /// PMI_FAIL.
    Fail = -1,
    /// PMI_ERR_INIT.
    ErrInit = 1,
    /// PMI_ERR_INVALID_ARG.
    InvalidArg = 3,
    /// PMI_ERR_INVALID_KEY.
    InvalidKey = 4,
    /// PMI_ERR_INVALID_VAL.
    InvalidVal = 6,
    /// PMI_ERR_INVALID_LENGTH.
    InvalidLength = 8,
}

/// Runs the body of an API function, and serializes concurrent calls. A panic is a bug and ends the process, because it must not reach C.
pub fn call<S>(process: &Mutex<Option<S>>, body: impl FnOnce(&mut Option<S>) -> Result<(), Code>) -> c_int {
    match body(&mut process.lock().unwrap_or_else(PoisonError::into_inner)) {
        Ok(()) => Code::Success as c_int,
        Err(code) => code as c_int,
    }
}

/// Runs the body of an API function. Returns [`Code::ErrInit`] if the process is not initialized.
pub fn call_initialized<S>(
    process: &Mutex<Option<S>>,
    body: impl FnOnce(&mut S) -> Result<(), Code>,
) -> c_int {
    call(process, |process| body(process.as_mut().ok_or(Code::ErrInit)?))
}

/// Defines API functions that C programs call.
#[macro_export]
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Each pointer must be NULL, or valid as the specification of the API requires.
        #[expect(unsafe_code, reason = "a function of the C API")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int $body
    )*};
}

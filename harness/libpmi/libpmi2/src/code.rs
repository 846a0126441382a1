//! The return codes of pmi2.h.

/// A return code; those that this library has no use for are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Success = 0,
    Fail = -1,
    ErrInit = 1,
    InvalidArg = 3,
    InvalidKey = 4,
    InvalidVal = 6,
    InvalidLength = 8,
}

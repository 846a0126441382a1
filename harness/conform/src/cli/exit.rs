//! Exit statuses; `--help` lists all of them.

/// A usage error, or errors in scenarios.
pub(super) const USAGE: u8 = 2;
/// The implementation could not be judged.
pub(super) const UNJUDGED: u8 = 3;
/// The user interrupted the command.
pub(super) const INTERRUPTED: u8 = 130;
/// `doctor` found that the implementation cannot be judged in its current state.
pub(super) const CANNOT_JUDGE: u8 = 1;
/// No scenario was played, or none was selected.
pub(super) const NOTHING_RAN: u8 = 4;

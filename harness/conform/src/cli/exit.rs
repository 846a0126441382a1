//! Exit statuses; `--help` has them all.

/// Usage errors and mistakes in scenarios.
pub(super) const USAGE: u8 = 2;
/// Nothing can be said about the implementation.
pub(super) const UNJUDGED: u8 = 3;
/// The user has ended it.
pub(super) const INTERRUPTED: u8 = 130;
/// What was looked at cannot be judged as it is.
pub(super) const UNFIT: u8 = 1;
/// Exit status where no scenario was played, or would be.
pub(super) const NOTHING_RAN: u8 = 4;

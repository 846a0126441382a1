//! Exit statuses; `--help` lists all of them.

/// Exit status after a usage error or an error in a scenario file.
pub(super) const USAGE: u8 = 2;
/// Exit status if the implementation could not be judged.
pub(super) const UNJUDGED: u8 = 3;
/// Exit status if the user interrupted the command.
pub(super) const INTERRUPTED: u8 = 130;
/// Exit status of `doctor` if a step fails. The implementation cannot be judged in this case.
pub(super) const CANNOT_JUDGE: u8 = 1;
/// Exit status if no scenario was selected or played.
pub(super) const NOTHING_RAN: u8 = 4;

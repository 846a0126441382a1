//! The agent of a rank that starts in a tenth of the time, where there is one for this machine: see `quick-agent/main.rs`. It is a
//! part of this program, and lies in a folder of its own while a run lasts.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::scratch::folder_on_disk;

/// Beside the quick agent's path: the agent that it becomes where it cannot do the work.
pub(super) const FULL: &str = "full";

/// What it exits with if it was started by any other path than an agent's.
const FAILED: i32 = 125;

#[cfg(quick_agent)]
const PROGRAM: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/quick-agent")));
#[cfg(not(quick_agent))]
const PROGRAM: Option<&[u8]> = None;

/// The program's file, removed with this.
pub(crate) struct QuickAgent {
    folder: tempfile::TempDir,
}

impl QuickAgent {
    /// Writes the program's file; `None` where there is no such program, or where scratch folders hold no programs.
    pub(crate) fn write() -> Option<Self> {
        let folder = folder_on_disk().ok()?;
        let agent = Self { folder };
        let mut file = std::fs::File::create(agent.path()).ok()?;
        file.write_all(PROGRAM?).ok()?;
        file.set_permissions(Permissions::from_mode(0o755)).ok()?;
        drop(file);
        let mut tried = Command::new(agent.path());
        tried.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.code() == Some(FAILED)).then_some(agent)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("quick-agent")
    }
}

//! The quick agent of a rank, which starts in a tenth of the time, if this machine supports it: see `quick-agent/main.rs`. It is embedded
//! in this program, and written to a separate folder for the duration of a run.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::scratch::folder_on_disk;

/// Name of a link next to the quick agent. It points to the full agent, which the quick one executes if it cannot do the work.
pub(super) const FULL: &str = "full";

/// Its exit status if it was started through a path that is not an agent's.
const FAILED: i32 = 125;

#[cfg(quick_agent)]
const PROGRAM: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/quick-agent")));
#[cfg(not(quick_agent))]
const PROGRAM: Option<&[u8]> = None;

/// The program's file, which is removed when this is dropped.
pub struct QuickAgent {
    folder: tempfile::TempDir,
}

impl QuickAgent {
    /// Writes the program's file. Returns `None` if the machine has no quick agent, or if programs in scratch folders cannot be executed.
    pub fn write() -> Option<Self> {
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

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("quick-agent")
    }
}

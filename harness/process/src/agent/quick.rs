//! The quick agent of a rank, for machines that support it (see `quick-agent/main.rs`). It is embedded in this program, and written to a
//! separate folder for the duration of a run.
//!
//! Starting the quick agent takes 0.05 ms of processor time; starting the full agent takes 1.1 ms. Without the quick agent, a run of the
//! suite against the reference manager takes 1.32 to 1.49 times as much processor time (four pairs of runs, x86-64 on a virtual machine).

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::scratch::folder_on_disk;

/// Name of the link to the full agent. The link is next to the quick agent, which executes the full agent if it cannot handle the launch.
pub(super) const FULL: &str = "full";

/// Exit status of a quick agent that was not started through its path in the scratch folder of a run.
const FAILED_STATUS: i32 = 125;

#[cfg(quick_agent)]
const PROGRAM: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/quick-agent")));
#[cfg(not(quick_agent))]
const PROGRAM: Option<&[u8]> = None;

/// The file of the quick agent. The file is removed on drop.
pub struct QuickAgent {
    folder: tempfile::TempDir,
}

impl QuickAgent {
    /// Writes the file. Returns `None` if the machine is not supported, or if programs in scratch folders cannot be executed.
    pub fn write() -> Option<Self> {
        let folder = folder_on_disk().ok()?;
        let agent = Self { folder };
        let mut file = std::fs::File::create(agent.path()).ok()?;
        file.write_all(PROGRAM?).ok()?;
        file.set_permissions(Permissions::from_mode(0o755)).ok()?;
        drop(file);
        let mut tried = Command::new(agent.path());
        tried.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.code() == Some(FAILED_STATUS)).then_some(agent)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("quick-agent")
    }
}

//! Temporary folders for a run.

use std::io;
use std::path::Path;

use tempfile::TempDir;

/// The in-memory file system that every Linux user can write to. Creating and removing a file there takes a tenth of the time needed on
/// disk, and each launch needs several files.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Creates a private folder for sockets and links, which are small. The folder is in memory if possible, unless TMPDIR is set.
pub fn scratch_folder() -> io::Result<TempDir> {
    let asked_for = std::env::var_os("TMPDIR").is_some_and(|dir| !dir.is_empty());
    if !asked_for && let Ok(folder) = folder_in(Path::new(MEMORY_FOLDER)) {
        return Ok(folder);
    }
    folder_on_disk()
}

/// Creates a private folder for large files and for programs, because files in memory often cannot be executed.
pub(crate) fn folder_on_disk() -> io::Result<TempDir> {
    // Agents may run in another working directory, so the path must be absolute.
    let temp = std::path::absolute(std::env::temp_dir())?;
    // A socket's path must fit in `sun_path` (108 bytes), including the names that are added below this folder.
    let temp = if temp.as_os_str().len() > 60 { Path::new("/tmp") } else { &temp };
    folder_in(temp).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("cannot create a scratch folder in {} (TMPDIR): {e}", temp.display()),
        )
    })
}

fn folder_in(dir: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("pmi-conform-").tempdir_in(dir)
}

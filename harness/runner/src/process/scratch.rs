//! Folders for what a run needs and nobody keeps.

use std::io;
use std::path::Path;

/// A private folder. Sockets have short paths: a long TMPDIR is left for /tmp.
pub(crate) fn scratch_folder() -> io::Result<tempfile::TempDir> {
    let builder = |dir: &Path| tempfile::Builder::new().prefix("pmi-conform-").tempdir_in(dir);
    // Agents may run in another working directory.
    let temp = std::path::absolute(std::env::temp_dir())?;
    let temp = if temp.as_os_str().len() > 60 { Path::new("/tmp") } else { &temp };
    builder(temp).map_err(|e| {
        io::Error::new(e.kind(), format!("cannot make a scratch folder in {} (TMPDIR): {e}", temp.display()))
    })
}

//! Recorded knowledge about implementations, from the directory `golden`. The subdirectory of an implementation contains its deviations
//! and, for a process manager, the profile that starts it.

use std::path::Path;

use include_dir::{Dir, include_dir};

static GOLDEN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/golden");

/// Returns the names of the subdirectories of `golden`, sorted.
pub fn folders() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&str> = GOLDEN.dirs().filter_map(|dir| dir.path().to_str()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// Returns the text of the file at this path, relative to `golden`. Returns `None` if there is no such text file.
pub fn file(path: &Path) -> Option<&'static str> {
    GOLDEN.get_file(path)?.contents_utf8()
}

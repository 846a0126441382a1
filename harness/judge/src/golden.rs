//! What is known of implementations, as the repository keeps it in `golden`: a folder for each, with its deviations and, for process
//! managers, a profile by which they are started.

use std::path::Path;

use include_dir::{Dir, include_dir};

static GOLDEN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/golden");

/// The names of the folders, sorted.
pub fn folders() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&str> = GOLDEN.dirs().filter_map(|dir| dir.path().to_str()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// The text of a file, by its path below `golden`.
pub fn file(path: &Path) -> Option<&'static str> {
    GOLDEN.get_file(path)?.contents_utf8()
}

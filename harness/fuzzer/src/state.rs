//! What a campaign leaves for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::edges::Reached;

/// The file in the campaign's folder.
pub const FILE: &str = "campaign.json";

/// Where a campaign stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The seed of its cases.
    pub seed: u64,
    /// The first case that has not been made.
    pub next: u64,
    /// Cases played.
    pub sessions: u64,
    /// Buckets and how often they were seen.
    pub buckets: BTreeMap<String, u64>,
    /// Buckets that turned out to be others: what crashes a server is often noticed some requests later.
    #[serde(default)]
    pub aliases: BTreeMap<String, Alias>,
    /// Transitions of the model that were reached, as they are shown.
    pub transitions: BTreeSet<String>,
    /// Edges of the implementation's program that were gone along, where it tells.
    #[serde(default, skip_serializing_if = "Reached::is_empty")]
    pub edges: Reached,
}

/// Why the state of a campaign cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("{}: {error}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It says something else.
    #[error("{}: {error}", file.display())]
    Text {
        /// Which.
        file: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
}

/// Another name of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The bucket.
    pub of: String,
    /// How often it was seen under this name.
    pub seen: u64,
    /// Where a process dies, if that is what the bucket is named after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// So often it is looked where a crash happens that has another name, and then each time of so many: one session shows it.
const LOOKS: u64 = 16;
const LATER: u64 = 8;

impl Alias {
    /// Counts one more time; whether to look into it again, since something else may be behind it: ever more seldom.
    pub(super) fn is_due(&mut self) -> bool {
        self.seen += 1;
        match self.place {
            Some(_) => self.seen <= LOOKS || self.seen.is_multiple_of(LATER),
            None => self.seen >= 8 && self.seen.is_power_of_two(),
        }
    }
}

impl State {
    /// Writes it into the campaign's folder; what was there is replaced as a whole.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), StateError> {
        let path = folder.join(FILE);
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let part = folder.join(".campaign.json.part");
            fs::write(&part, format!("{:#}\n", serde_json::to_value(self)?))?;
            fs::rename(part, &path)
        };
        write().map_err(|error| StateError::File { file: path, error })
    }

    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// It is there and cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, StateError> {
        let file = folder.join(FILE);
        match fs::read_to_string(&file) {
            Ok(text) => {
                serde_json::from_str(&text).map(Some).map_err(|error| StateError::Text { file, error })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::File { file, error }),
        }
    }
}

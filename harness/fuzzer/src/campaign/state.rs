//! The state that a campaign saves for a later campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::observe::edges::CoveredEdges;

/// The name of the state file in the campaign's folder.
pub const FILE: &str = "campaign.json";

/// The state of a campaign, which a later campaign can continue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignState {
    /// The seed of the campaign's cases.
    pub seed: u64,
    /// The number of the next case.
    pub next: u64,
    /// Number of cases played.
    pub sessions: u64,
    /// Buckets, and the number of times that each was seen.
    pub buckets: BTreeMap<String, u64>,
    /// The bucket that each alias refers to. A server's crash is often detected only after further requests, which changes the name of
    /// the crash's bucket.
    #[serde(default)]
    pub aliases: BTreeMap<String, BucketAlias>,
    /// Transitions of the model that were covered, as text.
    pub transitions: BTreeSet<String>,
    /// Edges that were covered in the implementation's program, if it is instrumented.
    #[serde(default, skip_serializing_if = "CoveredEdges::is_empty")]
    pub edges: CoveredEdges,
}

/// An error while reading or writing the state of a campaign.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is invalid.
    #[error("{}: {error}", file.display())]
    Text {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: serde_json::Error,
    },
}

/// The bucket that an alias refers to, and the number of times that it was seen under this alias.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketAlias {
    /// The bucket that the alias refers to.
    #[serde(rename = "of")]
    pub bucket: String,
    /// Number of times that the bucket was seen under the alias.
    pub seen: u64,
    /// The location of the crash, if the bucket's name contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// After this number of occurrences, an alias with a known crash location is examined less often: one occurrence in [`RECHECK_FACTOR`] is
/// examined.
const MAX_ALIAS_RUNS: u64 = 16;
const RECHECK_FACTOR: u64 = 8;

impl BucketAlias {
    /// Counts an occurrence of the alias, and returns whether to examine it. Some occurrences are examined, because a different failure may
    /// have the same name. Examinations become rarer over time.
    pub(crate) fn is_due(&mut self) -> bool {
        self.seen += 1;
        match self.place {
            Some(_) => self.seen <= MAX_ALIAS_RUNS || self.seen.is_multiple_of(RECHECK_FACTOR),
            None => self.seen >= 8 && self.seen.is_power_of_two(),
        }
    }
}

impl CampaignState {
    /// Writes the state to the campaign's folder. An existing file is replaced atomically.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
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

    /// Reads the state. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file exists but cannot be read or is invalid.
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

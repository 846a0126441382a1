//! What a campaign leaves for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The file in the campaign's folder.
pub const FILE: &str = "campaign.json";

/// Where a campaign stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The seed of its sessions.
    pub seed: u64,
    /// The first session that has not been made.
    pub next: u64,
    /// Sessions played.
    pub sessions: u64,
    /// Buckets and how often they were seen.
    pub buckets: BTreeMap<String, u64>,
    /// Buckets that turned out to be others: what crashes a server is often noticed some requests later.
    #[serde(default)]
    pub aliases: BTreeMap<String, Alias>,
    /// Transitions of the model that were reached.
    pub transitions: BTreeSet<String>,
}

/// Another name of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The bucket.
    pub of: String,
    /// How often it was seen under this name.
    pub seen: u64,
}

impl Alias {
    /// Counts one more time; whether to look into it again, since something else may be behind it: ever more seldom.
    pub(super) fn is_due(&mut self) -> bool {
        self.seen += 1;
        self.seen >= 8 && self.seen.is_power_of_two()
    }
}

impl State {
    /// Writes it into the campaign's folder; what was there is replaced as a whole.
    ///
    /// # Errors
    ///
    /// It cannot be written; the message names the file.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(FILE);
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let part = folder.join(".campaign.json.part");
            fs::write(&part, format!("{:#}\n", serde_json::to_value(self)?))?;
            fs::rename(part, &path)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// It is there and cannot be read; the message names the file.
    pub fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| format!("{}: {e}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }
}

//! What is known already: failures that are not reported again, and what generators shall leave alone so that they get past
//! them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use pmi_scenario::names::NamePattern;

/// A file of known buckets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The entries.
    #[serde(default)]
    pub known: Vec<KnownBucket>,
}

/// Why a file of known buckets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// It cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It says something else.
    #[error("{}: {error}", file.display())]
    Text {
        /// Which.
        file: PathBuf,
        /// Why.
        error: Box<toml::de::Error>,
    },
}

/// One entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownBucket {
    /// The bucket, or a pattern with `*`.
    pub bucket: NamePattern,
    /// Why it is accepted: a link to an issue, for example.
    #[serde(default)]
    pub reason: String,
    /// Ingredients of cases that are not played at all (`half:put`, `junk:*`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<NamePattern>,
}

impl Known {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or says something else.
    pub fn read(file: &Path) -> Result<Self, KnownError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| KnownError::File { file: file.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| KnownError::Text { file: file.to_owned(), error: Box::new(error) })
    }

    /// Whether a failure is known, by its key as it is shown.
    pub fn has(&self, bucket: &str) -> bool {
        self.known.iter().any(|k| k.bucket.fits(bucket))
    }

    /// Whether a case with these ingredients is to be left out.
    pub fn avoids(&self, ingredients: &BTreeSet<String>) -> bool {
        let patterns = || self.known.iter().flat_map(|k| &k.avoid);
        ingredients.iter().any(|i| patterns().any(|p| p.fits(i)))
    }
}

/// After so many cases it is judged what an ingredient leads to.
const ENOUGH: u32 = 12;

/// Learns which ingredients lead to nothing but what is known.
#[derive(Debug, Default)]
pub struct Steering {
    /// Cases with the ingredient, and those that ended in a crash or hang that was known.
    seen: HashMap<String, (u32, u32)>,
}

impl Steering {
    /// Notes the end of a case.
    pub fn note(&mut self, ingredients: &BTreeSet<String>, ended_as_known: bool) {
        for ingredient in ingredients {
            let (played, known) = self.seen.entry(ingredient.clone()).or_default();
            *played += 1;
            *known += u32::from(ended_as_known);
        }
    }

    /// Whether to leave a case out. One in eight is played nevertheless, by its number: what is behind the known may
    /// show.
    pub fn skips(&self, ingredients: &BTreeSet<String>, number: u64) -> bool {
        let shows_only_known = |i: &String| {
            self.seen.get(i).is_some_and(|(played, known)| *played >= ENOUGH && *known * 2 > *played)
        };
        !number.is_multiple_of(8) && ingredients.iter().any(shows_only_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn patterns_suppress_and_avoid() {
        let known: Known =
            toml::from_str("[[known]]\nbucket = \"crash--proxy--*\"\navoid = [\"half:*\"]").unwrap();
        assert!(known.has("crash--proxy--SIGSEGV--put") && !known.has("job-stays--put"));
        assert!(known.avoids(&set(&["token:get", "half:put"])) && !known.avoids(&set(&["token:get"])));
        assert!(toml::from_str::<Known>("[[known]]\nbuckets = \"x\"").is_err());
    }

    #[test]
    fn what_only_shows_the_known_is_left_out_mostly() {
        let mut steering = Steering::default();
        for _ in 0..ENOUGH {
            steering.note(&set(&["junk:put"]), true);
            steering.note(&set(&["half:put"]), false);
        }
        let skipped = (0..80).filter(|n| steering.skips(&set(&["junk:put"]), *n)).count();
        assert_eq!(skipped, 70);
        assert!((0..80).all(|n| !steering.skips(&set(&["half:put"]), n)));
    }
}

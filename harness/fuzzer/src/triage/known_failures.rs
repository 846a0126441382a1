//! Known failures, which are not reported again, and the mutations that campaigns avoid because known failures would hide new ones.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use pmi_scenario::names::NamePattern;

use pmi_judge::backtrace::Backtrace;
use pmi_judge::deviations::PLACEHOLDER_REASON;

use super::store::StoredFinding;
use crate::observe::failure::{CrashSite, FailureKey};

/// The content of a file of known buckets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownFailures {
    /// The entries of the file.
    #[serde(default)]
    pub known: Vec<KnownBucket>,
}

/// An error while reading a file of known buckets.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The file is invalid.
    #[error("{}: {error}", file.display())]
    Text {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: Box<toml::de::Error>,
    },
}

/// An entry in a file of known buckets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownBucket {
    /// The bucket, or a pattern with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<NamePattern>,
    /// The function in which a process dies, or a pattern with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<NamePattern>,
    /// True if the trigger must not be published yet. A campaign then reports the failure with the text of this entry instead of the
    /// bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// The reason why the failure is accepted, for example a link to an issue.
    #[serde(default)]
    pub reason: String,
    /// Patterns such as `half:put` or `junk:*`, which name a mutation and the kind of message that it changes. Cases that match one of them
    /// are not played.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<NamePattern>,
}

impl KnownBucket {
    /// Returns whether the entry matches a failure. An entry with neither a bucket nor a crash location matches nothing.
    fn matches(&self, bucket: &str, place: Option<&str>) -> bool {
        let bucket = self.bucket.as_ref().map(|pattern| pattern.matches(bucket));
        let place = self.place.as_ref().map(|pattern| place.is_some_and(|place| pattern.matches(place)));
        (bucket.is_some() || place.is_some()) && bucket.unwrap_or(true) && place.unwrap_or(true)
    }

    /// Returns the text of the entry's patterns.
    fn text(&self) -> String {
        let place = self.place.as_ref().map(|pattern| format!("in {}", pattern.text()));
        let words = self.bucket.as_ref().map(|pattern| pattern.text().to_owned());
        words.into_iter().chain(place).collect::<Vec<_>>().join(" ")
    }
}

impl KnownFailures {
    /// Reads a file of known buckets.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is invalid.
    pub fn read(file: &Path) -> Result<Self, KnownError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| KnownError::File { file: file.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| KnownError::Text { file: file.to_owned(), error: Box::new(error) })
    }

    /// Returns the text of a file of known buckets. The text has an entry for every crash location, and for every bucket without a crash
    /// location. The user adds the reasons.
    ///
    /// # Errors
    ///
    /// Returns an error if the findings cannot be written as TOML, which never happens for the findings of a campaign.
    pub fn draft(found: &[StoredFinding]) -> Result<String, toml::ser::Error> {
        let mut drafted = Self::default();
        for found in found {
            let place = found.backtrace.as_ref().and_then(Backtrace::place).map(|place| place.to_string());
            let bucket = place.is_none().then(|| NamePattern::new(&found.bucket));
            let is_drafted = |entry: &KnownBucket| {
                entry.place.as_ref().map(NamePattern::text) == place.as_deref()
                    && entry.bucket.as_ref().map(NamePattern::text) == bucket.as_ref().map(NamePattern::text)
            };
            if !drafted.known.iter().any(is_drafted) {
                drafted.known.push(KnownBucket {
                    place: place.as_deref().map(NamePattern::new),
                    bucket,
                    sensitive: false,
                    reason: PLACEHOLDER_REASON.to_owned(),
                    avoid: Vec::new(),
                });
            }
        }
        toml::to_string(&drafted)
    }

    /// Returns the name of a known failure, given its bucket and the location of its crash. The name is the bucket, or the text of the
    /// entry if the entry is sensitive. Returns `None` if the failure is not known.
    pub fn name(&self, bucket: &str, place: Option<&str>) -> Option<String> {
        let entry = self.known.iter().find(|known| known.matches(bucket, place))?;
        Some(if entry.sensitive { entry.text() } else { bucket.to_owned() })
    }

    /// Returns the name of a failure that is not examined. If a sensitive entry names a crash location, a crash at an unknown location may
    /// belong to this entry. The name of the crash then omits the call and the action before the crash.
    pub(crate) fn name_of_unseen(&self, key: &FailureKey) -> String {
        let is_hidden = self.known.iter().any(|known| known.sensitive && known.place.is_some());
        match key {
            FailureKey::Crash { program: who, cause, site: CrashSite::Unknown { .. } } if is_hidden => {
                let site = CrashSite::Unknown { call: None, after: None };
                FailureKey::Crash { program: who.clone(), cause: cause.clone(), site }.to_string()
            }
            key => key.to_string(),
        }
    }

    /// Returns whether an entry excludes cases with these ingredients.
    pub fn avoids(&self, ingredients: &BTreeSet<String>) -> bool {
        let patterns = || self.known.iter().flat_map(|k| &k.avoid);
        ingredients.iter().any(|i| patterns().any(|p| p.matches(i)))
    }
}

/// Minimum number of cases before an ingredient is assessed.
const MIN_INGREDIENT_CASES: u32 = 12;

/// Statistics that determine which ingredients mostly lead to known failures.
#[derive(Debug, Default)]
pub struct IngredientStatistics {
    /// For each ingredient, the number of cases with it, and the number of those that ended in a known crash or hang.
    counts: HashMap<String, (u32, u32)>,
}

impl IngredientStatistics {
    /// Counts a case that was played.
    pub fn note(&mut self, ingredients: &BTreeSet<String>, ended_as_known: bool) {
        for ingredient in ingredients {
            let (played, known) = self.counts.entry(ingredient.clone()).or_default();
            *played += 1;
            *known += u32::from(ended_as_known);
        }
    }

    /// Returns whether to skip a case. A case is skipped if one of its ingredients mostly leads to known failures. Every eighth case is
    /// played regardless, because it may show a failure that a known failure hides.
    pub fn skips(&self, ingredients: &BTreeSet<String>, number: u64) -> bool {
        let shows_only_known = |i: &String| {
            self.counts
                .get(i)
                .is_some_and(|(played, known)| *played >= MIN_INGREDIENT_CASES && *known * 2 > *played)
        };
        !number.is_multiple_of(8) && ingredients.iter().any(shows_only_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::failure::{CrashCause, LastAction};

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn patterns_match_buckets_and_ingredients() {
        let known: KnownFailures =
            toml::from_str("[[known]]\nbucket = \"crash--proxy--*\"\navoid = [\"half:*\"]").unwrap();
        let name = |bucket: &str| known.name(bucket, None);
        assert_eq!(name("crash--proxy--SIGSEGV--put").as_deref(), Some("crash--proxy--SIGSEGV--put"));
        assert_eq!(name("job-stays--put"), None);
        assert!(known.avoids(&set(&["token:get", "half:put"])) && !known.avoids(&set(&["token:get"])));
        assert!(toml::from_str::<KnownFailures>("[[known]]\nbuckets = \"x\"").is_err());
    }

    #[test]
    fn matches_crash_by_location_and_hides_sensitive_name() {
        let text = "[[known]]\nplace = \"handle_*\"\nbucket = \"crash--pm--*\"\nsensitive = true\n[[known]]\nreason = \"none\"";
        let known: KnownFailures = toml::from_str(text).unwrap();
        let name = |bucket, place| known.name(bucket, place);
        let expected = Some("crash--pm--* in handle_*".to_owned());
        assert_eq!(name("crash--pm--SIGSEGV--in-handle_put", Some("handle_put")), expected);
        assert_eq!(name("crash--pm--SIGSEGV--in-serve", Some("serve")), None);
        assert_eq!(name("crash--other--SIGSEGV--in-handle_put", Some("handle_put")), None);
        assert_eq!(name("crash--pm--SIGSEGV--put", None), None);
    }

    #[test]
    fn hides_trigger_of_possibly_sensitive_crash() {
        let crash = FailureKey::Crash {
            program: "pm".to_owned(),
            cause: CrashCause::Signal(11),
            site: CrashSite::Unknown { call: None, after: Some(LastAction::Close) },
        };
        let name = |text: &str| toml::from_str::<KnownFailures>(text).unwrap().name_of_unseen(&crash);
        assert_eq!(name("[[known]]\nplace = \"handle_put\"\nsensitive = true"), "crash--pm--SIGSEGV");
        for open in
            ["", "[[known]]\nplace = \"handle_put\"", "[[known]]\nbucket = \"rule--*\"\nsensitive = true"]
        {
            assert_eq!(name(open), "crash--pm--SIGSEGV--close");
        }
    }

    #[test]
    fn draft_of_known_failures_covers_all_findings() {
        let found = |bucket: &str| -> StoredFinding {
            serde_json::from_value(serde_json::json!({
                "bucket": bucket, "what": "", "requirement": null, "server": "", "seed": 1, "number": 2,
                "ingredients": [], "again": 5, "again_minimal": 5, "steps": [1, 1], "shrinking": 0
            }))
            .unwrap()
        };
        let found = [found("hang--x"), found("rule--y"), found("hang--x")];
        let text = KnownFailures::draft(&found).unwrap();
        let drafted: KnownFailures = toml::from_str(&text).unwrap();
        assert_eq!((drafted.known.len(), text.matches("TODO").count()), (2, 2), "{text}");
        assert!(["hang--x", "rule--y"].iter().all(|bucket| drafted.name(bucket, None).is_some()));
        assert!(drafted.name("hang--z", None).is_none());
    }

    #[test]
    fn skips_most_cases_that_lead_to_known_failures() {
        let mut steering = IngredientStatistics::default();
        for _ in 0..MIN_INGREDIENT_CASES {
            steering.note(&set(&["junk:put"]), true);
            steering.note(&set(&["half:put"]), false);
        }
        let skipped = (0..80).filter(|n| steering.skips(&set(&["junk:put"]), *n)).count();
        assert_eq!(skipped, 70);
        assert!((0..80).all(|n| !steering.skips(&set(&["half:put"]), n)));
    }
}

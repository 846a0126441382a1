//! The catalogue of requirements: RFC 13's statements and the de facto ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use schemars::JsonSchema;

/// How binding a requirement is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Level {
    /// MUST, SHALL, REQUIRED.
    #[serde(rename = "MUST")]
    Must,
    /// SHOULD, RECOMMENDED.
    #[serde(rename = "SHOULD")]
    Should,
    /// MAY, OPTIONAL.
    #[serde(rename = "MAY")]
    May,
    /// What implementations agree on and RFC 13 does not say.
    #[serde(rename = "DE-FACTO")]
    DeFacto,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
            Self::DeFacto => "DE-FACTO",
        })
    }
}

/// How bad it is: what the requirement's level makes of a breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A MAY, a de facto rule, or a point on which RFC 13 contradicts itself.
    Note,
    /// A SHOULD.
    Warn,
    /// A MUST or SHALL.
    Fail,
}

/// Where a requirement stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A sentence with a key word.
    Text,
    /// A rule of the grammar.
    Abnf,
    /// A definition without which the protocol means nothing.
    Definition,
}

/// Whom a requirement binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binds {
    /// The process manager.
    Server,
    /// The process.
    Client,
    /// A library with the C API.
    Library,
    /// The part of a process manager that serves one node.
    Proxy,
}

impl std::fmt::Display for Binds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Library => "library",
            Self::Proxy => "proxy",
        })
    }
}

/// One normative statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Stable name.
    pub id: String,
    /// How binding.
    pub level: Level,
    /// Where from.
    pub basis: Basis,
    /// Section of the source.
    pub section: String,
    /// Whom it binds.
    pub binds: Vec<Binds>,
    /// Paraphrase, one sentence.
    pub text: String,
    /// The rules that it shares with requirements of other standards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Name of the grammar rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnf: Option<String>,
    /// Why it cannot be seen from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// How the text contradicts itself; a breach is a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<String>,
    /// A slip of the text, and the reading that we judge by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
    /// A wording of ours that would mend the text, for those who keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<String>,
    /// What implementations do, for de facto requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Whether a breach is told and not failed, since the user has not asked to be judged by the set that it belongs to.
    #[serde(skip)]
    pub advisory: bool,
    /// Version of the suite that it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

impl Requirement {
    /// Whether it has to be shown that this is tested in those whom it binds: a MUST that can be seen to be broken. What the text
    /// contradicts itself about is never failed, so that nothing that is done there is a fault.
    pub fn needs_fault(&self, whom: Binds) -> bool {
        self.level == Level::Must
            && self.binds.contains(&whom)
            && self.excluded.is_none()
            && self.contradiction.is_none()
    }

    /// What a breach is.
    pub fn severity(&self) -> Severity {
        match self.level {
            _ if self.contradiction.is_some() || self.advisory => Severity::Note,
            Level::Must => Severity::Fail,
            Level::Should => Severity::Warn,
            Level::May | Level::DeFacto => Severity::Note,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "for readers of the file")]
    spec: String,
    #[expect(dead_code, reason = "for readers of the file")]
    title: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    url: Option<String>,
    requirement: Vec<Requirement>,
}

/// Why a file of requirements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It says something else; with line and column.
    #[error(transparent)]
    Text(Box<toml::de::Error>),
    /// This id is there already.
    #[error("the id {0} is there twice")]
    Twice(String),
}

/// A set of requirements: what they are taken from, which is what their ids begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// RFC 13, its grammar left out.
    Rfc13,
    /// The rules of RFC 13's grammar.
    Rfc13Grammar,
    /// What PMI-2 servers have in common, and portable clients count on.
    Pmi2Common,
    /// The draft of PMI-2.
    Pmi2Draft,
    /// MPICH's table of PMI-2's messages.
    Pmi2Mpich,
    /// MPICH's PMI-1.2.
    Mpich12,
    /// What else there is: what implementations agree on.
    Other,
}

impl Set {
    /// What the ids of a set begin with; of two that fit, the first counts.
    const PREFIXES: [(&'static str, Self); 6] = [
        ("rfc13.abnf.", Self::Rfc13Grammar),
        ("rfc13.", Self::Rfc13),
        ("pmi2.common.", Self::Pmi2Common),
        ("pmi2.draft.", Self::Pmi2Draft),
        ("pmi2.mpich.", Self::Pmi2Mpich),
        ("mpich-1.2.", Self::Mpich12),
    ];

    /// The set that a requirement belongs to, by its id.
    pub fn of(id: &str) -> Self {
        Self::PREFIXES.iter().find(|(prefix, _)| id.starts_with(prefix)).map_or(Self::Other, |(_, set)| *set)
    }

    /// Whether it is a part of RFC 13.
    pub fn is_rfc13(self) -> bool {
        matches!(self, Self::Rfc13 | Self::Rfc13Grammar)
    }

    /// Whether it is about PMI-2.
    pub fn is_pmi2(self) -> bool {
        matches!(self, Self::Pmi2Common | Self::Pmi2Draft | Self::Pmi2Mpich)
    }
}

/// Sets by which only those are judged who ask for it, and how they do: there is no standard behind them that everybody has agreed on.
pub const ADVISORY_SETS: &[(&str, Set)] =
    &[("pmi2-draft", Set::Pmi2Draft), ("pmi2-mpich", Set::Pmi2Mpich), ("mpich-1.2", Set::Mpich12)];

/// Whether a requirement belongs to one of them.
pub fn is_advisory(id: &str) -> bool {
    let of = Set::of(id);
    ADVISORY_SETS.iter().any(|(_, set)| *set == of)
}

/// All requirements, in the order of the files.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    list: Vec<Requirement>,
    by_id: BTreeMap<String, usize>,
}

impl Catalogue {
    /// Adds a file's requirements.
    ///
    /// # Errors
    ///
    /// See [`CatalogueError`].
    pub fn add(&mut self, text: &str) -> Result<(), CatalogueError> {
        let file: File = toml::from_str(text).map_err(|error| CatalogueError::Text(Box::new(error)))?;
        for mut requirement in file.requirement {
            requirement.advisory = is_advisory(&requirement.id);
            if self.by_id.insert(requirement.id.clone(), self.list.len()).is_some() {
                return Err(CatalogueError::Twice(requirement.id));
            }
            self.list.push(requirement);
        }
        Ok(())
    }

    /// From here on, what belongs to this set is judged by its level. Whether there is such a set.
    pub fn judge_by(&mut self, set: &str) -> bool {
        let Some((_, set)) = ADVISORY_SETS.iter().find(|(name, _)| *name == set) else { return false };
        for requirement in self.list.iter_mut().filter(|r| Set::of(&r.id) == *set) {
            requirement.advisory = false;
        }
        true
    }

    /// The sets that are judged by because somebody asked for it.
    pub fn judged_by(&self) -> Vec<&'static str> {
        let counts = |set: Set| self.list.iter().any(|r| Set::of(&r.id) == set && !r.advisory);
        ADVISORY_SETS.iter().filter(|(_, set)| counts(*set)).map(|(name, _)| *name).collect()
    }

    /// A requirement by its id.
    pub fn get(&self, id: &str) -> Option<&Requirement> {
        self.by_id.get(id).map(|at| &self.list[*at])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.list.iter()
    }
}

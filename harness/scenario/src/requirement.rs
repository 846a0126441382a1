//! The catalogue of requirements: the statements of the standards, and the behaviour that implementations have in common.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use schemars::JsonSchema;

use crate::ast::Dialect;

/// The level of a requirement.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Level {
    /// MUST, SHALL or REQUIRED.
    #[serde(rename = "MUST")]
    Must,
    /// SHOULD or RECOMMENDED.
    #[serde(rename = "SHOULD")]
    Should,
    /// MAY or OPTIONAL.
    #[serde(rename = "MAY")]
    May,
    /// Common behaviour of implementations that RFC 13 does not mention.
    #[serde(rename = "DE-FACTO")]
    DeFacto,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The severity of a breach, which usually follows from the requirement's level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A breach of a MAY, of most de facto requirements, of a statement that another part of RFC 13 contradicts, or of a requirement in an
    /// advisory set that the user has not selected.
    Note,
    /// A breach of a SHOULD.
    Warn,
    /// A breach of a MUST or SHALL.
    Fail,
}

impl Severity {
    /// Returns the name of the severity in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// The kind of text that states a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A sentence with a keyword such as MUST.
    Text,
    /// A rule of the grammar.
    Abnf,
    /// A definition that the protocol depends on.
    Definition,
}

/// A party that a requirement binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundParty {
    /// The process manager.
    Server,
    /// A process that speaks PMI.
    Client,
    /// A library with the C API.
    Library,
    /// The part of a process manager that serves one node.
    Proxy,
}

impl std::fmt::Display for BoundParty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A normative statement of a specification.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The stable id.
    pub id: String,
    /// The level, such as MUST.
    pub level: Level,
    /// The kind of text that states the requirement.
    pub basis: Basis,
    /// The section of the source that states the requirement.
    pub section: String,
    /// The parties that the requirement binds.
    pub binds: Vec<BoundParty>,
    /// A one-sentence paraphrase of the requirement.
    pub text: String,
    /// The rules that the requirement shares with requirements from other standards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The name of the grammar rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnf: Option<String>,
    /// The reason why the requirement is not tested, if it is excluded from the tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// The contradiction in the text, if there is one. A breach of a contradictory requirement is only a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<String>,
    /// An ambiguity or error in the text, and the interpretation that the judge applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
    /// A proposal for a better wording, addressed to the editors of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<String>,
    /// The evidence for a de facto requirement: the observed behaviour of implementations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// True if a breach is a failure even though the requirement is de facto. Such a requirement follows from a requirement of a standard.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails: bool,
    /// True if a breach is reported but is not a failure, because the user has not selected the requirement's set.
    #[serde(skip)]
    pub advisory: bool,
    /// The version of the suite that introduced the requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

impl Requirement {
    /// Returns whether the tests must prove that a breach by this party is detected. This applies to every observable requirement whose
    /// breach can be a failure.
    pub fn needs_fault(&self, party: BoundParty) -> bool {
        (self.level == Level::Must || self.fails)
            && self.binds.contains(&party)
            && self.excluded.is_none()
            && self.contradiction.is_none()
    }

    /// Returns the severity of a breach.
    pub fn severity(&self) -> Severity {
        match self.level {
            _ if self.contradiction.is_some() || self.advisory => Severity::Note,
            Level::Must => Severity::Fail,
            Level::DeFacto if self.fails => Severity::Fail,
            Level::Should => Severity::Warn,
            Level::May | Level::DeFacto => Severity::Note,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementsFile {
    #[expect(dead_code, reason = "for readers of the file")]
    spec: String,
    #[expect(dead_code, reason = "for readers of the file")]
    title: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    url: Option<String>,
    requirement: Vec<Requirement>,
}

/// An error in a file of requirements.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A syntax error, with its line and column.
    #[error(transparent)]
    Text(Box<toml::de::Error>),
    /// A duplicate id.
    #[error("duplicate id {0}")]
    DuplicateId(String),
}

/// A set of requirements from one source, identified by the prefix of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementSet {
    /// RFC 13 without its grammar.
    Rfc13,
    /// The grammar of RFC 13.
    Rfc13Grammar,
    /// The behaviour that PMI-2 servers have in common and that portable clients rely on.
    Pmi2Common,
    /// The PMI-2 draft.
    Pmi2Draft,
    /// MPICH's table of PMI-2 messages.
    Pmi2Mpich,
    /// PMI-1.2, MPICH's extension of PMI-1.
    Mpich12,
    /// Any other requirement, in particular common behaviour of implementations.
    Other,
}

impl RequirementSet {
    /// The prefixes of the ids in each set. If several prefixes match an id, the first one applies.
    const PREFIXES: [(&'static str, Self); 6] = [
        ("rfc13.abnf.", Self::Rfc13Grammar),
        ("rfc13.", Self::Rfc13),
        ("pmi2.common.", Self::Pmi2Common),
        ("pmi2.draft.", Self::Pmi2Draft),
        ("pmi2.mpich.", Self::Pmi2Mpich),
        ("mpich-1.2.", Self::Mpich12),
    ];

    /// Returns the set that a requirement belongs to.
    pub fn of(id: &str) -> Self {
        Self::PREFIXES.iter().find(|(prefix, _)| id.starts_with(prefix)).map_or(Self::Other, |(_, set)| *set)
    }

    /// Returns whether the set is a part of RFC 13.
    pub fn is_rfc13(self) -> bool {
        matches!(self, Self::Rfc13 | Self::Rfc13Grammar)
    }

    /// Returns the dialect to which the set applies, if any.
    pub fn dialect(self) -> Option<Dialect> {
        let is_pmi2 = matches!(self, Self::Pmi2Common | Self::Pmi2Draft | Self::Pmi2Mpich);
        (self != Self::Other).then(|| Dialect::ALL[usize::from(is_pmi2)])
    }
}

/// Sets that are not part of an adopted standard, with the names by which users select them. A breach is a failure only if the user has
/// selected the set.
pub const ADVISORY_SETS: &[(&str, RequirementSet)] = &[
    ("pmi2-draft", RequirementSet::Pmi2Draft),
    ("pmi2-mpich", RequirementSet::Pmi2Mpich),
    ("mpich-1.2", RequirementSet::Mpich12),
];

/// Returns whether a requirement belongs to an advisory set.
pub fn is_advisory(id: &str) -> bool {
    let of = RequirementSet::of(id);
    ADVISORY_SETS.iter().any(|(_, set)| *set == of)
}

/// All requirements, in the order of their files.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    list: Vec<Requirement>,
    by_id: BTreeMap<String, usize>,
    by_rule: BTreeMap<String, Vec<usize>>,
}

impl Catalogue {
    /// Adds the requirements of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has invalid syntax or a duplicate id.
    pub fn add(&mut self, text: &str) -> Result<(), CatalogueError> {
        let file: RequirementsFile =
            toml::from_str(text).map_err(|error| CatalogueError::Text(Box::new(error)))?;
        for mut requirement in file.requirement {
            requirement.advisory = is_advisory(&requirement.id);
            if self.by_id.insert(requirement.id.clone(), self.list.len()).is_some() {
                return Err(CatalogueError::DuplicateId(requirement.id));
            }
            for rule in &requirement.rules {
                self.by_rule.entry(rule.clone()).or_default().push(self.list.len());
            }
            self.list.push(requirement);
        }
        Ok(())
    }

    /// Returns the requirements that share this rule, in order.
    pub fn of_rule(&self, rule: &str) -> impl Iterator<Item = &Requirement> {
        self.by_rule.get(rule).into_iter().flatten().map(|place| &self.list[*place])
    }

    /// Enables an advisory set. The severity of a breach then depends on the level of the requirement. Returns whether the set is known.
    pub fn enable_set(&mut self, set: &str) -> bool {
        let Some((_, set)) = ADVISORY_SETS.iter().find(|(name, _)| *name == set) else { return false };
        for requirement in self.list.iter_mut().filter(|r| RequirementSet::of(&r.id) == *set) {
            requirement.advisory = false;
        }
        true
    }

    /// Returns the names of the advisory sets that are enabled.
    pub fn enabled_sets(&self) -> Vec<&'static str> {
        let counts =
            |set: RequirementSet| self.list.iter().any(|r| RequirementSet::of(&r.id) == set && !r.advisory);
        ADVISORY_SETS.iter().filter(|(_, set)| counts(*set)).map(|(name, _)| *name).collect()
    }

    /// Returns the requirement with this id.
    pub fn get(&self, id: &str) -> Option<&Requirement> {
        self.by_id.get(id).map(|at| &self.list[*at])
    }

    /// Iterates over all requirements.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.list.iter()
    }
}

//! The dialects in which an entry applies.

use pmi_wire::Framing;
use serde::Deserialize;

/// The dialects of an entry: PMI-1, PMI-2 or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Dialects {
    /// Every dialect that has the operation.
    #[default]
    #[serde(rename = "all")]
    All,
    /// PMI-1.1 and PMI-1.2.
    #[serde(rename = "pmi-1")]
    Pmi1,
    /// PMI-2.
    #[serde(rename = "pmi-2")]
    Pmi2,
}

impl Dialects {
    /// Returns the dialects that these requirements apply to: the dialects of their standard, or all dialects if the ids are from several
    /// standards. An id without a standard names a rule that several standards share.
    pub(crate) fn of_requirements(ids: &[&str]) -> Self {
        const PMI1: [&str; 5] = ["rfc13", "de-facto", "mpich-1", "pmi-port", "singleton"];
        let standard = |id: &str| match id.split_once('.') {
            Some(("pmi2", _)) => Self::Pmi2,
            Some((standard, _)) if PMI1.contains(&standard) => Self::Pmi1,
            _ => Self::All,
        };
        let mut all = ids.iter().map(|id| standard(id));
        let first = all.next().unwrap_or_default();
        if all.all(|other| other == first) { first } else { Self::All }
    }

    /// Returns whether messages of this framing belong to one of the dialects.
    pub fn has(self, framing: Framing) -> bool {
        match self {
            Self::All => true,
            Self::Pmi1 => framing == Framing::Lines,
            Self::Pmi2 => framing == Framing::Frames,
        }
    }
}

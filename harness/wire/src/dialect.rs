//! The dialects: the protocols that a connection may use after its init line.

use std::fmt;
use std::str::FromStr;

use crate::protocol::{Framing, Version};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum Dialect {
    /// PMI-1 as documented in RFC 13.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "pmi-1.1"))]
    Pmi1,
    /// PMI-2 as documented in MPICH's draft.
    #[cfg_attr(feature = "serde", serde(rename = "pmi-2"))]
    Pmi2,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 2] = [Self::Pmi1, Self::Pmi2];

    /// The names by which users select the dialects, in the order of [`Dialect::ALL`].
    pub const WORDS: [&'static str; 2] = ["pmi-1.1", "pmi-2"];

    /// Returns the element of a pair that belongs to this dialect: the first for PMI-1, the second for PMI-2.
    pub fn pick<T>(self, pair: [T; 2]) -> T {
        self.framing().pick(pair)
    }

    /// Returns the name by which users select the dialect.
    pub fn word(self) -> &'static str {
        self.pick(Self::WORDS)
    }

    /// Returns the name of the protocol in reports.
    pub fn title(self) -> &'static str {
        self.pick(["PMI-1", "PMI-2"])
    }

    /// Returns the version that a client of this dialect offers.
    pub fn version(self) -> Version {
        self.pick([Version::V1_1, Version::V2_0])
    }

    /// Returns the dialect that uses this framing after the init line.
    pub fn of(framing: Framing) -> Self {
        framing.pick(Self::ALL)
    }

    /// Returns the framing of the dialect's messages after the init line.
    pub fn framing(self) -> Framing {
        Framing::ALL[self as usize]
    }

    /// Returns whether the init line negotiates a different framing. The process then joins with fullinit in that framing.
    pub fn switches_framing(self) -> bool {
        self.framing() != Framing::default()
    }
}

/// The error for an unknown dialect name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect; choose from: {}", Dialect::WORDS.join(", "))]
pub struct UnknownDialect;

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(word: &str) -> Result<Self, UnknownDialect> {
        Self::ALL.into_iter().find(|dialect| dialect.word() == word).ok_or(UnknownDialect)
    }
}

impl Version {
    /// Returns the dialect of a connection that has negotiated this version.
    pub fn dialect(self) -> Dialect {
        if self.version == Self::V2_0.version { Dialect::Pmi2 } else { Dialect::Pmi1 }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

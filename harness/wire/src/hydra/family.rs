//! The generations of Hydra's private protocol.

use std::fmt;
use std::str::FromStr;

/// A generation of the control protocol, named after its first version.
///
/// `mpiexec` and the proxy must use the same family from the start, because the protocol has no version negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// MPICH 3.4 to 4.0.2.
    Mpich3_4,
    /// MPICH 4.0.3.
    Mpich4_0_3,
    /// MPICH 4.1.
    Mpich4_1,
    /// MPICH 4.2 and 4.3.
    Mpich4_2,
    /// MPICH 5.0.0 and 5.0.1.
    Mpich5_0,
    /// MPICH 5.0.2.
    Mpich5_0_2,
    /// Intel MPI 2021.
    Intel,
}

/// The first message from a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyInit {
    /// The proxy's number.
    Id,
    /// Four fixed bytes and the proxy's number.
    TaggedId,
    /// Four fixed bytes, the process group and the proxy's number.
    TaggedGroupId,
}

impl ProxyInit {
    /// Returns the length of the message in bytes.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Id => 4,
            Self::TaggedId => 8,
            Self::TaggedGroupId => 12,
        }
    }
}

/// The layout of a frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// 32 bytes, with fields that most commands leave unused, and without the lengths of per-process lists.
    Wide,
    /// 24 bytes, with the process group.
    Grouped,
}

impl Family {
    /// All families, oldest first.
    pub const ALL: [Self; 7] = [
        Self::Mpich3_4,
        Self::Mpich4_0_3,
        Self::Mpich4_1,
        Self::Mpich4_2,
        Self::Mpich5_0,
        Self::Mpich5_0_2,
        Self::Intel,
    ];

    /// Returns the name of the family on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich3_4 => "3.4",
            Self::Mpich4_0_3 => "4.0.3",
            Self::Mpich4_1 => "4.1",
            Self::Mpich4_2 => "4.2",
            Self::Mpich5_0 => "5.0",
            Self::Mpich5_0_2 => "5.0.2",
            Self::Intel => "intel",
        }
    }

    /// Returns the MPI versions that belong to the family, formatted for messages.
    pub fn versions(self) -> &'static str {
        match self {
            Self::Mpich3_4 => "MPICH 3.4 to 4.0.2",
            Self::Mpich4_0_3 => "MPICH 4.0.3",
            Self::Mpich4_1 => "MPICH 4.1",
            Self::Mpich4_2 => "MPICH 4.2 and 4.3",
            Self::Mpich5_0 => "MPICH 5.0.0 and 5.0.1",
            Self::Mpich5_0_2 => "MPICH 5.0.2",
            Self::Intel => "Intel MPI 2021",
        }
    }

    /// Returns the family of an MPICH version; `None` if the version is not supported.
    pub fn of_version(version: &semver::Version) -> Option<Self> {
        match (version.major, version.minor, version.patch) {
            (3, 4, _) | (4, 0, 0..=2) => Some(Self::Mpich3_4),
            (4, 0, _) => Some(Self::Mpich4_0_3),
            (4, 1, _) => Some(Self::Mpich4_1),
            (4, 2 | 3, _) => Some(Self::Mpich4_2),
            (5, 0, 0 | 1) => Some(Self::Mpich5_0),
            (5, 0, _) => Some(Self::Mpich5_0_2),
            _ => None,
        }
    }

    /// Returns the length of a proxy's init record in bytes. The result is meaningless if the proxy sends no init record; see
    /// [`Family::sends_init`].
    pub fn init_len(self) -> usize {
        self.init().len()
    }

    pub(super) fn init(self) -> ProxyInit {
        match self {
            Self::Mpich3_4 | Self::Intel => ProxyInit::Id,
            Self::Mpich4_0_3 | Self::Mpich4_1 => ProxyInit::TaggedId,
            Self::Mpich4_2 | Self::Mpich5_0 | Self::Mpich5_0_2 => ProxyInit::TaggedGroupId,
        }
    }

    pub(super) fn header(self) -> Header {
        match self {
            Self::Mpich3_4 | Self::Mpich4_0_3 => Header::Wide,
            _ => Header::Grouped,
        }
    }

    /// Returns whether a proxy sends an init record.
    pub fn sends_init(self) -> bool {
        self != Self::Intel
    }

    /// Returns whether the launch message lists the programs' ranks. In earlier families, the ranks follow from a map of processor cores.
    pub(super) fn lists_ranks(self) -> bool {
        self == Self::Mpich5_0_2
    }

    /// Returns whether a proxy accepts several process groups. In earlier families, each group needs its own proxies.
    pub fn shares_proxies(self) -> bool {
        self.init() == ProxyInit::TaggedGroupId
    }

    /// Returns whether the launch options must include `--gpu-subdevs-per-proc`. Earlier families do not have this option.
    pub fn has_subdevice_option(self) -> bool {
        self.header() == Header::Grouped
    }

    /// Returns whether all barriers have names, even those of a whole process group.
    pub fn names_barriers(self) -> bool {
        matches!(self, Self::Mpich5_0 | Self::Mpich5_0_2)
    }

    /// Returns whether a backslash in a value escapes the next byte.
    pub(super) fn unescapes(self) -> bool {
        self.header() == Header::Grouped
    }
}

/// Parses a version such as `4.3.2`, `5.0`, `22.05.8` or `5.1.0a1`. Not all of these are valid semantic versions.
pub fn parse_version(text: &str) -> Option<semver::Version> {
    let mut numbers = text
        .split('.')
        .map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default())
        .map(str::parse::<u64>);
    let major = numbers.next()?.ok()?;
    let mut rest = || numbers.next().and_then(Result::ok).unwrap_or(0);
    Some(semver::Version::new(major, rest(), rest()))
}

/// The error for a string that is neither the name of a family nor a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownFamily;

impl fmt::Display for UnknownFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Family::ALL.map(|f| format!("{} ({})", f.name(), f.versions()));
        write!(f, "unknown family; choose from: {}", all.join(", "))
    }
}

impl std::error::Error for UnknownFamily {}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let wanted = text.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|family| family.name() == wanted)
            .or_else(|| Self::of_version(&parse_version(&wanted)?))
            .ok_or(UnknownFamily)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_versions_to_families() {
        for (version, family) in [
            ("3.4.3", "3.4"),
            ("4.0", "3.4"),
            ("4.0.2", "3.4"),
            ("4.0.3", "4.0.3"),
            ("4.1.3", "4.1"),
            ("4.3.2", "4.2"),
            ("5.0.1", "5.0"),
            ("5.0.2", "5.0.2"),
            ("Intel", "intel"),
        ] {
            assert_eq!(version.parse::<Family>().unwrap().name(), family, "{version}");
        }
        for unknown in ["", "3.3", "5.1.0a1", "six"] {
            let error = unknown.parse::<Family>().unwrap_err().to_string();
            assert!(error.contains("5.0.2 (MPICH 5.0.2)"), "{error}");
        }
    }
}

//! The generations of Hydra's private protocol, and how to tell which of them a proxy speaks.

use std::path::Path;
use std::str::FromStr;

use memchr::memmem;

/// A generation of the control protocol, named after the first version that speaks it.
///
/// Nothing is negotiated and the proxy names no version, so both sides must know beforehand.
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

/// What a proxy sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Init {
    /// Its number.
    Id,
    /// Four fixed bytes and its number.
    TaggedId,
    /// Four fixed bytes, the process group and its number.
    TaggedGroupId,
}

impl Init {
    /// Bytes in it.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Id => 4,
            Self::TaggedId => 8,
            Self::TaggedGroupId => 12,
        }
    }
}

/// Layout of a frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// 32 bytes: a field for every use, and most lengths left out.
    Wide,
    /// 24 bytes: names the process group.
    Grouped,
}

impl Family {
    /// Every one, oldest first.
    pub const ALL: [Self; 7] = [
        Self::Mpich3_4,
        Self::Mpich4_0_3,
        Self::Mpich4_1,
        Self::Mpich4_2,
        Self::Mpich5_0,
        Self::Mpich5_0_2,
        Self::Intel,
    ];

    /// As it is written on the command line.
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

    /// The versions that it stands for, for messages.
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

    /// The family of an MPICH version, if there is one that we speak.
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

    /// Guesses from the names of options and variables that a proxy's file holds. Does not tell 4.0.3 from its
    /// predecessors, which have the same.
    fn of_marks(file: &[u8]) -> Option<Self> {
        let has = |mark: &str| memmem::find(file, mark.as_bytes()).is_some();
        let marks = [
            ("HYDRA_BSTRAP_UPSTREAM_FD", Self::Intel),
            ("exec-rank", Self::Mpich5_0_2),
            ("report-bindings", Self::Mpich5_0),
            ("memory-alloc-kinds", Self::Mpich4_2),
            ("gpu-subdevs-per-proc", Self::Mpich4_1),
            ("pmi-id-map", Self::Mpich3_4),
        ];
        marks.iter().find(|(mark, _)| has(mark)).map(|(_, family)| *family)
    }

    /// What `mpiexec.hydra --version` says.
    fn of_launcher(text: &str) -> Result<Option<Self>, String> {
        if text.contains("Intel(R) MPI Library") {
            return Ok(Some(Self::Intel));
        }
        let version = text.lines().find_map(|l| l.trim().strip_prefix("Version:")).map(str::trim);
        let Some(version) = version.and_then(parse_version) else { return Ok(None) };
        match Self::of_version(&version) {
            Some(family) => Ok(Some(family)),
            None => Err(version.to_string()),
        }
    }

    /// Finds out which family a proxy belongs to: by what the launcher beside it says of its version, else by marks
    /// in the proxy's own file.
    ///
    /// # Errors
    ///
    /// What was seen, what would do, and which option decides.
    pub fn detect(proxy: &Path, launcher: Option<&str>) -> Result<Self, String> {
        let mut seen = match launcher.map(Self::of_launcher) {
            Some(Ok(Some(family))) => return Ok(family),
            Some(Ok(None)) => "the mpiexec.hydra beside it names no version that we can read".to_owned(),
            Some(Err(version)) => format!("the mpiexec.hydra beside it is version {version}"),
            None => "there is no mpiexec.hydra beside it that tells its version".to_owned(),
        };
        let file = std::fs::read(proxy).map_err(|e| format!("{}: {e}", proxy.display()))?;
        match Self::of_marks(&file) {
            // A version that we know of and do not speak is no case for guesses.
            Some(family) if !matches!(launcher.map(Self::of_launcher), Some(Err(_))) => return Ok(family),
            Some(family) => seen += &format!(", and its file looks like {}", family.versions()),
            None => seen += ", and its file holds none of the option names by which we know a proxy",
        }
        Err(format!(
            "{} is of no generation of Hydra that we know: {seen}; {}",
            proxy.display(),
            Self::choices()
        ))
    }

    /// The choices of `--family`, for messages.
    pub fn choices() -> String {
        let all = Self::ALL.map(|f| format!("{} ({})", f.name(), f.versions()));
        format!("--family says which to speak: {}", all.join(", "))
    }

    pub(super) fn init(self) -> Init {
        match self {
            Self::Mpich3_4 | Self::Intel => Init::Id,
            Self::Mpich4_0_3 | Self::Mpich4_1 => Init::TaggedId,
            Self::Mpich4_2 | Self::Mpich5_0 | Self::Mpich5_0_2 => Init::TaggedGroupId,
        }
    }

    pub(super) fn header(self) -> Header {
        match self {
            Self::Mpich3_4 | Self::Mpich4_0_3 => Header::Wide,
            _ => Header::Grouped,
        }
    }

    /// Whether a proxy sends an init record.
    pub(super) fn introduces_itself(self) -> bool {
        self != Self::Intel
    }

    /// Whether programs name their ranks; before, they follow from a map of processor cores.
    pub(super) fn names_ranks(self) -> bool {
        self == Self::Mpich5_0_2
    }

    /// Whether one proxy takes several process groups; before, each wants its own proxies.
    pub(super) fn shares_proxies(self) -> bool {
        self.init() == Init::TaggedGroupId
    }

    /// Whether `--gpu-subdevs-per-proc` must be given; before, it is unknown.
    pub(super) fn knows_subdevices(self) -> bool {
        self.header() == Header::Grouped
    }

    /// Whether barriers have names, those of a whole process group too.
    pub(super) fn names_barriers(self) -> bool {
        matches!(self, Self::Mpich5_0 | Self::Mpich5_0_2)
    }

    /// Whether a backslash in a value makes the next byte an ordinary one.
    pub(super) fn unescapes(self) -> bool {
        self.header() == Header::Grouped
    }
}

/// Reads `4.3.2`, `5.0`, `22.05.8` or `5.1.0a1`: not all versions are semantic ones.
pub(crate) fn parse_version(text: &str) -> Option<semver::Version> {
    let mut numbers = text
        .split('.')
        .map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default())
        .map(str::parse::<u64>);
    let major = numbers.next()?.ok()?;
    let mut rest = || numbers.next().and_then(Result::ok).unwrap_or(0);
    Some(semver::Version::new(major, rest(), rest()))
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|family| family.name() == wanted)
            .or_else(|| Self::of_version(&parse_version(&wanted)?))
            .ok_or_else(|| format!("there is no such family; {}", Self::choices()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_belong_to_families() {
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
            let error = unknown.parse::<Family>().unwrap_err();
            assert!(error.contains("5.0.2 (MPICH 5.0.2)"), "{error}");
        }
    }

    #[test]
    fn the_launcher_beside_it_decides_then_marks_in_its_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let detect = |file: &tempfile::NamedTempFile, launcher| Family::detect(file.path(), launcher);
        assert_eq!(
            detect(&file, Some("HYDRA build details:\n    Version:   4.0.3\n")),
            Ok(Family::Mpich4_0_3)
        );
        assert_eq!(
            detect(&file, Some("Intel(R) MPI Library for Linux* OS, Version 2021")),
            Ok(Family::Intel)
        );
        let error = detect(&file, None).unwrap_err();
        assert!(error.contains("none of the option names") && error.contains("--family"), "{error}");
        std::io::Write::write_all(&mut file, b"\0pmi-id-map\0gpu-subdevs-per-proc\0").unwrap();
        assert_eq!(detect(&file, None), Ok(Family::Mpich4_1));
        let error = detect(&file, Some("Version: 6.1.0")).unwrap_err();
        assert!(error.contains("version 6.1.0") && error.contains("looks like MPICH 4.1"), "{error}");
    }
}

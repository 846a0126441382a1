//! Detects the generation of the private protocol that a proxy speaks.

use std::path::{Path, PathBuf};

use memchr::memmem;
use pmi_wire::hydra::{Family, parse_version};

/// Guesses the family from the names of options and variables in a proxy's file. These names do not distinguish Hydra 4.0.3 from its
/// predecessors.
fn guess_family(file: &[u8]) -> Option<Family> {
    let has = |mark: &str| memmem::find(file, mark.as_bytes()).is_some();
    let marks = [
        ("HYDRA_BSTRAP_UPSTREAM_FD", Family::Intel),
        ("exec-rank", Family::Mpich5_0_2),
        ("report-bindings", Family::Mpich5_0),
        ("memory-alloc-kinds", Family::Mpich4_2),
        ("gpu-subdevs-per-proc", Family::Mpich4_1),
        ("pmi-id-map", Family::Mpich3_4),
    ];
    marks.iter().find(|(mark, _)| has(mark)).map(|(_, family)| *family)
}

enum LauncherVersion {
    /// A version whose proxies speak the protocol of this family.
    Supported(Family),
    /// A version whose protocol is not supported.
    Unsupported(semver::Version),
    /// The output contains no version.
    NoVersion,
}

/// Parses the output of `mpiexec.hydra --version`.
fn of_launcher(text: &str) -> LauncherVersion {
    if text.contains("Intel(R) MPI Library") {
        return LauncherVersion::Supported(Family::Intel);
    }
    let version = text.lines().find_map(|l| l.trim().strip_prefix("Version:")).map(str::trim);
    let Some(version) = version.and_then(parse_version) else { return LauncherVersion::NoVersion };
    match Family::of_version(&version) {
        Some(family) => LauncherVersion::Supported(family),
        None => LauncherVersion::Unsupported(version),
    }
}

/// The error for a proxy whose family could not be detected. The message contains the evidence, and the option that selects a family.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndetectedFamily {
    #[error("{}: {error}", proxy.display())]
    File { proxy: PathBuf, error: std::io::Error },
    #[error("{}: unknown Hydra version: {seen}; {}", proxy.display(), family_choices())]
    Generation { proxy: PathBuf, seen: String },
}

/// Detects the family of a proxy from the version of the launcher next to it, or else from the names of options and variables in the
/// proxy's own file.
///
/// # Errors
///
/// Returns an error if the family is unknown. The message contains the evidence, and the option that selects a family.
pub(crate) fn detect(proxy: &Path, launcher: Option<&str>) -> Result<Family, UndetectedFamily> {
    let launcher = launcher.map(of_launcher);
    let mut seen = match &launcher {
        Some(LauncherVersion::Supported(family)) => return Ok(*family),
        Some(LauncherVersion::NoVersion) => {
            "the mpiexec.hydra next to the proxy prints no recognizable version".to_owned()
        }
        Some(LauncherVersion::Unsupported(version)) => {
            format!("the mpiexec.hydra next to the proxy is version {version}")
        }
        None => "no mpiexec.hydra next to the proxy".to_owned(),
    };
    let file =
        std::fs::read(proxy).map_err(|error| UndetectedFamily::File { proxy: proxy.to_owned(), error })?;
    match guess_family(&file) {
        // If the launcher's version is known to be unsupported, do not use the guess.
        Some(family) if !matches!(launcher, Some(LauncherVersion::Unsupported(_))) => return Ok(family),
        Some(family) => seen += &format!(", and the proxy's file looks like that of {}", family.versions()),
        None => seen += ", and the proxy's file contains no option names of a known version",
    }
    Err(UndetectedFamily::Generation { proxy: proxy.to_owned(), seen })
}

/// Returns the end of an error message. It advises the user to pass `--family`, and lists the choices.
pub(crate) fn family_choices() -> String {
    let all = Family::ALL.map(|f| format!("{} ({})", f.name(), f.versions()));
    format!("select the proxy's control protocol with --family: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_proxy_family_from_launcher_or_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let detected = |file: &tempfile::NamedTempFile, launcher| {
            detect(file.path(), launcher).map_err(|error| error.to_string())
        };
        assert_eq!(
            detected(&file, Some("HYDRA build details:\n    Version:   4.0.3\n")),
            Ok(Family::Mpich4_0_3)
        );
        assert_eq!(
            detected(&file, Some("Intel(R) MPI Library for Linux* OS, Version 2021")),
            Ok(Family::Intel)
        );
        let error = detected(&file, None).unwrap_err();
        assert!(error.contains("no option names") && error.contains("--family"), "{error}");
        std::io::Write::write_all(&mut file, b"\0pmi-id-map\0gpu-subdevs-per-proc\0").unwrap();
        assert_eq!(detected(&file, None), Ok(Family::Mpich4_1));
        let error = detected(&file, Some("Version: 6.1.0")).unwrap_err();
        assert!(error.contains("version 6.1.0") && error.contains("looks like that of MPICH 4.1"), "{error}");
    }
}

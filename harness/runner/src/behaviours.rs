//! Faults and variations of the reference server, by name.

use pmi_faults::{Behaviour, Fault, Variation, faults, variations};

/// A name that no fault or variation has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name}{}`pmi-conform suite mutants --list` lists them", near(nearest))]
pub struct UnknownBehaviour {
    kind: &'static str,
    name: String,
    nearest: Option<&'static str>,
}

fn near(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(|| "; ".to_owned(), |nearest| format!(", did you mean {nearest}? "))
}

fn find(
    kind: &'static str,
    name: &str,
    all: impl Iterator<Item = &'static Fault>,
) -> Result<&'static Fault, UnknownBehaviour> {
    /// Least likeness of a name that is suggested.
    const ALIKE: f64 = 0.75;
    let mut nearest = (ALIKE, None);
    for entry in all {
        if entry.name == name {
            return Ok(entry);
        }
        let likeness = strsim::jaro_winkler(name, entry.name);
        if likeness > nearest.0 {
            nearest = (likeness, Some(entry.name));
        }
    }
    Err(UnknownBehaviour { kind, name: name.to_owned(), nearest: nearest.1 })
}

/// Returns the fault of this name.
///
/// # Errors
///
/// Fails if there is none.
pub fn fault(name: &str) -> Result<&'static Fault, UnknownBehaviour> {
    find("fault", name, faults())
}

/// Returns the variation of this name.
///
/// # Errors
///
/// Fails if there is none.
pub fn variation(name: &str) -> Result<&'static Variation, UnknownBehaviour> {
    find("variation", name, variations())
}

/// Returns the behaviour of a server with these variations and this fault.
///
/// # Errors
///
/// Fails if a name is unknown.
pub fn behaviour<'a>(
    fault: Option<&str>,
    variations: impl IntoIterator<Item = &'a str>,
) -> Result<Behaviour, UnknownBehaviour> {
    let varied = variations.into_iter().map(variation).collect::<Result<Vec<_>, _>>()?;
    Ok(pmi_faults::behaviour(fault.map(self::fault).transpose()?, &varied))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_name_is_reported_with_the_nearest() {
        assert!(behaviour(Some("put-lost"), ["order-reversed"]).is_ok());
        let error = behaviour(Some("put-lots"), []).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown fault put-lots, did you mean put-lost? `pmi-conform suite mutants --list` lists them"
        );
        let error = behaviour(None, ["put-lost"]).unwrap_err().to_string();
        assert!(error.starts_with("unknown variation put-lost"), "{error}");
    }
}

//! Faults and variations of the reference server, by name.

use pmi_faults::{Behaviour, Fault};

use crate::hint::hint;

/// The error for an unknown fault or variation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name}{hint}")]
pub struct UnknownBehaviour {
    kind: &'static str,
    name: String,
    hint: String,
}

fn find<I: Iterator<Item = &'static Fault>>(
    kind: &'static str,
    name: &str,
    all: impl Fn() -> I,
) -> Result<&'static Fault, UnknownBehaviour> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names = all().map(|entry| entry.name);
        let hint = hint(name, names, "`pmi-conform suite mutants --list` lists all names");
        UnknownBehaviour { kind, name: name.to_owned(), hint }
    })
}

/// Returns the behaviour of a server with `variations` and `fault`.
///
/// # Errors
///
/// Returns an error if a name is unknown.
pub fn behaviour<'a>(
    fault: Option<&str>,
    variations: impl IntoIterator<Item = &'a str>,
) -> Result<Behaviour, UnknownBehaviour> {
    let varied = variations
        .into_iter()
        .map(|name| find("variation", name, pmi_faults::variations))
        .collect::<Result<Vec<_>, _>>()?;
    let faults = || pmi_faults::faults().chain(pmi_faults::rare_faults());
    let fault = fault.map(|name| find("fault", name, faults)).transpose()?;
    Ok(pmi_faults::behaviour(fault, &varied))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_similar_name_for_a_misspelling() {
        assert!(behaviour(Some("put-lost"), ["order-reversed"]).is_ok());
        assert!(behaviour(Some("value-37"), []).is_ok());
        let error = behaviour(Some("put-lots"), []).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown fault put-lots, did you mean put-lost? `pmi-conform suite mutants --list` lists all names"
        );
        let error = behaviour(None, ["put-lost"]).unwrap_err().to_string();
        assert!(error.starts_with("unknown variation put-lost"), "{error}");
    }
}

//! Requirements on the name and the functions of a shared library's file.

use pmi_scenario::ids;
use pmi_scenario::requirement::RequirementSet;
use pmi_scenario::signature::{function, functions};

/// The requirements that are broken if a library lacks the functions for keyval spaces.
const KEYVAL_SPACE_FUNCTIONS: [&str; 4] = [
    ids::RFC13_API_KVS_CREATE,
    ids::RFC13_API_KVS_DESTROY,
    ids::RFC13_API_KVS_ITER_FIRST,
    ids::RFC13_API_KVS_ITER_NEXT,
];

pub(super) struct LibraryFile<'a> {
    pub(super) name: &'a str,
    pub(super) soname: Option<&'a str>,
    /// Exported functions of known APIs, whose names begin with PMI_, PMI2_ or PMIX_.
    pub(super) functions: &'a [String],
}

impl LibraryFile<'_> {
    /// Checks the file against a requirement. Returns the expectation and the observation if the file breaks the requirement. Returns
    /// `None` otherwise, for example if the requirement is not about files.
    pub(super) fn check(&self, requirement: &str) -> Option<(&'static str, String)> {
        let called = self.soname.unwrap_or(self.name);
        let named = || match self.soname {
            Some(name) => format!("the soname {name}"),
            None => format!("no soname, and a file called {}", self.name),
        };
        let dialect = RequirementSet::of(requirement).dialect().unwrap_or_default();
        let missing = |expected, which: &dyn Fn(bool, &str) -> bool| {
            let has = |name: &str| self.functions.iter().any(|f| f == name);
            let all = functions(dialect).iter();
            let all = all.filter(|f| which(f.optional, f.effect_requirement) && !has(f.name)).map(|f| f.name);
            let all = all.collect::<Vec<_>>().join(", ");
            (!all.is_empty()).then(|| (expected, format!("{all} missing")))
        };
        match requirement {
            ids::RFC13_API_NAME_LIBPMI => {
                let stem = called.split(".so").next().unwrap_or_default();
                (stem != "libpmi").then(|| ("a library called libpmi", named()))
            }
            ids::RFC13_API_SONAME_ZERO => {
                let version = called.split_once(".so.").map(|(_, version)| version.split('.').next());
                (version != Some(Some("0"))).then(|| ("major version 0, libpmi.so.0", named()))
            }
            ids::PMI2_COMMON_API_FUNCTIONS => missing("all PMI-2 functions", &|optional, _| !optional),
            // A missing function that has a separate requirement is reported under that requirement.
            ids::RFC13_API_ALL_FUNCTIONS => missing("all RFC 13 functions", &|optional, does| {
                !optional && !KEYVAL_SPACE_FUNCTIONS.contains(&does)
            }),
            ids::RFC13_API_OPTIONAL_DEFINED => missing("the optional functions", &|optional, _| optional),
            ids::RFC13_API_NO_OTHER_FUNCTIONS => {
                let is_more = |name: &&String| name.starts_with("PMI_") && function(name).is_none();
                let more: Vec<&str> = self.functions.iter().filter(is_more).map(String::as_str).collect();
                let seen = || format!("{} more: {}", more.len(), more.join(", "));
                (!more.is_empty()).then(|| ("no PMI_* functions other than those of RFC 13", seen()))
            }
            id if KEYVAL_SPACE_FUNCTIONS.contains(&id) => {
                missing("the function is exported", &|_, does| does == requirement)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_wire::Dialect;

    #[test]
    fn each_missing_function_is_reported_once() {
        let file = LibraryFile { name: "libpmi.so.0", soname: None, functions: &[] };
        let general = [ids::RFC13_API_ALL_FUNCTIONS, ids::RFC13_API_OPTIONAL_DEFINED];
        let reports = general.into_iter().chain(KEYVAL_SPACE_FUNCTIONS).filter_map(|id| file.check(id));
        let reports: Vec<String> = reports.map(|(_, seen)| seen).collect();
        for function in functions(Dialect::Pmi1) {
            let names = |report: &&String| report.split([',', ' ']).any(|word| word == function.name);
            assert_eq!(reports.iter().filter(names).count(), 1, "{}", function.name);
        }
    }
}

//! Requirements on the file of a shared library: its name and its functions.

use pmi_scenario::ids;
use pmi_scenario::requirement::Set;
use pmi_scenario::signature::{function, functions};

/// A library file.
pub(super) struct LibraryFile<'a> {
    pub(super) name: &'a str,
    pub(super) soname: Option<&'a str>,
    /// Exported functions of known APIs, whose names begin with PMI_, PMI2_ or PMIX_.
    pub(super) functions: &'a [String],
}

impl LibraryFile<'_> {
    /// Checks the file against a requirement. If the file breaks it, returns what was expected and what was seen. Most requirements are not
    /// about files.
    pub(super) fn fault(&self, requirement: &str) -> Option<(&'static str, String)> {
        let called = self.soname.unwrap_or(self.name);
        let named = || match self.soname {
            Some(name) => format!("the soname {name}"),
            None => format!("no soname, and a file called {}", self.name),
        };
        let dialect = Set::of(requirement).dialect().unwrap_or_default();
        let missing = |expected, which: &dyn Fn(bool, &str) -> bool| {
            let has = |name: &str| self.functions.iter().any(|f| f == name);
            let all = functions(dialect).iter();
            let all = all.filter(|f| which(f.optional, f.does) && !has(f.name)).map(|f| f.name);
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
            ids::PMI2_COMMON_API_FUNCTIONS => missing("all functions of PMI-2", &|optional, _| !optional),
            ids::RFC13_API_ALL_FUNCTIONS => missing("all functions of RFC 13", &|optional, _| !optional),
            ids::RFC13_API_OPTIONAL_DEFINED => missing("the optional functions too", &|optional, _| optional),
            ids::RFC13_API_NO_OTHER_FUNCTIONS => {
                let is_more = |name: &&String| name.starts_with("PMI_") && function(name).is_none();
                let more: Vec<&str> = self.functions.iter().filter(is_more).map(String::as_str).collect();
                let seen = || format!("{} more: {}", more.len(), more.join(", "));
                (!more.is_empty()).then(|| ("no PMI_* functions other than those of RFC 13", seen()))
            }
            ids::RFC13_API_KVS_CREATE
            | ids::RFC13_API_KVS_DESTROY
            | ids::RFC13_API_KVS_ITER_FIRST
            | ids::RFC13_API_KVS_ITER_NEXT => {
                missing("the function is there", &|_, does| does == requirement)
            }
            _ => None,
        }
    }
}

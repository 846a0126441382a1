//! The functions of the C APIs of RFC 13 and PMI-2, with their parameters, return codes and requirements.

use crate::ast::Dialect;

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// `int`.
    Int,
    /// `const char *`.
    Str,
    /// `int *`.
    OutInt,
    /// `int *` that the function reads and sets. The size given in a scenario is its initial value (0 by default).
    InOutInt,
    /// `char *` buffer that the function fills. Contains the index of the parameter with the buffer's length, if there is one.
    OutText(Option<usize>),
    /// `int *` buffer that the function fills with integers. Contains the index of the parameter with the number of integers, if there is
    /// one.
    OutInts(Option<usize>),
    /// `const char *[]`: strings, written as "a|b".
    Strings,
    /// `const char **[]`: for each command, a NULL-terminated list of strings, written as "a,b|c".
    Lists,
    /// `const int[]`: integers, written as "1|2".
    Ints,
    /// `const PMI_keyval_t *[]`: for each command, a vector, written as "key=value,key=value|key=value".
    Vectors,
    /// `const PMI_keyval_t[]`, written as "key=value,key=value".
    Vector,
    /// `const MPID_Info *` in PMI-2: an array of structures, written as "key=value,key=value".
    Info,
    /// `const MPID_Info *[]` in PMI-2: for each command, an array of structures, written as "key=value,key=value|key=value".
    InfoVectors,
    /// `const MPID_Info *[]` in PMI-2: for each pair, a pointer to a structure, written as "key=value,key=value".
    InfoPointers,
    /// NULL-terminated `char *[]`, written as "a,b".
    List,
    /// A pointer to a [`Param::List`].
    ListPointer,
    /// A pointer to a pointer that the library sets to its own memory.
    OutPointer,
}

/// A function of a C API.
#[derive(Debug)]
pub struct Function {
    /// The name of the function.
    pub name: &'static str,
    /// The dialect of the function's API.
    pub dialect: Dialect,
    /// The parameters of the function.
    pub params: &'static [Param],
    /// True if the function returns a truth value instead of a return code.
    pub is_flag: bool,
    /// The requirement on the effect of the function.
    pub effect_requirement: &'static str,
    /// The requirement on the return codes of failed calls; empty if there is no such requirement.
    pub error_requirement: &'static str,
    /// The return codes that `error_requirement` names.
    pub error_codes: &'static [i32],
    /// True if the RFC makes the function optional, either always or for libraries without support for dynamic processes.
    pub optional: bool,
    /// True if the last parameter reports whether the requested value exists. For a missing value, the other output parameters need not be
    /// set.
    pub reports_found: bool,
}

impl Function {
    /// Returns whether RFC 13 defines the function and all its return codes. The PMI-2 header defines only the parameters.
    pub fn is_of_rfc13(&self) -> bool {
        self.dialect == Dialect::Pmi1
    }

    /// Returns the name of a return code, or the returned truth value.
    pub fn result_name(&self, result: i32) -> String {
        if self.is_flag { result.to_string() } else { code_name(result, self.dialect) }
    }
}

/// The value of PMI_SUCCESS and PMI2_SUCCESS.
pub const SUCCESS: i32 = 0;
/// The value of PMI_FAIL.
pub const FAIL: i32 = -1;
/// The value of PMI_ERR_INIT.
pub const ERR_INIT: i32 = 1;
const ARG: i32 = 3;
const KEY: i32 = 4;
const VAL: i32 = 6;
const LENGTH: i32 = 8;

/// The highest code in the RFC's table; the lowest is PMI_FAIL.
pub const LAST_CODE: i32 = 13;

/// Names of the return codes of both APIs, starting with PMI_FAIL, without the prefix `PMI_` or `PMI2_`. Both APIs use the same numbers.
const CODES: [&str; 15] = [
    "FAIL",
    "SUCCESS",
    "ERR_INIT",
    "ERR_NOMEM",
    "ERR_INVALID_ARG",
    "ERR_INVALID_KEY",
    "ERR_INVALID_KEY_LENGTH",
    "ERR_INVALID_VAL",
    "ERR_INVALID_VAL_LENGTH",
    "ERR_INVALID_LENGTH",
    "ERR_INVALID_NUM_ARGS",
    "ERR_INVALID_ARGS",
    "ERR_INVALID_NUM_PARSED",
    "ERR_INVALID_KEYVALP",
    "ERR_INVALID_SIZE",
];

/// The value of PMI2_ERR_OTHER. In most PMI-1 headers, PMI_ERR_INVALID_KVS has this value, but RFC 13 does not define the value.
const ERR_OTHER: i32 = 14;

/// Returns the value of a return code; `None` for PMI_ERR_INVALID_KVS and unknown names.
pub fn code(name: &str) -> Option<i32> {
    let (name, second) = match name.strip_prefix("PMI2_") {
        Some(name) => (name, true),
        None => (name.strip_prefix("PMI_")?, false),
    };
    if second && name == "ERR_OTHER" {
        return Some(ERR_OTHER);
    }
    (FAIL..).zip(CODES).find(|(_, n)| *n == name).map(|(code, _)| code)
}

/// Returns the name of a return code, or the number if it has no name.
fn code_name(number: i32, dialect: Dialect) -> String {
    let other = dialect.pick([None, Some("ERR_OTHER")]).filter(|_| number == ERR_OTHER);
    let known = (FAIL..).zip(CODES).find(|(code, _)| *code == number).map(|(_, name)| name);
    match known.or(other) {
        Some(name) => format!("{}_{name}", dialect.pick(["PMI", "PMI2"])),
        None => number.to_string(),
    }
}

/// Returns the results that a scenario may expect from a call in a dialect: the names of return codes, `fail` for any error and `any` for
/// any code.
pub fn results(dialect: Dialect) -> Vec<String> {
    let codes = (FAIL..=LAST_CODE).map(|number| code_name(number, dialect));
    let last = dialect.pick(["PMI_ERR_INVALID_KVS", "PMI2_ERR_OTHER"]);
    codes.chain([last, "fail", "any"].map(str::to_owned)).collect()
}

/// Returns the functions of a dialect's API.
pub fn functions(dialect: Dialect) -> &'static [Function] {
    dialect.pick([FUNCTIONS, PMI2_FUNCTIONS])
}

/// Returns the call that initializes a library of a dialect, in the syntax of scenarios.
pub fn init_call(dialect: Dialect) -> &'static str {
    dialect.pick(["PMI_Init(&spawned)", "PMI2_Init(&spawned, &size, &rank, &appnum)"])
}

/// Returns the function with this name.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().chain(PMI2_FUNCTIONS).find(|f| f.name == name)
}

/// Returns whether a requirement concerns only the return codes of failed calls.
pub fn is_about_failures(requirement: &str) -> bool {
    let mut all = FUNCTIONS.iter().chain(PMI2_FUNCTIONS);
    all.any(|function| {
        function.error_requirement == requirement && function.effect_requirement != requirement
    })
}

macro_rules! functions {
    ($($name:literal [$($param:expr),*] $does:literal $errors:literal [$($code:ident),*] $optional:literal)*) => {
        /// The PMI-1 functions, in the order of the RFC.
        const FUNCTIONS: &[Function] = {
            use Param::*;
            &[$(Function {
                name: $name, dialect: Dialect::Pmi1, params: &[$($param),*], is_flag: false, effect_requirement: concat!("rfc13.", $does),
                error_requirement: $errors, error_codes: &[$($code),*], optional: $optional, reports_found: false,
            }),*]
        };
    };
}

functions! {
    "PMI_Init" [OutInt] "api.init.spawned" "rfc13.api.init.errors" [ARG, FAIL] false
    "PMI_Initialized" [OutInt] "api.initialized.flag" "rfc13.api.initialized.errors" [ARG, FAIL] false
    "PMI_KVS_Get_name_length_max" [OutInt] "api.name-length-max" "rfc13.api.length-max.errors" [ARG, FAIL] false
    "PMI_KVS_Get_key_length_max" [OutInt] "api.key-length-max" "rfc13.api.length-max.errors" [ARG, FAIL] false
    "PMI_KVS_Get_value_length_max" [OutInt] "api.value-length-max" "rfc13.api.length-max.errors" [ARG, FAIL] false
    "PMI_Get_id_length_max" [OutInt] "api.id-length-max" "rfc13.api.length-max.errors" [ARG, FAIL] false
    "PMI_Finalize" [] "api.finalize" "rfc13.api.finalize" [FAIL] false
    "PMI_Abort" [Int, Str] "abort.no-return" "" [] false
    "PMI_Get_size" [OutInt] "api.get-size" "rfc13.api.get-size.errors" [ARG, FAIL] false
    "PMI_Get_rank" [OutInt] "api.get-rank" "rfc13.api.get-rank.errors" [ARG, FAIL] false
    "PMI_Get_universe_size" [OutInt] "api.get-universe-size" "rfc13.api.get-universe-size.errors" [ARG, FAIL] false
    "PMI_Get_appnum" [OutInt] "api.get-appnum" "rfc13.api.get-appnum.errors" [ARG, FAIL] false
    "PMI_Get_clique_ranks" [OutInts(Some(1)), Int] "api.get-clique-ranks" "rfc13.api.get-clique-ranks.errors" [ARG, LENGTH, FAIL] false
    "PMI_Get_clique_size" [OutInt] "api.get-clique-size" "rfc13.api.get-clique-size.errors" [ARG, FAIL] false
    "PMI_KVS_Put" [Str, Str, Str] "api.kvs-put" "rfc13.api.kvs-put.errors" [KEY, VAL, FAIL] false
    "PMI_KVS_Commit" [Str] "api.kvs-commit" "rfc13.api.kvs-commit.errors" [ARG, FAIL] false
    "PMI_KVS_Get" [Str, Str, OutText(Some(3)), Int] "api.kvs-get" "rfc13.api.kvs-get.errors" [KEY, VAL, LENGTH, FAIL] false
    "PMI_KVS_Get_my_name" [OutText(Some(1)), Int] "api.kvs-get-my-name" "rfc13.api.kvs-get-my-name.errors" [ARG, LENGTH, FAIL] false
    "PMI_Get_kvs_domain_id" [OutText(Some(1)), Int] "api.get-kvs-domain-id" "rfc13.api.kvs-get-my-name.errors" [ARG, LENGTH, FAIL] false
    "PMI_Get_id" [OutText(Some(1)), Int] "api.get-id" "rfc13.api.kvs-get-my-name.errors" [ARG, LENGTH, FAIL] false
    "PMI_Barrier" [] "api.barrier" "rfc13.api.barrier.errors" [FAIL] false
    "PMI_KVS_Create" [OutText(Some(1)), Int] "api.kvs-create" "" [] false
    "PMI_KVS_Destroy" [Str] "api.kvs-destroy" "" [] false
    "PMI_KVS_Iter_first" [Str, OutText(Some(2)), Int, OutText(Some(4)), Int] "api.kvs-iter-first" "" [] false
    "PMI_KVS_Iter_next" [Str, OutText(Some(2)), Int, OutText(Some(4)), Int] "api.kvs-iter-next" "" [] false
    "PMI_Spawn_multiple" [Int, Strings, Lists, Ints, Ints, Vectors, Int, Vector, OutInts(None)] "api.spawn-multiple" "rfc13.api.spawn-multiple.errors" [ARG, FAIL] false
    "PMI_Publish_name" [Str, Str] "api.publish-name" "rfc13.api.name.errors" [ARG, FAIL] true
    "PMI_Unpublish_name" [Str] "api.unpublish-name" "rfc13.api.name.errors" [ARG, FAIL] true
    "PMI_Lookup_name" [Str, OutText(None)] "api.lookup-name" "rfc13.api.name.errors" [ARG, FAIL] true
    "PMI_Parse_option" [Int, List, OutInt, OutPointer, OutInt] "api.parse-option" "" [] true
    "PMI_Args_to_keyval" [InOutInt, ListPointer, OutPointer, OutInt] "api.args-to-keyval" "" [] true
    "PMI_Free_keyvals" [Vector, Int] "api.free-keyvals" "" [] true
    "PMI_Get_options" [OutText(None), InOutInt] "api.get-options" "" [] true
}

/// Defines a PMI-2 function. The PMI-2 header allows any error code, because it says only that a function returns "an error code".
const fn pmi2(name: &'static str, params: &'static [Param], does: &'static str) -> Function {
    Function {
        name,
        dialect: Dialect::Pmi2,
        params,
        is_flag: false,
        effect_requirement: does,
        error_requirement: "pmi2.common.api.errors",
        error_codes: &[],
        optional: false,
        reports_found: false,
    }
}

/// Defines a function that queries an attribute and reports whether it exists.
const fn pmi2_attribute(name: &'static str, params: &'static [Param], does: &'static str) -> Function {
    Function { reports_found: true, ..pmi2(name, params, does) }
}

/// The PMI-2 functions, in the order of the header that MPICH and Slurm share. Only Slurm has `PMIX_Ring`.
const PMI2_FUNCTIONS: &[Function] = {
    use Param::*;
    &[
        pmi2("PMI2_Init", &[OutInt, OutInt, OutInt, OutInt], "pmi2.common.api.init"),
        pmi2("PMI2_Finalize", &[], "pmi2.common.api.finalize"),
        Function {
            is_flag: true,
            error_requirement: "",
            ..pmi2("PMI2_Initialized", &[], "pmi2.common.api.initialized")
        },
        pmi2("PMI2_Abort", &[Int, Str], "pmi2.common.api.abort"),
        pmi2(
            "PMI2_Job_Spawn",
            &[
                Int,
                Strings,
                Ints,
                Lists,
                Ints,
                Ints,
                InfoVectors,
                Int,
                InfoPointers,
                OutText(Some(10)),
                Int,
                OutInts(None),
            ],
            "pmi2.common.api.spawn",
        ),
        pmi2("PMI2_Job_GetId", &[OutText(Some(1)), Int], "pmi2.common.api.job-getid"),
        pmi2("PMI2_Job_GetRank", &[OutInt], "pmi2.common.api.job-getrank"),
        pmi2("PMI2_Info_GetSize", &[OutInt], "pmi2.mpich.api.info-getsize"),
        pmi2("PMI2_Job_Connect", &[Str, OutPointer], "pmi2.common.api.job-connect"),
        pmi2("PMI2_Job_Disconnect", &[Str], "pmi2.common.api.job-connect"),
        pmi2("PMI2_KVS_Put", &[Str, Str], "pmi2.common.api.kvs-put"),
        pmi2("PMI2_KVS_Fence", &[], "pmi2.common.api.kvs-fence"),
        pmi2("PMI2_KVS_Get", &[Str, Int, Str, OutText(Some(4)), Int, OutInt], "pmi2.common.api.kvs-get"),
        pmi2_attribute(
            "PMI2_Info_GetNodeAttr",
            &[Str, OutText(Some(2)), Int, OutInt, Int],
            "pmi2.common.api.nodeattr",
        ),
        pmi2_attribute(
            "PMI2_Info_GetNodeAttrIntArray",
            &[Str, OutInts(Some(2)), Int, OutInt, OutInt],
            "pmi2.common.api.nodeattr",
        ),
        pmi2("PMI2_Info_PutNodeAttr", &[Str, Str], "pmi2.common.api.nodeattr"),
        pmi2_attribute(
            "PMI2_Info_GetJobAttr",
            &[Str, OutText(Some(2)), Int, OutInt],
            "pmi2.common.api.jobattr",
        ),
        pmi2_attribute(
            "PMI2_Info_GetJobAttrIntArray",
            &[Str, OutInts(Some(2)), Int, OutInt, OutInt],
            "pmi2.common.api.jobattr",
        ),
        pmi2("PMI2_Nameserv_publish", &[Str, Info, Str], "pmi2.common.api.names"),
        pmi2("PMI2_Nameserv_lookup", &[Str, Info, OutText(Some(3)), Int], "pmi2.common.api.names"),
        pmi2("PMI2_Nameserv_unpublish", &[Str, Info], "pmi2.common.api.names"),
        Function {
            optional: true,
            ..pmi2(
                "PMIX_Ring",
                &[Str, OutInt, OutInt, OutText(Some(5)), OutText(Some(5)), Int],
                "pmi2.common.api.ring",
            )
        },
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_codes_match_the_specifications() {
        let numbers = ["PMI_FAIL", "PMI_SUCCESS", "PMI_ERR_INIT", "PMI_ERR_INVALID_SIZE"].map(code);
        assert_eq!(numbers, [Some(-1), Some(0), Some(1), Some(LAST_CODE)]);
        let numbers = ["PMI2_ERR_NOMEM", "PMI2_ERR_OTHER", "PMI_ERR_OTHER", "PMI_ERR_INVALID_KVS"].map(code);
        assert_eq!(numbers, [Some(2), Some(14), None, None]);
        assert_eq!(code_name(8, Dialect::Pmi1), "PMI_ERR_INVALID_LENGTH");
        assert_eq!(code_name(14, Dialect::Pmi2), "PMI2_ERR_OTHER");
        assert_eq!(code_name(77, Dialect::Pmi2), "77");
    }

    #[test]
    fn c_functions_cite_existing_requirements() {
        let suite = crate::suite::Suite::of_files(Vec::new(), crate::Behaviours::default()).unwrap();
        for f in FUNCTIONS.iter().chain(PMI2_FUNCTIONS) {
            assert!(suite.catalogue.get(f.effect_requirement).is_some(), "{}", f.effect_requirement);
            assert!(
                f.error_requirement.is_empty() || suite.catalogue.get(f.error_requirement).is_some(),
                "{}",
                f.error_requirement
            );
        }
        // In the catalogue, the id of a requirement ends in `.errors` if and only if the requirement concerns only failed calls. The
        // requirement on PMI_Finalize has no such suffix, because it also covers the effect.
        for requirement in suite.catalogue.iter() {
            assert_eq!(
                is_about_failures(&requirement.id),
                requirement.id.ends_with(".errors"),
                "{}",
                requirement.id
            );
        }
    }
}

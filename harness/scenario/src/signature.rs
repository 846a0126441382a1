//! The functions of RFC 13's API: what they take, what they may return, and which requirements speak of them.

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// `int`.
    Int,
    /// `const char *`.
    Str,
    /// `int *`.
    OutInt,
    /// `int *` that is read and set; the size that a scenario writes for it is what it holds before, else 0.
    InOutInt,
    /// `char *` to be filled; the index of the parameter that tells its length, where there is one.
    OutText(Option<usize>),
    /// `int *` to be filled with several; likewise.
    OutInts(Option<usize>),
    /// `const char *[]`: strings, as "a|b".
    Strings,
    /// `const char **[]`: for each command a list of strings that ends with NULL, as "a,b|c".
    Lists,
    /// `const int[]`: integers, as "1|2".
    Ints,
    /// `const PMI_keyval_t *[]`: for each command a vector, as "key=value,key=value|key=value".
    Vectors,
    /// `const PMI_keyval_t[]`, as "key=value,key=value".
    Vector,
    /// `char *[]` that ends with NULL, as "a,b".
    List,
    /// A pointer to such a list.
    ListPointer,
    /// A pointer to a pointer that is set to something of the library's.
    OutPointer,
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// What it does.
    pub does: &'static str,
    /// Which codes it returns when it fails; empty where the RFC lists none.
    pub errors: &'static str,
    /// Those codes.
    pub codes: &'static [i32],
    /// The RFC calls it optional, always or without dynamic processes.
    pub optional: bool,
}

/// PMI_FAIL.
pub const FAIL: i32 = -1;
/// PMI_ERR_INIT.
pub const ERR_INIT: i32 = 1;
const ARG: i32 = 3;
const KEY: i32 = 4;
const VAL: i32 = 6;
const LENGTH: i32 = 8;

/// The highest code of the RFC's table; the lowest is PMI_FAIL.
pub const LAST_CODE: i32 = 13;

/// A return code by its name. PMI_ERR_INVALID_KVS has none.
pub fn code(name: &str) -> Option<i32> {
    const NAMES: [&str; 15] = [
        "PMI_FAIL",
        "PMI_SUCCESS",
        "PMI_ERR_INIT",
        "PMI_ERR_NOMEM",
        "PMI_ERR_INVALID_ARG",
        "PMI_ERR_INVALID_KEY",
        "PMI_ERR_INVALID_KEY_LENGTH",
        "PMI_ERR_INVALID_VAL",
        "PMI_ERR_INVALID_VAL_LENGTH",
        "PMI_ERR_INVALID_LENGTH",
        "PMI_ERR_INVALID_NUM_ARGS",
        "PMI_ERR_INVALID_ARGS",
        "PMI_ERR_INVALID_NUM_PARSED",
        "PMI_ERR_INVALID_KEYVALP",
        "PMI_ERR_INVALID_SIZE",
    ];
    (-1..).zip(NAMES).find(|(_, n)| *n == name).map(|(code, _)| code)
}

/// A return code with its name.
pub fn code_name(number: i32) -> String {
    let names = crate::vocabulary::RESULTS;
    match names.iter().find(|name| code(name) == Some(number)) {
        Some(name) => (*name).to_owned(),
        None => number.to_string(),
    }
}

/// A function by its name.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|f| f.name == name)
}

macro_rules! functions {
    ($($name:literal [$($param:expr),*] $does:literal $errors:literal [$($code:ident),*] $optional:literal)*) => {
        /// All of them, in the order of the RFC.
        pub const FUNCTIONS: &[Function] = {
            use Param::*;
            &[$(Function {
                name: $name, params: &[$($param),*], does: concat!("rfc13.", $does), errors: $errors, codes: &[$($code),*],
                optional: $optional,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_knows_the_same_functions() {
        let names: Vec<&str> = FUNCTIONS.iter().map(|f| f.name).collect();
        assert_eq!(names, crate::vocabulary::FUNCTIONS);
    }

    #[test]
    fn codes_are_the_rfcs() {
        assert_eq!(
            (code("PMI_FAIL"), code("PMI_SUCCESS"), code("PMI_ERR_INIT")),
            (Some(-1), Some(0), Some(1))
        );
        assert_eq!(code("PMI_ERR_INVALID_SIZE"), Some(LAST_CODE));
        assert_eq!(code_name(8), "PMI_ERR_INVALID_LENGTH");
        assert_eq!(code_name(77), "77");
    }

    #[test]
    fn requirements_exist() {
        let suite = crate::suite::Suite::of_files(Vec::new(), crate::Behaviours::default()).unwrap();
        for f in FUNCTIONS {
            assert!(suite.catalogue.get(f.does).is_some(), "{}", f.does);
            assert!(f.errors.is_empty() || suite.catalogue.get(f.errors).is_some(), "{}", f.errors);
        }
    }
}

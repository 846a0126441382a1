//! The bugs. Real programs have had similar ones.

/// A bug by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bug(&'static str);

/// Names of all bugs, and the effect of each. A bug exists in both protocols unless its text says PMI-2.
pub(super) const BUGS: &[(&str, &str)] = &[
    ("value-256", "a value of exactly 256 bytes loses its last one"),
    ("value-37", "a value of exactly 37 bytes loses its last one"),
    ("value-613", "a value of exactly 613 bytes is read as that of the key before it"),
    ("value-comma", "a value ends at a comma"),
    ("value-128-crash", "a value of exactly 128 bytes is written behind a buffer"),
    ("value-longest", "the longest value that is allowed loses its last byte: the NUL is counted twice"),
    ("value-backslash", "a backslash in a value is taken for the beginning of an escape"),
    ("value-percent", "a value is the format of a printf"),
    ("value-quotes", "a value that begins and ends with a quote is stripped of both"),
    ("value-blanks", "two blanks in a row in a value become one"),
    ("value-second-equals", "a value ends at its second equals sign"),
    ("value-zero", "a value that is the number 0 is taken for none"),
    (
        "value-shared",
        "equal values are stored once, and the second key of one with more than 16 bytes is forgotten",
    ),
    ("key-longest", "the longest key that is allowed is stored without its last byte"),
    ("key-32", "a key of exactly 32 bytes is not found again: it is stored without a NUL"),
    ("key-13", "a key of exactly 13 bytes is stored with 12"),
    ("key-tilde", "a key with a tilde is not found again"),
    ("key-16-alike", "keys that begin with the same 16 bytes are one"),
    ("key-prefix", "a get finds the first key that is a prefix of the one that is asked for"),
    ("key-case", "keys that differ in the case of their letters alone are one"),
    ("key-sum", "keys are compared by a sum over their bytes, so that permutations of one are one"),
    ("put-17", "the 17th put of a process is answered and forgotten"),
    ("put-64", "a table has room for 64 keys; the 65th replaces the first"),
    ("put-200", "the 200th put of a process crashes"),
    ("put-9-a-round", "what a process puts between two barriers is forgotten from the ninth on"),
    ("put-again", "a second put of a key is refused, and half of the processes read its value"),
    ("put-long-ago", "what was put three barriers ago is cleared"),
    ("get-33", "the 33rd get of a process is answered with what the 32nd was"),
    ("get-256", "requests are counted in a byte, and the 256th get of a process is never answered (PMI-1)"),
    ("get-after-miss", "the get after one of a missing key is refused as well, if another process asks"),
    ("get-of-last", "the last of at least three processes reads the values of the first wrong"),
    ("get-while-waiting", "a get while all others wait in a barrier sees 64 bytes of the value at most"),
    ("get-other-node", "a value of more than 100 bytes loses all behind them on its way to another node"),
    ("barrier-6", "the sixth barrier never ends"),
    ("barrier-70", "the 70th barrier never ends"),
    ("barrier-2-spawned", "the second barrier of a spawned group never ends"),
    (
        "barrier-backwards",
        "at least three processes that enter a barrier in the order of falling ranks are never let out",
    ),
    (
        "barrier-early",
        "a barrier that a process enters first which was the last in the two before lets out before all are in",
    ),
    (
        "barrier-half",
        "a barrier never ends if another process's request comes in two pieces while one waits in it",
    ),
    (
        "half-line",
        "a request that comes in two pieces of which the second has less than eight bytes is never answered",
    ),
    (
        "half-at-equals",
        "a request that comes in two pieces loses the first byte of the second if the first ends with an equals sign",
    ),
    ("half-of-other", "half a request of one process comes before the next request of another"),
    ("leak-miss", "each get of a missing key costs 6 MiB"),
    ("leak-lookup", "each lookup of a name costs 9 MiB"),
    ("name-after-unpublish", "a name that was published twice is still found after it was unpublished"),
    ("name-first", "unpublish takes away the name that was published first"),
    ("name-other", "a lookup by a process that has published a name itself finds that"),
    ("name-long", "a name of 64 bytes or more is stored with 63"),
    ("name-29", "a name of exactly 29 bytes is not found"),
    ("name-30-times", "the 30th name that is published is forgotten, whatever was unpublished"),
    ("port-long", "a port of more than 127 bytes is stored with 127"),
    ("spawn-second-preput", "only the first pair that is put for spawned processes is there"),
    ("spawn-second-job", "the second spawned group has the keyval space of the first"),
    ("spawn-put", "what spawned processes put is put into the keyval space of who spawned them"),
    ("spawn-get-after", "a get by who has spawned answers what a spawned process has put last"),
    ("finalize-first", "a get after the first process has finalized crashes"),
    ("maxes-late", "get_maxes behind eight puts of the process crashes (PMI-1)"),
    ("attribute-two", "of two processes that wait for an attribute only one is told (PMI-2)"),
    ("attribute-again", "a second attribute of a process replaces the first (PMI-2)"),
    ("thread-8", "the eighth request of a process that has the number of a thread crashes (PMI-2)"),
    ("thread-in-fence", "a request of a process that waits in a fence is never answered (PMI-2)"),
    ("frame-1000", "a frame of 1000 bytes or more is read to its 999th (PMI-2)"),
    ("job-key", "a get of a key that nobody has put finds what the job before has put"),
    ("job-value", "a value as long as that of the job before under the same key is not written"),
    ("job-name", "a name that the job before has withdrawn is still found"),
    ("job-port", "a name that the job before has left published keeps its port"),
    ("job-abort", "the first barrier after a job that was aborted never ends"),
    (
        "job-waiting",
        "processes that waited in a barrier when the job before ended count in the first barrier",
    ),
];

impl Bug {
    /// Returns the bug of this name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        BUGS.iter().find(|(known, _)| *known == name).map(|(known, _)| Self(known))
    }
}

/// Reports whether this bug is selected.
pub(super) fn is(bug: Option<Bug>, name: &str) -> bool {
    debug_assert!(BUGS.iter().any(|(known, _)| *known == name), "{name}");
    bug.is_some_and(|bug| bug.0 == name)
}

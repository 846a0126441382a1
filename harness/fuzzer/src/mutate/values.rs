//! The values that mutations put in: where implementations are known or likely to go wrong.

use std::sync::LazyLock;

use pmi_wire::Framing;
use pmi_wire::protocol::{self, Exchange, Field};

/// Numbers that are read as something else, or not at all.
pub(super) const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "",
    "x",
    "1x",
    "0x1",
    "+1",
    " 1",
    "01",
    "255",
    "256",
    "65536",
    "16777216",
    "67108864",
    "1073741824",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "-2147483648",
    "9223372036854775807",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "1.5",
    "%n",
    "NaN",
];

/// Where buffers of implementations are known or likely to end.
pub(super) const LENGTHS: &[i64] = &[
    0, 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 1023, 1024, 1025, 2047, 2048, 4095,
    4096, 4097, 8191, 8192, 16384, 65535, 65536, 65537,
];

/// What answers may have as the number of a thread.
pub(super) const THREADS: &[&str] = &[
    "0",
    "1",
    "2",
    "4711",
    "-1",
    "-2147483648",
    "2147483648",
    "",
    "x",
    "0x0",
    "0x7f0000000001",
    "4294967296",
    "99999999999999999999",
    "%s%n",
];

/// Words of one framing, in the order of the protocol table.
struct Words {
    keys: Vec<&'static str>,
    requests: Vec<&'static str>,
    responses: Vec<&'static str>,
}

/// Commands that no implementation knows, or that belong to another message.
const LINE_COMMANDS: [&str; 18] = [
    "barrier_out",
    "put_result",
    "get_result",
    "get",
    "init",
    "initack",
    "singinit",
    "tcp_connect_result",
    "keyval_cache",
    "fullinit",
    "kvs-put",
    "kvs-fence",
    "PUT",
    "GET_RESULT",
    "mput",
    "put ",
    "frobnicate",
    "",
];
const FRAME_COMMANDS: [&str; 16] = [
    "init",
    "put",
    "get",
    "barrier_in",
    "response_to_init",
    "get_result",
    "kvs-get",
    "kvs-put-response",
    "abort-response",
    "auth",
    "KVS-GET-RESPONSE",
    "kvs-put ",
    "kvs_put",
    "-response",
    "frobnicate",
    "",
];

impl Words {
    fn new(framing: Framing, strange: &[&'static str]) -> Self {
        // A changed spawn request could start any number of processes.
        let fields = |exchange: &'static Exchange| exchange.arguments.iter().chain(exchange.results);
        let own =
            protocol::exchanges(framing).filter(|exchange| exchange.operation != "spawn").flat_map(fields);
        let common = protocol::common_arguments(framing).iter().chain(protocol::common_results(framing));
        let mut keys: Vec<_> =
            common.chain(own).map(|field: &Field| field.key).chain(["cmd", "mcmd"]).collect();
        keys.sort_unstable();
        keys.dedup();
        let with_strange =
            |known: Vec<&'static str>| known.into_iter().chain(strange.iter().copied()).collect();
        let exchanges = || protocol::exchanges(framing);
        Self {
            keys,
            requests: with_strange(exchanges().map(|exchange| exchange.request).collect()),
            responses: with_strange(exchanges().filter_map(|exchange| exchange.response).collect()),
        }
    }

    fn of(framing: Framing) -> &'static Self {
        static LINES: LazyLock<Words> = LazyLock::new(|| Words::new(Framing::Lines, &LINE_COMMANDS));
        static FRAMES: LazyLock<Words> = LazyLock::new(|| Words::new(Framing::Frames, &FRAME_COMMANDS));
        match framing {
            Framing::Lines => &LINES,
            Framing::Frames => &FRAMES,
        }
    }
}

/// Keys of the messages of a framing, but for those of spawn requests.
pub(super) fn keys(framing: Framing) -> &'static [&'static str] {
    &Words::of(framing).keys
}

/// Commands of the requests of a framing, known ones and others.
pub(super) fn requests(framing: Framing) -> &'static [&'static str] {
    &Words::of(framing).requests
}

/// Commands of the responses of a framing, known ones and others.
pub(super) fn responses(framing: Framing) -> &'static [&'static str] {
    &Words::of(framing).responses
}

/// Bodies of frames that are no message.
pub(super) const BODIES: &[&[u8]] = &[
    b"",
    b";",
    b";;",
    b";;;;;;;;",
    b"=",
    b"=;",
    b"cmd",
    b"cmd;",
    b"cmd=",
    b"cmd=;",
    b"cmd=;;",
    b"cmd==kvs-put;",
    b"cmd=kvs-put",
    b"cmd=kvs-put;key",
    b"cmd=kvs-put;key=a;value",
    b"cmd=kvs-put;;key=a;;value=b;;",
    b"cmd=kvs-put;=a;=b;",
    b"cmd=kvs-put;key=a;value=;",
    b"cmd=kvs-put;key=;value=b;",
    b"cmd=kvs-get;key=;",
    b"cmd=kvs-put key=a value=b",
    b"key=a;cmd=kvs-get;",
    b"thrid=1;cmd=job-getid;",
    b"cmd=job-getid;cmd=kvs-fence;",
    b"cmd=job-getid;thrid=;",
    b"cmd=job-getid;thrid=1;thrid=2;",
    b"cmd=info-getnodeattr;key=a;wait=maybe;",
    b"cmd=info-getnodeattr;wait=TRUE;",
    b"cmd=ring;",
    b"cmd=ring;count=1;left=a;right=b;",
    b"cmd=ring;count=-1;left=;right=;",
    b"cmd=concat;concatid=1;",
    b"cmd=kvs-put;key=a;value=b;concat=1;",
    b"cmd=fullinit;",
    b"cmd=fullinit;pmijobid=x;pmirank=-1;threaded=TRUE;",
    b"cmd=fullinit;pmijobid=x;pmirank=99;threaded=FALSE;",
    b"cmd=name-publish;name=a;",
    b"cmd=name-publish;name=;port=;infokeycount=3;",
    b"cmd=name-unpublish;",
    b"cmd=job-connect;jobid=;",
    b"cmd=kvs-get;jobid=;srcid=;key=a;",
    b"cmd=init pmi_version=2 pmi_subversion=0\n",
    b"cmd=get_maxes\n",
    b"\0",
    b"\0\0\0\0;",
    b"cmd=kvs-put;key=a\0b;value=c\0d;",
    b"%s%s%s%s%n;",
    b"cmd=%s%n;",
    b"\xff\xfe\xfd;",
];

/// What is no frame, from its header on.
pub(super) const NO_FRAMES: &[&[u8]] = &[
    b"\n",
    b"\n\n\n\n\n\n",
    b"cmd=get_maxes\n",
    b"cmd=init pmi_version=2 pmi_subversion=0\n",
    b"cmd=init pmi_version=1 pmi_subversion=1\n",
    b"cmd=kvs-fence;",
    b"hello!",
    b"      ",
    b"\0\0\0\0\0\0",
    b"   -1cmd=job-getid;",
    b"000000",
    b"     0",
    b"999999",
    b"000001;",
    b"     1;",
    b"GET / HTTP/1.0\r\n\r\n",
    b"\xff\xff\xff\xff\xff\xff",
    b"0x000ecmd=job-getid;",
    b"1e3   cmd=job-getid;",
    b"%s%s%n",
];

/// Headers in the place of the right one.
pub(super) const HEADERS: &[&[u8; 6]] = &[
    b"     0",
    b"     1",
    b"   -14",
    b"    -1",
    b"-99999",
    b"      ",
    b"abcdef",
    b"\n\n\n\n\n\n",
    b"\0\0\0\0\0\0",
    b"999999",
    b"0x0010",
    b"   +14",
    b"  1 4 ",
    b"1.0   ",
    b"100000",
    b"065536",
    b"032768",
    b"065535",
    b"  1024",
    b"\x31\x00\x00\x00\x00\x00",
];

/// Lines that are no message.
pub(super) const JUNK: &[&[u8]] = &[
    b"",
    b" ",
    b"=",
    b"==",
    b"cmd",
    b"cmd=",
    b"cmd =put",
    b"=put",
    b"\0",
    b"\r",
    b"cmd=put\0",
    b"hello",
    b"mcmd=",
    b"mcmd=put",
    b"mcmd=spawn",
    b"endcmd",
    b"nprocs=1",
    b"cmd=mcmd=spawn",
    b"    30cmd=fullinit;pmi_rank=0;",
    b"000042cmd=kvs-get;key=a;",
    b"GET / HTTP/1.0",
    b"%s%s%s%s%n",
    b"cmd=init pmi_version=2 pmi_subversion=0",
    b"cmd=barrier_in tag=1",
    b"cmd=create_kvs",
    b"cmd=getbyidx kvsname=x idx=0",
    b"cmd=put kvsname= key= value=",
    b"cmd=put\tkvsname=a\tkey=b\tvalue=c",
    b"cmd=get kvsname=\"a b\" key=c",
    b"\xff\xfe\xfd",
    b"cmd=execute",
];

/// Values of `rc`.
pub(super) const CODES: &[&str] = &[
    "-1",
    "1",
    "-2",
    "17",
    "2147483648",
    "-2147483649",
    "99999999999999999999",
    "",
    "x",
    "0x0",
    "00",
    "-0",
    "256",
    "-256",
    "65536",
    "4294967296",
];

/// Process mappings.
pub(super) const MAPPINGS: &[&str] = &[
    "",
    "(",
    "(vector",
    "(vector,",
    "(vector,(",
    "(vector,(0,1,1)",
    "(vector,(0,1,",
    "(vector,(0,1,1),(1,1,1),(2,1,1))",
    "(vector,(0,0,0))",
    "(vector,(0,0,1))",
    "(vector,(0,1,0))",
    "(vector,(-1,1,1))",
    "(vector,(0,-1,1))",
    "(vector,(0,1,-1))",
    "(vector,(0,2147483647,1))",
    "(vector,(0,1,2147483647))",
    "(vector,(256,1,1))",
    "(vector,(65535,1,1))",
    "(vector,(100000,1,1))",
    "(vector,(2147483647,2,2))",
    "(vector,(4294967296,1,1))",
    "(vector,(0,65536,65536))",
    "(vector,(99999999999999999999,1,1))",
    "(vector,())",
    "(vector,(a,b,c))",
    "(vector,(0,1,1,1))",
    "(vector,(0;1;1))",
    "(vector,(0,1,1)))))))",
    "vector,(0,1,1)",
    "(matrix,(0,1,1))",
    "(vector, (0, 1, 1))",
    "(vector,(0,1,1)) trailing",
    "((((((((((",
    ")",
    "%s%s%n",
];

/// Names of keyval spaces.
pub(super) const NAMES: &[&str] = &[
    "",
    "=",
    "a=b",
    "a b",
    "/",
    "..",
    "../../x",
    "%s%n",
    "'\"\\",
    "\t",
    "\r",
    "\0",
    "kvs\0name",
    "-",
    "*",
    "\u{fffd}",
];

/// Texts of `msg`.
pub(super) const MESSAGES: &[&str] =
    &["", "why", "a b c", "rc=0", "a=b cmd=get_result", "%s%s%n", "\t", "\r", "success"];

/// Pairs for the cache of a proxy, of which some are none.
pub(super) const CACHES: &[&str] = &[
    "",
    " ",
    " alone",
    " =",
    " =x",
    " a=",
    " a=1 alone",
    " alone a=1",
    " a=1  b=2",
    " a==b",
    " a=1 a=2",
    "\ta=1",
    " a=1\tb=2",
    " a=1\\",
    " a=b c",
    " cmd=put a=1",
    " a=\"b c\"",
    " PMI_process_mapping=x",
    " k0-0=other",
];

//! The values that generators and mutations insert: the lists in `values.toml`, and the words in the protocol table.

use std::ops::Deref;
use std::sync::LazyLock;

use pmi_wire::Framing;
use pmi_wire::protocol::{self, Exchange, Field};
use serde::Deserialize;

/// Lengths at which buffers of implementations end, or are likely to end.
pub(crate) const LENGTHS: &[i64] = &[
    0, 1, 15, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 1023, 1024, 1025, 2047, 2048, 4095,
    4096, 4097, 8191, 8192, 16384, 65535, 65536, 65537,
];

/// Byte strings, with each byte written as one character.
#[derive(Deserialize)]
#[serde(from = "Vec<String>")]
pub(crate) struct ByteStrings(Vec<&'static [u8]>);

impl From<Vec<String>> for ByteStrings {
    fn from(texts: Vec<String>) -> Self {
        let bytes = |text: String| &*text.chars().map(|c| c as u8).collect::<Vec<u8>>().leak();
        Self(texts.into_iter().map(bytes).collect())
    }
}

impl Deref for ByteStrings {
    type Target = [&'static [u8]];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Strings that are used as written.
#[derive(Deserialize)]
#[serde(from = "Vec<String>")]
pub(crate) struct Texts(Vec<&'static str>);

impl From<Vec<String>> for Texts {
    fn from(texts: Vec<String>) -> Self {
        Self(texts.into_iter().map(|text| &*text.leak()).collect())
    }
}

impl Deref for Texts {
    type Target = [&'static str];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The lists in `values.toml`. The comments in the file explain them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValueLists {
    pub(crate) numbers: Texts,
    pub(crate) threads: Texts,
    pub(crate) codes: Texts,
    pub(crate) mappings: Texts,
    pub(crate) messages: Texts,
    pub(crate) names: ByteStrings,
    pub(crate) caches: ByteStrings,
    line_commands: Texts,
    frame_commands: Texts,
    pub(crate) bodies: ByteStrings,
    #[serde(rename = "no_frames")]
    pub(crate) invalid_frames: ByteStrings,
    pub(crate) headers: ByteStrings,
    pub(crate) junk: ByteStrings,
    pub(crate) texts: Vec<ByteStrings>,
}

/// Returns the lists of `values.toml`.
pub(crate) fn values() -> &'static ValueLists {
    static VALUES: LazyLock<ValueLists> = LazyLock::new(|| {
        toml::from_str(include_str!("values.toml")).unwrap_or_else(|error| panic!("values.toml: {error}"))
    });
    &VALUES
}

/// The words that occur in messages with a given framing. The keys are sorted; the commands are in the order of the protocol table.
struct FramingWords {
    keys: Vec<&'static str>,
    requests: Vec<&'static str>,
    responses: Vec<&'static str>,
}

impl FramingWords {
    fn new(framing: Framing, strange: &[&'static str]) -> Self {
        // The keys of spawn requests are left out, because a changed spawn request could start any number of processes.
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
        static LINES: LazyLock<FramingWords> =
            LazyLock::new(|| FramingWords::new(Framing::Lines, &values().line_commands));
        static FRAMES: LazyLock<FramingWords> =
            LazyLock::new(|| FramingWords::new(Framing::Frames, &values().frame_commands));
        match framing {
            Framing::Lines => &LINES,
            Framing::Frames => &FRAMES,
        }
    }
}

/// Returns the keys that occur in messages of a framing, except in spawn requests.
pub(crate) fn keys(framing: Framing) -> &'static [&'static str] {
    &FramingWords::of(framing).keys
}

/// Returns the request commands that mutations use in a framing: those of the protocol, and others that the protocol does not define.
pub(crate) fn requests(framing: Framing) -> &'static [&'static str] {
    &FramingWords::of(framing).requests
}

/// Returns the response commands that mutations use in a framing: those of the protocol, and others that the protocol does not define.
pub(crate) fn responses(framing: Framing) -> &'static [&'static str] {
    &FramingWords::of(framing).responses
}

//! Texts of each kind that a process may lawfully say, for those who draw what is said.

use pmi_wire::grammar::Rule;

use super::axes::{Argument, Inputs};
use super::classify;
use crate::ast::Dialect;

/// Texts by their kinds. Semicolons stand once. What has no text here is of a length, or is no text at all.
const EXAMPLES: &[(&str, &[&[u8]])] = &[
    (
        "plain",
        &[
            b"0",
            b"-1",
            b"00",
            b"4294967296",
            b"1e9",
            b"%",
            b"100%d",
            b"%s%n",
            b"%%",
            b"#",
            b"a#b",
            b"$HOME",
            b"`id`",
            b"~",
            b"*",
            b"a,b",
            b"a:b",
            b"a|b",
            b"a&b",
            b"(vector,(0,1,1))",
            b"[0-3]",
            b"<a>",
            b"NULL",
            b"TRUE",
            b"!",
            b"@x",
        ],
    ),
    ("blank-inside", &[b"a b", b"a  b", b"a b c d", b"10.0.0.1 10.0.0.2", b"a - b"]),
    ("blank-in-front", &[b" a", b"  a"]),
    ("blank-behind", &[b"a ", b"a  "]),
    ("tab", &[b"a\tb", b"a\t\tb"]),
    ("equals", &[b"a=b", b"=", b"a=b=c", b"==", b"=a", b"a="]),
    ("semicolon", &[b"a;b", b";", b"a;", b";a", b"a;;b", b"a;key=b"]),
    ("backslash", &[b"a\\b", b"\\", b"a\\", b"\\n", b"a\\\\b", b"\\073"]),
    ("quote", &[b"\"a\"", b"'a'", b"\"", b"a'b", b"a\"b", b"\"\"", b"'\""]),
    (
        "reserved",
        &[
            b"put",
            b"get",
            b"value",
            b"key",
            b"cmd",
            b"rc",
            b"kvsname",
            b"endcmd",
            b"PMI_",
            b"PMI_process_mapping_2",
        ],
    ),
    ("like-keyword", &[b"rc=0", b"cmd=get", b"value=a", b"rc=-1", b"key=a"]),
    ("not-ascii", &[b"\xc3\xa9", b"\xff", b"a\x80b", b"\xe2\x82\xac"]),
    ("newline", &[b"\n", b"a\nb", b"a\n"]),
    ("nul", &[b"\0", b"a\0b"]),
];

/// Kinds that are lengths, which who draws them makes.
#[cfg(test)]
const LENGTHS: &[&str] = &["empty", "longest", "one-more", "long", "far-too-long"];

impl Inputs {
    fn argument(&self, operation: &str, argument: &str) -> Option<&Argument> {
        self.operation(operation)?.arguments.iter().find(|a| a.name == argument)
    }

    /// Texts that an argument may lawfully have, by their kinds: those of the table. In PMI-1, what RFC 13 contradicts itself on is
    /// left out: blanks at the ends of a value.
    pub fn examples(&self, operation: &str, argument: &str) -> Vec<(&'static str, Vec<&'static [u8]>)> {
        let Some(operation) = self.operation(operation) else { return Vec::new() };
        let Some(argument) = operation.arguments.iter().find(|a| a.name == argument) else {
            return Vec::new();
        };
        // What is a word of one protocol is none of another.
        let is_of = |kind: &'static str, text: &[u8]| {
            let named = [(argument.name.clone(), Some(text.to_vec()))];
            let kinds = classify::named(&named, operation, self);
            let is_word =
                self.dialect == Dialect::Pmi2 || argument.rule != Rule::Word || !text.contains(&b'=');
            is_word && kinds.contains(&(argument.name.clone(), kind))
        };
        let is_lawful = |kind: &str| match (self.dialect, argument.rule) {
            (_, Rule::Uint | Rule::Int | Rule::Bool | Rule::IntList) => false,
            (Dialect::Pmi2, _) => true,
            (Dialect::Pmi1, Rule::Word | Rule::Visible) => {
                matches!(kind, "plain" | "semicolon" | "backslash" | "quote" | "reserved")
            }
            (Dialect::Pmi1, Rule::String) => {
                !matches!(kind, "blank-in-front" | "blank-behind" | "not-ascii" | "newline" | "nul")
            }
        };
        let has = |kind: &str| {
            self.file.kind.get(kind).is_some_and(|kind| {
                kind.of.contains(&argument.rule)
                    && kind.limited.is_none_or(|limited| limited == argument.limit.is_some())
            })
        };
        let fits = EXAMPLES.iter().filter(|(kind, _)| is_lawful(kind) && has(kind)).map(|(kind, texts)| {
            (*kind, texts.iter().copied().filter(|text| is_of(kind, text)).collect::<Vec<_>>())
        });
        fits.filter(|(_, texts)| !texts.is_empty()).collect()
    }

    /// The most bytes that an argument may have where its server announces what all known ones do; `None` if it has no limit.
    pub fn longest(&self, operation: &str, argument: &str) -> Option<usize> {
        self.limits().of(self.argument(operation, argument)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnderTest;

    fn put(dialect: Dialect) -> (Inputs, &'static str) {
        let inputs = Inputs::of(UnderTest::Server, dialect).unwrap();
        (inputs, if dialect == Dialect::Pmi1 { "put" } else { "kvs-put" })
    }

    #[test]
    fn an_example_is_of_its_kind_in_some_protocol() {
        let drawn: Vec<_> = [Dialect::Pmi1, Dialect::Pmi2]
            .into_iter()
            .flat_map(|dialect| put(dialect).0.examples(put(dialect).1, "value"))
            .collect();
        for (kind, texts) in EXAMPLES {
            for text in *texts {
                let is_drawn = drawn.iter().any(|(k, all)| k == kind && all.contains(text));
                assert!(is_drawn, "{kind}: {}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn each_kind_of_a_value_of_pmi2_has_examples_or_is_a_length() {
        let (inputs, operation) = put(Dialect::Pmi2);
        let rule = inputs.argument(operation, "value").unwrap().rule;
        let drawn = inputs.examples(operation, "value");
        for (kind, of) in &inputs.file.kind {
            let is_length = LENGTHS.contains(&kind.as_str());
            let no_text = matches!(kind.as_str(), "missing" | "repeated");
            assert!(
                !of.of.contains(&rule)
                    || is_length
                    || no_text
                    || drawn.iter().any(|(drawn, _)| drawn == kind),
                "{kind}"
            );
        }
    }

    #[test]
    fn a_key_of_pmi1_is_a_word_and_what_is_no_text_has_no_examples() {
        let (inputs, operation) = put(Dialect::Pmi1);
        let words = inputs.examples(operation, "key");
        let is_word = |text: &&[u8]| text.iter().all(|b| b.is_ascii_graphic() && *b != b'=');
        assert!(words.len() > 3 && words.iter().flat_map(|(_, texts)| texts).all(is_word));
        assert!(inputs.examples("init", "pmi_version").is_empty());
        assert_eq!(
            (inputs.longest(operation, "key"), inputs.longest(operation, "value")),
            (Some(63), Some(1023))
        );
        assert_eq!(inputs.longest("publish_name", "service"), None);
    }
}

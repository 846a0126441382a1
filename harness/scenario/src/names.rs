//! Patterns for names, such as those of scenarios and requirements.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or a pattern. `*` matches any text, including `/`. All other characters match only themselves, including the brackets in the
/// names of rows.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
}

impl NamePattern {
    /// Creates a pattern.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.text.split_once('*') else { return self.text == name };
        let (others, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let between = name.strip_prefix(first).and_then(|name| name.strip_suffix(last));
        let mut others = others.split('*');
        between.is_some_and(|left| {
            others.try_fold(left, |left, other| left.split_once(other).map(|(_, left)| left)).is_some()
        })
    }
}

impl Serialize for NamePattern {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for NamePattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(|text| Self::new(&text))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::NamePattern;

    #[rstest]
    #[case("*", "a/b", true)]
    #[case("kvs/*", "kvs/x", true)]
    #[case("kvs/*", "akvs/x", false)]
    #[case("kvs/x", "kvs/x", true)]
    #[case("kvs/x", "kvs/xy", false)]
    #[case("*x*z", "axyz", true)]
    #[case("*x*z", "axyzb", false)]
    #[case("a*a", "a", false)]
    #[case("kvs/a[size=*]", "kvs/a[size=3]", true)]
    #[case("kvs/a[size=*]", "kvs/as", false)]
    #[case("a?{b,c}", "a?{b,c}", true)]
    #[case("a?{b,c}", "axb", false)]
    fn star_matches_any_text(#[case] pattern: &str, #[case] name: &str, #[case] fits: bool) {
        assert_eq!(NamePattern::new(pattern).matches(name), fits);
    }
}

//! Patterns for the names of scenarios, requirements and buckets.

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or a pattern. `*` stands for any text, including `/`. No other character is special, because the names of rows contain brackets.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    /// `None` for a pattern that the library rejects, which matches only itself.
    matcher: Option<GlobMatcher>,
}

impl NamePattern {
    /// Creates a pattern.
    pub fn new(text: &str) -> Self {
        let escaped: Vec<String> = text.split('*').map(globset::escape).collect();
        let matcher = Glob::new(&escaped.join("*")).ok().map(|glob| glob.compile_matcher());
        Self { text: text.to_owned(), matcher }
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.matcher.as_ref().is_some_and(|matcher| matcher.is_match(name))
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

//! Suggestions for misspelled words.

/// Returns the end of an error message about an unknown word: the most similar word, if one is similar enough, and `help`.
pub fn hint<'a>(word: &str, words: impl Iterator<Item = &'a str>, help: &str) -> String {
    let alike = words.map(|other| (strsim::jaro_winkler(word, other), other));
    let nearest = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.75);
    match (nearest, help) {
        (None, "") => String::new(),
        (None, help) => format!("; {help}"),
        (Some((_, other)), "") => format!(", did you mean {other}?"),
        (Some((_, other)), help) => {
            let (first, rest) = help.split_at(1);
            format!(", did you mean {other}? {}{rest}", first.to_ascii_uppercase())
        }
    }
}

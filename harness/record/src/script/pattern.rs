//! Combines steps of several ranks that differ only in numbers, if these numbers depend on the rank.
//!
//! `key=card-0` from rank 0 and `key=card-1` from rank 1 become `key=card-$rank`. If each rank reads from its right neighbour, the key
//! becomes `key=card-<calc ($rank+1)%$size>`.

use std::collections::{BTreeMap, HashSet};

/// Maximum count of numbers in a step that are compared with the rank. Further numbers are treated as plain text.
const MAX_NUMBERS: usize = 16;

/// Maximum number of digits of a number.
const MAX_DIGITS: usize = 9;

/// Minimum number of ranks with the same offset before a number is written as the rank plus this offset. Two ranks may have the same offset
/// by chance.
const MIN_RANKS: usize = 3;

/// A piece of text in the scenario language, split at its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SplitText {
    /// The parts of the text before, between and after the numbers.
    context: Vec<String>,
    numbers: Vec<i64>,
}

impl SplitText {
    /// Splits text at its numbers, but not within names and `<...>`.
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let (mut around, mut numbers) = (Vec::new(), Vec::new());
        let (mut from, mut at) = (0, 0);
        let end = |at: usize, is: fn(u8) -> bool| {
            bytes[at..].iter().position(|b| !is(*b)).map_or(bytes.len(), |n| at + n)
        };
        while at < bytes.len() {
            let rest = &bytes[at..];
            match bytes[at] {
                _ if rest.starts_with(b"<<") || rest.starts_with(b"$$") => at += 2,
                b'<' => at = end(at, |b| b != b'>'),
                b'$' => at = end(at + 1, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':')),
                b'0'..=b'9' => {
                    let after = end(at, |b| b.is_ascii_digit());
                    let digits = &text[at..after];
                    let is_number = digits.len() <= MAX_DIGITS && (digits == "0" || !digits.starts_with('0'));
                    if let (true, true, Ok(number)) = (is_number, numbers.len() < MAX_NUMBERS, digits.parse())
                    {
                        around.push(text[from..at].to_owned());
                        numbers.push(number);
                        from = after;
                    }
                    at = after;
                }
                _ => at += 1,
            }
        }
        around.push(text[from..].to_owned());
        Self { context: around, numbers }
    }

    /// Returns the parts of the text around the numbers. These parts are equal for two steps that differ only in numbers.
    pub(super) fn context(&self) -> &[String] {
        &self.context
    }

    /// Returns the text with the given numbers.
    fn text(&self, numbers: &[NumberPattern]) -> String {
        let mut text = self.context[0].clone();
        for (number, after) in numbers.iter().zip(&self.context[1..]) {
            number.write(after, &mut text);
            text.push_str(after);
        }
        text
    }
}

/// A number in a step that several ranks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NumberPattern {
    /// The same number for all ranks.
    Constant(i64),
    /// The rank plus an offset.
    RankPlus(i64),
    /// The sum of the rank and an offset, which wraps to 0 after the last rank.
    RankPlusWrapped(i64),
}

impl NumberPattern {
    fn write(self, after: &str, text: &mut String) {
        let glued = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':');
        let written = match self {
            Self::Constant(number) => number.to_string(),
            Self::RankPlus(0) if after.as_bytes().first().is_some_and(glued) => "${rank}".to_owned(),
            Self::RankPlus(0) => "$rank".to_owned(),
            Self::RankPlus(more @ 1..) => format!("<calc $rank+{more}>"),
            Self::RankPlus(less) => format!("<calc $rank-{}>", -less),
            Self::RankPlusWrapped(more) => format!("<calc ($rank+{more})%$size>"),
        };
        text.push_str(&written);
    }
}

/// For each number of a step: true and the offset from the rank if the number depends on the rank; otherwise, false and the number.
type NumberClasses = Vec<(bool, i64)>;

/// Combines steps that differ only in numbers. `alike` contains the text of each step and the ranks that share it; all ranks belong
/// to the same group. Returns the text of each combined step with its ranks. All lists of ranks are sorted. `size` is the size of the
/// group, if known.
pub(super) fn steps(alike: &[(&SplitText, &[u32])], size: Option<u32>) -> Vec<(Vec<u32>, String)> {
    let texts: Vec<(&SplitText, u32)> =
        alike.iter().flat_map(|(cut, who)| who.iter().map(move |rank| (*cut, *rank))).collect();
    let Some((first, _)) = texts.first() else { return Vec::new() };
    // A number depends on the rank if, over all ranks, its offset from the rank takes fewer distinct values than the number itself.
    let numbers = 0..first.numbers.len();
    let follows: Vec<bool> = numbers
        .map(|at| {
            let distinct = |of: &dyn Fn(i64, u32) -> i64| {
                texts.iter().map(|(cut, rank)| of(cut.numbers[at], *rank)).collect::<HashSet<i64>>().len()
            };
            distinct(&|number, rank| offset(number, rank, size)) < distinct(&|number, _| number)
        })
        .collect();
    let mut classes: BTreeMap<NumberClasses, Vec<(&SplitText, u32)>> = BTreeMap::new();
    for (cut, rank) in texts {
        let class = cut.numbers.iter().zip(&follows);
        let class = class.map(|(n, follows)| (*follows, if *follows { offset(*n, rank, size) } else { *n }));
        classes.entry(class.collect()).or_default().push((cut, rank));
    }
    classes.into_iter().flat_map(|(class, texts)| step_of(&class, texts)).collect()
}

/// Returns the offset of a number from the rank. If the size of the group is known and exceeds the number, the offset is computed modulo
/// the size.
fn offset(number: i64, rank: u32, size: Option<u32>) -> i64 {
    let above = number - i64::from(rank);
    match size.map(i64::from) {
        Some(size) if number < size => above.rem_euclid(size),
        _ => above,
    }
}

/// Returns a single step for all ranks that have the same numbers or offsets. If there are too few ranks, returns a step for each rank.
fn step_of(class: &[(bool, i64)], mut texts: Vec<(&SplitText, u32)>) -> Vec<(Vec<u32>, String)> {
    texts.sort_unstable_by_key(|(_, rank)| *rank);
    let number = |(at, (follows, number)): (usize, &(bool, i64))| {
        let straight = texts[0].0.numbers[at] - i64::from(texts[0].1);
        match follows {
            false => NumberPattern::Constant(*number),
            true if texts.iter().all(|(cut, rank)| cut.numbers[at] - i64::from(*rank) == straight) => {
                NumberPattern::RankPlus(straight)
            }
            true => NumberPattern::RankPlusWrapped(*number),
        }
    };
    let numbers: Vec<NumberPattern> = class.iter().enumerate().map(number).collect();
    let is_plain =
        |number: &NumberPattern| matches!(number, NumberPattern::Constant(_) | NumberPattern::RankPlus(0));
    if texts.len() >= MIN_RANKS || texts.len() > 1 && numbers.iter().all(is_plain) {
        let text = texts[0].0.text(&numbers);
        return vec![(texts.into_iter().map(|(_, rank)| rank).collect(), text)];
    }
    let as_it_is = |cut: &SplitText| {
        cut.text(&cut.numbers.iter().map(|n| NumberPattern::Constant(*n)).collect::<Vec<_>>())
    };
    texts.into_iter().map(|(cut, rank)| (vec![rank], as_it_is(cut))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the combined steps and their ranks.
    fn written(texts: &[(&str, &[u32])], size: Option<u32>) -> Vec<(Vec<u32>, String)> {
        let cuts: Vec<SplitText> = texts.iter().map(|(text, _)| SplitText::of(text)).collect();
        let alike: Vec<(&SplitText, &[u32])> =
            cuts.iter().zip(texts).map(|(cut, (_, who))| (cut, *who)).collect();
        steps(&alike, size)
    }

    fn step(ranks: &[u32], text: &str) -> (Vec<u32>, String) {
        (ranks.to_vec(), text.to_owned())
    }

    #[test]
    fn splits_text_only_at_numbers() {
        for (text, numbers) in [
            ("cmd=get key=a-7 value=12", &[7, 12][..]),
            ("kvsname=$child2_kvs key=k3", &[3]),
            ("value=<0x07><uint 1..4>5", &[5]),
            ("value=<<5> $$6", &[5, 6]),
            ("key=007 value=1234567890", &[]),
            ("value=$x:word 0", &[0]),
            ("", &[]),
            ("<", &[]),
        ] {
            let cut = SplitText::of(text);
            assert_eq!(cut.numbers, numbers, "{text}");
            let same: Vec<NumberPattern> = cut.numbers.iter().map(|n| NumberPattern::Constant(*n)).collect();
            assert_eq!(cut.text(&same), text);
        }
    }

    #[test]
    fn expresses_numbers_in_terms_of_the_rank() {
        let own = [("k=0x v=5", &[0][..]), ("k=1x v=5", &[1]), ("k=2x v=5", &[2])];
        assert_eq!(written(&own, Some(3)), [step(&[0, 1, 2], "k=${rank}x v=5")]);
        let right = [("k=1", &[0][..]), ("k=2", &[1]), ("k=0", &[2])];
        assert_eq!(written(&right, Some(3)), [step(&[0, 1, 2], "k=<calc ($rank+1)%$size>")]);
        let ports = [("p=4000", &[0][..]), ("p=4001", &[1]), ("p=4002", &[2])];
        assert_eq!(written(&ports, None), [step(&[0, 1, 2], "p=<calc $rank+4000>")]);
        let left = [("k=0", &[1][..]), ("k=1", &[2]), ("k=2", &[3])];
        assert_eq!(written(&left, None), [step(&[1, 2, 3], "k=<calc $rank-1>")]);
    }

    #[test]
    fn keeps_numbers_unrelated_to_the_rank() {
        let alike = [("k=3", &[0, 2][..]), ("k=8", &[1])];
        assert_eq!(written(&alike, Some(3)), [step(&[0, 2], "k=3"), step(&[1], "k=8")]);
        // Two ranks may have the same offset by chance.
        let two = [("pid=411", &[0][..]), ("pid=412", &[1])];
        assert_eq!(written(&two, Some(2)), [step(&[0], "pid=411"), step(&[1], "pid=412")]);
        // A rank with a different number gets a separate step.
        let most = [("k=0", &[0][..]), ("k=1", &[1]), ("k=2", &[2]), ("k=9", &[3])];
        assert_eq!(written(&most, Some(4)), [step(&[0, 1, 2], "k=$rank"), step(&[3], "k=9")]);
    }
}

//! Parses arithmetic expressions and rank sets with winnow. The rest of the language needs no parser library.

use winnow::{
    ModalResult, Parser, Stateful,
    ascii::{dec_uint, digit1, space0},
    combinator::{alt, delimited, opt, preceded, separated, terminated},
    error::{ContextError, ErrMode},
    stream::{LocatingSlice, Location},
    token::{one_of, take_while},
};

use super::ast::{BinOp, Expr, RankSet, Span, Spanned, StepTarget};
use pmi_wire::Proc;

/// Maximum nesting depth of parentheses. It is limited because the tree is processed and freed recursively.
const MAX_DEPTH: u32 = 32;
/// Maximum number of operators in an expression, for the same reason as [`MAX_DEPTH`].
const MAX_OPERATORS: u32 = 64;
/// The largest number in the language. It exceeds every size in the protocol, and the product of two such numbers fits into 64 bits.
pub(super) const MAX_NUMBER: i64 = 1_000_000_000;
/// The highest rank that a scenario can name.
pub(super) const MAX_RANK: u32 = 1_000_000;
/// The highest number of a spawned group.
pub const MAX_GROUP: u32 = 1_000;

/// A syntax error, with its offset in the parsed text.
pub(super) struct SyntaxError {
    pub(super) message: String,
    pub(super) at: usize,
}

#[derive(Debug, Default, Clone)]
struct ParseState {
    base: usize,
    depth: u32,
    operators: u32,
    problem: Option<String>,
}

type Input<'a> = Stateful<LocatingSlice<&'a str>, ParseState>;

fn fail<T>(input: &mut Input<'_>, problem: impl Into<String>) -> ModalResult<T> {
    input.state.problem = Some(problem.into());
    Err(ErrMode::Cut(ContextError::new()))
}

fn run<'a, T>(
    text: &'a str,
    base: usize,
    expected: &str,
    mut parser: impl FnMut(&mut Input<'a>) -> ModalResult<T>,
) -> Result<T, SyntaxError> {
    let state = ParseState { base, ..ParseState::default() };
    let mut input = Stateful { input: LocatingSlice::new(text), state };
    let result = parser(&mut input);
    let at = input.current_token_start();
    match result {
        Ok(value) if input.input.is_empty() => Ok(value),
        Ok(_) => Err(SyntaxError { message: format!("expected {expected}"), at }),
        Err(_) => {
            let message = input.state.problem.unwrap_or_else(|| format!("expected {expected}"));
            Err(SyntaxError { message, at })
        }
    }
}

/// Parses the whole text as an expression. The text begins at offset `base` in the file.
pub(super) fn expr(text: &str, base: usize) -> Result<Expr, SyntaxError> {
    run(text, base, "an operator (`+`, `-`, `*`, `%`) or the end of the expression", |input| {
        terminated(sum, space0).parse_next(input)
    })
}

fn sum(input: &mut Input<'_>) -> ModalResult<Expr> {
    chain(input, ['+', '-'], product)
}

fn product(input: &mut Input<'_>) -> ModalResult<Expr> {
    chain(input, ['*', '%'], operand)
}

fn chain(
    input: &mut Input<'_>,
    operators: [char; 2],
    next: fn(&mut Input<'_>) -> ModalResult<Expr>,
) -> ModalResult<Expr> {
    let mut left = next(input)?;
    while let Some(operator) = opt(preceded(space0, one_of(operators))).parse_next(input)? {
        input.state.operators += 1;
        if input.state.operators > MAX_OPERATORS {
            return fail(input, format!("more than {MAX_OPERATORS} operators in one expression"));
        }
        let operator = match operator {
            '+' => BinOp::Add,
            '-' => BinOp::Sub,
            '*' => BinOp::Mul,
            _ => BinOp::Rem,
        };
        left = Expr::Binary(Box::new(left), operator, Box::new(next(input)?));
    }
    Ok(left)
}

fn operand(input: &mut Input<'_>) -> ModalResult<Expr> {
    space0.parse_next(input)?;
    if let Some(digits) = opt(digit1::<_, ErrMode<ContextError>>).parse_next(input)? {
        return match digits.parse::<i64>() {
            Ok(number) if number <= MAX_NUMBER => Ok(Expr::Number(number)),
            _ => fail(input, format!("the largest number is {MAX_NUMBER}")),
        };
    }
    if let Some(name) = opt(variable).parse_next(input)? {
        return Ok(Expr::Var(name));
    }
    if opt('(').parse_next(input)?.is_none() {
        return fail(input, "expected a number, a `$name` or `(`");
    }
    input.state.depth += 1;
    if input.state.depth > MAX_DEPTH {
        return fail(input, format!("parentheses are nested more than {MAX_DEPTH} levels deep"));
    }
    let inner = sum(input)?;
    if opt(preceded(space0, ')')).parse_next(input)?.is_none() {
        return fail(input, "expected an operator or `)`");
    }
    input.state.depth -= 1;
    Ok(inner)
}

fn variable(input: &mut Input<'_>) -> ModalResult<Spanned<String>> {
    let start = input.state.base + input.current_token_start();
    let name = preceded('$', name).parse_next(input)?;
    let span = Span { start, end: start + 1 + name.len() };
    Ok(Spanned { value: name.to_owned(), span })
}

fn name<'a>(input: &mut Input<'a>) -> ModalResult<&'a str> {
    (one_of(is_name_start), take_while(0.., is_name_char)).take().parse_next(input)
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Parses the target of a step, such as `2,0,1`, `1-3`, `*`, `child:0`, `child2:*`, `proxy:0` or `stray:0`.
pub(super) fn step_target(text: &str, base: usize) -> Result<StepTarget, SyntaxError> {
    run(text, base, "ranks such as `0`, `1-3`, `2,0,1`, `*` or `child:0`", |input| {
        let spawned = opt(delimited("child", variable, ':')).parse_next(input)?;
        let proxies = "proxy".value(Proc::PROXY_GROUP);
        let strays = "stray".value(Proc::STRAY_GROUP);
        let group = opt(terminated(alt((proxies, strays, group)), ':')).parse_next(input)?.unwrap_or(0);
        let set = alt(('*'.value(RankSet::All), separated(1.., range, ',').map(RankSet::Ranges)))
            .parse_next(input)?;
        Ok(match spawned {
            Some(number) => StepTarget::Spawned { number, set },
            None => StepTarget::Ranks { group, set },
        })
    })
}

fn group(input: &mut Input<'_>) -> ModalResult<u32> {
    let number: Option<u32> = preceded("child", opt(dec_uint)).parse_next(input)?;
    match number {
        None => Ok(1),
        Some(n) if (2..=MAX_GROUP).contains(&n) => Ok(n),
        Some(1) => fail(input, "the first spawned group is `child`"),
        Some(_) => fail(input, format!("spawned groups are `child`, `child2` ... `child{MAX_GROUP}`")),
    }
}

fn range(input: &mut Input<'_>) -> ModalResult<(u32, u32)> {
    let first: u32 = dec_uint.parse_next(input)?;
    let last: u32 = opt(preceded('-', dec_uint)).parse_next(input)?.unwrap_or(first);
    if first.max(last) > MAX_RANK {
        return fail(input, format!("the highest rank is {MAX_RANK}"));
    }
    if first > last {
        return fail(
            input,
            "a range must be ascending; for a different order, list the ranks, as in `2,1,0`",
        );
    }
    Ok((first, last))
}

/// Evaluates an expression without variables. Returns `None` if the expression has variables or cannot be evaluated.
pub(super) fn constant(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Number(n) => Some(*n),
        Expr::Var(_) => None,
        Expr::Binary(left, op, right) => {
            let (left, right) = (constant(left)?, constant(right)?);
            match op {
                BinOp::Add => left.checked_add(right),
                BinOp::Sub => left.checked_sub(right),
                BinOp::Mul => left.checked_mul(right),
                BinOp::Rem => left.checked_rem(right),
            }
        }
    }
}

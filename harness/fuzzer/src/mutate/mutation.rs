//! The mutations that there are, by name and by what they can be made of.

use pmi_wire::Framing;

/// A way to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A key, a value or a tuple is another one, or missing, or there twice.
    Token,
    /// What stands between keys, values and tuples.
    Separator,
    /// A key, value or name at a boundary of lengths.
    Length,
    /// A number at a boundary.
    Number,
    /// Very many tuples.
    Count,
    /// Another command, or none.
    Command,
    /// Another name of the keyval space.
    Kvsname,
    /// Some bytes of a message are others.
    Bytes,
    /// A line or a frame that is no message.
    Junk,
    /// The length of a frame is another, or none, or its end is missing.
    Frame,
    /// A message in two writes, or without its second half.
    Half,
    /// The right bytes in several writes.
    Pieces,
    /// Several requests in one write.
    Pipeline,
    /// The same several times.
    Repeat,
    /// In another order.
    Order,
    /// The end of a connection, or of a process, when something else was due.
    Close,
    /// Something before or behind the answer.
    Surplus,
    /// A refusal, well-formed or not.
    Refusal,
    /// A value of another length or kind, that somebody may put.
    Value,
    /// Limits that are very low, very high or none.
    Limits,
    /// A process mapping that is wrong, or says something strange.
    Mapping,
    /// The number of another thread, or one that nobody has.
    Thread,
    /// The answer to another request.
    Another,
    /// Pairs for the cache of a proxy, some of them none.
    Cache,
    /// After another process's request, or after the end of who asked.
    Late,
    /// Before anything was asked.
    Unasked,
    /// Not at all.
    Never,
    /// The beginning of one case and the end of another.
    Splice,
    /// Some steps of another case in the middle.
    Insert,
    /// Some steps are left out.
    Drop,
    /// By another rank.
    Rank,
    /// The last newline is left out, or not.
    Partial,
    /// Keys and values that are asked for and put have some other bytes, each key the same ones wherever it stands.
    Content,
    /// Many requests of one, each with another key or value.
    Multiply,
}

impl Mutation {
    /// What can be done to the requests of a case.
    pub(crate) fn of_requests(framing: Framing) -> &'static [Self] {
        const OF_LINES: &[Mutation] = &Mutation::requests(Mutation::Kvsname);
        const OF_FRAMES: &[Mutation] = &Mutation::requests(Mutation::Frame);
        match framing {
            Framing::Lines => OF_LINES,
            Framing::Frames => OF_FRAMES,
        }
    }

    const fn requests(own: Self) -> [Self; 13] {
        use Mutation::*;
        [Token, Separator, Length, Number, Count, Order, Repeat, Half, Pipeline, Close, own, Junk, Bytes]
    }

    /// What can be done to the answers of a proxy's upstream.
    pub(crate) const OF_REPLIES: &[Self] = {
        use Mutation::*;
        &[
            Token, Separator, Length, Number, Count, Bytes, Junk, Command, Another, Cache, Repeat, Late,
            Order, Half, Surplus, Unasked, Never, Close,
        ]
    };

    /// What can be done to the answers of a server.
    pub(crate) fn of_answers(framing: Framing) -> &'static [Self] {
        const OF_LINES: &[Mutation] = &Mutation::answers([Mutation::Limits, Mutation::Kvsname]);
        const OF_FRAMES: &[Mutation] = &Mutation::answers([Mutation::Thread, Mutation::Frame]);
        match framing {
            Framing::Lines => OF_LINES,
            Framing::Frames => OF_FRAMES,
        }
    }

    const fn answers([first, second]: [Self; 2]) -> [Self; 17] {
        use Mutation::*;
        [
            Token, Separator, Length, Number, Count, Command, Refusal, Value, Mapping, first, second, Junk,
            Bytes, Half, Close, Pieces, Surplus,
        ]
    }

    /// How a case is made of others.
    pub(crate) const OF_CASES: &[Self] = {
        use Mutation::*;
        &[Content, Multiply, Splice, Insert, Drop, Repeat, Order, Rank, Bytes, Junk, Partial, Close]
    };

    /// Its name in `avoid`.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Thread => "thrid".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

//! The mutations, their names, and the kinds of input to which they apply.

use pmi_wire::Framing;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Changes, removes or duplicates a key, a value or a tuple.
    Token,
    /// Changes a separator between keys, values or tuples.
    Separator,
    /// Gives a key, value or name a boundary length.
    Length,
    /// Sets a number to a boundary value.
    Number,
    /// Adds a very large number of tuples.
    Count,
    /// Replaces or removes the command.
    Command,
    /// Changes the name of the keyval space.
    Kvsname,
    /// Changes some bytes of a message.
    Bytes,
    /// Sends a line or a frame that is not a message.
    Junk,
    /// Makes the length of a frame wrong, invalid or unusual, or changes the frame's end.
    Frame,
    /// Splits a message into two writes, or removes its second half.
    Half,
    /// Splits correct bytes into several writes.
    Pieces,
    /// Joins several requests in one write.
    Pipeline,
    /// Repeats a message or step.
    Repeat,
    /// Changes the order of messages or steps.
    Order,
    /// Closes a connection, or makes a process exit or die, at an unexpected point.
    Close,
    /// Adds a message before or after the response.
    Surplus,
    /// Sends a well-formed or malformed failure response.
    Refusal,
    /// Replaces a value with a different value that a process could have put.
    Value,
    /// Makes limits very low, very high or invalid.
    Limits,
    /// Sends an invalid or unusual process mapping.
    Mapping,
    /// Adds, changes or removes the number of a thread.
    Thread,
    /// Sends the response to a different request.
    Another,
    /// Sends key-value pairs for the cache of a proxy. Some of them are invalid.
    Cache,
    /// Delays a response until another process makes a request, or until the requesting process has ended.
    Late,
    /// Sends a response before any request.
    Unasked,
    /// Sends no response.
    Never,
    /// Joins the beginning of one case and the end of another.
    Splice,
    /// Inserts some steps of another case.
    Insert,
    /// Removes some steps.
    Drop,
    /// Moves a step to another rank.
    Rank,
    /// Removes or restores the trailing newline.
    Partial,
    /// Changes bytes of keys and values that are put and requested, in the same way for each occurrence of a key.
    Content,
    /// Replicates a request many times, each with a different key or value.
    Multiply,
}

impl Mutation {
    /// Returns the mutations of the requests in a case.
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

    /// The mutations of responses from a proxy's upstream.
    pub(crate) const OF_REPLIES: &[Self] = {
        use Mutation::*;
        &[
            Token, Separator, Length, Number, Count, Bytes, Junk, Command, Another, Cache, Repeat, Late,
            Order, Half, Surplus, Unasked, Never, Close,
        ]
    };

    /// Returns the mutations of responses from a server.
    pub(crate) fn of_responses(framing: Framing) -> &'static [Self] {
        const OF_LINES: &[Mutation] = &Mutation::responses([Mutation::Limits, Mutation::Kvsname]);
        const OF_FRAMES: &[Mutation] = &Mutation::responses([Mutation::Thread, Mutation::Frame]);
        match framing {
            Framing::Lines => OF_LINES,
            Framing::Frames => OF_FRAMES,
        }
    }

    const fn responses([first, second]: [Self; 2]) -> [Self; 17] {
        use Mutation::*;
        [
            Token, Separator, Length, Number, Count, Command, Refusal, Value, Mapping, first, second, Junk,
            Bytes, Half, Close, Pieces, Surplus,
        ]
    }

    /// The mutations that derive a case from others.
    pub(crate) const OF_CASES: &[Self] = {
        use Mutation::*;
        &[Content, Multiply, Splice, Insert, Drop, Repeat, Order, Rank, Bytes, Junk, Partial, Close]
    };

    /// Returns the mutation's name, which users write in the `avoid` list of a known failure.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Thread => "thrid".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

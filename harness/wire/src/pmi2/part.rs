//! Messages of the server that are a part of an answer, and have no `rc`.

use std::borrow::Cow;

use super::body::{Body, Semicolons};
use super::response::ResponseError;
use crate::grammar::parse_uint;
use crate::protocol::PARTS;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// `cmd=auth-response`, or `cmd=auth-response-complete`: fullinit is answered once the client has answered this.
    Challenge {
        /// What the client is to answer.
        authinfo: Cow<'a, [u8]>,
    },
    /// `cmd=kvs-getall-paircount-response`: so many pairs follow.
    PairCount(u64),
    /// `cmd=kvs-getall-pair-response`: one of them.
    Pair {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The value, `val` on the wire.
        value: Cow<'a, [u8]>,
    },
}

impl<'a> Part<'a> {
    /// Reads the body of a frame; `None` if it is something else.
    pub fn parse(bytes: &'a [u8], semicolons: Semicolons) -> Option<Result<Self, ResponseError>> {
        let body = Body::parse(bytes, semicolons).ok()?;
        let cmd = body.cmd()?;
        let (name, fields) = PARTS.into_iter().find(|(name, _)| name.as_bytes() == cmd)?;
        if let Some(key) =
            fields.iter().map(|field| field.key).chain(["cmd", "thrid"]).find(|key| body.repeats(key))
        {
            return Some(Err(ResponseError::RepeatedKey(key)));
        }
        let need = |key: &'static str| body.value(key).ok_or(ResponseError::MissingKey(key));
        Some(match name {
            "kvs-getall-paircount-response" => need("npair").and_then(|number| {
                parse_uint(&number).map(Self::PairCount).ok_or(ResponseError::BadNumber("npair"))
            }),
            "kvs-getall-pair-response" => {
                need("key").and_then(|key| Ok(Self::Pair { key, value: need("val")? }))
            }
            _ => need("authinfo").map(|authinfo| Self::Challenge { authinfo }),
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"cmd=auth-response;authinfo=17;", Some(Ok(Part::Challenge { authinfo: b"17".into() })))]
    #[case(b"cmd=kvs-getall-paircount-response;thrid=1;npair=2;", Some(Ok(Part::PairCount(2))))]
    #[case(b"cmd=kvs-getall-pair-response;key=k;val=a;;b;", Some(Ok(Part::Pair {
        key: b"k".into(), value: b"a;b".into() })))]
    #[case(b"cmd=kvs-getall-pair-response;key=k;", Some(Err(ResponseError::MissingKey("val"))))]
    #[case(b"cmd=kvs-getall-paircount-response;npair=x;", Some(Err(ResponseError::BadNumber("npair"))))]
    #[case(
        b"cmd=kvs-getall-paircount-response;npair=1;npair=1;",
        Some(Err(ResponseError::RepeatedKey("npair")))
    )]
    #[case(b"cmd=kvs-getall-response;rc=0;", None)]
    #[case(b"cmd=auth-response", None)]
    fn parts_are_told_from_responses(
        #[case] body: &'static [u8],
        #[case] part: Option<Result<Part<'static>, ResponseError>>,
    ) {
        assert_eq!(Part::parse(body, Semicolons::Doubled), part);
    }
}

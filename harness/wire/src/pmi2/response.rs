//! Responses: the messages that the server (the process manager) may send after the response to the init line.

use std::borrow::Cow;

use thiserror::Error;

use super::body::{Body, BodyError, SemicolonReading};
use super::command::Command;
use crate::grammar::{parse_bool, parse_int};

/// A response. Its fields are read by name, because implementations send different ones.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The command that it answers.
    pub command: Command,
    /// `rc`, 0 on success.
    pub rc: i64,
    body: Body<'a>,
}

/// An error in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The body is not a series of tuples.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// `cmd` is not the first tuple.
    #[error("the first key is not \"cmd\"")]
    NoCommand,
    /// `cmd` is not a response of PMI-2.
    #[error("not a response of PMI-2")]
    UnknownCommand,
    /// `rc` is missing.
    #[error("the key \"rc\" is missing")]
    NoCode,
    /// `rc` is not an integer.
    #[error("the value of \"rc\" is not an integer")]
    BadCode,
    /// A key occurs more than once.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(&'static str),
}

impl<'a> Response<'a> {
    /// Parses the body of a frame.
    ///
    /// # Errors
    ///
    /// See [`ResponseError`].
    pub fn parse(bytes: &'a [u8], semicolons: SemicolonReading) -> Result<Self, ResponseError> {
        Self::read(Body::parse(bytes, semicolons)?)
    }

    /// Reads the tuples of a body.
    ///
    /// # Errors
    ///
    /// See [`ResponseError`].
    pub(crate) fn read(body: Body<'a>) -> Result<Self, ResponseError> {
        let cmd = body.cmd().ok_or(ResponseError::NoCommand)?;
        let command = Command::from_response_name(cmd)
            .filter(|command| command.response_name().is_some())
            .ok_or(ResponseError::UnknownCommand)?;
        let mut keys = command.response_keys().chain(["cmd", "rc", "thrid", "errmsg"]);
        if let Some(key) = keys.find(|key| body.repeats(key)) {
            return Err(ResponseError::RepeatedKey(key));
        }
        let rc = body.raw("rc").ok_or(ResponseError::NoCode)?;
        let rc = parse_int(rc).ok_or(ResponseError::BadCode)?;
        Ok(Self { command, rc, body })
    }

    /// Returns whether the response reports success.
    pub fn is_success(&self) -> bool {
        self.rc == 0
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        self.body.value(key)
    }

    /// Returns whether a value was found, according to `found` (implementations), `flag` (the draft) or, if both are missing, `rc`. Returns
    /// `None` if the flag is neither true nor false.
    pub fn is_found(&self) -> Option<bool> {
        match self.body.raw("found").or_else(|| self.body.raw("flag")) {
            Some(flag) => parse_bool(flag).map(|found| found && self.is_success()),
            None => Some(self.is_success()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"cmd=kvs-get-response;found=TRUE;value=x;rc=0;", 0, Some(true))]
    #[case(b"cmd=kvs-get-response;rc=0;flag=true;value=x;", 0, Some(true))]
    #[case(b"cmd=kvs-get-response;thrid=7;found=FALSE;rc=0;", 0, Some(false))]
    #[case(b"cmd=kvs-get-response;rc=1;", 1, Some(false))]
    #[case(b"cmd=kvs-get-response;rc=-1;found=TRUE;", -1, Some(false))]
    #[case(b"cmd=name-lookup-response;rc=0;port=p;", 0, Some(true))]
    #[case(b"cmd=kvs-get-response;rc=0;found=1;", 0, None)]
    fn recognizes_each_form_of_miss(#[case] body: &[u8], #[case] rc: i64, #[case] found: Option<bool>) {
        let response = Response::parse(body, SemicolonReading::Plain).unwrap();
        assert_eq!((response.rc, response.is_found()), (rc, found));
    }

    #[rstest]
    #[case(b"cmd=kvs-get;rc=0;", ResponseError::UnknownCommand)]
    #[case(b"cmd=abort-response;rc=0;", ResponseError::UnknownCommand)]
    #[case(b"rc=0;cmd=kvs-get-response;", ResponseError::NoCommand)]
    #[case(b"cmd=finalize-response;", ResponseError::NoCode)]
    #[case(b"cmd=finalize-response;rc=ok;", ResponseError::BadCode)]
    #[case(b"cmd=finalize-response;rc=0;rc=0;", ResponseError::RepeatedKey("rc"))]
    fn rejects_invalid_responses(#[case] body: &[u8], #[case] error: ResponseError) {
        assert_eq!(Response::parse(body, SemicolonReading::Plain).unwrap_err(), error);
    }
}

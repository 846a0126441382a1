//! Requests that come in a series of messages: a spawn as the draft has it, and what kvs-putall brings.

use thiserror::Error;

use super::request::{Program, Request};

/// Most messages that one series may have.
const LIMIT: u64 = 100_000;

/// A pair of a keyval space.
type Pair = (Vec<u8>, Vec<u8>);

/// A request of which messages are still to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    missing: u64,
    whole: Whole,
    /// Bytes of what has come behind the first message.
    kept: usize,
}

/// About how many bytes pairs take.
fn size<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> usize {
    pairs.into_iter().map(|(key, value)| key.len() + value.len() + 48).sum()
}

/// A request that came in a series of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// `spawn` and each `spawn-cmd`.
    Spawn {
        /// What is put into the keyval space of the new processes.
        preput: Vec<Pair>,
        /// What is started.
        programs: Vec<Program>,
    },
    /// `kvs-putall` and each `kvs-putall-pair`.
    Putall {
        /// Of which job the pairs are.
        jobid: Vec<u8>,
        /// The pairs.
        pairs: Vec<Pair>,
    },
}

impl Whole {
    /// Its messages, in order.
    pub fn messages(&self) -> Vec<Request<'_>> {
        match self {
            Self::Spawn { preput, programs } => {
                let head = Request::SpawnHead { ncmds: programs.len() as u64, preput: preput.clone() };
                std::iter::once(head).chain(programs.iter().cloned().map(Request::SpawnCmd)).collect()
            }
            Self::Putall { jobid, pairs } => {
                let head = Request::KvsPutall { jobid: jobid.into(), npair: pairs.len() as u64 };
                let pair = |(key, value): &'_ Pair| Request::KvsPutallPair {
                    key: key.clone().into(),
                    value: value.clone().into(),
                };
                std::iter::once(head).chain(pairs.iter().map(pair)).collect()
            }
        }
    }
}

/// Why a message belongs to no series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SeriesError {
    /// There is too much of it.
    #[error("a series of too many messages")]
    TooMany,
    /// It is no part of this series.
    #[error("another message of the series is due")]
    Other,
}

impl Series {
    /// The series that a message begins, if it begins one.
    ///
    /// # Errors
    ///
    /// [`SeriesError::TooMany`] if it is announced to be too long.
    pub fn begun_by(request: &Request<'_>) -> Option<Result<Self, SeriesError>> {
        let (missing, whole) = match request {
            Request::SpawnHead { ncmds, preput } => {
                (*ncmds, Whole::Spawn { preput: preput.clone(), programs: Vec::new() })
            }
            Request::KvsPutall { jobid, npair } => {
                (*npair, Whole::Putall { jobid: jobid.to_vec(), pairs: Vec::new() })
            }
            _ => return None,
        };
        Some(if missing > LIMIT { Err(SeriesError::TooMany) } else { Ok(Self { missing, whole, kept: 0 }) })
    }

    /// Whether it is a spawn, whose messages must follow each other.
    pub fn is_spawn(&self) -> bool {
        matches!(self.whole, Whole::Spawn { .. })
    }

    /// About how many bytes are kept of what has come behind the first message.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Takes in the next message.
    ///
    /// # Errors
    ///
    /// [`SeriesError::Other`] if the message is no part of this series; it has not changed then.
    pub fn push(&mut self, request: &Request<'_>) -> Result<(), SeriesError> {
        self.kept += match (&mut self.whole, request) {
            _ if self.missing == 0 => return Err(SeriesError::Other),
            (Whole::Spawn { programs, .. }, Request::SpawnCmd(program)) => {
                programs.push(program.clone());
                let argv: usize = program.argv.iter().map(|arg| arg.len() + 24).sum();
                program.command.len() + argv + size(&program.info)
            }
            (Whole::Putall { pairs, .. }, Request::KvsPutallPair { key, value }) => {
                pairs.push((key.to_vec(), value.to_vec()));
                size(pairs.last())
            }
            _ => return Err(SeriesError::Other),
        };
        self.missing -= 1;
        Ok(())
    }

    /// The whole, if all of it is there.
    ///
    /// # Errors
    ///
    /// The series as it is, if there is more to come.
    pub fn finish(self) -> Result<Whole, Self> {
        if self.missing == 0 { Ok(self.whole) } else { Err(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi2::Semicolons;

    #[test]
    fn a_series_is_complete_when_all_of_it_is_there() {
        let read = |body: &'static [u8]| Request::parse(body, Semicolons::Doubled).unwrap();
        let begin = |body| Series::begun_by(&read(body)).unwrap();
        let mut series = begin(b"cmd=kvs-putall;jobid=j;npair=2;").unwrap();
        assert_eq!(series.push(&read(b"cmd=job-getid;")), Err(SeriesError::Other));
        series.push(&read(b"cmd=kvs-putall-pair;key=a;val=1;")).unwrap();
        let mut series = series.finish().unwrap_err();
        assert_eq!(series.kept(), 50);
        series.push(&read(b"cmd=kvs-putall-pair;key=b;val=2;")).unwrap();
        assert_eq!(series.push(&read(b"cmd=kvs-putall-pair;key=c;val=3;")), Err(SeriesError::Other));
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let pairs = vec![pair("a", "1"), pair("b", "2")];
        assert_eq!(series.finish(), Ok(Whole::Putall { jobid: b"j".to_vec(), pairs }));
        assert!(begin(b"cmd=kvs-putall;jobid=j;npair=0;").unwrap().finish().is_ok());
        assert_eq!(begin(b"cmd=kvs-putall;jobid=j;npair=999999;"), Err(SeriesError::TooMany));
        let mut series = begin(b"cmd=spawn;ncmds=1;").unwrap();
        assert!(series.is_spawn());
        series.push(&read(b"cmd=spawn-cmd;maxprocs=2;argc=1;argv0=a;")).unwrap();
        let Ok(Whole::Spawn { programs, .. }) = series.finish() else { panic!("no spawn") };
        assert_eq!((programs[0].maxprocs, &programs[0].command[..]), (2, &b"a"[..]));
        assert!(Series::begun_by(&read(b"cmd=job-getid;")).is_none());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let program =
            Program { command: b"a;b".to_vec(), maxprocs: 3, argv: vec![b"x".to_vec()], info: Vec::new() };
        let spawn = Whole::Spawn { preput: vec![(b"k".to_vec(), b"v".to_vec())], programs: vec![program; 2] };
        let pairs = vec![(b"k".to_vec(), b"a;;b".to_vec()), (b"l".to_vec(), Vec::new())];
        for whole in [spawn, Whole::Putall { jobid: b"j".to_vec(), pairs }] {
            let mut series: Option<Series> = None;
            for message in whole.messages() {
                let mut body = Vec::new();
                message.write_to(None, &mut body);
                let read = Request::parse(&body, Semicolons::Doubled).unwrap();
                match &mut series {
                    None => series = Some(Series::begun_by(&read).unwrap().unwrap()),
                    Some(series) => series.push(&read).unwrap(),
                }
            }
            assert_eq!(series.unwrap().finish(), Ok(whole));
        }
    }
}

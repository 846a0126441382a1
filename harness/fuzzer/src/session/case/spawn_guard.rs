//! Keeps campaigns from requesting too many processes from a PMI-2 server. If `maxprocs` is missing, Hydra reads the number of processes
//! from uninitialized memory. Therefore, campaigns never change, remove or cut off a count in a spawn request.

use memchr::memmem;
use pmi_wire::grammar::Rule;
use pmi_wire::pmi2::SemicolonReading;
use pmi_wire::{Decoded, Direction, Framing};

use crate::session::reading::{MessageReader, WireMessage};

/// Largest digit allowed as a count in a spawn: the number of programs, processes, arguments, info pairs, or values put for the processes.
const MAX_COUNT_DIGIT: u8 = b'4';

/// Returns whether the spawn requests in a process's bytes ask for few processes, regardless of how a server parses the bytes before the
/// requests.
pub(crate) fn is_bounded(sent: &[u8]) -> bool {
    let count =
        |text: &[u8]| memmem::find_iter(text, b"spawn").count() + memmem::find_iter(text, b"subcmd").count();
    let all = count(sent);
    if all == 0 {
        return true;
    }
    let messages = MessageReader::new(Framing::Frames).push(sent);
    let mut bounded = 0;
    for message in &messages {
        if let WireMessage::Body(body) = message
            && is_bounded_request(body)
        {
            bounded += count(body);
        }
    }
    // Every occurrence of the two words must be in a bounded request, because a server may parse the bytes after an invalid frame
    // differently.
    bounded == all
}

/// Returns whether the body of a frame is a spawn request that states each of its counts exactly once and in which all
/// counts are small.
fn is_bounded_request(body: &[u8]) -> bool {
    let read = [SemicolonReading::Plain, SemicolonReading::Doubled]
        .map(|reading| Decoded::body(Direction::ToServer, body, reading));
    let Some(message) = read.iter().find(|message| message.is_well_formed()) else { return false };
    let (Some(request), Some(row)) = (message.spawn(), message.exchange()) else { return false };
    let programs = &request.programs;
    let numbers = row.arguments.iter().filter(|field| field.rule == Rule::Uint);
    let keys: Vec<&str> = numbers.map(|field| field.key).collect();
    let is_number = |tuple: &&[u8]| {
        keys.iter().any(|key| tuple.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
    };
    let stated = || body.split(|byte| *byte == b';').filter(is_number);
    let is_small =
        |tuple: &[u8]| matches!(tuple, [.., b'=', digit] if (b'0'..=MAX_COUNT_DIGIT).contains(digit));
    stated().all(is_small)
        // There are two counts before the programs, and three counts in each program.
        && stated().count() == 2 + 3 * programs.len()
        && !programs.is_empty()
        && programs.iter().all(|program| program.nprocs > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &str) -> String {
        format!("{:>6}{body}", body.len())
    }

    #[test]
    fn allows_only_valid_spawns_of_few_processes() {
        let program = "subcmd=a;maxprocs=2;argc=1;argv0=x;infokeycount=0;";
        let bounded = |head: &str, programs: &str| {
            is_bounded(framed(&format!("cmd=spawn;{head}{programs}")).as_bytes())
        };
        let head = "ncmds=1;preputcount=1;ppkey0=k;ppval0=v;";
        assert!(bounded(head, program) && bounded(&format!("thrid=1;{head}"), program));
        assert!(bounded(&head.replace("ncmds=1", "ncmds=2"), &program.repeat(2)));
        for (from, to) in [
            ("ncmds=1;", ""),
            ("ncmds=1", "ncmds=9"),
            ("ncmds=1", "ncmds=2"),
            ("preputcount=1", "preputcount=2"),
            ("preputcount=1;", ""),
        ] {
            assert!(!bounded(&head.replace(from, to), program), "{to}");
        }
        for (from, to) in [
            ("maxprocs=2;", ""),
            ("maxprocs=2;", "maxprocs;"),
            ("maxprocs=2", "maxprocs=20"),
            ("maxprocs=2", "maxprocs=0"),
            ("maxprocs=2", "maxprocs=2;maxprocs=2"),
            ("maxprocs=2", "maxprocs= 2"),
            ("argc=1", "argc=2"),
            ("infokeycount=0;", ""),
            ("infokeycount=0;", "infokeycount=0"),
        ] {
            assert!(!bounded(head, &program.replace(from, to)), "{to}");
        }
        let spawn = framed(&format!("cmd=spawn;{head}{program}"));
        let bounded_text = |text: String| is_bounded(text.as_bytes());
        let other = framed("cmd=job-getid;");
        assert!(bounded_text(other.clone()) && bounded_text(format!("cmd=init\n{other}{spawn}{other}")));
        // A server may parse these bytes differently, so the spawn is not bounded.
        assert!(
            !bounded_text(format!("  -1  {spawn}")) && !bounded_text(format!("    20cmd=job-getid;{spawn}"))
        );
        let alone = framed(&program.replace("subcmd=a", "cmd=spawn-cmd"));
        assert!(!bounded_text(alone) && !bounded_text(framed(&format!("cmd=spawn;{head}"))));
        assert!(
            !bounded_text(spawn[..spawn.len() - 1].to_owned()) && !bounded_text(format!("cmd=x {spawn}\n"))
        );
    }
}

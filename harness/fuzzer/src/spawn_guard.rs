//! What a campaign does not ask a server of PMI-2: to start processes without end. Hydra reads a number that nobody wrote where
//! `maxprocs` is missing, and starts as many. So the counts of a spawn are never changed, left out or cut off.

use memchr::memmem;

use super::wire_message::{Reader, WireMessage};

/// Most programs, processes of each, arguments, pairs and values that are put for them.
const MOST: usize = 4;

/// Whether the spawns in what a process says ask for few processes, however what stands before them is read.
pub(crate) fn is_bounded(said: &[u8]) -> bool {
    let count =
        |text: &[u8]| memmem::find_iter(text, b"spawn").count() + memmem::find_iter(text, b"subcmd").count();
    let all = count(said);
    if all == 0 {
        return true;
    }
    let messages = Reader::default().push(said);
    let mut bounded = 0;
    for said in &messages {
        if let WireMessage::Body(body) = said
            && is_bounded_request(body)
        {
            bounded += count(body);
        }
    }
    // What stands behind something that is no frame is not read as we read it.
    bounded == all
}

/// The tuples of one program, or of what stands before the first.
type Section<'a> = Vec<(&'a [u8], &'a [u8])>;

/// What stands before the first program in the body of a frame, and the programs.
fn sections<'a>(body: &'a [u8], command: &[u8]) -> Option<(Section<'a>, Vec<Section<'a>>)> {
    let rest = body.strip_prefix(command)?.strip_suffix(b";")?;
    let mut head = Section::new();
    let mut programs: Vec<Section<'_>> = Vec::new();
    for tuple in rest.split(|b| *b == b';') {
        let at = memchr::memchr(b'=', tuple).unwrap_or(tuple.len());
        let (key, value) = (&tuple[..at], tuple.get(at + 1..).unwrap_or_default());
        if key == b"subcmd" {
            programs.push(Vec::new());
        }
        programs.last_mut().unwrap_or(&mut head).push((key, value));
    }
    Some((head, programs))
}

/// Whether a section has a small number of things, and all of them.
fn lists(section: &[(&[u8], &[u8])], key: &str, names: &[&str]) -> bool {
    number(section, key).is_some_and(|count| {
        let listed = |name: &str| (0..count).all(|i| has(section, &format!("{name}{i}")));
        names.iter().all(|name| listed(name))
    })
}

fn is_small(program: &[(&[u8], &[u8])]) -> bool {
    number(program, "maxprocs").is_some_and(|n| n > 0)
        && lists(program, "argc", &["argv"])
        && lists(program, "infokeycount", &["infokey", "infoval"])
}

/// Whether the body of a frame is a spawn that says all its numbers, and only small ones.
fn is_bounded_request(body: &[u8]) -> bool {
    let Some((head, programs)) = sections(body, b"cmd=spawn;") else { return false };
    number(&head, "ncmds").is_some_and(|n| n > 0 && n == programs.len())
        && lists(&head, "preputcount", &["ppkey", "ppval"])
        && programs.iter().all(|program| is_small(program))
}

fn has(section: &[(&[u8], &[u8])], key: &str) -> bool {
    section.iter().any(|(k, _)| *k == key.as_bytes())
}

/// The one number of a key, if it is small.
fn number(section: &[(&[u8], &[u8])], key: &str) -> Option<usize> {
    let mut values = section.iter().filter(|(k, _)| *k == key.as_bytes()).map(|(_, value)| *value);
    let (value, None) = (values.next()?, values.next()) else { return None };
    match value {
        [digit @ b'0'..=b'9'] => Some(usize::from(digit - b'0')).filter(|n| *n <= MOST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &str) -> String {
        format!("{:>6}{body}", body.len())
    }

    #[test]
    fn only_a_spawn_whose_numbers_are_small_and_can_be_read_is_asked_for() {
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
        let said = |text: String| is_bounded(text.as_bytes());
        let other = framed("cmd=job-getid;");
        assert!(said(other.clone()) && said(format!("cmd=init\n{other}{spawn}{other}")));
        // It is not read as it stands.
        assert!(!said(format!("  -1  {spawn}")) && !said(format!("    20cmd=job-getid;{spawn}")));
        let alone = framed(&program.replace("subcmd=a", "cmd=spawn-cmd"));
        assert!(!said(alone) && !said(framed(&format!("cmd=spawn;{head}"))));
        assert!(!said(spawn[..spawn.len() - 1].to_owned()) && !said(format!("cmd=x {spawn}\n")));
    }
}

//! The order of the suite: that in which a process meets PMI and in which RFC 13 tells of it, since what comes later builds on what
//! comes before. Whoever fails in `init` need not read on.

/// The folders of scenarios, in this order. Others come behind them.
const CHAPTERS: [&str; 48] = [
    // What there is before anything is said.
    "object",
    "alone",
    "plain",
    "environment",
    "port",
    "singleton",
    "init",
    "options",
    // Where am I, and who else is there?
    "maxes",
    "name",
    "group",
    "jobattr",
    "attributes",
    "nodeattr",
    "clique",
    "mapping",
    "job",
    // To put, to get, and to meet.
    "kvs",
    "keyval-space",
    "lengths",
    "barrier",
    "fence",
    "exchange",
    // What not everybody offers.
    "names",
    "spawn",
    // How messages may look, and what is wrong.
    "wire",
    "lawful",
    "replies",
    "refused",
    "limits",
    "long",
    "odd",
    "garbage",
    "codes",
    "errors",
    "states",
    "order",
    "times",
    "peers",
    "dynamic",
    "combinations",
    // The end.
    "finalize",
    "closed",
    "death",
    "abort",
    // What only a part of a process manager does.
    "upstream",
    // Protocols of their own, each in the same order.
    "pmi12",
    "pmi2",
];

fn rank(folder: &str) -> usize {
    CHAPTERS.iter().position(|chapter| *chapter == folder).unwrap_or(CHAPTERS.len())
}

/// By what scenarios are sorted: the folders that they are in, and their names.
pub(crate) fn key(name: &str) -> (Vec<usize>, String) {
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    (folders.split('/').map(rank).collect(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_and_init_come_first_and_abort_last() {
        let mut names =
            ["pmi2/abort/a", "abort/a", "kvs/b", "pmi2/init/a", "kvs/a", "init/a", "environment/a", "mine/a"];
        names.sort_by_cached_key(|name| key(name));
        assert_eq!(
            names,
            ["environment/a", "init/a", "kvs/a", "kvs/b", "abort/a", "pmi2/init/a", "pmi2/abort/a", "mine/a"]
        );
    }

    #[test]
    fn every_folder_of_the_suite_has_its_place() {
        let folders: std::collections::BTreeSet<String> = crate::suite::embedded_files()
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == crate::suite::ENDING))
            .flat_map(|(path, _)| path.parent().into_iter().flatten())
            .map(|folder| folder.to_string_lossy().into_owned())
            .filter(|folder| !["client", "library", "fragments"].contains(&folder.as_str()))
            .collect();
        let lost: Vec<&String> = folders.iter().filter(|f| !CHAPTERS.contains(&f.as_str())).collect();
        assert!(lost.is_empty(), "{lost:?} come last, which is no place");
        let twice: Vec<_> = CHAPTERS.iter().enumerate().filter(|(at, name)| rank(name) != *at).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

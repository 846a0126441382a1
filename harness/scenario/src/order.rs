//! The order of the suite, which follows the order in which a process uses PMI and in which RFC 13 describes the operations. Later
//! scenarios build on earlier ones, so the first failure is usually the one to investigate.

/// The folders of scenarios, in order. All other folders follow.
const FOLDER_ORDER: [&str; 48] = [
    // Before the first message.
    "object",
    "alone",
    "plain",
    "environment",
    "port",
    "singleton",
    "init",
    "options",
    // Limits, names, the group and the placement of its processes.
    "maxes",
    "name",
    "group",
    "jobattr",
    "attributes",
    "nodeattr",
    "clique",
    "mapping",
    "job",
    // Putting, getting and synchronizing.
    "kvs",
    "keyval-space",
    "lengths",
    "barrier",
    "fence",
    "exchange",
    // Optional operations.
    "names",
    "spawn",
    // The format of messages, and invalid messages.
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
    // The end of a process or a job.
    "finalize",
    "closed",
    "death",
    "abort",
    // Bare proxies, without the rest of their process manager.
    "upstream",
    // Other versions of the protocol, each in the same order.
    "pmi12",
    "pmi2",
];

fn folder_index(folder: &str) -> usize {
    FOLDER_ORDER.iter().position(|chapter| *chapter == folder).unwrap_or(FOLDER_ORDER.len())
}

/// Returns the key by which scenarios are sorted: their folders, then their names.
pub(crate) fn sort_key(name: &str) -> (Vec<usize>, String) {
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    (folders.split('/').map(folder_index).collect(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_order_puts_environment_first_and_abort_last() {
        let mut names =
            ["pmi2/abort/a", "abort/a", "kvs/b", "pmi2/init/a", "kvs/a", "init/a", "environment/a", "mine/a"];
        names.sort_by_cached_key(|name| sort_key(name));
        assert_eq!(
            names,
            ["environment/a", "init/a", "kvs/a", "kvs/b", "abort/a", "pmi2/init/a", "pmi2/abort/a", "mine/a"]
        );
    }

    #[test]
    fn folder_order_contains_every_suite_folder() {
        let folders: std::collections::BTreeSet<String> = crate::suite::embedded_files()
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == crate::suite::EXTENSION))
            .flat_map(|(path, _)| path.parent().into_iter().flatten())
            .map(|folder| folder.to_string_lossy().into_owned())
            .filter(|folder| !["client", "library", "fragments"].contains(&folder.as_str()))
            .collect();
        let missing: Vec<&String> = folders.iter().filter(|f| !FOLDER_ORDER.contains(&f.as_str())).collect();
        assert!(missing.is_empty(), "missing folders: {missing:?}");
        let twice: Vec<_> =
            FOLDER_ORDER.iter().enumerate().filter(|(at, name)| folder_index(name) != *at).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

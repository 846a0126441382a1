//! The catalogue of requirements as pages of the book: a page for each source, and the errata of all sources.

use std::fmt::Write;

use pmi_judge::deviations::recorded_deviations;
use pmi_scenario::requirement::{BoundParty, Catalogue, Requirement};

/// Sources of requirements: the prefix of their ids, the path of the page, its title, and its introduction.
const SOURCES: &[(&str, &str, &str, &str)] = &[
    (
        "rfc13.",
        "requirements/rfc13.md",
        "Flux RFC 13",
        "This page lists every normative statement and every rule of the grammar of \
        [RFC 13](https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_13.html), in our words.",
    ),
    (
        "de-facto.",
        "requirements/de-facto.md",
        "De facto requirements of PMI-1",
        "This page lists behaviour that clients rely on but RFC 13 does not specify. A violation is a note; with `--strict=de-facto`, it is red.",
    ),
    (
        "pmi-port.",
        "requirements/pmi-port.md",
        "PMI_PORT",
        "Processes can connect to the address in PMI_PORT. No specification describes the handshake.",
    ),
    (
        "singleton.",
        "requirements/singleton.md",
        "Singleton init",
        "A process that was started without a process manager can start one. No specification describes how.",
    ),
    (
        "mpich-1.2.",
        "requirements/mpich-1.2.md",
        "MPICH's PMI-1.2",
        "These requirements come from MPICH's table of messages, its client and its process manager. A violation is a note; with `--against mpich-1.2`, it is red.",
    ),
    (
        "mpich-paper.",
        "requirements/mpich-paper.md",
        "MPICH's paper on process management",
        "This page lists statements from the paper that introduced PMI. RFC 13 adopted some of them, others are still in use, and others never became more than a draft. A violation is a note; with `--strict=de-facto`, it is red.",
    ),
    (
        "hydra.",
        "requirements/hydra.md",
        "A Hydra proxy and its upstream",
        "These requirements bind a proxy, the program of a process manager that serves one node. They follow from RFC 13 and from existing implementations.",
    ),
    (
        "pmi2.",
        "requirements/pmi2.md",
        "PMI-2",
        "This page lists requirements that every known server meets (`pmi2.common`), further requirements of MPICH's draft (`pmi2.draft`), and further requirements of MPICH's table and header (`pmi2.mpich`). \
         A violation of one of the last two groups is a note; with `--against pmi2-draft` or `--against pmi2-mpich`, it is red.",
    ),
];

/// Returns the path and the text of each page.
pub(crate) fn pages(catalogue: &Catalogue) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&str, String)> = SOURCES
        .iter()
        .map(|(prefix, name, title, about)| (*name, page(catalogue, prefix, title, about)))
        .collect();
    all.push(("errata.md", errata(catalogue)));
    all
}

fn of<'a>(catalogue: &'a Catalogue, prefix: &str) -> impl Iterator<Item = &'a Requirement> {
    catalogue.iter().filter(move |r| r.id.starts_with(prefix))
}

fn page(catalogue: &Catalogue, prefix: &str, title: &str, about: &str) -> String {
    let mut text = format!("# {title}\n\n{about}\n");
    let mut section = "";
    for r in of(catalogue, prefix) {
        if r.section != section {
            section = &r.section;
            text += &format!("\n## {}\n", plain(section));
        }
        text += &format!("\n### `{}`\n\n{}\n", r.id, format_requirement(r));
        for (label, value) in [
            ("Grammar rule", &r.abnf),
            ("Reading", &r.reading),
            ("Reported only as a note", &r.contradiction),
            ("Not tested", &r.excluded),
        ] {
            if let Some(value) = value {
                text += &format!("\n*{label}:* {}\n", plain(value));
            }
        }
        text += &list("Seen", r.evidence.iter().cloned());
    }
    text
}

fn errata(catalogue: &Catalogue) -> String {
    let mut text = String::from(
        "# Errata of the specifications\n\n\
         This page lists the points at which RFC 13, the draft of PMI-2 and MPICH's tables have errors, are silent or contradict themselves. Each entry gives the requirement that we test, our reading, the implementations with a recorded deviation, and a proposed wording. The authors of these texts may use the proposed wordings freely.\n\n\
         If a text contradicts itself, a violation is reported only as a note and never makes a run fail. This page is generated from the catalogue \
         (`scenarios/*.toml`) and the recorded deviations (`golden/`).\n",
    );
    for (prefix, _, title, _) in SOURCES {
        let entries = of(catalogue, prefix).filter(|r| r.proposal.is_some() || r.contradiction.is_some());
        for (number, r) in entries.enumerate() {
            if number == 0 {
                text += &format!("\n## {}\n", title);
            }
            text += &format!("\n### `{}`\n\n*{}* {}\n", r.id, plain(&r.section), format_requirement(r));
            for (label, value) in [("Contradiction", &r.contradiction), ("Reading", &r.reading)] {
                if let Some(value) = value {
                    text += &format!("\n**{label}.** {}\n", plain(value));
                }
            }
            text += &list("Seen", r.evidence.iter().cloned());
            text += &list("Recorded deviations", behaviours(&r.id));
            if let Some(proposal) = &r.proposal {
                text += &format!("\n**Proposed.**\n\n> {}\n", plain(proposal));
            }
        }
    }
    text
}

/// Formats a requirement: its level, the parties that it binds, and its text.
fn format_requirement(r: &Requirement) -> String {
    let binds = r.binds.iter().map(BoundParty::to_string).collect::<Vec<_>>().join(", ");
    format!("({}, {binds}) {}", r.level, plain(&r.text))
}

/// Returns the recorded deviations from a requirement, grouped by behaviour.
fn behaviours(id: &str) -> impl Iterator<Item = String> {
    let mut together: Vec<(String, Vec<String>)> = Vec::new();
    for (implementation, reason) in recorded_deviations(id) {
        match together.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(implementation),
            None => together.push((reason, vec![implementation])),
        }
    }
    together.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join("; ")))
}

fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for item in items {
        if text.is_empty() {
            let _ = writeln!(text, "\n**{title}.**\n");
        }
        let _ = writeln!(text, "- {}", plain(&item));
    }
    text
}

/// Escapes the characters that occur in the catalogue and have a special meaning in Markdown.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '*' | '[' | ']' | '\\' | '`' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

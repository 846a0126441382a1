//! Reads the catalogue of faults, `faults.toml`.

use std::sync::OnceLock;

use pmi_wire::{KvsLimits, Operation, Proc, SpawnRequest};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::circumstances::Occasion;
use super::client::{ClientFault, ClientVariation, PlainSession};
use super::dialects::Dialects;
use super::edit::{
    Edit, Editable, ProcessVariables, RequestDraft, RequestSituation, RequestText, SingletonMessages,
    VerbAndArguments,
};
use super::effect::{Effect, OutcomeSelector, ResponseSelector};
use super::external::{ExternalFault, ExternalKill};
use super::fault::{Fault, Variation};
use super::response_draft::ResponseDraft;
use pmi_reference::server::ServerRequest;
use pmi_reference::{OperationResult, ResponseHeader, ResponseParts};

const TEXT: &str = include_str!("../faults.toml");

/// A mistake in an entry of `faults.toml`.
#[derive(Debug, Error)]
#[error("faults.toml: {entry}: {message}")]
struct EntryError {
    entry: String,
    message: String,
}

/// The steps of an edit as written in `faults.toml`: a word, a step, or a list of steps.
#[derive(Deserialize)]
#[serde(untagged)]
enum StepList {
    Word(String),
    Step(Vec<String>),
    Several(Vec<Vec<String>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultEntry {
    name: String,
    #[serde(default)]
    breaks: String,
    dialects: Option<Dialects>,
    does: String,
    differs: Option<String>,
    at: String,
    line: Option<StepList>,
    edit: Option<StepList>,
    #[serde(default)]
    when: Occasion,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientEntry {
    name: String,
    #[serde(default)]
    session: PlainSession,
    #[serde(default)]
    breaks: String,
    does: String,
    edit: StepList,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ExternalEntry {
    name: String,
    does: String,
    #[serde(default)]
    dialects: Dialects,
    /// The names that select the implementation's behaviour in the control run. They do not include the fault, so the scenarios must pass.
    #[serde(default)]
    base: String,
    /// Scenarios that find the fault, each with the requirement that its finding cites.
    #[serde(default)]
    finds: Vec<String>,
    #[serde(default)]
    breaks: String,
    #[serde(default)]
    pmi2_breaks: String,
}

/// The entries of `faults.toml`, in the order of the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FaultCatalogue {
    faults: Vec<Fault>,
    variations: Vec<Variation>,
    rare_faults: Vec<Fault>,
    /// All faults of clients.
    pub client_faults: Vec<ClientFault>,
    /// All variations of clients.
    pub client_variations: Vec<ClientVariation>,
    /// The faults that programs implement.
    pub program_faults: Vec<ExternalFault>,
    /// The variations that programs implement.
    pub program_variations: Vec<ExternalFault>,
    /// The faults that libraries implement.
    pub library_faults: Vec<ExternalFault>,
    /// The variations that libraries implement.
    pub library_variations: Vec<ExternalFault>,
    /// The behaviours of programs and libraries that only individual tests select.
    pub modes: Vec<ExternalFault>,
    /// The rare faults of programs, which occur in few sessions.
    pub rare_program_faults: Vec<ExternalFault>,
    /// The rare faults of libraries, which occur in few sessions.
    pub rare_library_faults: Vec<ExternalFault>,
}

impl StepList {
    fn into_edit(self) -> Edit {
        let steps = match self {
            Self::Word(word) => vec![vec![word]],
            Self::Step(words) => vec![words],
            Self::Several(steps) => steps,
        };
        let words = |words: Vec<String>| -> VerbAndArguments {
            words.into_iter().map(leak).collect::<Vec<_>>().leak()
        };
        Edit(steps.into_iter().map(words).collect::<Vec<_>>().leak())
    }
}

fn leak(text: String) -> &'static str {
    text.leak()
}

fn leak_ids(ids: &str) -> &'static [&'static str] {
    ids.split_whitespace().map(|id| leak(id.to_owned())).collect::<Vec<_>>().leak()
}

/// Parses a name with serde, so that the error for a misspelled name lists the valid names.
fn named<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).map_err(|error| error.to_string())
}

/// Checks that a target supports all steps of an edit.
fn checked(edit: Edit, target: &mut impl Editable) -> Result<Edit, String> {
    edit.unknown_step(target).map_or(Ok(edit), |words| Err(format!("unknown step {words:?}")))
}

impl FaultEntry {
    fn into_fault(self) -> Result<Fault, EntryError> {
        let entry = self.name.clone();
        self.try_into_fault().map_err(|what| EntryError { entry, message: what })
    }

    fn try_into_fault(self) -> Result<Fault, String> {
        let edit = self.edit.map(StepList::into_edit).unwrap_or_default();
        let line = checked(self.line.map(StepList::into_edit).unwrap_or_default(), &mut RequestText(b""))?;
        let effect = effect(&self.at, line, edit)?;
        let (name, about, breaks) = (leak(self.name), leak(self.does), leak_ids(&self.breaks));
        let dialects = self.dialects.unwrap_or(Dialects::of_requirements(breaks));
        let differs = self.differs.map(leak);
        Ok(Fault { name, breaks, description: about, effect, when: self.when, dialects, differs })
    }
}

fn effect(at: &str, line: Edit, edit: Edit) -> Result<Effect, String> {
    let (hook, of) = at.split_once(' ').unwrap_or((at, "each any"));
    let (of, kind) = of.split_once(' ').unwrap_or((of, "any"));
    let kind: OutcomeSelector = named(kind)?;
    let replies = || ResponseSelector::for_request(of, kind).ok_or(format!("unknown request {of}"));
    let word = match edit.0 {
        [[word]] => *word,
        _ => "",
    };
    let bytes = || checked(edit, &mut b"(vector,(0,1,2))".to_vec());
    let reply = || {
        let response = ResponseParts {
            header: ResponseHeader::line(Operation::Get.exchange()),
            result: OperationResult::done(),
        };
        checked(edit, &mut ResponseDraft::new(Proc { group: 0, rank: 0 }, &response))
    };
    let request = || checked(edit, &mut SpawnRequest { programs: vec![Default::default()] });
    Ok(match hook {
        "limits" => match edit.0 {
            [[kvsname, key, value]] => {
                let number = |text: &str| text.parse().map_err(|_| format!("invalid number {text}"));
                let (kvsname_max, keylen_max, vallen_max) = (number(kvsname)?, number(key)?, number(value)?);
                Effect::Limits(KvsLimits { kvsname_max, keylen_max, vallen_max })
            }
            _ => return Err("limits: three numbers are needed".into()),
        },
        "universe" => Effect::Universe(word.parse().map_err(|_| format!("invalid number {word}"))?),
        "environment" => Effect::Env(checked(edit, &mut ProcessVariables::new())?),
        "descriptor" if word == "dead" => Effect::DeadFd,
        "stray" if word == "ends-job" => Effect::StrayEndsJob,
        "greeting" => Effect::Greeting(bytes()?),
        "singinit" => Effect::Singinit(checked(edit, &mut SingletonMessages::default())?),
        "kvsname" => Effect::Kvsname(bytes()?),
        "mapping" => Effect::Mapping(bytes()?),
        "read" => Effect::Read(bytes()?),
        "hear" if word == "drop" => Effect::IncomingRequest(line, Edit::default()),
        "hear" => Effect::IncomingRequest(line, bytes()?),
        "piece" => Effect::Piece(named(word)?),
        "request" => {
            let mut draft = RequestDraft::new(ServerRequest::Maxes, RequestSituation::default());
            Effect::Request(replies()?, checked(edit, &mut draft)?)
        }
        "reject" => Effect::Reject(line),
        "reply" => Effect::Response(replies()?, reply()?),
        "writes" => Effect::Writes(replies()?, named(word)?),
        "store" => Effect::Store(bytes()?),
        "key" => Effect::Key(bytes()?),
        "put" => Effect::Put(named(word)?),
        "get" => Effect::Get(named(word)?),
        "barrier" => Effect::Barrier(named(word)?),
        "group-barrier" => Effect::GroupBarrier(named(word)?),
        "error" => Effect::Error(line, named(word)?),
        "version" => Effect::Version(named(word)?),
        "abort" => Effect::Abort(named(word)?),
        "finalize" => Effect::Finalize(named(word)?),
        "spawn-request" => Effect::SpawnRequest(request()?),
        "spawn-start" => Effect::SpawnStart(request()?),
        "spawn" => Effect::Spawn(named(word)?),
        "keyval-space" => Effect::KeyvalSpace(named(word)?),
        "names" => Effect::Names(named(word)?),
        "node" => Effect::Node(named(word)?),
        "order" if word == "one-at-a-time" => Effect::RejectsConcurrent,
        _ => return Err(format!("unknown hook {hook}")),
    })
}

impl ClientEntry {
    fn into_fault(self) -> Result<ClientFault, EntryError> {
        let edit = checked(self.edit.into_edit(), &mut self.session.session());
        let edit = edit.map_err(|what| EntryError { entry: self.name.clone(), message: what })?;
        let (name, about, breaks) = (leak(self.name), leak(self.does), leak_ids(&self.breaks));
        Ok(ClientFault { name, breaks, description: about, plain: self.session, edit })
    }
}

impl ExternalEntry {
    fn keep(self) -> ExternalFault {
        let found = self.finds.into_iter().map(|found| {
            let found = leak(found);
            let (scenario, requirement) = found.split_once(' ').unwrap_or((found, ""));
            let dialect = if found.starts_with("pmi2/") { Dialects::Pmi2 } else { Dialects::Pmi1 };
            ExternalKill { dialect, scenario: Some(scenario), requirements: leak_ids(requirement) }
        });
        let broken = [(Dialects::Pmi1, self.breaks), (Dialects::Pmi2, self.pmi2_breaks)]
            .into_iter()
            .map(|(dialect, ids)| ExternalKill { dialect, scenario: None, requirements: leak_ids(&ids) });
        let kills = found.chain(broken).filter(|kill| !kill.requirements.is_empty()).collect();
        let (name, about, base) = (leak(self.name), leak(self.does), leak(self.base));
        ExternalFault { name, about, base, dialects: self.dialects, kills }
    }
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        FaultEntry::deserialize(deserializer)?.into_fault().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ClientFault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ClientEntry::deserialize(deserializer)?.into_fault().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ExternalFault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ExternalEntry::deserialize(deserializer).map(ExternalEntry::keep)
    }
}

/// Returns the catalogue, which is parsed on the first call. Panics if an entry is invalid; a test ensures that all entries are valid.
pub fn catalogue() -> &'static FaultCatalogue {
    static CATALOGUE: OnceLock<FaultCatalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| toml::from_str(TEXT).unwrap_or_else(|error| panic!("faults.toml: {error}")))
}

/// Returns the names in a table of `faults.toml`. The entries are not parsed, because a run without a fault needs only their names.
fn names(table: &'static str) -> impl Iterator<Item = &'static str> {
    let rows = TEXT.lines().skip_while(move |line| line.strip_suffix(" = [") != Some(table));
    let rows = rows.take_while(|line| *line != "]");
    rows.filter_map(|line| Some(line.trim_start().strip_prefix("{ name = \"")?.split_once('"')?.0))
}

/// Returns the names of all faults of servers.
pub fn fault_names() -> impl Iterator<Item = &'static str> {
    names("faults")
}

/// Returns the names of all variations of servers.
pub fn variation_names() -> impl Iterator<Item = &'static str> {
    names("variations")
}

/// Returns all faults of servers, in the order of the file.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    catalogue().faults.iter()
}

/// Returns all variations of servers.
pub fn variations() -> impl Iterator<Item = &'static Variation> {
    catalogue().variations.iter()
}

/// Returns the rare faults of servers, which occur in few sessions. Scenarios may miss rare faults, but campaigns must find all of them.
/// Some rare faults crash the server's process.
pub fn rare_faults() -> impl Iterator<Item = &'static Fault> {
    catalogue().rare_faults.iter()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fault_names_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        let servers = faults().chain(variations()).chain(rare_faults()).map(|f| (f.name, f.description));
        let clients = catalogue()
            .client_faults
            .iter()
            .chain(catalogue().client_variations.iter())
            .map(|f| (f.name, f.description));
        for (name, about) in servers.chain(clients) {
            assert!(seen.insert(name), "duplicate name {name}");
            let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(name.bytes().all(is_letter), "{name}");
            assert!(!about.is_empty(), "{name}");
        }
        assert!(
            catalogue()
                .program_faults
                .iter()
                .chain(catalogue().library_faults.iter())
                .all(|f| !f.kills.is_empty())
        );
        assert!(
            catalogue()
                .program_variations
                .iter()
                .chain(catalogue().library_variations.iter())
                .all(|f| f.kills.is_empty())
        );
        assert!(
            faults().all(|f| !f.breaks.is_empty())
                && catalogue().client_faults.iter().all(|f| !f.breaks.is_empty())
        );
        assert!(
            variations().all(|v| v.breaks.is_empty())
                && catalogue().client_variations.iter().all(|v| v.breaks.is_empty())
        );
    }

    #[test]
    fn fault_name_lists_match_the_catalogue() {
        assert!(fault_names().eq(faults().map(|fault| fault.name)));
        assert!(variation_names().eq(variations().map(|variation| variation.name)));
        assert!(fault_names().count() > 500);
    }

    #[test]
    fn each_client_fault_or_variation_has_an_effect() {
        for entry in catalogue().client_faults.iter().chain(catalogue().client_variations.iter()) {
            let plain = entry.plain.session();
            assert_ne!(
                format!("{:?}", entry.session()),
                format!("{plain:?}"),
                "{} changes nothing",
                entry.name
            );
        }
    }

    #[test]
    fn fault_error_names_the_entry_and_the_unknown_word() {
        let read = |at: &str, edit: &str| {
            let text = format!("name = 'x'\ndoes = 'y'\nat = '{at}'\nedit = {edit}");
            toml::from_str::<FaultEntry>(&text).unwrap().into_fault().map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(
            read("reply get ok", "['sett', 'a', 'b']"),
            r#"faults.toml: x: unknown step ["sett", "a", "b"]"#
        );
        assert_eq!(read("reply gett ok", "'fail'"), "faults.toml: x: unknown request gett");
        assert_eq!(read("hearr", "'lower'"), "faults.toml: x: unknown hook hearr");
        let unknown = read("finalize", "'close'");
        assert!(
            unknown.starts_with("faults.toml: x: unknown variant `close`, expected one of `waits-for-all`"),
            "{unknown}"
        );
    }
}

//! A server that acts like the reference, except where an effect changes its behaviour.
//!
//! The server drives the public parts of [`pmi_reference::Server`] and has a hook for each of them: reads, requests, responses, new groups,
//! and messages before the protocol begins. A server without effects forwards everything unchanged.

/// Expands to a closure for [`Server::pick`] that returns the content of effects of one kind.
macro_rules! picked {
    ($kind:path) => {
        |effect: &Effect| if let $kind(content) = effect { Some(*content) } else { None }
    };
}

mod attributes;
mod barrier;
mod ending;
mod group_barrier;
mod keyval_space;
mod kvs;
mod names;
mod rare;
mod rare_state;
mod spawn;
mod state;

use std::collections::VecDeque;

use pmi_reference::server::{PendingAction, ProcessPhase, ProtocolError, ServerRequest};
use pmi_reference::{GroupId, GroupSpec, ResponseParts, ServerAction};
use pmi_wire::{ConnectionMethod, Framing, MAPPING_KEY, Proc, ResponseOutcome, SpawnRequest};

use crate::behaviour::Behaviour;
use crate::circumstances::Circumstances;
use crate::edit::{Edit, Editable, RequestText, SingletonMessages, first_frame};
use crate::effect::Effect;
use crate::response_draft::ResponseDraft;
pub use rare_state::EarlierJob;
use state::EffectState;

/// The configuration of a server with effects.
pub type Config = pmi_reference::Config<Behaviour>;

/// A server with effects.
#[derive(Debug)]
pub struct Server {
    server: pmi_reference::Server,
    /// The effects and their state, or `None` if the server has no effects.
    state: Option<Box<EffectState>>,
    actions: VecDeque<ServerAction>,
}

impl Server {
    /// Creates a server without process groups.
    pub fn new(config: Config) -> Self {
        let (mut config, behaviour) = config.rewrap(());
        if !behaviour.is_rehearsed() {
            for (effect, ..) in behaviour.effects() {
                match effect {
                    Effect::Limits(limits) => {
                        config.limits = limits;
                        config.raise_line_max();
                    }
                    Effect::Universe(size) => config.universe_size = Some(size),
                    _ => {}
                }
            }
        }
        let server = pmi_reference::Server::new(config);
        Self { server, state: EffectState::of(&behaviour), actions: VecDeque::new() }
    }

    /// Adds a process group. See [`pmi_reference::Server::add_group`].
    pub fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        let group = self.server.add_group(spec);
        self.affect_group(group);
        group
    }

    /// Returns the number of processes in a group.
    pub fn size(&self, group: GroupId) -> u32 {
        self.server.size(group)
    }

    /// Returns the environment variables of a process. See [`pmi_reference::Server::environment`].
    pub fn environment(&mut self, p: Proc, place: &str) -> Vec<(&'static str, String)> {
        let mut env = self.server.environment(p, place);
        if !(self.connection_method() == ConnectionMethod::Singleton && p.group == 0) {
            self.edit(p, picked!(Effect::Env), &mut env);
        }
        env
    }

    /// Returns whether the descriptor in PMI_FD should be connected.
    pub fn connects(&mut self, p: Proc) -> bool {
        self.pick(p, |e| matches!(e, Effect::DeadFd).then_some(())).is_none()
    }

    /// Returns whether a connection that belongs to no process ends the job.
    pub fn stray_ends_job(&mut self) -> bool {
        let p = Proc { group: 0, rank: 0 };
        self.pick(p, |e| matches!(e, Effect::StrayEndsJob).then_some(())).is_some()
    }

    /// Returns the method by which processes get their connections.
    pub fn connection_method(&self) -> ConnectionMethod {
        self.server.connection_method()
    }

    /// Returns the first message to send on a connection. See [`pmi_reference::Server::welcome`].
    pub fn welcome(&mut self) -> Vec<u8> {
        let asks = self.server.welcome();
        match self.connection_method() {
            ConnectionMethod::Singleton => {
                self.affect_singinit(SingletonMessages { request: asks, ..SingletonMessages::default() })
                    .request
            }
            ConnectionMethod::Fd | ConnectionMethod::Port => asks,
        }
    }

    /// Returns the process that a first message identifies, and the response. See [`pmi_reference::Server::admit`].
    pub fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        let (p, mut received) = self.server.admit(line)?;
        if self.connection_method() == ConnectionMethod::Singleton {
            let messages = SingletonMessages { info: received, ..SingletonMessages::default() };
            return Some((p, self.affect_singinit(messages).info));
        }
        self.edit(p, picked!(Effect::Greeting), &mut received);
        Some((p, received))
    }

    /// Reads bytes from a process, and performs the requests in them. See [`pmi_reference::Server::receive`].
    pub fn receive(&mut self, from: Proc, bytes: &[u8]) {
        if self.state.is_none() {
            return self.server.receive(from, bytes);
        }
        if self.server.is_gone(from) {
            return;
        }
        let state = self.state();
        state.is_together = *state.first_sender.get_or_insert(from) != from;
        let bytes = self.affect_read(from, bytes);
        let mut framer = self.server.take_framer(from);
        framer.push(&bytes);
        while let Some(message) = self.server.next_message(from, &mut framer) {
            self.note_waiting(from);
            match message {
                Ok(message) => self.message(from, message),
                Err(error) => self.protocol_error(from, &error, b""),
            }
            self.forward_actions();
            if self.server.is_gone(from) {
                return;
            }
        }
        self.server.process_mut(from).framer = framer;
    }

    /// Begins a round of the event loop. Returns true if the server has an effect that applies when requests arrive at the same time.
    pub fn begin_round(&mut self) -> bool {
        self.state.as_mut().is_some_and(|state| {
            state.first_sender = None;
            state.has_races()
        })
    }

    /// Handles the end of a connection. See [`pmi_reference::Server::closed`].
    pub fn closed(&mut self, from: Proc) {
        match self.state {
            None => self.server.closed(from),
            Some(_) if self.server.is_gone(from) => {}
            Some(_) => {
                self.note_waiting(from);
                self.close(from);
                self.forward_actions();
            }
        }
    }

    /// Records that the scenario has paused. All later requests count as late.
    pub fn pass_time(&mut self) {
        self.state.iter_mut().for_each(|state| state.late = true);
    }

    /// Reports the result of a spawn. See [`pmi_reference::Server::spawned`].
    pub fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        self.server.spawned(group, errcodes);
        self.forward_actions();
    }

    /// Returns whether a process has initialized but not finalized. See [`pmi_reference::Server::is_joined`].
    pub fn is_joined(&self, p: Proc) -> bool {
        self.server.is_joined(p)
    }

    /// Returns the next action for the driver. See [`pmi_reference::Server::next_action`].
    pub fn next_action(&mut self) -> Option<ServerAction> {
        match self.state {
            None => self.server.next_action(),
            Some(_) => self.actions.pop_front(),
        }
    }

    /// Returns a flag for each effect, in the order in which the effects were added. The flag is true if the effect has made a
    /// difference or, in a rehearsal, would have made one.
    pub fn shown_effects(&self) -> Vec<bool> {
        self.state.as_ref().map(|state| state.shown()).unwrap_or_default()
    }

    // ----- choosing and applying effects

    fn circumstances(&self, p: Proc) -> Circumstances {
        let group = self.server.groups.get(p.group as usize);
        let process = group.and_then(|group| group.procs.get(p.rank as usize));
        Circumstances {
            framing: process
                .filter(|process| process.phase != ProcessPhase::New)
                .map(|process| process.framing),
            group: p.group,
            rank: p.rank,
            size: group.map_or(0, |group| group.procs.len() as u32),
            nodes: self.server.config.nodes,
            waiting: self.state.as_ref().and_then(|s| s.waiting).unwrap_or_else(|| self.waiting(p.group)),
            round: self.state.as_ref().and_then(|s| s.rounds.get(&p.group)).map_or(1, |rounds| rounds + 1),
            refused: self.state.as_ref().is_some_and(|s| s.refused.contains(&p)),
            in_burst: self.state.as_ref().is_some_and(|s| s.burst),
            is_together: self.state.as_ref().is_some_and(|s| s.is_together),
            late: self.state.as_ref().is_some_and(|s| s.late),
            within_job: self.state.as_ref().is_some_and(|s| s.within_job),
            use_count: 0,
        }
    }

    /// Returns the first effect that `pick` accepts and that applies on this occasion.
    fn pick<T>(&mut self, p: Proc, pick: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        self.state.as_ref()?;
        let circumstances = self.circumstances(p);
        self.state.as_mut()?.pick(&circumstances, pick)
    }

    /// Changes `target` with every edit that `pick` accepts and that applies on this occasion.
    fn edit<T: Editable + Clone + PartialEq>(
        &mut self,
        p: Proc,
        pick: impl Fn(&Effect) -> Option<Edit>,
        target: &mut T,
    ) {
        // A server without effects does not need the circumstances, which can be determined only by examining every process of the group.
        if self.state.is_none() {
            return;
        }
        let circumstances = self.circumstances(p);
        self.state().edit(&circumstances, pick, target);
    }

    /// Returns the state of the effects. Only servers with effects call this.
    fn state(&mut self) -> &mut EffectState {
        self.state.get_or_insert_default()
    }

    /// Returns the number of processes of a group that are waiting in its barrier.
    fn waiting(&self, group: GroupId) -> u32 {
        let procs = self.server.groups.get(group as usize).into_iter().flat_map(|group| &group.procs);
        procs.into_iter().filter(|proc| proc.is_in_barrier()).count() as u32
    }

    /// Records the number of processes that are waiting in the barrier before a message is handled, because the
    /// responses to the message may depend on it.
    fn note_waiting(&mut self, p: Proc) {
        self.state().waiting = Some(self.waiting(p.group));
    }

    // ----- groups and singletons

    fn affect_group(&mut self, group: GroupId) {
        let p = Proc { group, rank: 0 };
        let mut mapping = self.server.groups[group as usize].kvs.remove(MAPPING_KEY).unwrap_or_default();
        self.edit(p, picked!(Effect::Mapping), &mut mapping);
        let mut name = std::mem::take(&mut self.server.groups[group as usize].kvsname);
        self.edit(p, picked!(Effect::Kvsname), &mut name);
        let group = &mut self.server.groups[group as usize];
        group.kvs.insert(MAPPING_KEY.to_vec(), mapping);
        group.kvsname = name;
    }

    fn affect_singinit(&mut self, mut messages: SingletonMessages) -> SingletonMessages {
        let p = Proc { group: 0, rank: 0 };
        self.edit(p, picked!(Effect::Singinit), &mut messages);
        messages
    }

    // ----- requests

    fn affect_read(&mut self, from: Proc, bytes: &[u8]) -> Vec<u8> {
        let is_burst = match self.server.process(from).framing {
            Framing::Lines => {
                !bytes.starts_with(b"mcmd=") && bytes.iter().filter(|b| **b == b'\n').count() > 1
            }
            Framing::Frames => first_frame(bytes).is_some_and(|length| length < bytes.len()),
        };
        self.state().burst = is_burst;
        let mut bytes = bytes.to_vec();
        self.edit(from, picked!(Effect::Read), &mut bytes);
        self.affect_pieces(from, &mut bytes);
        bytes
    }

    fn message(&mut self, from: Proc, message: &[u8]) {
        let is_frame = self.server.process(from).framing == Framing::Frames;
        let in_spawn = self.server.process(from).spawn.is_some() || message.starts_with(b"mcmd=");
        if self.state().stopped_answering || ((is_frame || !in_spawn) && self.rejects(from, message)) {
            return;
        }
        let mut edited = message.to_vec();
        let enters = message == b"cmd=barrier_in" || is_frame && message.starts_with(b"cmd=kvs-fence;");
        if enters && self.counts_reentry(from) {
            return;
        }
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::IncomingRequest(which, edit) => {
                which.apply(&mut RequestText(message), &circumstances).then_some(*edit)
            }
            _ => None,
        };
        match self.pick(from, pick) {
            Some(Edit(&[])) => return,
            Some(edit) => drop(edit.apply(&mut edited, &circumstances)),
            None => {}
        }
        self.accept_request(from, &edited);
    }

    fn accept_request(&mut self, from: Proc, message: &[u8]) {
        if let Err(error) = self.request(from, message) {
            self.protocol_error(from, &error, message);
        }
    }

    /// Treats a valid request as a protocol error if an effect requires it. Returns whether the request was rejected.
    fn rejects(&mut self, from: Proc, message: &[u8]) -> bool {
        let circumstances = self.circumstances(from);
        let pick = |e: &Effect| match e {
            Effect::Reject(which) => which.apply(&mut RequestText(message), &circumstances).then_some(()),
            _ => None,
        };
        let rejected = self.pick(from, pick).is_some();
        if rejected {
            self.protocol_error(from, &"not understood".into(), message);
        }
        rejected
    }

    fn request(&mut self, from: Proc, message: &[u8]) -> Result<(), ProtocolError> {
        if self.held_for_barrier(from, message) {
            return Ok(());
        }
        let Some(mut allowed) = self.server.read(from, message)? else { return Ok(()) };
        self.reject_concurrent(from, &allowed.request)?;
        let header = &allowed.header;
        if self.affect_request(from, header, &mut allowed.request) {
            return Ok(());
        }
        let answer = match &mut allowed.request {
            ServerRequest::Put { space, key, value } => self.affected_put(from, space.as_deref(), key, value),
            ServerRequest::Get { space, source, key } => {
                self.affected_get(from, space.as_deref(), *source, key)
            }
            request @ (ServerRequest::Publish { .. }
            | ServerRequest::Unpublish { .. }
            | ServerRequest::Lookup { .. }) => self.affected_names(from, request),
            _ => None,
        };
        if let Some(answer) = answer {
            self.server.reply(from, allowed.header, answer);
            return Ok(());
        }
        let done = match &mut allowed.request {
            ServerRequest::Init(offered) => self.affected_init(from, header, *offered),
            ServerRequest::Abort { .. } => self.affected_abort(from, header),
            ServerRequest::Finalize => {
                self.finalize(from, header);
                true
            }
            ServerRequest::Barrier { group } => self.enter(from, header, group.as_deref())?,
            ServerRequest::Spawn(request) => self.affected_spawn(from, header, request),
            request @ (ServerRequest::PutNodeAttribute { .. } | ServerRequest::GetNodeAttribute { .. }) => {
                self.affected_attribute(from, header, request)
            }
            request @ (ServerRequest::CreateSpace
            | ServerRequest::DestroySpace { .. }
            | ServerRequest::PairByIndex { .. }) => self.affected_keyval_space(from, header, request),
            _ => false,
        };
        if done { Ok(()) } else { self.server.perform(from, allowed) }
    }

    /// Rejects a request that arrives while another request from the same process is unanswered, if an effect requires this. PMI-1.2 and
    /// PMI-2 allow such requests.
    fn reject_concurrent(&mut self, from: Proc, request: &ServerRequest<'_>) -> Result<(), ProtocolError> {
        let waits = !self.server.process(from).held.is_empty() || self.server.is_in_group_barrier(from);
        let is_exempt = matches!(request, ServerRequest::Abort { .. } | ServerRequest::Barrier { .. });
        if !waits || is_exempt {
            return Ok(());
        }
        match self.pick(from, |e| matches!(e, Effect::RejectsConcurrent).then_some(())) {
            Some(()) => Err("request before the previous request was answered".into()),
            None => Ok(()),
        }
    }

    // ----- responses

    /// Forwards the responses and actions of the reference, as changed by effects.
    fn forward_actions(&mut self) {
        if self.state.is_none() {
            return;
        }
        while let Some(output) = self.server.next_output() {
            match output {
                PendingAction::Reply(to, response) => self.send(to, &response),
                PendingAction::Action(ServerAction::Spawn { group, requester: by, programs }) => {
                    self.affect_group(group);
                    let programs = self.affect_start(by, group, SpawnRequest { programs });
                    self.actions.push_back(ServerAction::Spawn { group, requester: by, programs });
                }
                PendingAction::Action(action) => self.actions.push_back(action),
            }
        }
        self.state().waiting = None;
    }

    /// Sends a response as changed by effects, and records whether it was a refusal.
    fn send(&mut self, asker: Proc, response: &ResponseParts) {
        let is_pmi2 = self.server.process(asker).framing == Framing::Frames;
        let mut draft = ResponseDraft::new(asker, response);
        let edits = |e: &Effect| match e {
            Effect::Response(which, edit) if which.matches(response, is_pmi2) => Some(*edit),
            _ => None,
        };
        self.edit(asker, edits, &mut draft);
        match response.is_success() {
            true => self.state().refused.remove(&asker),
            false => self.state().refused.insert(asker),
        };
        // The results of earlier gets are needed only for edits of requests.
        if response.header.operation() == "get" && self.state().has(|e| matches!(e, Effect::Request(..))) {
            let rare = &mut self.state().rare;
            rare.last_gets.insert(asker, response.result.clone());
            match response.result.outcome {
                ResponseOutcome::Success => rare.missed.remove(&asker.group),
                _ => rare.missed.insert(asker.group, asker.rank),
            };
        }
        let bytes = draft.bytes();
        if bytes.is_empty() {
            return;
        }
        let writes = |e: &Effect| match e {
            Effect::Writes(which, writes) if which.matches(response, is_pmi2) => Some(*writes),
            _ => None,
        };
        let writes = match self.pick(asker, writes) {
            Some(writes) => writes.split(bytes),
            None => vec![bytes],
        };
        let to = draft.to;
        self.actions.extend(writes.into_iter().map(|bytes| ServerAction::Send { to, bytes }));
    }
}

/// Returns whether a key belongs to the process manager. Effects on the keyval space do not change these keys.
fn is_own_key(key: &[u8]) -> bool {
    key.starts_with(b"PMI_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{PlainSession, SessionAction};
    use crate::{faults, variations};

    /// Plays the plain session of a client, and returns the actions of the server.
    macro_rules! actions_of {
        ($server:expr, $plain:expr) => {{
            let (mut server, mut all, mut groups) = ($server, Vec::new(), 1);
            server.add_group(GroupSpec { programs: vec![2], ..GroupSpec::default() });
            for step in $plain.session().steps {
                if step.group >= groups {
                    continue;
                }
                let proc = Proc { group: step.group, rank: step.rank };
                let bytes = match &step.action {
                    SessionAction::Close => Vec::new(),
                    SessionAction::Write(line) => line.clone(),
                    SessionAction::Frames(bodies) => {
                        let frame = |body: &Vec<u8>| Framing::Frames.complete(body.clone()).unwrap();
                        bodies.iter().flat_map(frame).collect()
                    }
                };
                let name = format!("kvs-{}", step.group);
                let bytes = String::from_utf8(bytes).unwrap().replace("{kvs}", &name);
                match step.action {
                    SessionAction::Close => server.closed(proc),
                    _ => server.receive(proc, bytes.as_bytes()),
                }
                while let Some(action) = server.next_action() {
                    if let ServerAction::Spawn { group, .. } = action {
                        server.spawned(group, &[0]);
                        groups += 1;
                    }
                    all.push(action);
                }
            }
            all
        }};
    }

    #[test]
    fn rehearsed_faults_do_not_change_the_server() {
        let behaviour: Behaviour = faults().chain(variations()).collect();
        for plain in [PlainSession::Lines, PlainSession::Groups, PlainSession::Frames] {
            let config = pmi_reference::Config { pmi2: true, pmi12: true, ..Default::default() };
            let reference = actions_of!(pmi_reference::Server::new(config.clone()), plain);
            assert!(reference.len() > 20, "{reference:?}");
            for behaviour in [Behaviour::default(), behaviour.clone().with_rehearsal()] {
                let (config, ()) = config.clone().rewrap(behaviour);
                assert_eq!(actions_of!(Server::new(config), plain), reference, "{plain:?}");
            }
        }
    }

    /// A process that has left the first fence together with its node stays in the barrier while another of its threads waits in the next
    /// fence.
    #[test]
    fn per_node_fault_releases_two_overlapping_fences() {
        let fault = faults().find(|fault| fault.name == "barrier-per-node").unwrap();
        let config = Config { nodes: 2, pmi2: true, wrapper: fault.behaviour(), ..Config::default() };
        let mut server = Server::new(config);
        server.add_group(GroupSpec { programs: vec![4], ..GroupSpec::default() });
        let mut sent = |rank, text: &str| {
            let framing = if text.contains(';') { Framing::Frames } else { Framing::Lines };
            let proc = Proc { group: 0, rank };
            server.receive(proc, &framing.complete(text.as_bytes().to_vec()).unwrap());
            std::iter::from_fn(|| server.next_action()).count()
        };
        for rank in [0, 1] {
            sent(rank, "cmd=init pmi_version=2 pmi_subversion=0");
            sent(rank, "cmd=fullinit;");
        }
        let fence = |thrid| format!("cmd=kvs-fence;thrid={thrid};");
        assert_eq!((sent(0, &fence(1)), sent(0, &fence(2)), sent(1, &fence(1))), (0, 0, 2));
        assert_eq!(sent(1, &fence(1)), 2);
    }
}

//! Takes the place of `mpiexec` above MPICH's `hydra_pmi_proxy`, so that a proxy can be judged on its own.
//!
//! A proxy does most of a process manager's work for the ranks of one node. Requests that concern other nodes go to its upstream, in a
//! private protocol that changes between releases ([`pmi_wire::hydra`]). This module is the other end of that protocol. Its command
//! `hydra-upstream` starts one proxy for each node, all of them on this host, and is used like any other launcher.
//!
//! * `detect`: the generation of the protocol that a proxy speaks. `store`: the data of the upstream, kept by the reference server.
//! * `script`: the reports from the upstream to the runner, and the commands in a scenario.
//! * `upstream`: the state machine. `driver`: the processes, sockets and signals around it.
//!
//! # Requests that proxies forward
//!
//! If a runner plays a scenario, the upstream reports every request from a proxy and every response to the runner, and the scenario may
//! respond in place of the upstream. These requests have the same form in every family: text as in PMI-1. A proxy uses `mput KEY=VALUE ...`
//! to send the pairs that it has stored, and `barrier_in` to enter a barrier. Every other request has the text of the client's request. If
//! barriers have names, the response `cmd=barrier_out` also contains the barrier's name.
//!
//! # Exit status
//!
//! The exit status is the first process status other than 0 (128 + signal for a killed process), or the status of an abort. It is 3 if a
//! proxy does not speak the protocol of its family. If a proxy exits without reporting how its processes ended, the proxy's own status is
//! used. If a proxy is killed by a signal, this process kills itself with the same signal, so that the judge sees the crash. If a signal to
//! this process ended the job, the status is 128 + signal.

mod detect;
mod driver;
pub(crate) mod script;
mod store;
mod upstream;

pub(crate) use detect::{detect, family_choices};
pub use driver::{JobEnd, UpstreamOptions, run};
pub use script::RunnerCommand as UpstreamCommand;

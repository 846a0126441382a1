//! Plays `mpiexec` to MPICH's `hydra_pmi_proxy`, so that a proxy can be judged by itself.
//!
//! A proxy does most of a process manager's work for the ranks of one node. What concerns other nodes it sends up, by a
//! private protocol that changes between releases ([`pmi_wire::hydra`]). Here is the other end of that protocol: the command
//! `hydra-upstream`, which starts one proxy per node on this host and so is a launcher like any other.
//!
//! * `detect`: which generation of the protocol a proxy speaks. `store`: what the upstream knows, by the reference server.
//! * `script`: what the upstream tells the runner, and what a scenario may order.
//! * `upstream`: the state machine. `driver`: processes, sockets and signals around it.
//!
//! # What proxies pass on
//!
//! With a runner at its back, the upstream reports every request of a proxy and every answer, and a scenario may answer in its
//! stead. There requests look alike, whatever the family: text as in PMI-1, `mput KEY=VALUE ...` for pairs that a proxy
//! had kept, `barrier_in`, and everything else as the client's request. An answer `cmd=barrier_out` gets the barrier's name
//! where barriers have names.
//!
//! # Exit status
//!
//! The first status of a process that is not 0 (128 + signal if it was killed), or an abort's. 3 if a proxy does not
//! speak as its family does. A proxy's own status if it ends without telling how its processes ended; if it dies of a
//! signal, so does this process, so that the judge sees the crash. 128 + signal if the job ended by a signal to us.

mod detect;
mod driver;
pub(crate) mod script;
mod store;
mod upstream;

pub(crate) use detect::{choices, detect};
pub use driver::{JobEnd, UpstreamOptions, run};
pub use script::Command as UpstreamCommand;

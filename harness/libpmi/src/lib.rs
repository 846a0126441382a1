#![doc = include_str!("../README.md")]
mod arguments;
mod session;

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use pmi_reference::client::{Client, ServerResponse};

pub use arguments::Keyval;
use arguments::SpawnMultipleArguments;
use pmi_c_api::{Code, api, call, call_initialized, copy_out, int, not_null, required, set, text};
use session::InitializedProcess;

/// The PMI-1 state of the process; `None` before `PMI_Init` and after `PMI_Finalize`. PMI-1 is not designed for threads, but concurrent
/// calls must not corrupt memory.
static PROCESS: Mutex<Option<InitializedProcess>> = Mutex::new(None);

fn api(body: impl FnOnce(&mut Option<InitializedProcess>) -> Result<(), Code>) -> c_int {
    call(&PROCESS, body)
}

fn joined(body: impl FnOnce(&mut InitializedProcess) -> Result<(), Code>) -> c_int {
    call_initialized(&PROCESS, body)
}

/// Checks that `kvsname` is the name of the group's keyval space. If it is not, returns the error `otherwise`. RFC 13 names
/// PMI_ERR_INVALID_KVS for this error, but does not define its value.
///
/// # Safety
///
/// `kvsname` must be a NUL-terminated string or NULL.
unsafe fn own_space(
    session: &InitializedProcess,
    kvsname: *const c_char,
    otherwise: Code,
) -> Result<(), Code> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text(kvsname) } {
        Some(name) if name == session.kvsname => Ok(()),
        _ => Err(otherwise),
    }
}

// ----- Initialization functions

api! {
    /// Initializes the library.
    fn PMI_Init(spawned: *mut c_int) {
        api(|session| {
            not_null(spawned)?;
            if session.is_some() {
                return Err(Code::Fail);
            }
            let started = InitializedProcess::start()?;
            let flag = c_int::from(started.spawned);
            *session = Some(started);
            // SAFETY: guaranteed by the caller.
            unsafe { set(spawned, flag) }
        })
    }

    /// Reports in `initialized` whether the library is initialized.
    fn PMI_Initialized(initialized: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        api(|session| unsafe { set(initialized, c_int::from(session.is_some())) })
    }

    /// Gets the maximum length of the name of a keyval space.
    fn PMI_KVS_Get_name_length_max(length: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(length, int(session.limits.kvsname_max)?) })
    }

    /// Gets the maximum length of a key.
    fn PMI_KVS_Get_key_length_max(length: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(length, int(session.limits.keylen_max)?) })
    }

    /// Gets the maximum length of a value.
    fn PMI_KVS_Get_value_length_max(length: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(length, int(session.limits.vallen_max)?) })
    }

    /// Gets the maximum length of an id, which is the name of a keyval space.
    fn PMI_Get_id_length_max(length: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(length, int(session.limits.kvsname_max)?) })
    }

    /// Finalizes PMI.
    fn PMI_Finalize() {
        api(|session| {
            // The session ends even if the process manager refuses the finalize request.
            let mut session = session.take().ok_or(Code::ErrInit)?;
            session.ask(Client::finalize, Code::Fail).map(drop)
        })
    }

    /// Prints the message, requests the end of the process group, and terminates this process.
    fn PMI_Abort(exit_code: c_int, error_msg: *const c_char) {
        // SAFETY: guaranteed by the caller.
        if let Some(message) = unsafe { text(error_msg) } {
            eprintln!("{}", String::from_utf8_lossy(message));
        }
        api(|session| {
            if let Some(session) = session {
                session.process.ask_last(|client| client.abort(None));
            }
            Ok(())
        });
        std::process::exit(exit_code)
    }
}

// ----- Process group functions

api! {
    /// Gets the size of the group.
    fn PMI_Get_size(size: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(size, session.process.size) })
    }

    /// Gets the rank of this process.
    fn PMI_Get_rank(rank: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(rank, session.process.rank) })
    }

    /// Gets the universe size: the number of processes that the job can have, including those that it may still spawn.
    fn PMI_Get_universe_size(size: *mut c_int) {
        joined(|session| {
            not_null(size)?;
            let ServerResponse::Universe(n) = session.ask(Client::universe, Code::Fail)? else { return Err(Code::Fail) };
            // SAFETY: guaranteed by the caller.
            unsafe { set(size, int(n)?) }
        })
    }

    /// Gets the application number: the position of this program among the programs that were started together.
    fn PMI_Get_appnum(appnum: *mut c_int) {
        joined(|session| {
            not_null(appnum)?;
            let ServerResponse::Appnum(n) = session.ask(Client::appnum, Code::Fail)? else { return Err(Code::Fail) };
            // SAFETY: guaranteed by the caller.
            unsafe { set(appnum, int(n)?) }
        })
    }

    /// Gets the ranks on this node.
    fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) {
        joined(|session| {
            not_null(ranks)?;
            let clique = session.clique()?;
            if !usize::try_from(length).is_ok_and(|length| length >= clique.len()) {
                return Err(Code::InvalidLength);
            }
            for (slot, rank) in clique.into_iter().enumerate() {
                // SAFETY: `slot` is less than `length`, the size of the caller's array.
                unsafe { ranks.add(slot).write(rank) };
            }
            Ok(())
        })
    }

    /// Gets the number of ranks on this node.
    fn PMI_Get_clique_size(size: *mut c_int) {
        joined(|session| {
            not_null(size)?;
            let clique = session.clique()?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(size, int(clique.len() as u64)?) }
        })
    }
}

// ----- Keyval space functions

/// Gets the name of the group's keyval space.
///
/// # Safety
///
/// `kvsname` must be NULL or a buffer of `length` bytes.
unsafe fn name(kvsname: *mut c_char, length: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    joined(|session| unsafe { copy_out(&session.kvsname, kvsname, length) })
}

api! {
    /// Puts a key-value pair.
    fn PMI_KVS_Put(kvsname: *const c_char, key: *const c_char, value: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            unsafe { own_space(session, kvsname, Code::Fail) }?;
            let key = unsafe { required(key, Code::InvalidKey) }?;
            let value = unsafe { required(value, Code::InvalidVal) }?;
            session.put(key, value)
        })
    }

    /// Checks the name of the keyval space. There is nothing to commit, because every put is sent immediately.
    fn PMI_KVS_Commit(kvsname: *const c_char) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { own_space(session, kvsname, Code::InvalidArg) })
    }

    /// Gets a value.
    fn PMI_KVS_Get(kvsname: *const c_char, key: *const c_char, value: *mut c_char, length: c_int) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            unsafe { own_space(session, kvsname, Code::Fail) }?;
            let key = unsafe { required(key, Code::InvalidKey) }?;
            not_null(value).map_err(|_| Code::InvalidVal)?;
            if length <= 0 {
                return Err(Code::InvalidLength);
            }
            let found = session.get(key)?;
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(&found, value, length) }
        })
    }

    /// Gets the name of the group's keyval space.
    fn PMI_KVS_Get_my_name(kvsname: *mut c_char, length: c_int) {
        // SAFETY: guaranteed by the caller.
        unsafe { name(kvsname, length) }
    }

    /// Gets the name of the group's keyval space, which serves as the domain id.
    fn PMI_Get_kvs_domain_id(kvsname: *mut c_char, length: c_int) {
        // SAFETY: guaranteed by the caller.
        unsafe { name(kvsname, length) }
    }

    /// Gets the name of the group's keyval space, which serves as the id.
    fn PMI_Get_id(kvsname: *mut c_char, length: c_int) {
        // SAFETY: guaranteed by the caller.
        unsafe { name(kvsname, length) }
    }

    /// Waits until all processes of the group have entered the barrier.
    fn PMI_Barrier() {
        joined(|session| session.ask(Client::barrier, Code::Fail).map(drop))
    }

    /// Fails, because there is only one keyval space.
    fn PMI_KVS_Create(_kvsname: *mut c_char, _length: c_int) {
        joined(|_| Err(Code::Fail))
    }

    /// Fails, because there is only one keyval space.
    fn PMI_KVS_Destroy(_kvsname: *const c_char) {
        joined(|_| Err(Code::Fail))
    }

    /// Fails, because the wire protocol of PMI 1.1 cannot list keys.
    fn PMI_KVS_Iter_first(_kvsname: *const c_char, _key: *mut c_char, _key_len: c_int, _val: *mut c_char, _val_len: c_int) {
        joined(|_| Err(Code::Fail))
    }

    /// Fails, because the wire protocol of PMI 1.1 cannot list keys.
    fn PMI_KVS_Iter_next(_kvsname: *const c_char, _key: *mut c_char, _key_len: c_int, _val: *mut c_char, _val_len: c_int) {
        joined(|_| Err(Code::Fail))
    }
}

// ----- Spawn and name service functions

api! {
    /// Starts programs as a new process group.
    fn PMI_Spawn_multiple(
        count: c_int,
        cmds: *const *const c_char,
        argvs: *const *const *const c_char,
        maxprocs: *const c_int,
        info_keyval_sizes: *const c_int,
        info_keyval_vectors: *const *const Keyval,
        preput_keyval_size: c_int,
        preput_keyval_vector: *const Keyval,
        errors: *mut c_int
    ) {
        joined(|session| {
            let given = SpawnMultipleArguments {
                count, cmds, argvs, maxprocs, info_keyval_sizes, info_keyval_vectors,
                preput_keyval_size, preput_keyval_vector
            };
            // SAFETY: guaranteed by the caller.
            let programs = unsafe { given.read() }?;
            let wanted: u64 = programs.iter().map(|program| program.nprocs).sum();
            let codes = session.spawn(&programs)?;
            if !errors.is_null() {
                for slot in 0..usize::try_from(wanted).map_err(|_| Code::Fail)? {
                    // A missing code means that the process was started without an error.
                    let code = codes.get(slot).map_or(0, |code| c_int::try_from(*code).unwrap_or(-1));
                    // SAFETY: the caller's array has a slot for each requested process.
                    unsafe { errors.add(slot).write(code) };
                }
            }
            Ok(())
        })
    }

    /// Publishes a port under a name.
    fn PMI_Publish_name(service_name: *const c_char, port: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let service = unsafe { required(service_name, Code::InvalidArg) }?;
            let port = unsafe { required(port, Code::InvalidArg) }?;
            session.ask(|c| c.publish(service, port), Code::InvalidArg).map(drop)
        })
    }

    /// Withdraws a name.
    fn PMI_Unpublish_name(service_name: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let service = unsafe { required(service_name, Code::InvalidArg) }?;
            session.ask(|c| c.unpublish(service), Code::InvalidArg).map(drop)
        })
    }

    /// Looks up the port of a name. The caller's buffer must have room for a value of the maximum length.
    fn PMI_Lookup_name(service_name: *const c_char, port: *mut c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let service = unsafe { required(service_name, Code::InvalidArg) }?;
            not_null(port)?;
            let room = int(session.limits.vallen_max)?;
            let ServerResponse::Port(found) = session.ask(|c| c.lookup(service), Code::InvalidArg)? else { return Err(Code::Fail) };
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(&found, port, room) }.map_err(|_| Code::Fail)
        })
    }
}

// ----- Option functions

api! {
    /// Fails, because this optional function is not supported.
    fn PMI_Parse_option(
        _num_args: c_int,
        _args: *mut *mut c_char,
        _num_parsed: *mut c_int,
        _keyvalp: *mut *mut Keyval,
        _size: *mut c_int
    ) {
        Code::Fail as c_int
    }

    /// Fails, because this optional function is not supported.
    fn PMI_Args_to_keyval(
        _argcp: *mut c_int,
        _argvp: *mut *mut c_char,
        _keyvalp: *mut *mut Keyval,
        _size: *mut c_int
    ) {
        Code::Fail as c_int
    }

    /// Fails, because this optional function is not supported.
    fn PMI_Free_keyvals(_keyvalp: *mut Keyval, _size: c_int) {
        Code::Fail as c_int
    }

    /// Fails, because this optional function is not supported.
    fn PMI_Get_options(_str: *mut c_char, _length: *mut c_int) {
        Code::Fail as c_int
    }
}

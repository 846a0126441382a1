#![doc = include_str!("../README.md")]
mod programs;
mod session;

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use pmi_c_api::{Code, api, call, call_initialized, copy_out, not_null, required, set, text};
use pmi_reference::client::{Client, ClientMisuse, ServerResponse};

pub use programs::Info;
use programs::{Programs, preput};
use session::InitializedProcess;

/// The PMI-2 state of the process; `None` before `PMI2_Init` and after `PMI2_Finalize`. Concurrent calls are serialized.
static PROCESS: Mutex<Option<InitializedProcess>> = Mutex::new(None);

fn api(body: impl FnOnce(&mut Option<InitializedProcess>) -> Result<(), Code>) -> c_int {
    call(&PROCESS, body)
}

fn joined(body: impl FnOnce(&mut InitializedProcess) -> Result<(), Code>) -> c_int {
    call_initialized(&PROCESS, body)
}

/// Gets the attribute `name`, and fills the output arguments.
///
/// # Safety
///
/// `name` must be a NUL-terminated string or NULL. `found`, and the pointer to which `fill` writes, must be writable or NULL.
unsafe fn attribute(
    name: *const c_char,
    found: *mut c_int,
    request: impl FnOnce(&mut Client, &[u8]) -> Result<Vec<u8>, ClientMisuse>,
    fill: impl FnOnce(&[u8]) -> Result<(), Code>,
) -> c_int {
    joined(|session| {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { required(name, Code::InvalidKey) }?;
        let value = session.find(|client| request(client, key))?;
        if let Some(value) = &value {
            fill(value)?;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { set(found, c_int::from(value.is_some())) }
    })
}

/// Parses a list of integers separated by commas. Writes as many integers as fit into `array`, and writes the number of written integers
/// to `outlen`.
///
/// # Safety
///
/// If `length` is more than 0, `array` must be NULL or have room for `length` integers. `outlen` must be writable or NULL.
unsafe fn integers(value: &[u8], array: *mut c_int, length: c_int, outlen: *mut c_int) -> Result<(), Code> {
    let numbers = value.split(|b| *b == b',').map(|number| {
        let number = pmi_wire::grammar::parse_int(number)?;
        c_int::try_from(number).ok()
    });
    let numbers: Vec<c_int> = numbers.collect::<Option<_>>().ok_or(Code::Fail)?;
    let room = usize::try_from(length).unwrap_or(0);
    if array.is_null() && room > 0 {
        return Err(Code::InvalidArg);
    }
    for (slot, number) in numbers.iter().take(room).enumerate() {
        // SAFETY: `slot` is less than `length`, the size of the caller's array.
        unsafe { array.add(slot).write(*number) };
    }
    let written = c_int::try_from(numbers.len().min(room)).unwrap_or(0);
    // SAFETY: guaranteed by the caller.
    unsafe { set(outlen, written) }
}

// ----- Job functions

api! {
    /// Initializes the library.
    fn PMI2_Init(spawned: *mut c_int, size: *mut c_int, rank: *mut c_int, appnum: *mut c_int) {
        api(|session| {
            if [spawned, size, rank, appnum].iter().any(|pointer| pointer.is_null()) {
                return Err(Code::InvalidArg);
            }
            if session.is_some() {
                return Err(Code::Fail);
            }
            let started = InitializedProcess::start()?;
            let results = [
                (spawned, c_int::from(started.spawned)),
                (size, started.process.size),
                (rank, started.process.rank),
                (appnum, started.appnum),
            ];
            *session = Some(started);
            // SAFETY: guaranteed by the caller.
            let all = results.into_iter().map(|(pointer, value)| unsafe { set(pointer, value) });
            all.collect()
        })
    }

    /// Finalizes PMI-2.
    fn PMI2_Finalize() {
        api(|session| {
            // The session ends even if the process manager refuses the finalize request.
            let mut session = session.take().ok_or(Code::ErrInit)?;
            session.ask(Client::finalize).map(drop)
        })
    }

    /// Returns 1 if the library is initialized, and 0 otherwise. The result is not a return code.
    fn PMI2_Initialized() {
        let held = |session: &Option<InitializedProcess>| c_int::from(session.is_some());
        held(&PROCESS.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prints the message, requests an abort, and terminates this process. The request covers the whole job if `flag` is not 0.
    fn PMI2_Abort(flag: c_int, msg: *const c_char) {
        // SAFETY: guaranteed by the caller.
        let message = unsafe { text(msg) }.unwrap_or_default();
        eprintln!("{}", String::from_utf8_lossy(message));
        api(|session| {
            if let Some(session) = session {
                session.process.ask_last(|client| client.abort_job(flag != 0, message));
            }
            Ok(())
        });
        std::process::exit(1)
    }

    /// Starts programs as a new job.
    fn PMI2_Job_Spawn(
        count: c_int,
        cmds: *const *const c_char,
        argcs: *const c_int,
        argvs: *const *const *const c_char,
        maxprocs: *const c_int,
        info_keyval_sizes: *const c_int,
        info_keyval_vectors: *const *const Info,
        preput_keyval_size: c_int,
        preput_keyval_vector: *const *const Info,
        jobid: *mut c_char,
        jobid_size: c_int,
        errors: *mut c_int,
    ) {
        joined(|session| {
            let arrays = Programs { count, cmds, argcs, argvs, maxprocs, info_keyval_sizes, info_keyval_vectors };
            // SAFETY: guaranteed by the caller.
            let mut programs = unsafe { arrays.read() }?;
            let preput = unsafe { preput(preput_keyval_vector, preput_keyval_size) }?;
            if let Some(first) = programs.first_mut() {
                first.preput = preput;
            }
            let answer = session.ask(|client| client.spawn(&programs))?;
            let ServerResponse::Spawned { jobid: id, .. } = answer else { return Err(Code::Fail) };
            let id = id.unwrap_or_default();
            if !jobid.is_null() {
                // SAFETY: guaranteed by the caller.
                unsafe { copy_out(&id, jobid, jobid_size) }?;
            }
            if !errors.is_null() {
                for command in 0..usize::try_from(count).unwrap_or(0) {
                    // SAFETY: the caller guarantees an element for each command.
                    unsafe { errors.add(command).write(0) };
                }
            }
            Ok(())
        })
    }

    /// Gets the id of this process's job.
    fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) {
        joined(|session| {
            not_null(jobid)?;
            let ServerResponse::Kvsname(id) = session.ask(Client::kvsname)? else { return Err(Code::Fail) };
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(&id, jobid, jobid_size) }
        })
    }

    /// Gets the rank of this process.
    fn PMI2_Job_GetRank(rank: *mut c_int) {
        // SAFETY: guaranteed by the caller.
        joined(|session| unsafe { set(rank, session.process.rank) })
    }

    /// Gets the number of processes of the job on this node.
    fn PMI2_Info_GetSize(size: *mut c_int) {
        joined(|session| {
            let here = session.local_size()?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(size, here) }
        })
    }

    /// Connects to another job. Fails if the process manager requires the library to copy a keyval space.
    fn PMI2_Job_Connect(jobid: *const c_char, conn: *mut c_void) {
        let _ = conn;
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let jobid = unsafe { required(jobid, Code::InvalidArg) }?;
            match session.ask(|client| client.connect(jobid))? {
                ServerResponse::Connected { copies: false } => Ok(()),
                _ => Err(Code::Fail),
            }
        })
    }

    /// Disconnects from another job.
    fn PMI2_Job_Disconnect(jobid: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let jobid = unsafe { required(jobid, Code::InvalidArg) }?;
            session.ask(|client| client.disconnect(jobid)).map(drop)
        })
    }
}

// ----- Keyval space functions

api! {
    /// Puts a key-value pair.
    fn PMI2_KVS_Put(key: *const c_char, value: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let key = unsafe { required(key, Code::InvalidKey) }?;
            let value = unsafe { required(value, Code::InvalidVal) }?;
            session.ask(|client| client.put(key, value)).map(drop)
        })
    }

    /// Enters the fence. After the fence, all processes can read the values that were put before it.
    fn PMI2_KVS_Fence() {
        joined(|session| session.ask(Client::barrier).map(drop))
    }

    /// Gets a value. If the value does not fit into the buffer, truncates it and reports its full length as a negative number.
    fn PMI2_KVS_Get(
        jobid: *const c_char,
        src_pmi_id: c_int,
        key: *const c_char,
        value: *mut c_char,
        maxvalue: c_int,
        vallen: *mut c_int,
    ) {
        joined(|session| {
            not_null(value)?;
            // SAFETY: guaranteed by the caller.
            let key = unsafe { required(key, Code::InvalidKey) }?;
            let jobid = unsafe { text(jobid) };
            let srcid = (src_pmi_id >= 0).then_some(i64::from(src_pmi_id));
            let found = session.find(|client| client.get_of_job(jobid, srcid, key))?.ok_or(Code::Fail)?;
            let length = c_int::try_from(found.len()).map_err(|_| Code::Fail)?;
            let fits = length < maxvalue;
            if maxvalue > 0 {
                let room = usize::try_from(maxvalue - 1).unwrap_or(0).min(found.len());
                // SAFETY: guaranteed by the caller.
                unsafe { copy_out(&found[..room], value, maxvalue) }?;
            }
            // SAFETY: guaranteed by the caller.
            unsafe { set(vallen, if fits { length } else { -length }) }
        })
    }
}

// ----- Attribute functions

api! {
    /// Gets an attribute of this node. If `waitfor` is not 0, waits until the attribute exists.
    fn PMI2_Info_GetNodeAttr(
        name: *const c_char,
        value: *mut c_char,
        valuelen: c_int,
        found: *mut c_int,
        waitfor: c_int,
    ) {
        // SAFETY: the caller guarantees the preconditions of all calls in this block.
        unsafe {
            attribute(name, found, |client, key| client.get_node_attribute(key, waitfor != 0), |received| copy_out(received, value, valuelen))
        }
    }

    /// Gets an attribute of this node whose value is a list of integers.
    fn PMI2_Info_GetNodeAttrIntArray(
        name: *const c_char,
        array: *mut c_int,
        arraylen: c_int,
        outlen: *mut c_int,
        found: *mut c_int,
    ) {
        // SAFETY: the caller guarantees the preconditions of all calls in this block.
        unsafe {
            attribute(name, found, |client, key| client.get_node_attribute(key, false), |received| integers(received, array, arraylen, outlen))
        }
    }

    /// Puts an attribute of this node.
    fn PMI2_Info_PutNodeAttr(name: *const c_char, value: *const c_char) {
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let key = unsafe { required(name, Code::InvalidKey) }?;
            let value = unsafe { required(value, Code::InvalidVal) }?;
            session.ask(|client| client.put_node_attribute(key, value)).map(drop)
        })
    }

    /// Gets an attribute of the job.
    fn PMI2_Info_GetJobAttr(name: *const c_char, value: *mut c_char, valuelen: c_int, found: *mut c_int) {
        // SAFETY: the caller guarantees the preconditions of all calls in this block.
        unsafe {
            attribute(name, found, Client::get_job_attribute, |received| copy_out(received, value, valuelen))
        }
    }

    /// Gets an attribute of the job whose value is a list of integers.
    fn PMI2_Info_GetJobAttrIntArray(
        name: *const c_char,
        array: *mut c_int,
        arraylen: c_int,
        outlen: *mut c_int,
        found: *mut c_int,
    ) {
        // SAFETY: the caller guarantees the preconditions of all calls in this block.
        unsafe {
            attribute(name, found, Client::get_job_attribute, |received| integers(received, array, arraylen, outlen))
        }
    }
}

// ----- Name service functions

api! {
    /// Publishes a port under a name. Ignores the info, as all known servers do.
    fn PMI2_Nameserv_publish(service_name: *const c_char, info_ptr: *const Info, port: *const c_char) {
        let _ = info_ptr;
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let name = unsafe { required(service_name, Code::InvalidArg) }?;
            let port = unsafe { required(port, Code::InvalidArg) }?;
            session.ask(|client| client.publish(name, port)).map(drop)
        })
    }

    /// Looks up the port of a name.
    fn PMI2_Nameserv_lookup(
        service_name: *const c_char,
        info_ptr: *const Info,
        port: *mut c_char,
        port_len: c_int,
    ) {
        let _ = info_ptr;
        joined(|session| {
            not_null(port)?;
            // SAFETY: guaranteed by the caller.
            let name = unsafe { required(service_name, Code::InvalidArg) }?;
            let ServerResponse::Port(found) = session.ask(|client| client.lookup(name))? else { return Err(Code::Fail) };
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(&found, port, port_len) }
        })
    }

    /// Withdraws a name.
    fn PMI2_Nameserv_unpublish(service_name: *const c_char, info_ptr: *const Info) {
        let _ = info_ptr;
        joined(|session| {
            // SAFETY: guaranteed by the caller.
            let name = unsafe { required(service_name, Code::InvalidArg) }?;
            session.ask(|client| client.unpublish(name)).map(drop)
        })
    }
}

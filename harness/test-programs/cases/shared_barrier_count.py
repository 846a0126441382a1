#!/usr/bin/env python3
"""A process manager whose jobs share the count of processes in a barrier: pm.py FILE JOBS -n N command...

No job answers before JOBS jobs have started."""
import fcntl, os, socket, subprocess, sys, threading, time

path, jobs, size, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[4]), sys.argv[5:]
KVS = "kvs_0"
kvs, waiting, lock = {}, [], threading.Lock()


def parse(line):
    return dict(word.split("=", 1) for word in line.split())


def enter(s):
    """Counts a process in the file that all jobs share, and releases all ranks of this job after the last one."""
    # Without this delay, the barriers of jobs that run at the same time might not overlap.
    time.sleep(0.002)
    with lock, open(path, "a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        count = int(shared.read() or 0) + 1
        shared.truncate(0)
        shared.write(str(count % size))
        shared.flush()
        waiting.append(s)
        if count == size:
            for waits in waiting:
                waits.sendall(b"cmd=barrier_out rc=0\n")
            waiting.clear()


def answer(m):
    cmd = m["cmd"]
    if cmd == "init":
        return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
    if cmd == "get_maxes":
        return "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"
    if cmd == "get_my_kvsname":
        return "cmd=my_kvsname rc=0 kvsname=" + KVS
    if cmd == "put":
        kvs[m["key"]] = m["value"]
        return "cmd=put_result rc=0"
    if cmd == "get":
        found = m["key"] in kvs
        return "cmd=get_result rc=0 value=" + kvs[m["key"]] if found else "cmd=get_result rc=-1"
    if cmd == "finalize":
        return "cmd=finalize_ack rc=0"
    return "cmd=" + cmd + "_result rc=-1"


def serve(s):
    deadline = time.monotonic() + 10
    while os.path.getsize(path + ".jobs") < jobs and time.monotonic() < deadline:
        time.sleep(0.001)
    for line in s.makefile():
        m = parse(line)
        if m["cmd"] == "barrier_in":
            enter(s)
        else:
            s.sendall((answer(m) + "\n").encode())


open(path, "w").close()
with open(path + ".jobs", "a") as started:
    started.write(".")
procs, threads = [], []
for rank in range(size):
    ours, theirs = socket.socketpair()
    env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    procs.append(subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()]))
    theirs.close()
    threads.append(threading.Thread(target=serve, args=(ours,), daemon=True))
for t in threads:
    t.start()
for p in procs:
    p.wait()

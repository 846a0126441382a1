#!/usr/bin/env python3
"""A process manager whose last rank dies of SIGSEGV in its first barrier, after the others were killed: pm.py -n N command..."""
import os, signal, socket, subprocess, sys, threading, time

size, command = int(sys.argv[2]), sys.argv[3:]
ANSWERS = {
    "init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    "get_maxes": "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
    "get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=kvs_0",
    "get_appnum": "cmd=appnum rc=0 appnum=0",
    "get_universe_size": "cmd=universe_size rc=0 size=%d" % size,
    "finalize": "cmd=finalize_ack rc=0",
}
entered, lock = set(), threading.Lock()


def die():
    for p in procs[:-1]:
        p.kill()
        p.wait()
    time.sleep(0.05)
    procs[-1].send_signal(signal.SIGSEGV)


def serve(s, rank):
    for line in s.makefile():
        cmd = line.split()[0].split("=")[1]
        if cmd != "barrier_in":
            s.sendall((ANSWERS.get(cmd, "cmd=%s_result rc=-1" % cmd) + "\n").encode())
            continue
        with lock:
            entered.add(rank)
            if len(entered) == size:
                die()


procs, threads = [], []
for rank in range(size):
    ours, theirs = socket.socketpair()
    env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    procs.append(subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()]))
    theirs.close()
    threads.append(threading.Thread(target=serve, args=(ours, rank), daemon=True))
for t in threads:
    t.start()
for p in procs:
    p.wait()
sys.exit(1)

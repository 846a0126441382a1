#!/usr/bin/env python3
"""A process manager that speaks PMI-2 and refuses PMI-1: pm.py -n N command..."""
import os, socket, subprocess, sys, threading

size, command = int(sys.argv[2]), sys.argv[3:]
kvs, staged, waiting, lock = {}, {}, [], threading.Lock()


def send(s, fields):
    body = "".join(f"{key}={value};" for key, value in fields)
    s.sendall(f"{len(body):6}{body}".encode())


def answer(s, rank, m):
    cmd = m["cmd"]
    ok = [("cmd", cmd + "-response"), ("rc", 0)]
    if cmd == "fullinit":
        versions = [("pmi-version", 2), ("pmi-subversion", 0)]
        send(s, ok + versions + [("rank", rank), ("size", size), ("appnum", 0)])
    elif cmd == "kvs-put":
        staged[m["key"]] = m["value"]
        send(s, ok)
    elif cmd == "kvs-fence":
        with lock:
            waiting.append(s)
            if len(waiting) == size:
                kvs.update(staged)
                for waits in waiting:
                    send(waits, ok)
                waiting.clear()
    elif cmd == "kvs-get" and m["key"] in kvs:
        send(s, ok + [("found", "TRUE"), ("value", kvs[m["key"]])])
    elif cmd in ("kvs-get", "info-getjobattr"):
        send(s, ok + [("found", "FALSE")])
    elif cmd == "finalize":
        send(s, ok)
    else:
        send(s, ok[:1] + [("rc", 1)])


def serve(s, rank):
    stream = s.makefile("rb")
    if b"pmi_version=2" not in stream.readline():
        s.sendall(b"cmd=response_to_init rc=-1\n")
        s.shutdown(socket.SHUT_RDWR)
        return
    s.sendall(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n")
    while head := stream.read(6):
        body = stream.read(int(head)).decode()
        answer(s, rank, dict(pair.split("=", 1) for pair in body.split(";") if pair))


procs, threads = [], []
for rank in range(size):
    ours, theirs = socket.socketpair()
    env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    procs.append(subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()]))
    theirs.close()
    threads.append(threading.Thread(target=serve, args=(ours, rank), daemon=True))
for t in threads:
    t.start()
sys.exit(max(p.wait() for p in procs))

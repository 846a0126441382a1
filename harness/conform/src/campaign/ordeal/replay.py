#!/usr/bin/env python3
"""Plays the server's half of a recorded session to a program, with nothing but Python.

usage: replay.py TRANSCRIPT.ndjson [COMMAND WORD ...]

Starts a process for every rank with a socket at PMI_FD, says what the server said, each time after as many lines of the
process as then, and shows what comes and how the processes end.
"""

import codecs
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 5.0


class Rank:
    def __init__(self, rank, command, env):
        ours, theirs = socket.socketpair()
        env = {**os.environ, **env, "PMI_FD": str(theirs.fileno())}
        self.rank = rank
        self.child = subprocess.Popen(
            command, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        ours.settimeout(PATIENCE)
        self.pmi = ours
        self.over = False
        self.seen = self.due = 0

    def show(self, who, what):
        print("%d %s: %s" % (self.rank, who, what), flush=True)

    def read(self, deadline):
        """Reads once; False at the end."""
        left = deadline - time.monotonic()
        if self.over or left <= 0 or not select.select([self.pmi], [], [], left)[0]:
            return False
        try:
            data = self.pmi.recv(65536)
        except OSError:
            data = b""
        self.over = not data
        self.seen += data.count(b"\n")
        self.show("C", repr(data) if data else "close")
        return bool(data)

    def wait(self, lines):
        """Lets the process say so many lines more."""
        self.due += lines
        deadline = time.monotonic() + PATIENCE
        while self.seen < self.due:
            if not self.read(deadline):
                if not self.over:
                    self.show("C", "says less than in the transcript")
                self.due = self.seen

    def say(self, data):
        self.show("S", repr(data))
        try:
            self.pmi.sendall(data)
        except OSError as error:
            self.show("S", error)

    def close(self):
        self.show("S", "close")
        self.pmi.close()
        self.over = True

    def end(self):
        """Waits for the process; whether it ended well."""
        deadline = time.monotonic() + PATIENCE
        while self.read(deadline):
            pass
        try:
            status = self.child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self.show("P", "still runs after %s s" % PATIENCE)
            self.child.kill()
            self.child.wait()
            return False
        try:
            # A process manager ends what its process has left in its group.
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        died = status < 0
        self.show("P", "died of %s" % signal.Signals(-status).name if died else "exit %d" % status)
        return status == 0


def left():
    """What the processes have left behind has become ours."""
    with open("/proc/thread-self/children", encoding="ascii") as children:
        pids = [int(pid) for pid in children.read().split()]
    return [pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0]


def show_left():
    """Gives what is left some time to end; shows and ends it then, and what that leaves."""
    deadline = time.monotonic() + 0.5
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    while left():
        for pid in left():
            with open("/proc/%s/comm" % pid, "rb") as name:
                print("left behind: %s" % name.read().decode("utf-8", "replace").strip(), flush=True)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def decode(text):
    return codecs.escape_decode(text.encode())[0]


def main():
    with open(sys.argv[1], encoding="utf-8") as transcript:
        events = [next(iter(json.loads(line)["what"].items())) for line in transcript]
    command = sys.argv[2:]
    # What loses its parent is ours.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    ranks = {}
    for kind, what in events:
        proc = what.get("proc", {"group": 0}) if isinstance(what, dict) else {"group": 0}
        if kind == "launched":
            command = command or what["command"]
        elif proc["group"] != 0:
            continue
        elif kind == "started":
            ranks[proc["rank"]] = Rank(proc["rank"], command, what["env"])
        elif kind == "to_server":
            ranks[proc["rank"]].wait(decode(what["bytes"]).count(b"\n"))
        elif kind == "from_server":
            ranks[proc["rank"]].say(decode(what["bytes"]))
        elif kind == "closed_by_server":
            ranks[proc["rank"]].close()
        elif kind == "ended" and what["ours"]:
            ranks[proc["rank"]].child.kill()
    if any(kind == "started" and what["proc"]["group"] != 0 for kind, what in events):
        print("left out: processes that were spawned")
    well = all([rank.end() for rank in ranks.values()])
    show_left()
    sys.exit(0 if well else 1)


main()

#!/usr/bin/env python3
"""Plays one session against a process manager, with nothing but Python.

usage: replay.py SESSION.json [COMMAND WORD ...]

The command starts the ranks; {ranks} and {agent} in it are replaced. The agent is this script again: it hands the
descriptor that PMI_FD names to the first instance, which plays the steps of the session in their order and shows what
comes back, and how the command ends.
"""

import array
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time

PATTERN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PATIENCE = 2.0


def agent(path):
    """A rank: hands over PMI_FD and waits to be told how to end."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    fd = int(os.environ["PMI_FD"])
    rank = -1 if os.environ.get("PMI_SPAWNED") == "1" else int(os.environ.get("PMI_RANK", "0"))
    control.sendmsg([b"%d\n" % rank], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    order = control.makefile().readline().split()
    if order[:1] == ["kill"]:
        os.kill(os.getpid(), int(order[1]))
    sys.exit(int(order[1]) if order[:1] == ["exit"] else 0)


class Player:
    def __init__(self, session, command):
        self.session = session
        self.folder = tempfile.mkdtemp(prefix="pmi-replay-")
        self.ranks = {}
        self.names = {}
        self.wrote = None
        self.path = os.path.join(self.folder, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.program = os.path.join(self.folder, "agent")
        with open(self.program, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nexec %s %s --agent %s\n" % (sys.executable, os.path.abspath(__file__), self.path))
        os.chmod(self.program, 0o755)
        words = [w.replace("{ranks}", str(session["ranks"])).replace("{agent}", self.program) for w in command]
        self.witness(words)
        print("$", " ".join(words), flush=True)
        self.launcher = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def witness(self, words):
        """Hydra's mpiexec looks for its proxy beside itself: lets a line of shell tell how the proxy ended."""
        real = os.path.realpath(shutil.which(words[0]) or words[0])
        proxy = os.path.join(os.path.dirname(real), "hydra_pmi_proxy")
        if not os.path.basename(words[0]).startswith("mpiexec") or not os.path.exists(proxy):
            return
        with open(real, "rb") as binary:
            if b"hydra_pmi_proxy" not in binary.read():
                return
        link = os.path.join(self.folder, os.path.basename(words[0]))
        os.symlink(real, link)
        script = os.path.join(self.folder, "hydra_pmi_proxy")
        with open(script, "w", encoding="utf-8") as out:
            out.write('#!/bin/sh\n"%s" "$@"\ns=$?\n' % proxy)
            out.write('[ $s -gt 128 ] && echo "hydra_pmi_proxy died of signal $((s - 128))" >&2\nexit $s\n')
        os.chmod(script, 0o755)
        words[0] = link

    def start(self):
        self.listener.settimeout(10)
        while len([r for r in self.ranks if r >= 0]) < self.session["ranks"]:
            self.accept()

    def accept(self):
        control, _ = self.listener.accept()
        text, ancillary, _, _ = control.recvmsg(64, socket.CMSG_LEN(64))
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        rank = int(text)
        key = rank if rank >= 0 else -1 - len(self.ranks)
        self.ranks[key] = {"control": control, "pmi": socket.socket(fileno=fds[0]), "data": b"", "over": False}

    def text(self, pieces):
        out = b""
        for piece in pieces:
            if "text" in piece:
                out += piece["text"].encode("latin-1")
            elif "hex" in piece:
                out += bytes.fromhex(piece["hex"])
            elif piece.get("name") == "agent":
                out += self.program.encode()
            elif "name" in piece:
                out += self.names[piece["name"]]
            else:
                base, plus = piece["fill"]
                length = (int(self.names[base]) if base else 0) + plus
                out += (PATTERN * (length // len(PATTERN) + 1))[: max(length, 0)]
        return out

    def turn(self, rank):
        """Order is order in time: lets what another rank has just written be read first."""
        before, self.wrote = self.wrote, rank
        if before in (None, rank) or self.ranks[before]["over"]:
            return
        for _ in range(200):
            left = array.array("i", [0])
            fcntl.ioctl(self.ranks[before]["pmi"], termios.TIOCOUTQ, left)
            if left[0] == 0:
                return
            time.sleep(0.0001)

    def write(self, rank, data):
        if self.ranks[rank]["over"]:
            return
        self.turn(rank)
        print("%d C: %r" % (rank, data if len(data) < 400 else data[:400] + b"..."), flush=True)
        try:
            self.ranks[rank]["pmi"].sendall(data)
        except OSError as error:
            print("%d C: %s" % (rank, error))

    def wait(self, rank):
        r = self.ranks[rank]
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in r["data"] and not r["over"]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([r["pmi"]], [], [], left)[0]:
                print("%d S: silence for %s s" % (rank, PATIENCE), flush=True)
                return
            try:
                data = r["pmi"].recv(65536)
            except OSError:
                data = b""
            r["over"] = not data
            r["data"] += data
        if b"\n" not in r["data"]:
            print("%d S: close" % rank, flush=True)
            return
        line, r["data"] = r["data"].split(b"\n", 1)
        print("%d S: %r" % (rank, line), flush=True)
        for word in line.split():
            name, _, value = word.partition(b"=")
            if name in (b"kvsname", b"kvsname_max", b"keylen_max", b"vallen_max"):
                self.names[{b"kvsname": "kvs"}.get(name, name.decode())] = value

    def together(self, request):
        ranks = [r for r in sorted(self.ranks) if r >= 0 and not self.ranks[r]["over"]]
        for rank in ranks:
            self.write(rank, request)
        for rank in ranks:
            self.wait(rank)

    def dismiss(self, rank, order):
        r = self.ranks[rank]
        if r["control"] is None:
            return
        print("%d P: %s" % (rank, order), flush=True)
        r["over"] = True
        r["pmi"].close()
        try:
            r["control"].sendall(order.encode() + b"\n")
        except OSError:
            pass
        r["control"] = None

    def play(self):
        self.start()
        for step in self.session["steps"]:
            kind, rank = step["step"], step.get("rank")
            if kind == "join":
                self.together(b"cmd=init pmi_version=1 pmi_subversion=1\n")
                self.together(b"cmd=get_maxes\n")
                self.together(b"cmd=get_my_kvsname\n")
            elif kind == "leave":
                self.together(b"cmd=finalize\n")
            elif kind == "write":
                lines = b"\n".join(self.text(line) for line in step["lines"])
                self.write(rank, lines if step["partial"] else lines + b"\n")
            elif kind == "await":
                self.wait(rank)
            elif kind == "close":
                print("%d C: close" % rank, flush=True)
                self.ranks[rank]["over"] = True
                self.ranks[rank]["pmi"].shutdown(socket.SHUT_RDWR)
                self.ranks[rank]["pmi"].close()
            else:
                self.dismiss(rank, "%s %d" % (kind, step["number"]))

    def end(self):
        self.listener.settimeout(0)
        try:
            while True:
                self.accept()
        except OSError:
            pass
        for rank in list(self.ranks):
            self.dismiss(rank, "exit 0")
        try:
            status = self.launcher.wait(timeout=3 * PATIENCE)
        except subprocess.TimeoutExpired:
            print("the command does not end", flush=True)
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()
        else:
            if status < 0:
                print("the command died of", signal.Signals(-status).name)
            else:
                print("the command ended with status", status)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    if sys.argv[1:2] == ["--agent"]:
        agent(sys.argv[2])
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if not any("{agent}" in word for word in sys.argv[2:]):
        sys.exit("the command must start {agent}, such as: mpiexec -n {ranks} {agent}")
    with open(sys.argv[1], encoding="utf-8") as file:
        session = json.load(file)
    player = Player(session, sys.argv[2:])
    try:
        player.play()
    except socket.timeout:
        print("no rank is started, or not all of them", flush=True)
    finally:
        player.end()


main()

#!/usr/bin/env python3
"""Plays one session against a process manager or a program, with nothing but Python.

usage: replay.py SESSION.json [COMMAND WORD ...]

Against a process manager, the command starts the ranks; {ranks}, {nodes} and {agent} in it are replaced. The agent is this script again:
it hands the descriptor that PMI_FD names to the first instance, which plays the steps of the session in their order. Where the
session needs an earlier job, that is played first, to its end.

Against a program, the command is started once for every rank with a socket at PMI_FD, and is told what the server said to it,
each time after as many messages as then.

Shown is what is said by both sides, and how the processes end.
"""

import array
import ctypes
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


def show(rank, who, what):
    print("%d %s: %s" % (rank, who, what), flush=True)


def shown(data):
    return repr(data if len(data) < 400 else data[:400] + b"...")


class Connection:
    """A socket whose other end speaks as `who`; we speak as `us`."""

    def __init__(self, rank, sock, us, who):
        self.rank, self.sock, self.us, self.who = rank, sock, us, who
        self.data = b""
        self.over = False

    def read(self, deadline):
        """Reads once; False if nothing came."""
        left = deadline - time.monotonic()
        if self.over or left <= 0 or not select.select([self.sock], [], [], left)[0]:
            return False
        try:
            data = self.sock.recv(65536)
        except OSError:
            data = b""
        self.over = not data
        self.data += data
        return bool(data)

    def line(self, patience):
        """The next line; None if there is none. Shown is what comes."""
        deadline = time.monotonic() + patience
        while b"\n" not in self.data and self.read(deadline):
            pass
        if b"\n" in self.data:
            line, self.data = self.data.split(b"\n", 1)
            show(self.rank, self.who, shown(line))
            return line
        show(self.rank, self.who, "close" if self.over else "silence for %s s" % patience)
        return None

    def message(self, patience):
        """The next line, or the next frame without its length."""
        deadline = time.monotonic() + patience
        while len(self.data) < 6 and b"\n" not in self.data and self.read(deadline):
            pass
        length = self.data[:6].strip()
        if not length.isdigit():
            return self.line(patience)
        length = 6 + int(length)
        while len(self.data) < length and self.read(deadline):
            pass
        if len(self.data) < length:
            return self.line(patience)
        body, self.data = self.data[6:length], self.data[length:]
        show(self.rank, self.who, shown(body))
        return body

    def write(self, data):
        show(self.rank, self.us, shown(data))
        try:
            self.sock.sendall(data)
        except OSError as error:
            show(self.rank, self.us, error)

    def close(self):
        show(self.rank, self.us, "close")
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
        self.over = True


class Session:
    def __init__(self, session, command):
        self.session, self.command = session, command
        self.ranks = {}
        self.names = {}

    def text(self, lines, partial, form="line"):
        """Lines end with a newline, bodies of PMI-2 have their length before them, bytes are as they are."""
        texts = [b"".join(map(self.piece, line)) for line in lines]
        before, after = {"line": ("", b"\n"), "body": ("%6d", b""), "bytes": ("", b"")}[form]
        data = b"".join((before % len(text) if before else "").encode() + text + after for text in texts)
        return data[:-1] if partial else data

    def piece(self, piece):
        if "text" in piece:
            return piece["text"].encode("latin-1")
        if "hex" in piece:
            return bytes.fromhex(piece["hex"])
        if "name" in piece:
            return self.names[piece["name"]] if piece["name"] != "rank" else b"%d" % self.rank
        base, plus = piece["fill"]
        length = (int(self.names[base]) if base else 0) + plus
        return (PATTERN * (length // len(PATTERN) + 1))[: max(length, 0)]

    def play(self):
        for step in self.session["steps"]:
            getattr(self, step.pop("step"))(**step)


class AgainstServer(Session):
    PATIENCE = 2.0

    def __init__(self, session, command):
        super().__init__(session, command)
        if not any("{agent}" in word for word in command):
            sys.exit("the command must start {agent}, such as: mpiexec -n {ranks} {agent}")
        self.folder = tempfile.mkdtemp(prefix="pmi-replay-")
        self.control = {}
        self.pmi2 = session["dialect"] == "pmi-2"
        self.wrote = None
        path = os.path.join(self.folder, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        program = self.script("agent", "exec %s %s --agent %s\n" % (sys.executable, os.path.abspath(__file__), path))
        self.names["agent"] = program.encode()
        # Sessions on several nodes are not played here.
        places = {"{ranks}": str(session["ranks"]), "{nodes}": "1", "{agent}": program}
        words = list(command)
        for place, what in places.items():
            words = [word.replace(place, what) for word in words]
        self.tell_proxy_status(words)
        print("$", " ".join(words), flush=True)
        self.launcher = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def tell_proxy_status(self, words):
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
        told = 'echo "hydra_pmi_proxy died of signal $((s - 128))" >&2'
        self.script("hydra_pmi_proxy", '"%s" "$@"\ns=$?\n[ $s -gt 128 ] && %s\nexit $s\n' % (proxy, told))
        words[0] = link

    def accept(self):
        control, _ = self.listener.accept()
        text, ancillary, _, _ = control.recvmsg(64, socket.CMSG_LEN(64))
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        rank = int(text)
        key = rank if rank >= 0 else -1 - len(self.ranks)
        self.ranks[key] = Connection(key, socket.socket(fileno=fds[0]), "C", "S")
        self.control[key] = control

    def turn(self, rank):
        """Order is order in time: lets what another rank has just written be read first."""
        before, self.wrote = self.wrote, rank
        if before in (None, rank) or self.ranks[before].over:
            return
        for _ in range(200):
            left = array.array("i", [0])
            fcntl.ioctl(self.ranks[before].sock, termios.TIOCOUTQ, left)
            if left[0] == 0:
                return
            time.sleep(0.0001)

    def say(self, rank, data):
        if not self.ranks[rank].over:
            self.turn(rank)
            self.ranks[rank].write(data)

    def write(self, rank, lines, partial, form="line"):
        self.rank = rank
        self.say(rank, self.text(lines, partial, form))

    def wait(self, rank):
        message = self.ranks[rank].message(self.PATIENCE) or b""
        for word in message.split(b";" if message.endswith(b";") else None):
            name, _, value = word.partition(b"=")
            if name in (b"kvsname", b"kvsname_max", b"keylen_max", b"vallen_max", b"jobid"):
                self.names[{b"kvsname": "kvs"}.get(name, name.decode())] = value

    def together(self, request):
        ranks = [r for r in sorted(self.ranks) if r >= 0 and not self.ranks[r].over]
        for rank in ranks:
            said = request % rank if b"%d" in request else request
            self.say(rank, said if said.endswith(b"\n") else b"%6d%s" % (len(said), said))
        for rank in ranks:
            self.wait(rank)

    def join(self):
        if self.pmi2:
            self.together(b"cmd=init pmi_version=2 pmi_subversion=0\n")
            self.together(b"cmd=fullinit;pmijobid=job;pmirank=%d;threaded=FALSE;")
            return
        self.together(b"cmd=init pmi_version=1 pmi_subversion=1\n")
        self.together(b"cmd=get_maxes\n")
        self.together(b"cmd=get_my_kvsname\n")

    def leave(self):
        self.together(b"cmd=finalize;" if self.pmi2 else b"cmd=finalize\n")

    def close(self, rank):
        self.ranks[rank].close()

    def exit(self, rank, number):
        self.dismiss(rank, "exit %d" % number)

    def kill(self, rank, number):
        self.dismiss(rank, "kill %d" % number)

    def dismiss(self, rank, order):
        control = self.control.pop(rank, None)
        if control is None:
            return
        show(rank, "P", order)
        self.ranks[rank].over = True
        self.ranks[rank].sock.close()
        try:
            control.sendall(order.encode() + b"\n")
        except OSError:
            pass

    def play(self):
        self.listener.settimeout(10)
        while len([r for r in self.ranks if r >= 0]) < self.session["ranks"]:
            self.accept()
        super().play()

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
            status = self.launcher.wait(timeout=3 * self.PATIENCE)
        except subprocess.TimeoutExpired:
            print("the command does not end", flush=True)
            os.killpg(self.launcher.pid, signal.SIGKILL)
            status = self.launcher.wait()
        else:
            if status < 0:
                print("the command died of", signal.Signals(-status).name)
            else:
                print("the command ended with status", status)
        shutil.rmtree(self.folder, ignore_errors=True)
        return True


class AgainstProgram(Session):
    PATIENCE = 5.0

    def __init__(self, session, command):
        super().__init__(session, command)
        self.children = {}
        # What loses its parent is ours.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)

    def start(self, rank, env):
        ours, theirs = socket.socketpair()
        ours.settimeout(self.PATIENCE)
        env = {**os.environ, **env, "PMI_FD": str(theirs.fileno())}
        self.children[rank] = subprocess.Popen(
            self.command, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self.ranks[rank] = Connection(rank, ours, "S", "C")

    def wait(self, rank, messages):
        connection = self.ranks[rank]
        read = connection.message if self.session["dialect"] == "pmi-2" else connection.line
        for _ in range(messages):
            if connection.over or read(self.PATIENCE) is None:
                return

    def write(self, rank, lines, partial):
        self.ranks[rank].write(self.text(lines, partial))

    def close(self, rank):
        self.ranks[rank].close()

    def kill(self, rank, number):
        self.children[rank].send_signal(number)

    def end_of(self, rank):
        """Waits for a process; whether it ended well."""
        connection, child = self.ranks[rank], self.children[rank]
        deadline = time.monotonic() + self.PATIENCE
        while connection.read(deadline):
            pass
        if connection.data:
            show(rank, "C", shown(connection.data))
        try:
            status = child.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            show(rank, "P", "still runs after %s s" % self.PATIENCE)
            child.kill()
            child.wait()
            return False
        try:
            # A process manager ends what its process has left in its group.
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        show(rank, "P", "died of %s" % signal.Signals(-status).name if status < 0 else "exit %d" % status)
        return status == 0

    def end(self):
        well = all([self.end_of(rank) for rank in self.ranks])
        show_left()
        return well


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


def job(session, command):
    """Plays one job to its end; whether that was well."""
    kind = {"server": AgainstServer, "client": AgainstProgram}[session["tests"]]
    player = kind(session, command)
    try:
        player.play()
    except socket.timeout:
        print("no rank is started, or not all of them", flush=True)
    finally:
        well = player.end()
    return well


def main():
    if sys.argv[1:2] == ["--agent"]:
        agent(sys.argv[2])
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        session = json.load(file)
    command = sys.argv[2:] or session["command"]
    if "earlier" in session:
        print("the earlier job:", flush=True)
        job(session["earlier"], command)
        print("the later job:", flush=True)
    sys.exit(0 if job(session, command) else 1)


main()

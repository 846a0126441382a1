#!/usr/bin/env python3
"""A process manager for one machine: manager.py RANKS PROGRAM [ARGUMENT...]

It starts the processes and serves them PMI-1 as specified by Flux RFC 13, without spawn and without names.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys

KVSNAME = f"kvs-{os.getpid()}"
KVSNAME_MAX, KEYLEN_MAX, VALLEN_MAX = 64, 64, 1024  # each limit includes a NUL


class ProtocolError(Exception):
    """The peer has broken the protocol: RFC 13 requires us to close the connection and abort the program."""


class Process:
    """One rank, with its end of the connection."""

    def __init__(self, rank, size, command):
        self.rank = rank
        self.connection, theirs = socket.socketpair()
        environment = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
        environment.pop("PMI_SPAWNED", None)
        self.child = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        self.unread = b""
        self.lines_of_spawn = None
        self.joined = self.finalized = self.in_barrier = False

    def answer(self, command, rc=0, **values):
        words = [f"cmd={command}", f"rc={rc}"] + [f"{key}={value}" for key, value in values.items()]
        self.send(" ".join(words) + "\n")

    def send(self, line):
        try:
            self.connection.sendall(line.encode("latin-1"))
        except OSError:
            pass  # The process has closed its connection; `read` handles this.


class Manager:
    def __init__(self, size, command):
        self.kvs = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self.processes = [Process(rank, size, command) for rank in range(size)]

    def run(self):
        with selectors.DefaultSelector() as selector:
            for process in self.processes:
                selector.register(process.connection, selectors.EVENT_READ, process)
            while selector.get_map():
                for ready, _ in selector.select():
                    process = ready.data
                    try:
                        if not self.read(process):
                            selector.unregister(process.connection)
                            process.connection.close()
                    except ProtocolError as error:
                        print(f"manager: rank {process.rank}: {error}", file=sys.stderr)
                        process.connection.close()
                        return self.abort(1)
        codes = [process.child.wait() for process in self.processes]
        return max(code if code >= 0 else 128 - code for code in codes)

    def abort(self, status):
        for process in self.processes:
            try:
                os.killpg(process.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.child.wait()
        return status

    def read(self, process):
        try:
            data = process.connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            if process.unread:
                raise ProtocolError("the connection ended within a message")
            if process.joined and not process.finalized:
                raise ProtocolError("the connection ended without finalize")
            return False
        *lines, process.unread = (process.unread + data).split(b"\n")
        if len(process.unread) > 65536:
            raise ProtocolError("a message is too long")
        for line in lines:
            self.request(process, line.decode("latin-1"))
        return True

    def request(self, process, line):
        if process.lines_of_spawn is not None or line.split()[:1] == ["mcmd=spawn"]:
            return self.spawn(process, line)
        request = tuples(line)
        command = request.pop("cmd", None)
        handler = getattr(self, f"do_{command}", None)
        if handler is None:
            raise ProtocolError(f"unknown request {line!r}")
        if (command == "init") == process.joined or process.finalized or process.in_barrier:
            raise ProtocolError(f"{command} is not allowed at this point")
        try:
            handler(process, **request)
        except TypeError:  # A key is missing.
            raise ProtocolError(f"incomplete request {line!r}") from None

    def do_init(self, process, pmi_version, pmi_subversion, **_):
        if not (pmi_version.isdigit() and pmi_subversion.isdigit()):
            raise ProtocolError(f"invalid version {pmi_version}.{pmi_subversion}")
        if (int(pmi_version), int(pmi_subversion)) < (1, 1):
            return process.answer("response_to_init", rc=-1)
        process.joined = True
        process.answer("response_to_init", pmi_version=1, pmi_subversion=1)

    def do_get_maxes(self, process, **_):
        process.answer("maxes", kvsname_max=KVSNAME_MAX, keylen_max=KEYLEN_MAX, vallen_max=VALLEN_MAX)

    def do_get_universe_size(self, process, **_):
        process.answer("universe_size", size=len(self.processes))

    def do_get_appnum(self, process, **_):
        process.answer("appnum", appnum=0)

    def do_get_my_kvsname(self, process, **_):
        process.answer("my_kvsname", kvsname=KVSNAME)

    def do_put(self, process, kvsname, key, value, **_):
        fits = len(key) < KEYLEN_MAX and len(value) < VALLEN_MAX
        if kvsname != KVSNAME or not fits or key in self.kvs:
            return process.answer("put_result", rc=-1)
        self.kvs[key] = value
        process.answer("put_result")

    def do_get(self, process, kvsname, key, **_):
        if kvsname != KVSNAME or key not in self.kvs:
            return process.answer("get_result", rc=-1)
        process.answer("get_result", value=self.kvs[key])

    def do_barrier_in(self, process, **_):
        process.in_barrier = True
        if all(each.in_barrier for each in self.processes):
            for each in self.processes:
                each.in_barrier = False
                each.answer("barrier_out")

    def do_finalize(self, process, **_):
        process.finalized = True
        process.answer("finalize_ack")

    def do_abort(self, process, exitcode="1", **_):
        sys.exit(self.abort(int(exitcode)))

    def do_publish_name(self, process, **_):
        process.answer("publish_result", rc=-1, msg="there is no name service")

    def do_unpublish_name(self, process, **_):
        process.answer("unpublish_result", rc=-1, msg="there is no name service")

    def do_lookup_name(self, process, **_):
        process.answer("lookup_result", rc=-1, msg="there is no name service")

    def spawn(self, process, line):
        """Handles a line of a spawn request, the only request with several lines. Its last line is endcmd."""
        process.lines_of_spawn = (process.lines_of_spawn or []) + [line.strip()]
        if line.strip() != "endcmd":
            return
        numbers = [word.partition("=") for word in process.lines_of_spawn]
        said = {key: value for key, _, value in numbers if key in ("totspawns", "spawnssofar")}
        if len(process.lines_of_spawn) > 1 and said.get("totspawns") == said.get("spawnssofar"):
            process.answer("spawn_result", rc=-1)
        process.lines_of_spawn = None


def tuples(line):
    """Returns the tuples of a message. The value of `value`, which may contain blanks, extends to the end of the line."""
    before, separator, value = line.partition(" value=")
    found = {}
    for word in before.split():
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ProtocolError(f"not a tuple: {word!r}")
        found.setdefault(key, text)
    if separator:
        found["value"] = value
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(Manager(int(sys.argv[1]), sys.argv[2:]).run())

import fcntl, os, pathlib, re, shutil, socket, struct, subprocess, sys, tempfile, termios, time; sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))  # 1 means that the symptom occurs
COMMAND = @COMMAND@  # or the arguments of this script
if sys.argv[1:2] == ["--rank"]:  # a rank that the command started: it passes on its connection, and exits when it is told to
    control, env = socket.socket(socket.AF_UNIX), {k: v for k, v in os.environ.items() if k[:3] == "PMI"}
    control.connect(sys.argv[2])
@CONNECT@
    sys.exit(int(control.recv(9) or 0))
here, ranks, kept, names, listener = tempfile.mkdtemp(), {}, {}, {}, socket.socket(socket.AF_UNIX)
def script(name, text): (file := pathlib.Path(here, name)).write_text("#!/bin/sh\n" + text), file.chmod(0o755)
for g in range(@GROUPS@): script(f"g{g}", f'exec {sys.executable} {os.path.abspath(__file__)} --rank {here}/s {g} "$@"\n')
listener.bind(here + "/s"), listener.listen(512), listener.settimeout(60), names.update({b"{here}": here.encode()})
command = [word.replace("{agent}", here + "/g0") for word in sys.argv[1:] or COMMAND]
@PROXY@
@LAUNCH@
def each(who):  # "0.0-3 1.0": ranks 0 to 3 of the first group, and rank 0 of the group that was spawned first
    for group, first, last in re.findall(r"(\d+)\.(\d+)-?(\d*)", who):
        for name in (f"{group}.{n}" for n in range(int(first), int(last or first) + 1)):
            while name not in ranks:
                told, fds, *_ = socket.recv_fds(control := listener.accept()[0], 65536, 1)
                ranks[eval(told)[0]] = socket.socket(fileno=fds[0]), control, *eval(told)[1:]
            yield name, *ranks[name]
def send(who, text, framed=False):  # names that differ between runs are in braces
    for name, pmi, *_ in each(who):
        for old, new in names.items(): text = text.replace(old, new)
        print(name, "->", text), pmi.settimeout(3)
        try: pmi.sendall((b"%6d" % len(text) if framed else b"") + text)
        except OSError as error: print(name, error)
        for _ in range(200 * (len(ranks) < 100)):  # wait until this has been read, to keep the order; the requests of hundreds of ranks may pile up
            if struct.unpack("i", fcntl.ioctl(pmi, termios.TIOCOUTQ, bytes(4)))[0]: time.sleep(0.001)
def recv(who, text, framed=False):  # the received message, and whether it equals text; b"" is the end of the connection, None is silence
    for name, pmi, *_ in each(who):
        said, _ = kept.pop(name, b""), pmi.settimeout(3)
        try:
            while not (end := (len(said) > 5 and len(said) >= (size := 6 + int(said[:6])) and size) if framed else said.find(b"\n") + 1):
                if not (more := pmi.recv(65536)): break
                said += more
            else: said, kept[name] = said[:end], said[end:]
        except (OSError, ValueError) as error: said = said or (None if isinstance(error, socket.timeout) else b"")
        print(name, "<-", said)
        for key, value in re.findall(rb"(kvsname|jobid)=([^\s;]+)", said or b""): names.setdefault(b"{%s%s}" % (key, name.split(".")[0].encode()), value)
    for old, new in names.items(): text = text and text.replace(old, new)
    plain = [data and re.sub(rb"\d{4,}", b"#", data) for data in (said and said[6 * framed:], text)]
    return said, plain[0] == plain[1]

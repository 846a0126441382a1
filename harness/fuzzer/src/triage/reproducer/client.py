import os, re, socket, subprocess, sys, time; sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))  # 1 means that the symptom occurs
COMMAND = @COMMAND@  # or the arguments of this script
ranks, kept = {}, {}
@START@
def each(who):  # "0.0-3": ranks 0 to 3
    for group, first, last in re.findall(r"(\d+)\.(\d+)-?(\d*)", who):
        yield from ((f"{group}.{n}", *ranks[f"{group}.{n}"]) for n in range(int(first), int(last or first) + 1))
def ended(who):  # the exit status, or the negative signal number; None if it is still running
    try: return ranks[who][1].wait(10)
    except subprocess.TimeoutExpired: return None
def send(who, text, framed=False):
    for name, pmi, *_ in each(who):
        print(name, "<-", text, flush=True), pmi.settimeout(3)
        try: pmi.sendall((b"%6d" % len(text) if framed else b"") + text)
        except OSError as error: print(name, error)
def recv(who, text, framed=False):  # the received message, and whether it equals text; b"" is the end of the connection, None is silence
    for name, pmi, *_ in each(who):
        said, _ = kept.pop(name, b""), pmi.settimeout(5)
        try:
            while not (end := (len(said) > 5 and len(said) >= (size := 6 + int(said[:6])) and size) if framed else said.find(b"\n") + 1):
                if not (more := pmi.recv(65536)): break
                said += more
            else: said, kept[name] = said[:end], said[end:]
        except (OSError, ValueError) as error: said = said or (None if isinstance(error, socket.timeout) else b"")
        print(name, "->", said, flush=True)
        if said is None and text: sys.exit([process.kill() for _, process in ranks.values()] and print("the symptom does not occur: silence"))
    plain = [data and re.sub(rb"\d{4,}", b"#", data) for data in (said and said[6 * framed:], text)]
    return said, plain[0] == plain[1]

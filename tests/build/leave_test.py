#!/usr/bin/env python3
"""Lets hosts leave, or kills them, at random moments of their work, 16 at a time, and looks for
what must not be.

    leave_test.py HOST TOOL [--moments N] [--jobs N] [--device NUMBER|fake] [--python FILE]
                            [--limit SECONDS] [--alone]

A host (tests/programs/leaving_host.cpp) asks for kernels and tunes in the background. It leaves in
one of many ways, or is killed. It must be gone within 2 s with its own status, and 2 s later no
process that it has started may be there. A tenth of the moments is of Python programs if --python
names leaving_host.py. No record may be gone after a host, and at the end the cache is verified.
With --alone hosts find no tool, so they compile in their own process, which nothing can end: they may
be late by one compile. Needs NVRTC. Exits 77 where it cannot run.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STATUS = 7
LEAVE_SECONDS = 2.0
PATIENCE = 30.0
WAYS = ["return", "leak", "static", "handler", "thread", "lookup", "close", "_exit", "quick",
        "kill", "terminate"]
PYTHON_WAYS = ["return", "leak", "daemon", "_exit", "kill", "terminate"]
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
MARK = "KERNWRIGHT_LEAVE_TEST"


def marked(mark):
    """Processes that run and have the mark of a host, which its children inherit."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
            state = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if wanted in environment and state != "Z":
            found.append(int(entry))
    return found


def leave(command, way, mark, milliseconds, limit):
    """Runs one host. Gives the seconds from its leave to its end, and a complaint or None."""
    environment = {**os.environ, MARK: mark}
    with tempfile.TemporaryFile() as errors:
        host = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
        said = host.stdout.readline()
        complaint = None
        if said == b"" and way not in SIGNALS and host.wait() == 77:
            errors.seek(0)
            return None, errors.read().decode(errors="replace")
        begun = time.monotonic()
        if way in SIGNALS:
            host.send_signal(SIGNALS[way])
        try:
            status = host.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()
            status, complaint = None, f"not gone after {PATIENCE:.0f} s"
        seconds = time.monotonic() - begun
        host.stdout.close()
        expected = -SIGNALS[way] if way in SIGNALS else STATUS
        if complaint is None and said != b"leaving\n":
            complaint = f"ended before it left, with status {status}"
        elif complaint is None and status != expected:
            complaint = f"status {status} in place of {expected}"
        elif complaint is None and seconds > limit:
            complaint = "gone late"
        if complaint:
            errors.seek(0)
            words = errors.read()[-3000:].decode(errors="replace")
            complaint += f" ({milliseconds} ms, gone after {seconds:.1f} s): {words}"
    until = time.monotonic() + LEAVE_SECONDS
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        name = pathlib.Path("/proc", str(process), "cmdline")
        try:
            what = name.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            os.kill(process, signal.SIGKILL)
        except OSError:
            continue
        complaint = f"{complaint or ''} left behind: {what}"
    return seconds, complaint


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("tool")
    parser.add_argument("--moments", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--device", default="0")
    parser.add_argument("--python", help="leaving_host.py, run by this Python")
    parser.add_argument("--longest", type=int, default=4000, help="ms of a host's work")
    parser.add_argument("--limit", type=float, default=3600,
                        help="seconds after which no host is started")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kernwright-leave-"))
    if options.alone:
        options.host = shutil.copy(options.host, folder)
    cache, started = folder / "cache", time.monotonic()

    def one(number):
        rng = random.Random(options.seed * 1_000_003 + number)
        is_python = options.python is not None and number % 10 == 9
        way = rng.choice(PYTHON_WAYS if is_python else WAYS)
        if time.monotonic() - started > options.limit:
            return None
        milliseconds = rng.randrange(options.longest)
        host = [sys.executable, options.python] if is_python else [options.host]
        inner = "wait" if way in SIGNALS else way
        command = [*host, str(cache), inner, str(milliseconds), options.device,
                   str(rng.randrange(1 << 20))]
        before = set(cache.rglob("*.kwr"))
        seconds, complaint = leave(command, way, f"{os.getpid()}-{number}", milliseconds,
                                   PATIENCE if options.alone else LEAVE_SECONDS)
        lost = [path.name for path in before if not path.exists()]
        if lost:
            complaint = f"{complaint or ''} records are lost: {lost[:3]}"
        return ("PyTorch" if is_python else "host"), way, seconds, complaint

    counts, worst, complaints = collections.Counter(), collections.defaultdict(float), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in pool.map(one, range(options.moments)):
            if done is None:
                continue
            kind, way, seconds, complaint = done
            if seconds is None:
                print(complaint)
                pool.shutdown(cancel_futures=True)
                shutil.rmtree(folder)
                return 77
            counts[kind, way] += 1
            worst[kind, way] = max(worst[kind, way], seconds)
            if complaint:
                complaints.append(f"{kind} {way}: {complaint}")
                print(complaints[-1], flush=True)
    verified = subprocess.run([options.tool, "cache", "verify", "--cache", cache],
                              capture_output=True, text=True, check=False)
    print(f"{'':8} {'way':10} {'hosts':>6} {'slowest s':>10}")
    for kind, way in sorted(counts):
        print(f"{kind:8} {way:10} {counts[kind, way]:6} {worst[kind, way]:10.2f}")
    print(f"{sum(counts.values())} of {options.moments} moments in "
          f"{time.monotonic() - started:.0f} s, {len(complaints)} complaints; "
          f"cache verify: {''.join(verified.stdout.strip().splitlines()[-1:])}")
    if verified.returncode != 0:
        print(verified.stdout, verified.stderr)
    if complaints or verified.returncode != 0:
        print(f"left in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

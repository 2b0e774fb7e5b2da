#!/usr/bin/env python3
"""src/examples/deployment/sweep.sbatch and publish.sh on a Slurm of one machine: real munged, slurmctld and slurmd.

    slurm_test.py KERNWRIGHT

A task of the array is cancelled, one loses its program to kill -9, one is requeued. The same command is given again, the
shards are merged and signed, and every problem of the worklist is there once, those of before with the record of before.
A sweep needs a GPU; here each problem is predicted, which takes seconds of real compiling, and Slurm counts GPUs that
nobody looks for. Needs root, NVRTC and what src/cmake/setup.sh --fleet installs; exits with 77 where one is missing.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SHARDS = 3
PROBLEMS = [f"matmul m={m} n={n} k=4096 dtype=bf16" for m in (16, 256, 4096) for n in (4096, 6144, 8192)]
DEPLOYMENT = pathlib.Path(__file__).resolve().parents[2] / "src/examples/deployment"
PATIENCE = 900  # seconds for any one thing to happen; only a failure waits that long

tool = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(tempfile.mkdtemp(prefix="kernwright-slurm-"))
shared = folder / "sweep"
daemons = []


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def call(*words, check=True):
    ran = subprocess.run([*map(str, words)], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if check and ran.returncode != 0:
        raise AssertionError(f"{words}: status {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout.strip()


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        for daemon in daemons:
            if daemon.poll() is not None:
                raise AssertionError(f"{daemon.args[0]} ended with status {daemon.returncode}")
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen in {PATIENCE} s")


def start_slurm():
    """Configuration and daemons, all below `folder`, on free ports."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge/key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    node = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
NodeName={node} NodeAddr=127.0.0.1 CPUs=64 Gres=gpu:h200:{SHARDS}
PartitionName=main Nodes=ALL Default=YES
""")
    for gpu in range(SHARDS):
        (folder / f"gpu{gpu}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu Type=h200 File={folder}/gpu[0-{SHARDS - 1}]\n")
    munge = folder / "munge"
    start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
          f"--seed-file={munge}/seed", f"--log-file={munge}/log")
    wait_for("munged's socket", (munge / "socket").exists)
    start("slurmctld", "-D", "-f", folder / "slurm.conf")
    start("slurmd", "-D", "-f", folder / "slurm.conf", "-N", node)
    wait_for("an idle node", lambda: "idle" in call("sinfo", "-h", "-o", "%T", check=False))


def start(*words):
    with (folder / f"{words[0]}.log").open("w") as log:
        daemons.append(subprocess.Popen([*map(str, words)], env=environment, stdout=log, stderr=log))


def submit():
    job = call("sbatch", "--parsable", f"--array=1-{SHARDS}", "--gres=gpu:h200:1", DEPLOYMENT / "sweep.sbatch",
               folder / "worklist.json", shared)
    return job.split(";")[0]


def tasks(job):
    """Task number to state."""
    lines = call("squeue", "-h", "-r", "-j", job, "-o", "%K %T", check=False).splitlines()
    return {int(line.split()[0]): line.split()[1] for line in lines}


def records(cache):
    """Problem to the time at which its record was made."""
    if not cache.exists():
        return {}
    listed = json.loads(call(tool, "cache", "list", "--json", "--cache", cache))["records"]
    found = {record["problem"]: record["created"] for record in listed}
    assert len(found) == len(listed), f"a problem is twice in {cache}"
    return found


def programs(shard):
    """The processes of the sweep of a shard."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if words and words[0] == os.fsencode(tool) and os.fsencode(shared / f"shard-{shard}") in words:
            found.append(int(entry.name))
    return found


for program in ("munged", "slurmctld", "slurmd"):
    if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
        skip(f"there is no {program}: src/cmake/setup.sh --fleet installs it")
if os.geteuid() != 0:
    skip("slurmd needs root")

# The program that the scripts call: the tool, predicting, and content with predictions.
(folder / "bin").mkdir()
wrapper = folder / "bin/kernwright"
wrapper.write_text(f"""#!/bin/bash
[ "$1" = sweep ] && set -- "$@" --sku h200
exec {tool} "${{@/#exact/predicted}}"
""")
wrapper.chmod(0o755)
environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": f"{folder}/slurm.conf",
               "HOME": str(folder)}
if json.loads(call(tool, "doctor", "--json"))["compiler"] is None:
    skip("there is no NVRTC")

try:
    (folder / "worklist.json").write_text(json.dumps({"problems": PROBLEMS}))
    shared.mkdir()
    start_slurm()

    first = submit()
    before = {}
    for shard in range(1, SHARDS + 1):
        cache = shared / f"shard-{shard}"
        wait_for(f"the first record of shard {shard}", lambda cache=cache: records(cache))
    call("scancel", f"{first}_1")
    wait_for("the program of shard 2", lambda: programs(2))
    for process in programs(2):
        os.kill(process, signal.SIGKILL)
    call("scontrol", "requeue", f"{first}_3")
    wait_for("the end of two tasks", lambda: not {1, 2} & tasks(first).keys())
    for shard in range(1, SHARDS + 1):
        before.update(records(shared / f"shard-{shard}"))
    assert 0 < len(before) < len(PROBLEMS), f"{len(before)} of {len(PROBLEMS)} before the kills: nothing is left to resume"
    assert not programs(1) and not programs(2), "a killed task left its program"
    print(f"killed with {len(before)} of {len(PROBLEMS)} records made")

    # Slurm lets a requeued task wait for a while.
    wait_for("the requeued task in the queue",
             lambda: tasks(first).get(3) == "PENDING" and call("scontrol", "update", f"jobid={first}_3", "starttime=now", check=False) == "")
    wait_for("the end of the requeued task", lambda: not tasks(first))
    second = submit()
    wait_for("the end of the second array", lambda: not tasks(second))

    after = {}
    for shard in range(1, SHARDS + 1):
        mine = records(shared / f"shard-{shard}")
        twice = after.keys() & mine.keys()
        assert not twice, f"in two shards: {twice}"
        after.update(mine)
        report = json.loads((shared / f"report-{shard}.json").read_text())
        assert report["failed"] == 0 and report["problems"] == len(mine), report
    assert after.keys() == set(PROBLEMS), f"missing: {set(PROBLEMS) - after.keys()}"
    assert {problem: after[problem] for problem in before} == before, "a record was made twice"

    call("kernwright", "cache", "keygen", folder / "fleet")
    call(DEPLOYMENT / "publish.sh", shared, folder / "fleet.key", folder / "bundle.tar.zst", folder / "worklist.json", "h200")
    assert records(shared / "merged").keys() == set(PROBLEMS)
    call("kernwright", "cache", "install", folder / "bundle.tar.zst", "--trusted-keys", folder / "fleet.pub", "--cache", folder / "served")
    call("kernwright", "prewarm", folder / "worklist.json", "--verify", "--sku", "h200", "--cache", folder / "served")
    print(f"{len(after)} problems, each once, in {SHARDS} shards, one merged cache and a signed bundle")
except BaseException:
    for log in [*folder.glob("*.log"), *folder.glob("slurm-*.out")]:
        print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
    raise
finally:
    if daemons:
        subprocess.run(["scancel", "--user=root"], env=environment, capture_output=True, check=False)
        time.sleep(1)
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait()
    shutil.rmtree(folder, ignore_errors=True)

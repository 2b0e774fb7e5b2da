#!/usr/bin/env python3
"""Compares patched models with what they were: all types of models, all kinds of change, eager and
under torch.compile; or random programs. Prints each difference, and ends with 1 if there is one.

    run.py [--share 0.125] [--seed N] [--types A,B] [--kinds A,B] [--case TEXT] [--modes eager]
    run.py --programs 3000 [--seed N] [--device cuda]
    run.py --replay 'Llama: weights/k in place@7; look@8'"""

import argparse
import collections
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
import zlib

import models
import torch
import transformers
from changes import CASES, generate
from models import FUSED, IN_PARTS, TYPES, Play, Skip, confirmed, differences, relative

BY_NAME = {f"{case.kind}/{case.name}": case for case in CASES}
assert len(BY_NAME) == len(CASES)
KINDS = list(dict.fromkeys(case.kind for case in CASES))
LONGEST = 600  # seconds of a job


def number_of(*words):
    """A number that is the same in each process."""
    return zlib.crc32(" ".join(words).encode())


def matters(results):
    """Whether what was done between two looks changed what is computed."""
    before = {label[7:]: value for label, value in results if label.startswith("before ")}
    after = {label[6:]: value for label, value in results if label.startswith("after ")}
    return any(not isinstance(one, torch.Tensor) or not isinstance(before.get(stage), torch.Tensor)
               or relative(one, before[stage]) > 0.03 for stage, one in after.items())


def try_case(mode, name, path, args, calls):
    """Differences, as lines."""
    case, seed, stage = BY_NAME[path], args.seed + number_of(name, path) % 9973, None
    if mode == "compiled":
        stages = ("chunk", "decode") if case.kind == "caches" else models.STAGES
        stage = stages[seed % len(stages)]

    def play(variant, more=0, **named):
        calls.clear()
        return case.play(name, variant, seed + more, args.device, stage, **named).results

    plain, wide = play("plain"), play("wide")
    if not case.alone and not case.quiet and not matters(plain):
        return ["the case changes nothing, so it finds nothing"]
    if mode == "eager":
        def run(more):
            unpatched = (play("plain", more), play("wide", more)) if more else (plain, wide)
            return play("patched", more), *unpatched

        found = confirmed(run)
        return found or ([] if calls or case.alone else ["no operator was called"])
    for fullgraph in (True, False):
        patched = play("patched", compiled=True, fullgraph=fullgraph)
        if not differences((patched, plain, wide)):
            return []
        # Dynamo looks at some hooks once and for all, and refuses other things.
        compiled = play("plain", compiled=True, fullgraph=fullgraph)
        found = differences((patched, compiled, wide))
        if found or not any(type(value).__name__ == "Unsupported" for _, value in compiled):
            return found
    return []


def try_report(name, args, calls):
    """Whether layers are fused where they have to be, and only there; and what was replaced."""
    p = Play(name, "patched", args.seed, args.device)
    layers = [row for row in p.report.rows if row.op == "decoder_layer"]
    calls.clear()
    p.look("")
    steps, found = calls.count("append_attention"), []
    if name in FUSED:
        left = [row for row in layers if not row.replaced]
        if left and (args.fused or not all(row.reason for row in left)):
            found.append(f"{left[0].name} was left: {left[0].reason}")
        elif args.fused and args.device == "cpu" and not steps:
            found.append("no step was fused")
    elif steps or any(row.replaced for row in layers):
        found.append("its layers were fused")
    replaced = collections.Counter(row.op for row in p.report.replaced)
    for op in ("linear", *(() if name == "Gemma3" else ("rms_norm",))):
        if not replaced[op]:
            found.append(f"no {op} was replaced")
    return found, f"{name}: " + ", ".join(f"{count} {op}" for op, count in sorted(replaced.items()))


# Random programs.

@torch.no_grad()
def step_look(p):
    """Looks at one stage, with one kind of cache."""
    kind, begin = p.random.choice(("whole", "dynamic", "static", "static")), p.random.choice((1, 5))
    if kind == "whole":
        p.run("look whole", input_ids=p.ids(begin + 4), use_cache=False)
    else:
        p.walk("look", kind, ((0, begin), (begin, begin + 3), (begin + 3, begin + 4),
                              (begin + 4, begin + 5)))


def step_compile(p):
    """Compiles one stage of what follows."""
    p.fullgraph, p.compiled, p.stage = False, p.may_compile, p.random.choice(models.STAGES)
    p.model = p.model


@torch.no_grad()
def step_undo(p):
    if p.undos:
        p.note("undo", lambda: p.undos.pop()() and None)


STEPS = {"look": step_look, "compile": step_compile, "undo": step_undo,
         "generate": lambda p: generate(p, "", cache_implementation=p.random.choice(
             (None, "static", "dynamic")))}


def make_program(seed, device):
    chooser, by_kind = random.Random(seed), collections.defaultdict(list)
    for path, case in BY_NAME.items():
        if case.mixes and not (case.config or case.before or case.asserts_on(device)):
            by_kind[case.kind].append(path)
    steps = ["look"] + [chooser.choice(
        ("look", "undo", "generate") if chooser.random() < 0.25
        else by_kind[chooser.choice(list(by_kind))]) for _ in range(7)]
    if chooser.random() < 1 / 16:  # since that takes a hundred times as long
        steps.insert(chooser.randrange(3), "compile")
    return chooser.choice([*FUSED, *FUSED, *IN_PARTS]), [
        (step, chooser.randrange(1000)) for step in steps]


def play_program(name, steps, variant, seed, args, may_compile=False):
    p = Play(name, variant, seed, args.device)
    p.may_compile = may_compile
    with p.stack:
        p.stack.callback(torch.compiler.reset)
        for number, (step, seed) in enumerate(steps):
            p.step(seed)
            begun, case = len(p.results), BY_NAME.get(step)
            with contextlib.suppress(Skip):
                if case is None:
                    STEPS[step](p)
                elif case.alone:
                    case.change(p)
                else:
                    case.do(p)
                    step_look(p)
            p.results[begun:] = [(f"{number + 1}. {step}: {label}", value)
                                 for label, value in p.results[begun:]]
    return p.results


def try_program(name, steps, args):
    def play(may_compile):
        return lambda more: (play_program(name, steps, "patched", args.seed + more, args, True),
                             play_program(name, steps, "plain", args.seed + more, args,
                                          may_compile),
                             play_program(name, steps, "wide", args.seed + more, args))

    found = confirmed(play(False))
    if found and any(step == "compile" for step, _ in steps):
        found = confirmed(play(True))
    return found


def shortened(name, steps, args):
    """The program without the steps that its difference does not need, and the difference."""
    found = try_program(name, steps, args)
    for step in list(steps):
        fewer = [one for one in steps if one is not step]
        fewer_found = try_program(name, fewer, args)
        if fewer_found:
            steps, found = fewer, fewer_found
    written = "; ".join(f"{step}@{seed}" for step, seed in steps)
    return [f"run.py --seed {args.seed} --replay '{name}: {written}'", *found]


# Jobs, in processes of their own, which a case may end.

def make_jobs(args):
    if args.programs:
        return [("program", str(args.seed * 1000003 + i), "programs") for i in range(args.programs)]
    chooser, jobs = random.Random(args.seed), [("report", name, "reports") for name in args.types]
    for number, (path, case) in enumerate(BY_NAME.items()):
        if case.kind not in args.kinds or args.case not in path or case.asserts_on(args.device):
            continue
        for name in args.types:
            if "eager" in args.modes and chooser.random() < args.share:
                jobs.append(("eager", name, path))
            # Compiled cases take twenty times as long. Each is done in one type, another one by the
            # next seed, and fewer of them in a small share.
            if "compiled" in args.modes and (args.case or (
                    case.compiles and name == args.types[(number + args.seed) % len(args.types)])):
                if chooser.random() < args.share * min(1, 4 * args.share):
                    jobs.append(("compiled", name, path))
    chooser.shuffle(jobs)
    return jobs


def do(job, args, calls):
    """Differences, as lines, and a note."""
    mode, name, path = job
    if mode == "report":
        return try_report(name, args, calls)
    if mode == "program":
        program = make_program(int(name), args.device)
        return shortened(*program, args) if try_program(*program, args) else [], ""
    try:
        return try_case(mode, name, path, args, calls), ""
    except Skip as skip:
        return [], f"skipped: {skip}"


@contextlib.contextmanager
def operators(args):
    """Gives what lists the calls of operators that compute on the CPU."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if args.device == "cuda":
        yield [None]
        return
    import conftest
    with conftest.standing_in(tf32=False) as calls:
        yield calls


def work(args):
    """Does the jobs whose numbers come in, and writes a line for each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    jobs = make_jobs(args)

    def late(*_):
        raise TimeoutError(f"took longer than {LONGEST} s")

    signal.signal(signal.SIGALRM, late)
    with operators(args) as calls:
        for line in sys.stdin:
            signal.alarm(LONGEST)
            try:
                found, note = do(jobs[int(line)], args, calls)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                found, note = [f"{error!r:.300} at {place.filename}:{place.lineno}"], ""
            signal.alarm(0)
            print(json.dumps([int(line), found, note]), file=out, flush=True)


def run_all(args):
    jobs, lock, begun = make_jobs(args), threading.Lock(), time.time()
    order, counts, notes = iter(range(len(jobs))), collections.defaultdict(collections.Counter), []

    def keep(index, found, note):
        mode, name, path = jobs[index]
        skipped = note.startswith("skipped")
        state = "failed" if found else "skipped" if skipped else "right"
        counts[path.partition("/")[0]][state] += 1
        if note and not skipped:
            notes.append(note)
        if found:
            print(f"FAILED transformers {transformers.__version__} {name} {path} {mode}: "
                  + "\n    ".join(found[:4]), flush=True)

    def feed():
        process = None
        while True:
            with lock:
                index = next(order, None)
            if index is None:
                break
            process = process or subprocess.Popen(
                [sys.executable, *sys.argv, "--worker"], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=None if args.verbose else subprocess.DEVNULL)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{index}\n")
                process.stdin.flush()
            answer = process.stdout.readline()
            with lock:
                keep(*(json.loads(answer) if answer else (
                    index, [f"its process ended with {process.wait()}"], "")))
            if not answer or "CUDA error" in answer:  # after which it computes nothing
                process.kill()
                process = None
        if process is not None:
            process.stdin.close()
            process.wait()

    threads = [threading.Thread(target=feed) for _ in range(args.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = collections.Counter()
    for line in sorted(notes):
        print(f"  {line}")
    for kind, states in counts.items():
        print(f"  {kind}: {dict(states)}")
        total.update(states)
    print(f"transformers {transformers.__version__}, --seed {args.seed}: {total['right']} right, "
          f"{total['failed']} failed, {total['skipped']} skipped, in {time.time() - begun:.0f} s",
          flush=True)
    return 1 if total["failed"] else 0


def names(known):
    def read(text):
        unknown = set(text.split(",")) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown} not among {', '.join(known)}")
        return text.split(",")

    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--types", type=names(TYPES), default=list(TYPES))
    parser.add_argument("--kinds", type=names(KINDS), default=KINDS)
    parser.add_argument("--case", default="", help="in kind/name; all modes are run")
    parser.add_argument("--modes", type=names(("eager", "compiled")), default=["eager", "compiled"])
    parser.add_argument("--fused", action="store_true", help="layers have to be fused")
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--replay")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(args)
    if args.replay:
        name, _, steps = args.replay.partition(": ")
        steps = [(step, int(seed)) for step, _, seed in (
            one.rpartition("@") for one in steps.split("; "))]
        with operators(args):
            found = try_program(name, steps, args)
        print(*(found or ["equal"]), sep="\n")
        return 1 if found else 0
    return run_all(args)


if __name__ == "__main__":
    sys.exit(main())

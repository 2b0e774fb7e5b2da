#!/usr/bin/env python3
"""Measures Hugging Face's models patched by kernwright.torch.patch, beside the same models in PyTorch as
users run them: eager, eager in a CUDA graph, and torch.compile with reduce-overhead and with max-autotune. All in one
process, in turn, on one set of random weights.

A case is decode-B, a step of B sequences with a static cache of --context tokens, each step reading the
token that the one before chose; or prefill-T, one sequence of T tokens, with the logits of its last. Ours
runs two ways, in a CUDA graph and under torch.compile (reduce-overhead), and the better one of --ours counts,
as the best of the peers does. Kernels without a record are tuned for --seconds first.

No figure without its gate: the error of logits and hidden states, and of a decode step's new keys and
values, against the model in fp32 may be at most LIMIT times the error of Hugging Face's model in bf16. A way to
run that fails, or takes longer than --peer-seconds to begin with, has a row with the reason. Rows are kept
one by one, and a run goes on where the last one with this FILE stopped: a way to run that has a row with a
time is left out, and a case of which nothing is left is not made. After --budget seconds nothing new is
begun.

usage: model_vs_torch.py --json FILE [--models NAME,...] [--cases CASE,...] [--seconds N] [--context N]
                         [--ours NAME,...] [--peers NAME,...] [--peer-seconds N] [--budget N] [--cache DIR]
"""

import argparse
import copy
import datetime
import gc
import pathlib
import statistics
import sys
import time
import traceback

import decode_models as models
import model_decode as decode

MODELS = "llama-3.2-1b,qwen3-8b"
CASES = "decode-1,decode-16,prefill-2048"
PEERS = ("eager", "eager_graph", "reduce_overhead", "max_autotune")
OURS = ("patched_graph", "patched_compiled")
BARS = {"decode": 1.10, "prefill": 1.02}
STEPS = {"decode": 64, "prefill": 4}
PREFILL_CONTEXT = 16  # of the cache that a bench builds and a prefill does not use


# Pure parts, which the tests run without a GPU.

def parse_case(text):
    """ "decode-16" -> ("decode", 16). ValueError for another."""
    kind, _, number = text.partition("-")
    if kind not in BARS or not number.isdigit() or int(number) < 1:
        raise ValueError(f"no case {text}; there are decode-BATCH and prefill-TOKENS")
    return kind, int(number)


def make_row(key, way, samples=None, ours=None, **details):
    """Returns a row of one way to run, in us per step. A peer's row also has the times of the best of `ours`,
    taken in turn with it."""
    middle, best = (statistics.median(taken) if taken else None for taken in (samples, ours))
    return {**key, "peer": way, "us": middle, "ours_us": best,
            "ratio": middle / best if middle and best else None, **details}


def left_to_run(found, problem, ways):
    """Returns the ways to run a problem that have no row with a time. A peer's row compares with times that
    were measured beside it, so ours counts for itself alone."""
    timed = {row["peer"] for row in found if row["problem"] == problem and row["us"] is not None}
    return [way for way in ways if way not in timed]


class Clock:
    """The seconds of a run; without a budget there is no end."""

    def __init__(self, budget):
        self.end = None if budget is None else time.monotonic() + budget

    def left(self, most):
        """Returns the seconds that are left of so many, at least 1 to be told that they are over."""
        return most if self.end is None else max(1, min(most, self.end - time.monotonic()))

    def is_over(self):
        return self.end is not None and time.monotonic() >= self.end


def verdict(found):
    """Returns the peer that is nearest to ours, out of rows of one problem; None if there is none."""
    nearest = min((row for row in found if row["ratio"] is not None), key=lambda row: row["ratio"], default=None)
    if nearest is None:
        return None
    bar = BARS[nearest["kind"]]
    return {"peer": nearest["peer"], "ratio": nearest["ratio"], "bar": bar, "holds": nearest["ratio"] >= bar}


def table(found):
    ways = (*OURS, *PEERS)
    lines = [["model", "case", *ways, "ratio", "bar"]]
    for problem in dict.fromkeys(row["problem"] for row in found):
        own = {row["peer"]: row for row in found if row["problem"] == problem}
        first, result = next(iter(own.values())), verdict(list(own.values()))
        cells = ["" if way not in own else "failed" if own[way]["us"] is None else f"{own[way]['us']:.1f}"
                 for way in ways]
        lines.append([first["model"], first["case"], *cells,
                      f"{result['ratio']:.3f}" if result else "", f"{BARS[first['kind']]:.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" + ("\n|" + " --- |" * len(line) if i == 0 else "")
                     for i, line in enumerate(lines))


class Case(decode.Bench):
    """A bench of model_decode.py with two models on its weights: Hugging Face's, and one that is
    patched."""

    def __init__(self, torch, transformers, patch, sizes, kind, number, context):
        self.kind = kind
        batch, context = (number, context) if kind == "decode" else (1, PREFILL_CONTEXT)
        super().__init__(torch, transformers, None, sizes, batch, context, STEPS[kind], None)
        generator = torch.Generator(decode.DEVICE).manual_seed(4)
        self.ids = torch.randint(sizes.vocabulary, (1, number), generator=generator, device=decode.DEVICE)
        self.plain = self.model
        if kind == "decode":
            self.expect()
        else:
            self.expect_prefill()
        self.plain.set_attn_implementation("sdpa")
        shared = {id(value): value for value in self.plain.parameters()}
        self.patched = copy.deepcopy(self.plain, shared)
        self.report = patch(self.patched)

    def prefill_of(self, model):
        def step(ids):
            hidden = model.model(input_ids=ids, use_cache=True).last_hidden_state
            return model.lm_head(hidden[:, -1:]).float(), hidden

        return step

    def run_prefill(self, model):
        logits, hidden = self.prefill_of(model)(self.ids)
        return {"logits": logits.clone(), "hidden": hidden.float()}

    def expect_prefill(self):
        self.noise = {"alike": self.run_prefill(self.plain)}
        narrow = dict(self.plain.state_dict())
        self.set_weights({name: value.float() for name, value in narrow.items()})
        self.expected = {"alike": self.run_prefill(self.plain)}
        self.set_weights(narrow)
        self.torch.cuda.empty_cache()

    def gate_of_patched(self):
        """Errors and what is off, by the lengths of the sequences."""
        found, self.model = {}, self.patched
        for lengths in self.expected:
            if self.kind == "prefill":
                result = self.run_prefill(self.patched)
            else:
                result = self.of_hugging_face(decode.gate_lengths(self.batch, self.context)[lengths],
                                              self.torch.bfloat16)
            ours, noise = (decode.errors(self.torch, each, self.expected[lengths])
                           for each in (result, self.noise[lengths]))
            found[lengths] = {"errors": ours, "errors_of_bf16": noise, "off": decode.verdict(ours, noise)}
        self.model = self.plain
        return found

    def contestant(self, way, seconds):
        """Returns the function that begins a sample of a way to run, and a step. Raises the errors of that
        way."""
        model = self.patched if way in OURS else self.plain
        mode = {"reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune",
                "patched_compiled": "reduce-overhead"}.get(way)
        call = self.prefill_of(model) if self.kind == "prefill" else None
        token, position = self.tokens[0].clone(), self.torch.tensor([self.context], device=decode.DEVICE)

        def start():
            if self.kind == "decode":
                token.copy_(self.tokens[0])
                models.set_length(cache, self.context)

        if self.kind == "decode":
            cache = self.filled_cache(self.context, list(range(self.batch)), self.torch.bfloat16)
            call = models.hugging_face_step(model, cache)
        if mode is not None:
            call = self.torch.compile(call, mode=mode, fullgraph=True, dynamic=False)

        def whole():
            if mode is not None:
                self.torch.compiler.cudagraph_mark_step_begin()
            if self.kind == "prefill":
                call(self.ids)
            else:
                token.copy_(call(token, position)[0].argmax(-1))

        begun = time.monotonic()
        with decode.time_limit(seconds), self.torch.cuda.stream(self.stream):
            for _ in range(3):  # compiles, records, replays
                start()
                whole()
            self.torch.cuda.synchronize()
        print(f"{way} is ready after {time.monotonic() - begun:.0f} s", flush=True)
        if not way.endswith("_graph"):
            return start, whole
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            whole()
        self.torch.cuda.synchronize()
        return start, graph.replay


def ready(case, key, way, seconds, kept):
    """Returns the contestant, or None if it fails, and keeps a row of the failure."""
    try:
        return case.contestant(way, seconds)
    except (Exception, decode.OutOfTime) as error:
        reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:300]
        print(f"{key['problem']}: {way}: {reason}", flush=True)
        kept.keep(make_row(key, way, reason=reason))
        return None


def run_case(case, key, own, left, peer_seconds, clock, kept):
    """Keeps a row of each way to run that is left, and returns whether the gate is open and ours runs."""
    begun = time.monotonic()
    gate = case.gate_of_patched()
    print(f"{key['problem']}: tuned and gated after {time.monotonic() - begun:.0f} s", flush=True)
    if any(of_lengths["off"] for of_lengths in gate.values()):
        print(f"{key['problem']}: the gate is shut: {gate}", flush=True)
        return False
    ours = {way: ready(case, key, way, clock.left(peer_seconds), kept) for way in own}
    ours = {way: contestant for way, contestant in ours.items() if contestant is not None}
    if not ours:
        return False
    samples = case.measure(ours)
    for way, taken in samples.items():
        kept.keep(make_row(key, way, taken, gate=gate))
        print(f"{key['problem']}: {way} {statistics.median(taken):.1f} us", flush=True)
    best = min(samples, key=lambda way: statistics.median(samples[way]))
    for way in left:
        if way in OURS:
            continue
        if clock.is_over():
            print(f"{key['problem']}: {way} is left for another run", flush=True)
            continue
        peer = ready(case, key, way, clock.left(peer_seconds), kept)
        if peer is None:
            continue
        taken = case.measure({best: ours[best], way: peer})
        row = make_row(key, way, taken[way], taken[best], against=best)
        kept.keep(row)
        print(f"{key['problem']}: {best} {row['ours_us']:.1f} us, {way} {row['us']:.1f} us,"
              f" {row['ratio']:.3f}", flush=True)
        peer = None
        gc.collect()
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=MODELS, help=", ".join(models.MODELS))
    parser.add_argument("--cases", default=CASES, help="decode-BATCH and prefill-TOKENS")
    parser.add_argument("--seconds", type=float, default=10, help="of tuning per problem without a record")
    parser.add_argument("--context", type=int, default=512, help="tokens in the cache of a decode step")
    parser.add_argument("--ours", default=",".join(OURS), help=", ".join(OURS))
    parser.add_argument("--peers", default=",".join(PEERS), help=", ".join(PEERS))
    parser.add_argument("--peer-seconds", type=float, default=240, help="for one way to run to be ready in")
    parser.add_argument("--budget", type=float, help="seconds after which nothing new is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
    names, own = arguments.models.split(","), arguments.ours.split(",")
    peers = [name for name in arguments.peers.split(",") if name]
    try:
        cases = [parse_case(text) for text in arguments.cases.split(",")]
    except ValueError as error:
        parser.error(str(error))
    for given, known in ((names, models.MODELS), (own, OURS), (peers, PEERS)):
        if set(given) - set(known):
            parser.error(f"{', '.join(sorted(set(given) - set(known)))}: there are {', '.join(known)}")
    try:
        import torch
        import transformers

        import kernwright
        import kernwright.torch
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77
    device = torch.cuda.get_device_properties(0)
    kept = decode.Rows(arguments.json, {
        "bench": "model_vs_torch", "command": " ".join(["model_vs_torch.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "kernwright": kernwright.__version__,
        "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "torch": torch.__version__,
                   "transformers": transformers.__version__, "sm_count": device.multi_processor_count,
                   "cuda": torch.version.cuda}, "rows": []})
    kernwright.set_default(kernwright.Service(arguments.cache, on_miss="tune_now",
                                              tune_seconds=arguments.seconds))
    right, clock = True, Clock(arguments.budget)
    for name in names:
        for kind, number in cases:
            context = f" context={arguments.context}" if kind == "decode" else ""
            key = {"problem": f"model_vs_torch model={name} case={kind}-{number}{context}", "model": name,
                   "case": f"{kind}-{number}", "kind": kind, "seconds": arguments.seconds,
                   "date": datetime.date.today().isoformat(), "kernwright": kernwright.__version__}
            left = left_to_run(kept.document["rows"], key["problem"], [*own, *peers])
            if not left or clock.is_over():
                print(f"{key['problem']}: {'left for another run' if left else 'is there'}", flush=True)
                continue
            case, begun = None, time.monotonic()
            try:
                with torch.no_grad():
                    case = Case(torch, transformers, kernwright.torch.patch, models.MODELS[name], kind, number,
                                arguments.context)
                    print(case.report)
                    print(f"{key['problem']}: made after {time.monotonic() - begun:.0f} s", flush=True)
                    right = run_case(case, key, own, left, arguments.peer_seconds, clock, kept) and right
            except Exception:
                print(f"{key['problem']}:", flush=True)
                traceback.print_exc()
                right = False
            case = None
            torch.compiler.reset()  # what is compiled holds its cache
            gc.collect()
            torch.cuda.empty_cache()
    print(table(kept.document["rows"]))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

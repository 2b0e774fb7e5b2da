#!/usr/bin/env python3
"""Compares vLLM with and without kernwright's plug-in, each run in a process of its own, in turn.

Arms: `vllm`, as it is; `kernwright`, with the plug-in, its attention and its pass; `unfused`, without the
pass; `linear`, with its linear layers alone; `tuned`, kernwright with the records of --cache; `fp32`, vLLM in
fp32 with the same weights, not quantized, the reference for log-probabilities. All take the environment of this
program, whose variables of vLLM the result names, and its log the kernels of quantized layers. Weights are drawn
by name (weights.py). A step's span is the time from its first kernel on the GPU to its last.

usage: compare_vllm.py MODEL --json FILE [--format bf16|int4|int4_zeros|int8|fp8_rows|mxfp4|fp8|fp8_block]
                       [--arms NAME,...] [--batches N,...] [--runs N] [--seconds N] [--cache DIR] [--work DIR]
       MODEL: a folder with config.json, whose quantization_config is that of --format here; mxfp4 is gpt-oss's
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from weights import FORMATS, fill

BATCHES = "1,8,32"
PROMPT, STEPS, TOKENS = 128, 32, 128
NEW_LENGTHS = (1777, 1501, 911)
PAUSE_US = 60  # of the GPU, between two steps
MOST_PROMPT_STEPS = 8
LOG = re.compile(r"Using .*backend|(Using|Selected) \w*Kernel|Compiling a graph|Initial profiling|"
                 r"Graph capturing finished|torch.compile took|left to PyTorch|stay(s as it is| as they are)|"
                 r"is not on the shortlist")
OPERATORS = ["+rms_norm", "+silu_and_mul"]
PASSES = {"post_grad_custom_post_pass": "kernwright.plugins.fuse_graph"}
ARMS = ("vllm", "kernwright", "unfused", "linear", "tuned", "fp32")


# Pure parts, which the tests run without a GPU.

def longest_stretch(kernels):
    """Returns the length of the longest stretch without a pause, from (begin, end, name) of kernels in us."""
    longest, first, last = 0.0, None, None
    for begin, end, _ in kernels:
        if last is None or begin - last > PAUSE_US:
            first = last = begin
        last = max(last, end)
        longest = max(longest, last - first)
    return longest


def steps_of(kernels, count):
    """Returns the spans of the last `count` steps, from (begin, end, name) of kernels in us. A step ends with the
    last kernel that runs once in each, since the next may begin at once; few more steps are of the prompts. Raises
    LookupError if there is no such kernel."""
    kernels, places = sorted(kernels), {}
    for place, (_, _, name) in enumerate(kernels):
        places.setdefault(name, []).append(place)
    once = [of for of in places.values() if count < len(of) <= count + MOST_PROMPT_STEPS]
    if not once:
        raise LookupError(f"no kernel runs once in each of {count} steps")
    ends = max(once, key=lambda of: of[-1])[-count - 1:]
    return [longest_stretch(kernels[begin + 1:end + 1]) for begin, end in zip(ends, ends[1:])]


def by_kernel(kernels, steps):
    """Returns (name, us a step, launches a step) of (begin, end, name), the longest first. A kernel that starts
    early waits for those before it, so its time begins when they have ended."""
    sums, last = {}, 0.0
    for begin, end, name in sorted(kernels):
        us, count = sums.get(name, (0.0, 0))
        sums[name] = us + max(end - max(begin, last), 0.0), count + 1
        last = max(last, end)
    return sorted(([name[:120], round(us / steps, 2), round(count / steps, 2)]
                   for name, (us, count) in sums.items()), key=lambda one: -one[1])


def difference(ours, theirs):
    """Returns how far log-probabilities are apart up to the first other token, and how many were compared. Each
    is a list of texts, a text a list of steps, a step (token, {token: log-probability})."""
    apart, count, same, steps = 0.0, 0, 0, 0
    for one, other in zip(ours, theirs):
        for (token, own), (wanted, there) in zip(one, other):
            for shared in own.keys() & there.keys():
                apart, count = apart + abs(own[shared] - there[shared]), count + 1
            steps, same = steps + 1, same + (token == wanted)
            if token != wanted:
                break
    return {"mean": apart / max(count, 1), "compared": count, "steps": steps, "same_token": same}


def summary(runs):
    """Returns the medians over the runs of each arm, and their extremes."""
    found = {}
    for arm in dict.fromkeys(run["arm"] for run in runs):
        own = [run for run in runs if run["arm"] == arm and run.get("complete")]
        values = {}
        for run in own:
            for name, value in run["values"].items():
                values.setdefault(name, []).append(value)
        found[arm] = {name: {"median": statistics.median(of), "least": min(of), "most": max(of)}
                      for name, of in values.items()}
    return found


# One run.

def settings(arm, model):
    named = dict(model=model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096,
                 gpu_memory_utilization=0.6, enable_prefix_caching=False, seed=0, max_num_seqs=64)
    if arm == "fp32":
        named.update(dtype="float32", enforce_eager=True, max_num_batched_tokens=4096, gpu_memory_utilization=0.9)
    elif arm not in ("vllm", "linear"):
        passes = {} if arm == "unfused" else {"inductor_passes": PASSES}
        named.update(compilation_config={"custom_ops": OPERATORS, **passes}, attention_config={"backend": "CUSTOM"})
    return named


def quantized(model, format, work):
    """Returns a folder with the model's config.json for a format."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    if config.get("quantization_config") == FORMATS[format]:
        return model
    config.pop("quantization_config", None)
    if FORMATS[format] is not None:
        config["quantization_config"] = FORMATS[format]
    folder = work / f"{pathlib.Path(model).name}_{format}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def run_arm(arm, model, format, file, batches):
    import torch
    began = time.perf_counter()
    import vllm
    from vllm.model_executor.model_loader import dummy_loader
    result = {"arm": arm, "import_s": time.perf_counter() - began, "vllm": vllm.__version__,
              "torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "values": {}}
    values = result["values"]
    sizes = {}
    if format == "mxfp4":  # vLLM's backends round the sizes of experts up
        own = json.loads((pathlib.Path(model) / "config.json").read_text())
        sizes = {"hidden": own["hidden_size"], "inner": own["intermediate_size"]}
    dummy_loader.DummyModelLoader.load_weights = lambda _, filled, config: fill(
        filled, meaning_of=format if arm == "fp32" else None, **sizes)
    model = quantized(model, "bf16" if arm == "fp32" else format, pathlib.Path(file).parent)
    engine = vllm.LLM(**settings(arm, model))
    values["start_s"] = time.perf_counter() - began

    def save():
        pathlib.Path(file).write_text(json.dumps(result))

    def compiles():
        import kernwright
        return sum(float(line.split()[1]) for line in kernwright.metrics().splitlines()
                   if line.startswith("kernwright_compiles_total"))

    at_start = compiles() if arm not in ("vllm", "fp32") else 0
    words = engine.llm_engine.vllm_config.model_config.get_vocab_size()

    def prompts(count, length, seed):
        draw = random.Random(seed)
        return [{"prompt_token_ids": [draw.randrange(10, words - 300) for _ in range(length)]}
                for _ in range(count)]

    def generate(given, tokens, **named):
        torch.cuda.synchronize()
        start = time.perf_counter()
        answers = engine.generate(given, vllm.SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, **named), use_tqdm=False)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start), answers

    def texts(answers):
        return [[(token, {other: entry.logprob for other, entry in step.items()})
                 for token, step in zip(answer.outputs[0].token_ids, answer.outputs[0].logprobs)]
                for answer in answers]

    check = prompts(8, 16, 1)
    generate(check[:1], 4, logprobs=20)
    result["texts_1"] = [texts(generate([one], 16, logprobs=20)[1])[0] for one in check[:4]]
    result["texts_8"] = texts(generate(check, 16, logprobs=20)[1])
    result["texts_long"] = texts(generate(prompts(2, 1500, 2), 4, logprobs=20)[1])
    save()
    if arm != "fp32":
        firsts = []
        for length in NEW_LENGTHS:
            times = [generate(prompts(1, length, length + i), 1)[0] for i in range(4)]
            firsts.append(times[0] - statistics.median(times[1:]))
            values[f"first_token_{length}_ms"] = statistics.median(times[1:])
        values["first_token_of_a_new_length_more_ms"] = statistics.median(firsts)
        generate(prompts(4, 2048, 7), 1)
        values["prefill_4x2048_ms"] = statistics.median(
            generate(prompts(4, 2048, 8 + i), 1)[0] for i in range(5))
        result["kernels"] = {}
        for batch in batches:
            measure_decode(batch, prompts(batch, PROMPT, 100 + batch), generate, result)
            save()
        if arm != "vllm":
            import kernwright
            values["compiles_after_start"] = compiles() - at_start
            result["lookups"] = [str(count) for count in kernwright.lookup_counts()]
            result["metrics"] = [line for line in kernwright.metrics().splitlines() if line[:1] != "#"]
    result["complete"] = True
    save()


def measure_decode(batch, given, generate, result):
    import torch
    values = result["values"]
    generate(given, 8)
    first = statistics.median(generate(given, 1)[0] for _ in range(3))
    whole = statistics.median(generate(given, TOKENS)[0] for _ in range(3))
    values[f"tokens_a_second_{batch}"] = 1e3 * batch * (TOKENS - 1) / (whole - first)
    values[f"first_token_ms_{batch}"] = first
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        generate(given, STEPS + 1)
    kernels = [(event.time_range.start, event.time_range.end, event.name) for event in profile.events()
               if str(event.device_type).endswith("CUDA")]
    values[f"span_us_{batch}"] = statistics.median(steps_of(kernels, STEPS))
    result["kernels"][str(batch)] = by_kernel(kernels, STEPS)[:20]


# All runs.

def environment(arm, work, cache):
    own = dict(os.environ, VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
               VLLM_CACHE_ROOT=str(work / "vllm"), TRITON_CACHE_DIR=str(work / "triton"),
               KERNWRIGHT_CACHE=str(cache if arm == "tuned" else work / "kernwright"))
    own.pop("KERNWRIGHT_PLUGINS", None)
    if arm not in ("vllm", "fp32"):
        own["KERNWRIGHT_PLUGINS"] = "vllm"
    return own


def start(arm, model, format, batches, work, cache, limit):
    """Runs one process, and ends it at the limit, in seconds. Returns what it measured."""
    file, log = work / "run.json", work / f"{arm}.log"
    file.unlink(missing_ok=True)
    with open(log, "w") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, model, "--format", format, "--batches", batches, "--run", arm, "--json", str(file)],
            stdout=out, stderr=subprocess.STDOUT, env=environment(arm, work, cache), start_new_session=True)
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            status = "ended at its limit"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    run = json.loads(file.read_text()) if file.exists() else {"arm": arm, "values": {}}
    lines = log.read_text(errors="replace").splitlines()
    run["status"], run["log"] = status, [line[-200:] for line in lines if LOG.search(line)]
    if not run.get("complete"):
        run["end_of_log"] = [line[-300:] for line in lines[-25:]]
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--json", required=True)
    parser.add_argument("--format", choices=FORMATS, default="bf16")
    parser.add_argument("--arms", default="vllm,kernwright")
    parser.add_argument("--batches", default=BATCHES, help="sequences of decode steps")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3600, help="for all; a run that no longer fits is left out")
    parser.add_argument("--cache", help="the cache of the arm `tuned`")
    parser.add_argument("--work", help="where compiled code is kept between runs; empty at first")
    parser.add_argument("--run", choices=ARMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    model = str(pathlib.Path(arguments.model).resolve())
    if arguments.run:
        return run_arm(arguments.run, model, arguments.format, arguments.json,
                       [int(batch) for batch in arguments.batches.split(",")])
    began, runs, longest = time.monotonic(), [], {}
    work = pathlib.Path(arguments.work or tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    for _ in range(arguments.runs):
        for arm in arguments.arms.split(","):
            left = arguments.seconds - (time.monotonic() - began)
            if left < longest.get(arm, 30):
                continue
            at = time.monotonic()
            run = start(arm, model, arguments.format, arguments.batches, work, arguments.cache, left)
            if arm not in longest and "start_s" in run["values"]:  # nothing that it compiles is kept yet
                run["values"]["first_start_s"] = run["values"].pop("start_s")
            runs.append(run)
            longest[arm] = time.monotonic() - at
            print(arm, run["status"], f"{longest[arm]:.0f} s", json.dumps(
                {name: round(value, 2) for name, value in run["values"].items()}), flush=True)
            for line in run.get("end_of_log", []):
                print("   ", line)
            write(arguments, model, runs)
    return 0 if runs and all(run.get("complete") for run in runs) else 1


def write(arguments, model, runs):
    last = {run["arm"]: run for run in runs if "texts_long" in run}
    wanted = "fp32" if "fp32" in last else "vllm"
    apart = {f"{arm} to {wanted}, {texts}": difference(run[texts], last[wanted][texts])
             for arm, run in last.items() if arm != wanted and wanted in last
             for texts in ("texts_1", "texts_8", "texts_long")}
    apart.update({f"{arm}, batch 1 to batch 8": difference(run["texts_1"], run["texts_8"])
                  for arm, run in last.items()})
    kept = [{name: value for name, value in run.items() if not name.startswith("texts")} for run in runs]
    pathlib.Path(arguments.json).write_text(json.dumps({
        "command": "bench/engines/compare_vllm.py " + " ".join(
            [pathlib.Path(model).name, "--format", arguments.format, "--arms", arguments.arms,
             "--batches", arguments.batches, "--runs", str(arguments.runs)]),
        "environment": {name: value for name, value in os.environ.items() if name.startswith("VLLM_")},
        "summary": summary(runs), "log_probabilities": apart, "runs": kept}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

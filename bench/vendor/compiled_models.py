#!/usr/bin/env python3
"""compiled_models.py: models of Hugging Face that `patch` does not fuse, under torch.compile's max-autotune as they are
and with kernwright's passes, products and attention, at the sizes of real models with fewer layers and random weights.
Needs a GPU, PyTorch and transformers. The machine must have nothing else to do.

    peer           torch.compile(mode="max-autotune"), with the attention that the model has by default
    ours           the same with pack(), use_in_inductor(), fuse_in_inductor() and the attention "kernwright"

decode-N is one token of N sequences behind --context others, with a StaticCache; prefill-N is N tokens of one sequence.
Both are taken in turn, and each row has the median of the rounds. No figure without its gate: the error of logits
against the model in fp32 may be at most LIMIT times that of the model in bf16 as it is. Kernels are predicted, or tuned if
they are in the cache.

usage: compiled_models.py --json FILE [--models NAME,...] [--cases CASE,...] [--layers N] [--context N]
                          [--compile-seconds N] [--budget N] [--cache DIR]
"""

import argparse
import copy
import datetime
import gc
import pathlib
import sys
import time
import traceback

import model_decode as decode
import model_vs_torch as bench

CASES = "decode-1,decode-8,prefill-2048"
STEPS, ROUNDS = {"decode": 64, "prefill": 4}, 5
BARS = {"decode": 1.15, "prefill": 1.05}

# The class of the config, and its fields.
MODELS = {
    "gemma-3-4b": ("Gemma3Text", dict(
        hidden_size=2560, intermediate_size=10240, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        vocab_size=262208, sliding_window=1024, query_pre_attn_scalar=256)),
    "phi-4": ("Phi3", dict(
        hidden_size=5120, intermediate_size=17920, num_attention_heads=40, num_key_value_heads=10,
        vocab_size=100352, max_position_embeddings=16384, original_max_position_embeddings=16384)),
    "olmo-2-7b": ("Olmo2", dict(
        hidden_size=4096, intermediate_size=11008, num_attention_heads=32, num_key_value_heads=32,
        vocab_size=100352, max_position_embeddings=4096)),
    "glm-4-9b": ("Glm4", dict(
        hidden_size=4096, intermediate_size=13696, num_attention_heads=32, num_key_value_heads=2, head_dim=128,
        vocab_size=151552)),
    "gpt-oss-20b": ("GptOss", dict(
        hidden_size=2880, intermediate_size=2880, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
        vocab_size=201088, sliding_window=128, num_local_experts=32, num_experts_per_tok=4)),
    "qwen3-30b-a3b": ("Qwen3Moe", dict(
        hidden_size=2048, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
        vocab_size=151936, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True)),
}


def table(found):
    """Returns the rows of ours as text."""
    lines = ["| model | case | max-autotune, us | ours, us | speed-up | bar |", "| --- | --- | --- | --- | --- | --- |"]
    for row in found:
        cells = ["failed"] * 3 if row["ratio"] is None else [f"{row['us']:.1f}", f"{row['ours_us']:.1f}",
                                                             f"{row['ratio']:.3f}"]
        lines.append(f"| {row['model']} | {row['case']} | {' | '.join(cells)} | {BARS[row['kind']]:.2f} |")
    return "\n".join(lines)


class Case:
    """A model with random weights, as it is and on kernwright's attention, and the input of one case."""

    def __init__(self, torch, transformers, kernwright, name, layers, kind, number, context):
        self.torch, self.transformers, self.kernwright, self.kind = torch, transformers, kernwright, kind
        family, sizes = MODELS[name]
        config = getattr(transformers, f"{family}Config")(num_hidden_layers=layers, pad_token_id=0, **sizes)
        torch.manual_seed(1)
        with torch.device(decode.DEVICE):
            self.plain = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).eval()
        self.batch, tokens = (number, context) if kind == "decode" else (1, number)
        self.ids = torch.randint(1, config.vocab_size, (self.batch, tokens), device=decode.DEVICE)
        self.next = self.ids[:, :1].clone()
        self.longest = context + (ROUNDS + 2) * STEPS["decode"]
        self.expected = self.logits(self.plain)
        self.plain.to(torch.bfloat16)
        self.noise = self.errors(self.logits(self.plain))
        kernwright.torch.pack(self.plain)
        self.ours = copy.deepcopy(self.plain, {id(value): value for value in self.plain.parameters()})
        kernwright.torch.use_in_transformers()
        self.ours.set_attn_implementation("kernwright")

    def new_cache(self, model):
        """Returns a cache with the case's tokens in it."""
        cache = self.transformers.StaticCache(config=model.config, max_cache_len=self.longest)
        model(self.ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return cache

    def call_of(self, model):
        """Returns a step of the model, and what must be called before each."""
        if self.kind == "prefill":
            return (lambda: model(self.ids, past_key_values=None, use_cache=True, logits_to_keep=1).logits,
                    lambda: None)
        cache = self.new_cache(model)
        # Layers with a window count their tokens in Python too, and each number would be a CUDA graph of its own.
        counted = [(layer, layer.cumulative_length_int) for layer in cache.layers
                   if hasattr(layer, "cumulative_length_int")]

        def rewind():
            for layer, count in counted:
                layer.cumulative_length_int = count

        return lambda: model(self.next, past_key_values=cache, use_cache=True).logits, rewind

    def logits(self, model):
        return self.call_of(model)[0]()[:, -1].double()

    def errors(self, logits):
        return decode.errors(self.torch, {"logits": logits}, {"logits": self.expected})

    def contestant(self, model, is_ours, seconds):
        """Returns a step, and the errors of the first logits. Raises the errors of compiling."""
        kw = self.kernwright.torch
        call, rewind = self.call_of(model)
        call = self.torch.compile(call, mode="max-autotune", fullgraph=True)

        def step():
            rewind()
            self.torch.compiler.cudagraph_mark_step_begin()
            return call()

        kw.use_in_inductor(is_ours)
        kw.fuse_in_inductor(is_ours)
        try:
            with decode.time_limit(seconds):
                found = self.errors(step()[:, -1].double())
                for _ in range(5):  # compiles for any count, records, replays
                    step()
                self.torch.cuda.synchronize()
        finally:
            kw.use_in_inductor(False)
            kw.fuse_in_inductor(False)
        return step, found

    def sample_us(self, step):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS[self.kind]):
            step()
        end.record()
        self.torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / STEPS[self.kind]


def run_case(case, key, seconds):
    """Returns the row of a case, with a reason if it has no times."""
    steps, errors, seconds_taken = {}, {}, {}
    for way, model in (("peer", case.plain), ("ours", case.ours)):
        began = time.monotonic()
        try:
            steps[way], errors[way] = case.contestant(model, way == "ours", seconds)
        except (Exception, decode.OutOfTime) as error:
            return bench.make_row(key, "max_autotune", reason=f"{way}: {type(error).__name__}: {error}"[:300])
        seconds_taken[way] = time.monotonic() - began
    off = decode.verdict(errors["ours"], case.noise)
    gate = {"errors": errors, "errors_of_bf16": case.noise, "off": off}
    if off:
        return bench.make_row(key, "max_autotune", gate=gate, reason="the gate is shut")
    samples = {"peer": [], "ours": []}
    for round_ in range(ROUNDS):
        for way in sorted(samples, reverse=round_ % 2 == 0):
            samples[way].append(case.sample_us(steps[way]))
    return bench.make_row(key, "max_autotune", samples["peer"], samples["ours"], gate=gate, us_of_rounds=samples,
                          seconds_to_compile=seconds_taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS), help=", ".join(MODELS))
    parser.add_argument("--cases", default=CASES, help="decode-BATCH and prefill-TOKENS")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--context", type=int, default=512, help="tokens in the cache of a decode step")
    parser.add_argument("--compile-seconds", type=float, default=400, help="for one way to be ready in")
    parser.add_argument("--budget", type=float, help="seconds after which nothing new is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if set(names) - set(MODELS):
        parser.error(f"{', '.join(sorted(set(names) - set(MODELS)))}: there are {', '.join(MODELS)}")
    try:
        cases = [bench.parse_case(text) for text in arguments.cases.split(",")]
    except ValueError as error:
        parser.error(str(error))
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
        "bench": "compiled_models", "command": " ".join(["compiled_models.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "kernwright": kernwright.__version__,
        "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "torch": torch.__version__,
                   "transformers": transformers.__version__, "sm_count": device.multi_processor_count,
                   "cuda": torch.version.cuda}, "rows": []})
    kernwright.set_default(kernwright.Service(arguments.cache))
    clock = bench.Clock(arguments.budget)
    for name in names:
        for kind, number in cases:
            if clock.is_over():
                print(f"{name} {kind}-{number} is left for another run", flush=True)
                continue
            context = f" context={arguments.context}" if kind == "decode" else ""
            key = {"problem": f"compiled_models model={name} layers={arguments.layers} case={kind}-{number}{context}",
                   "model": name, "case": f"{kind}-{number}", "kind": kind, "kernwright": kernwright.__version__}
            case = None
            try:
                with torch.no_grad():
                    case = Case(torch, transformers, kernwright, name, arguments.layers, kind, number,
                                arguments.context)
                    kept.keep(run_case(case, key, clock.left(arguments.compile_seconds)))
            except Exception:
                kept.keep(bench.make_row(key, "max_autotune", reason=traceback.format_exc(limit=1)[-300:]))
                traceback.print_exc()
            case = None
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()
            print(table(kept.new[-1:]), flush=True)
    print(table(kept.new))
    return 0 if all(row["ratio"] for row in kept.new) else 1


if __name__ == "__main__":
    sys.exit(main())

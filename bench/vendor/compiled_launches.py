#!/usr/bin/env python3
"""compiled_launches.py: what the models of compiled_models.py launch in one layer under torch.compile, as they are and
with kernwright's passes. Needs PyTorch and transformers, and no GPU: Inductor writes the code for Triton, and none of it
is run.

    plain      torch.compile with the attention that the model has by default
    ours       the same with pack(), fuse_in_inductor() and the attention "kernwright"

The models have their heads and layers of all kinds, and small sizes. A layer's launches are those of a model with one
layer more. decode is one token of 2 sequences behind others, with a StaticCache that is not full; prefill is 12 tokens
of 2 sequences.

usage: compiled_launches.py [--json FILE] [--models NAME,...] [--kinds decode,prefill] [--list]
"""

import argparse
import collections
import contextlib
import datetime
import json
import pathlib
import re
import sys
from unittest import mock

from compiled_models import MODELS

SMALL = dict(vocab_size=512, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, max_position_embeddings=64, original_max_position_embeddings=64, sliding_window=32,
             query_pre_attn_scalar=32, num_local_experts=4, num_experts=4, num_experts_per_tok=2,
             moe_intermediate_size=64)
PREFILL, DECODED, LONGEST = 12, 7, 48
LAUNCH = re.compile(r"^\s*(?:\w+ = )?((?:triton_|extern_kernels\.|torch\.ops\.)[\w.]+)\(", re.MULTILINE)


class Written(Exception):
    """Inductor has written its code."""


def make_model(transformers, name, layers):
    family, sizes = MODELS[name]
    kinds = {"layer_types": ["full_attention"] * layers} if "sliding_window" in sizes else {}
    sizes = {key: SMALL.get(key, value) for key, value in sizes.items()}
    config = getattr(transformers, f"{family}Config")(num_hidden_layers=layers, pad_token_id=0, **kinds, **{
        **sizes, "max_position_embeddings": SMALL["max_position_embeddings"]})
    return getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).bfloat16().eval()


def launches(torch, transformers, kw, name, layers, kind, ours):
    """Returns the functions that the code of a step calls, in their order."""
    model = make_model(transformers, name, layers)
    cache = None
    if ours:
        kw.pack(model)
        model.set_attn_implementation("kernwright")
    if kind == "decode":
        cache = transformers.StaticCache(config=model.config, max_cache_len=LONGEST)
        model(torch.ones(2, DECODED, dtype=torch.int64), past_key_values=cache)
    codes, write = [], torch._inductor.graph.GraphLowering.codegen

    def codegen(graph):
        codes.append(write(graph)[0].value)
        raise Written

    torch.compiler.reset()
    kw.fuse_in_inductor(ours)
    step = torch.compile(lambda ids: model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits,
                         fullgraph=True)
    try:
        with mock.patch.object(torch._inductor.graph.GraphLowering, "codegen", codegen):
            step(torch.ones(2, 1 if kind == "decode" else PREFILL, dtype=torch.int64))
    except Exception:
        if not codes:
            raise
    finally:
        kw.fuse_in_inductor(False)
    code = codes[0]
    return LAUNCH.findall(code[code.index("def call("):])


def of_a_layer(*arguments):
    """Returns how many functions a layer calls, and how often each; those that Inductor writes count by what they do."""
    calls = [launches(*arguments[:4], layers, *arguments[4:]) for layers in (3, 2)]
    more, fewer = (collections.Counter(re.sub(r"_\d+\.run$|\.default$", "", call) for call in each) for each in calls)
    return len(calls[0]) - len(calls[1]), dict(more - fewer)


@contextlib.contextmanager
def without_a_gpu(torch, kernwright):
    """Inductor writes code for Triton, and tensors on the CPU count as those on a GPU."""
    from kernwright.torch import _lowered, _modules

    with (mock.patch.object(_lowered, "on_gpu", lambda tensor: True),
          mock.patch.object(_modules, "on_gpu", lambda tensor: True),
          mock.patch.object(torch.utils._triton, "triton_hash_with_backend", lambda: "none"),
          torch._inductor.config.patch(cpu_backend="triton", force_disable_caches=True, compile_threads=1)):
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kinds", default="decode,prefill")
    parser.add_argument("--list", action="store_true", help="print what each layer launches")
    arguments = parser.parse_args()
    names, kinds = arguments.models.split(","), arguments.kinds.split(",")
    for found, known in ((names, MODELS), (kinds, ("decode", "prefill"))):
        if set(found) - set(known):
            parser.error(f"{', '.join(sorted(set(found) - set(known)))}: there are {', '.join(known)}")
    try:
        import torch
        import torch._inductor.graph
        import transformers
        import triton  # noqa: F401

        import kernwright
        import kernwright.torch as kw
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    kw.use_in_transformers()
    rows = []
    print("| model | step | launches of a layer | with kernwright | of these ours |\n| --- | --- | --- | --- | --- |",
          flush=True)
    with without_a_gpu(torch, kernwright), torch.no_grad():
        for name in names:
            for kind in kinds:
                (plain, calls), (ours, our_calls) = (of_a_layer(torch, transformers, kw, name, kind, way)
                                                     for way in (False, True))
                by_us = sum(count for call, count in our_calls.items() if call.startswith("torch.ops.kernwright"))
                print(f"| {name} | {kind} | {plain} | {ours} | {by_us} |", flush=True)
                rows.append({"model": name, "kind": kind, "plain": plain, "ours": ours, "plain_calls": calls,
                             "our_calls": our_calls})
                if arguments.list:
                    for call, count in our_calls.items():
                        print(f"    {count} {call}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "bench": "compiled_launches", "command": " ".join(["compiled_launches.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(), "kernwright": kernwright.__version__,
            "torch": torch.__version__, "transformers": transformers.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

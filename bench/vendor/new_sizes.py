#!/usr/bin/env python3
"""Measures the time that a size takes which nobody asked for before: the first call and the second,
until the work is done, in milliseconds, for random sizes of six families in random order. Compares
the results with PyTorch's. The cache is new unless it is given, so nothing is tuned.

usage: new_sizes.py --json FILE [--sizes 90] [--seed 1] [--cache DIR]

Each family is asked for twice, with other sizes: "cold" and "later"."""

import argparse
import datetime
import json
import random
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

import kernwright as kw

DEVICE = "cuda"


def normal(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def families():
    """Returns name -> (greatest size, a function from a size to a call of ours and PyTorch's)."""
    weights = {(n, k): normal(n, k) / k ** 0.5 for n, k in ((6144, 4096), (4096, 14336))}
    scale = normal(4096)

    def product(n, k):
        def make(m):
            x = normal(m, k)
            return (lambda: kw.linear(x, weights[n, k])), (lambda: F.linear(x, weights[n, k]))
        return make

    def norm(rows):
        x = normal(rows, 4096)
        return (lambda: kw.rms_norm(x, scale)), (lambda: F.rms_norm(x, (4096,), scale, 1e-6))

    def gate(rows):
        x = normal(rows, 2 * 4096)
        return (lambda: kw.silu_and_mul(x)), (lambda: F.silu(x[:, :4096]) * x[:, 4096:])

    def prefill(tokens):
        q, k, v = (normal(1, heads, tokens, 128) for heads in (32, 8, 8))
        return (lambda: kw.attention(q, k, v, causal=True)), (
            lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))

    def decode(keys):
        q, k, v = normal(4, 32, 1, 128), normal(4, 8, keys, 128), normal(4, 8, keys, 128)
        return (lambda: kw.attention(q, k, v)), (
            lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))

    return {"linear 6144 x 4096": (8192, product(6144, 4096)),
            "linear 4096 x 14336": (8192, product(4096, 14336)),
            "rms_norm": (8192, norm), "silu_and_mul": (8192, gate),
            "attention, prefill": (8192, prefill), "attention, decode": (32768, decode)}


def timed(call):
    """Milliseconds of a call until its work is done, and its result."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3, result


def spread(milliseconds):
    ordered = sorted(milliseconds)
    return {"p50_ms": round(statistics.median(ordered), 3),
            "p90_ms": round(ordered[int(0.9 * len(ordered))], 3), "max_ms": round(ordered[-1], 3),
            "over_50_ms": sum(ms > 50 for ms in ordered)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--sizes", type=int, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache")
    options = parser.parse_args()
    kw.set_default(kw.Service(cache=options.cache or tempfile.mkdtemp()))
    rows, chooser = [], random.Random(options.seed)
    for name, (greatest, make) in families().items():
        sizes = set()
        while len(sizes) < 2 * options.sizes:
            even = chooser.random() < 0.5
            sizes.add(chooser.randint(1, greatest) if even
                      else round(greatest ** chooser.random()))
        order = chooser.sample(sorted(sizes), len(sizes))
        for when, part in (("cold", order[:options.sizes]), ("later", order[options.sizes:])):
            first, second, vendor, errors = [], [], [], []
            for size in part:
                ours, theirs = make(size)
                ms, result = timed(ours)
                first.append(ms)
                second.append(timed(ours)[0])
                ms, expected = timed(theirs)
                vendor.append(ms)
                errors.append(float((result.float() - expected.float()).norm()
                                    / expected.float().norm()))
            row = {"family": name, "when": when, "sizes": len(part), "first": spread(first),
                   "second": spread(second), "pytorch_first": spread(vendor),
                   "largest_error": round(max(errors), 5)}
            rows.append(row)
            ours, theirs = row["first"], row["pytorch_first"]
            print(f"{name:20} {when:5} first p50 {ours['p50_ms']:7.2f} p90 {ours['p90_ms']:8.2f} "
                  f"max {ours['max_ms']:7.1f} over 50 ms {ours['over_50_ms']:3} second "
                  f"{row['second']['p50_ms']:6.3f} PyTorch {theirs['p50_ms']:6.2f} max "
                  f"{theirs['max_ms']:7.1f} error {row['largest_error']}", flush=True)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"bench": "new_sizes", "command": " ".join(sys.argv),
                   "date": datetime.date.today().isoformat(),
                   "device": torch.cuda.get_device_name(),
                   "counts": [[count.match, count.reason, count.count] for count in kw.lookup_counts()],
                   "rows": rows}, file, indent=1)
    return 0 if all(row["largest_error"] < 0.02 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The figures, counted from bench/results/*/*.json, so that they say what was measured."""

import html
import json
import math
import re
import statistics
from typing import Callable, NamedTuple, Tuple

from documents import ROOT

_RESULTS = ROOT / "bench" / "results"
_WORKLISTS = ROOT / "bench" / "worklists"
_SKUS = {"h200": "H200", "h100": "H100"}


class Comparison(NamedTuple):
    """Rows of a results file, and the fastest of the peers that ours are compared with."""
    sku: str
    file: str
    kernels: str
    peers: Tuple[str, ...]
    peer_text: str
    select: Callable[[str], bool] = lambda problem: True
    waiting: bool = False  # ours without an early start, as the peer's are launched


def _dtype(*names):
    return lambda problem: re.search(r"dtype=(\w+)", problem)[1] in names


def _sizes(problem):
    return re.search(r"m=\d+ n=\d+ k=\d+", problem)[0]


def _listed(worklist, dtype):
    """Returns whether a problem has a size of that worklist, and nothing but its dtype beside it."""
    sizes = {_sizes(each) for each in json.loads((_WORKLISTS / worklist).read_text())["problems"]}
    return lambda problem: (re.fullmatch(rf"matmul m=\d+ n=\d+ k=\d+ dtype={dtype}", problem) is not None
                            and _sizes(problem) in sizes)


def _bare(dtype):
    return lambda problem: _dtype(dtype)(problem) and "gate=" not in problem


_CUBLASLT = "the fastest of all algorithms of cuBLASLt"
_FIRST = "cuBLASLt's first choice, which frameworks use"
_ATTENTION = ("sdpa_cudnn", "sdpa_flash", "sdpa_efficient", "flex", "cudnn_frontend")
_ATTENTION_TEXT = "the fastest of cuDNN, FlashAttention 2 and FlexAttention"
_GROUPED = ("torch_grouped_mm", "torch_mm")
_GROUPED_TEXT = "the faster of PyTorch's grouped product and products in turn"
_COMPARISONS = [
    Comparison("h200", "matmul_vs_cublaslt", "bf16 matrix products of models", ("cublaslt_best",), _CUBLASLT,
               _listed("matmul_fp16_hopper.json", "bf16")),
    Comparison("h200", "matmul_vs_cublaslt", "the same, without early starts", ("cublaslt_best",), _CUBLASLT,
               _listed("matmul_fp16_hopper.json", "bf16"), waiting=True),
    Comparison("h200", "matmul_vs_cublaslt", "the same", ("cublaslt_first",), _FIRST,
               _listed("matmul_fp16_hopper.json", "bf16")),
    Comparison("h200", "matmul_vs_cublaslt", "bf16 matrix products, those above among them", ("cublaslt_best",),
               _CUBLASLT, _dtype("bf16")),
    Comparison("h200", "matmul_vs_cublaslt", "fp16 matrix products", ("cublaslt_best",), _CUBLASLT, _dtype("fp16")),
    Comparison("h200", "matmul_vs_cublaslt", "fp8 matrix products", ("cublaslt_best",), _CUBLASLT,
               _dtype("fp8_e4m3")),
    Comparison("h200", "matmul_vs_cublaslt", "fp32 matrix products by tf32", ("cublaslt_best",), _CUBLASLT,
               _dtype("fp32")),
    Comparison("h200", "rows_vs_pytorch", "kernels of rows and elements", ("torch_compile",), "torch.compile"),
    Comparison("h200", "attention_vs_peers", "problems of attention of 16 bits", _ATTENTION, _ATTENTION_TEXT,
               _dtype("bf16", "fp16")),
    Comparison("h200", "attention_vs_peers", "problem of attention in fp8", _ATTENTION, _ATTENTION_TEXT,
               _dtype("fp8_e4m3")),
    Comparison("h200", "attention_random", "problems of attention of random sizes", _ATTENTION, _ATTENTION_TEXT),
    Comparison("h100", "matmul_random", "bf16 matrix products of random sizes", ("cublaslt_best",), _CUBLASLT),
    Comparison("h100", "matmul_random", "the same, without early starts", ("cublaslt_best",), _CUBLASLT,
               waiting=True),
    Comparison("h100", "matmul_random_seed2", "others of random sizes", ("cublaslt_best",), _CUBLASLT),
    Comparison("h100", "matmul_random_seed2", "the same, without early starts", ("cublaslt_best",), _CUBLASLT,
               waiting=True),
    Comparison("h100", "matmul_random_fp16", "fp16 matrix products of random sizes", ("cublaslt_best",), _CUBLASLT),
    Comparison("h100", "matmul_random_fp16", "the same, without early starts", ("cublaslt_best",), _CUBLASLT,
               waiting=True),
    Comparison("h100", "matmul_random_fp8", "fp8 matrix products of random sizes", ("cublaslt_best",), _CUBLASLT),
    Comparison("h100", "matmul_random_fp8", "the same, without early starts", ("cublaslt_best",), _CUBLASLT,
               waiting=True),
    Comparison("h100", "matmul_block", "fp8 matrix products with scales of blocks", ("cublaslt_best",), _CUBLASLT),
    Comparison("h100", "grouped_vs_torch", "grouped bf16 products, plain", _GROUPED, _GROUPED_TEXT, _bare("bf16")),
    Comparison("h100", "grouped_vs_torch", "grouped fp8 products, plain", _GROUPED, _GROUPED_TEXT,
               _bare("fp8_e4m3")),
    Comparison("h100", "attention_vs_peers", "problems of attention of 16 bits", _ATTENTION, _ATTENTION_TEXT,
               _dtype("bf16", "fp16")),
    Comparison("h100", "attention_vs_peers", "problem of attention in fp8", _ATTENTION, _ATTENTION_TEXT,
               _dtype("fp8_e4m3")),
]


def _results(sku, file):
    return json.loads((_RESULTS / sku / f"{file}.json").read_text())


def _speeds(comparison):
    """Returns the fastest peer's time over ours, for each problem."""
    fastest = {}
    for row in _results(comparison.sku, comparison.file)["rows"]:
        if row.get("ratio") and row["peer"] in comparison.peers and comparison.select(row["problem"]):
            key = row["problem"], row.get("class")
            ours = row.get("without_early_start_us") if comparison.waiting else None
            ratio = row["peer_us"] / ours if ours else row["ratio"]
            fastest[key] = min(ratio, fastest.get(key, math.inf))
    return sorted(fastest.values())


def _table(head, rows):
    """A table, with columns of figures aligned at their right."""
    rows = [tuple(map(str, row)) for row in rows]
    figures = [all(re.fullmatch(r"[-\d.,% ]*", row[at]) for row in rows) for at in range(len(head))]
    lines = [head, ["---:" if right else "---" for right in figures], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def row(comparison):
    speeds = _speeds(comparison)
    mean = statistics.geometric_mean(speeds)
    of_above = comparison.kernels.startswith("the same")
    return (comparison.kernels if of_above else f"{len(speeds)} {comparison.kernels}",
            comparison.peer_text, f"{mean:.2f}", f"{statistics.median(speeds):.2f}", f"{speeds[0]:.2f}",
            f"{speeds[-1]:.2f}")


def _kernels(sku):
    head = ["kernels", "compared with", "speed: geometric mean", "median", "lowest", "highest"]
    return _table(head, [row(each) for each in _COMPARISONS if each.sku == sku])


_PEERS = {"bf16": "the same chain with weights in bf16",
          "lean_graph": "a lean model in PyTorch, in a CUDA graph",
          "lean_compiled": "a lean model in PyTorch, compiled, in a CUDA graph",
          "hugging_face_compiled": "Hugging Face's model, compiled",
          "eager": "the same model unpatched",
          "eager_graph": "the same model unpatched, in a CUDA graph",
          "reduce_overhead": "the same model unpatched, compiled by `reduce-overhead`",
          "max_autotune": "the same model unpatched, compiled by `max-autotune`"}


def _models(sku):
    """Returns one line for each model, batch and peer, with the latest measurement."""
    lines = {}
    for file, text in (("model_decode", "as one chain"), ("model_vs_torch", "Hugging Face's, patched from Python")):
        if not (_RESULTS / sku / f"{file}.json").exists():
            continue
        for each in _results(sku, file)["rows"]:
            if (each.get("ratio") and each["peer"] in _PEERS and each.get("kind", "decode") == "decode"
                    and not each["problem"].endswith("unfused")):
                batch = each["batch"] if "batch" in each else int(each["case"].partition("-")[2])
                context = re.search(r"context=(\d+)", each["problem"])[1]
                lines[each["model"], text, batch, context, each["peer"]] = (
                    f"{each['model']}, {text}", batch, context, f"{each['ours_us']:.0f}", _PEERS[each["peer"]],
                    f"{each.get('peer_us') or each['us']:.0f}", f"{each['ratio']:.2f}")
    return _table(["model", "batch", "old positions", "our step, us", "compared with", "its step, us", "speed"],
                  [lines[key] for key in sorted(lines)])


def _prefills(sku):
    """Returns one line for each model, prompt and peer."""
    found = [each for each in _results(sku, "model_vs_torch")["rows"]
             if each.get("ratio") and each["kind"] == "prefill" and each["peer"] in _PEERS]
    return _table(["model", "tokens", "ours, us", "compared with", "it, us", "speed"],
                  [(f"{each['model']}, Hugging Face's, patched from Python", each["case"].partition("-")[2],
                    f"{each['ours_us']:.0f}", _PEERS[each["peer"]], f"{each['us']:.0f}", f"{each['ratio']:.2f}")
                   for each in found])


def _other():
    answers = [each["answers"] for each in _results("h100", "first_answers")["rows"]]
    slower = sorted(100 * (each[0]["us"] / each[-1]["us"] - 1) for each in answers)
    parts = ["## H100: first answers, without tuning\n",
             f"How much slower the cost model's first choice is than the winner of "
             f"{answers[0][-1]['budget_seconds']:.0f} s of tuning, on random products that nobody had seen.\n",
             _table(["products", "median", "most"],
                    [(len(slower), f"{statistics.median(slower):.0f} %", f"{slower[-1]:.0f} %")])]
    start = _results("h200", "cold_start")["rows"][0]
    stages = (("start_ms", "start of the process"), ("open_ms", "opening the service"),
              ("get_ms", "the first kernel, from the cache"), ("launch_ms", "its launch"),
              ("ours_ms", "all of it, without CUDA's context"))
    parts += ["## H200: from the start of a process to its first launch\n",
              f"Of {start['runs']} processes on a tuned cache, which load no compiler.\n",
              _table(["stage", "median, ms", "95 % of them, at most, ms"],
                     [(text, f"{start[stage]['p50']:.2f}", f"{start[stage]['p95']:.2f}") for stage, text in stages])]
    parts += ["## H100: prefills\n", _prefills("h100")]
    parts += ["## H100: what a call from Python costs the host\n",
              _table(["call", "us"], [(f"`{each['call']}`", f"{each['host_us']:.2f}")
                                      for each in _results("h100", "python_call")["rows"]])]
    return parts


def _decode_speeds():
    """Decode steps of patched models beside the same models under reduce-overhead."""
    return sorted(each["ratio"] for each in _results("h100", "model_vs_torch")["rows"]
                  if each["peer"] == "reduce_overhead" and each["kind"] == "decode")


# The bars of the first page, from _COMPARISONS, by SKU, file and words.
_BARS = [("h200", "matmul_vs_cublaslt", "bf16 matrix products of models"),
         ("h100", "matmul_random", "bf16 matrix products of random sizes"),
         ("h200", "matmul_vs_cublaslt", "fp8 matrix products"),
         ("h100", "grouped_vs_torch", "grouped bf16 products, plain"),
         ("h200", "attention_vs_peers", "problems of attention of 16 bits"),
         ("h200", "attention_vs_peers", "problem of attention in fp8"),
         ("h200", "rows_vs_pytorch", "kernels of rows and elements")]
_END = 2.4  # of the axis


def chart():
    """Bars of the geometric means, each with a line over the middle 80 % of its problems."""
    bars = []
    for bar in _BARS:
        found = next(each for each in _COMPARISONS if (each.sku, each.file, each.kernels) == bar)
        bars.append((found.kernels, found.peer_text, _SKUS[found.sku], _speeds(found)))
    bars.append(("decode steps of models patched from Python", "the same models under `reduce-overhead`",
                 "H100", _decode_speeds()))
    lines = []
    for kernels, peer, sku, speeds in bars:
        mean = statistics.geometric_mean(speeds)
        low, high = (speeds[round((len(speeds) - 1) * share)] for share in (0.1, 0.9))
        name, peer = (html.escape(each.replace("`", "")) for each in (f"{len(speeds)} {kernels}", peer))
        spread = "" if low == high else (f'<b style="left: {100 * low / _END:.1f}%; '
                                         f'right: {100 - 100 * min(high, _END) / _END:.1f}%"></b>')
        lines.append(
            f'<div class="speed"><span>{name}<small>{sku}, beside {peer}</small></span>'
            f'<span class="speed-bar" style="--one: {100 / _END:.1f}%">'
            f'<i{"" if mean >= 1 else " class=slower"} style="width: {100 * mean / _END:.1f}%"></i>'
            f"{spread}</span><strong>{mean:.2f}</strong></div>")
    return ('<div class="speeds">\n' + "\n".join(lines) + "\n</div>\n\n"
            "*Speed beside the fastest peer, as geometric means: at the dashed line, 1, both are "
            "equally fast. The thin lines span the middle 80 % of the problems.*\n")


def headlines():
    """Returns the README's words about them."""
    products, rows = (next(each for each in _COMPARISONS if each.kernels == kernels)
                      for kernels in ("bf16 matrix products of models", "kernels of rows and elements"))
    decodes = _decode_speeds()
    return [f"{row(products)[0]} on an H200 are {row(products)[2]} times as fast as {products.peer_text}, and "
            f"{row(rows)[0]} {row(rows)[2]} times as fast as {rows.peer_text}",
            f"Hugging Face's Llama-3.2-1B and Qwen3-8B, patched by one call, decode {decodes[0]:.2f} to "
            f"{decodes[-1]:.2f} times as fast on an H100 as under torch.compile's `reduce-overhead`"]


def _products(form, columns):
    """Every product of a form beside cuBLASLt: columns are (head, field, peer)."""
    found = {}
    for each in _results("h200", "matmul_vs_cublaslt")["rows"]:
        match = re.fullmatch(r"matmul m=(\d+) n=(\d+) k=(\d+) " + form, each["problem"])
        if match:
            sizes = " ".join(match.groups("")).replace("  ", " ").strip()
            found.setdefault(sizes, {})[each["peer"]] = each

    def text(value):
        if value is None:
            return ""
        return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"

    return _table(["m n k", *(head for head, _, _ in columns)],
                  [(f"`{sizes}`", *(text(peers.get(peer, {}).get(field)) for _, field, peer in columns))
                   for sizes, peers in found.items()])


_BESIDE_BEST = [("ours", "ours_us", "cublaslt_best"), ("cuBLASLt best", "peer_us", "cublaslt_best"),
                ("ratio", "ratio", "cublaslt_best")]
_WAITING = ("waiting", "without_early_start_us", "cublaslt_best")


def _bf16_products():
    return _products("dtype=bf16", [
        _BESIDE_BEST[0], _WAITING, _BESIDE_BEST[1], ("first", "ratio", "cublaslt_first"),
        ("best", "ratio", "cublaslt_best"), ("persistent", "persistent_us", "cublaslt_best"),
        ("not", "non_persistent_us", "cublaslt_best")])


def _selection_error():
    pooled = {}
    for each in _results("simulation", "selection_error")["rows"]:
        pooled.setdefault((each["model"], each["origin"]), []).append(each)

    def share(rows, field):
        trials = sum(each[field]["of"] for each in rows)
        return f"{100 * sum(each[field]['share'] * each[field]['of'] for each in rows) / trials:.2f}"

    def worst(rows, field):
        row = max(rows, key=lambda each: each[field]["share"])
        share_of_it = row[field]["share"]
        return f"{row['space']} {100 * share_of_it:.2f}" if share_of_it else "0"

    return _table(["model", "spaces", "> 1 %", "> 2 %", "trust A", "A: > 1 %", "A: > 2 %",
                   "worst: > 2 %", "worst, A: > 2 %"],
                  [(*key, share(rows, "wrong_1"), share(rows, "wrong_2"),
                    f"{100 * statistics.mean(each['trust_a'] for each in rows):.0f}",
                    share(rows, "trust_a_wrong_1"), share(rows, "trust_a_wrong_2"),
                    worst(rows, "wrong_2"), worst(rows, "trust_a_wrong_2"))
                   for key, rows in pooled.items()])


def _strategy_regret():
    rows = _results("simulation", "strategy_regret_h200")["rows"]
    strategies = ["portfolio", "ranked", "local_search", "random", "exhaustive"]
    medians = {each["problem"]: f"{each['n99_median']:.0f}" for each in rows}
    spaces = dict.fromkeys(each["problem"].rpartition(" ")[0] for each in rows)
    return _table(["space", *strategies],
                  [(space, *(medians[f"{space} {each}"] for each in strategies))
                   for space in spaces])


def _cost_regret():
    counts = (1, 8, 16, 32)

    def line(each):
        def cells(prefix):
            found = (each.get(f"{prefix}{count}") for count in counts)
            return [f"{ratio:.3f}" if ratio else "-" for ratio in found]
        best = each.get("final_best_us")
        return (each["problem"], f"{each['candidates']:,}", *cells("first_"),
                f"{best:.2f}" if best else "-", *cells("final_first_"))

    return _table(["problem", "candidates", *(f"screened: {each}" for each in counts),
                   "best of the finals, us", *(f"finals: {each}" for each in counts)],
                  map(line, _results("simulation", "cost_regret")["rows"]))


def _tuning_seconds():
    fields = {"slower than the best, median": "slower_median", "p90": "slower_p90", "most": "slower_most",
              "behind 30 s, p90": "behind_p90", "estimate, median": "estimate", "covers": "covered",
              "hardly looked": "hardly_looked"}
    rows = _results("simulation", "tuning_seconds")["rows"]
    return _table(["searches", "measured", *fields],
                  [(each["problem"], f"{each['measured']:.0f}",
                    *(f"{100 * each[field]:.1f} %" for field in fields.values()))
                   for each in rows if each["problem"].startswith("all ")])


# How the steps of a decode step may follow each other, by the arms of the bench `boundaries`.
_ARMS = {"stream": "launches on a stream",
         "graph": "a CUDA graph",
         "programmatic_start": "a graph with programmatic edges, trigger at the start",
         "programmatic_middle": "the same, trigger in the middle",
         "programmatic_start_shared":
             "the same, trigger at the start, first weights in shared memory before the wait",
         "persistent_red": "one persistent kernel, barrier by counters (red.release, ld.acquire)",
         "persistent_red_ring": "the same, weights through a ring that runs ahead",
         "persistent_data": "one persistent kernel, data that carries its flag",
         "persistent_data_ring": "the same, weights through a ring"}


def _boundaries():
    passes = {"nothing passed": "nothing", "8 KB passed to all blocks": "8 KB",
              "and 2.2 MB of weights": "8 KB weights=2.2 MB", "and 8.7 MB": "8 KB weights=8.7 MB",
              "and 34.6 MB": "8 KB weights=34.6 MB"}
    steps = {each["problem"]: each["step_us"] for each in _results("h200", "boundaries")["rows"]}

    def cell(arm, passed):
        us = steps.get(f"steps count=225 passes={passed} arm={arm}")
        return "" if us is None else f"{us:.2f}"

    return _table(["how steps follow each other", *passes],
                  [(text, *(cell(arm, passed) for passed in passes.values()))
                   for arm, text in _ARMS.items()])


# The generated parts of documents of the repository, by the name in <!-- generated: NAME -->.
TABLES = {
    "boundaries": _boundaries,
    "h200 products in bf16": _bf16_products,
    "h200 products in tf32": lambda: _products("dtype=fp32 tf32=allow", _BESIDE_BEST),
    "h200 products in fp16": lambda: _products(
        "dtype=fp16", [_BESIDE_BEST[0], _WAITING, *_BESIDE_BEST[1:]]),
    "h200 products in fp8": lambda: _products(
        "dtype=fp8_e4m3 out=bf16( accumulate=fast)?", _BESIDE_BEST),
    "selection error": _selection_error,
    "strategy regret": _strategy_regret,
    "cost regret": _cost_regret,
    "tuning seconds": _tuning_seconds,
}


def reference():
    parts = []
    for sku, name in _SKUS.items():
        parts += [f"## {name}: kernels\n", _kernels(sku), f"## {name}: decode steps of whole models\n", _models(sku)]
    return "\n".join([*parts, *_other()])

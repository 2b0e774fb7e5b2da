#!/usr/bin/env python3
"""Prints the worklist that data wheels are swept over: the problems of all models in configs/ and in the
example's, on one GPU, with 1 to 8192 tokens in powers of two. A sweep takes them in this order and may be
stopped at any time, so the problems that are asked for most come first.

    make_worklist.py [TOOL] > models.json      TOOL: the program kernwright, by default build/bin/kernwright"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIGS = [ROOT / "src/python/data/configs", ROOT / "src/examples/decode/configs"]
# A record answers for half and for twice as many keys, but not across 512, 4096 and 32768: these have
# an answer for every number from 256 on. See `kv_len` in templates/attention/operation.json.
CONTEXTS = (1024, 4096, 8192, 512, 32768)
# Keys of all sequences together; a larger cache does not fit on one GPU beside a model.
MOST_KEYS = 1 << 20
#: The models whose decoder layers kernwright.torch.patch fuses.
FUSED = ("llama", "mistral", "qwen2", "qwen3")
#: Of these the ones that normalise heads of q and k, in one kernel with rope.
NORMALISING = ("qwen3",)
#: Rows of a product that normalises them itself, and those that engines leave to the plug-ins.
MOST_NORMALISED_ROWS, MOST_ENGINE_ROWS = 16, 32
# Steps in the order in which they are swept: sequences that decode, or tokens of a prompt.
STEPS = [("decode", 1), ("decode", 16), ("prefill", 2048), ("decode", 8), ("decode", 4), ("decode", 2),
         ("prefill", 1024), ("prefill", 4096), ("decode", 32), ("prefill", 512), ("decode", 64),
         ("prefill", 8192), ("decode", 128), ("prefill", 256), ("prefill", 128), ("decode", 256),
         ("prefill", 64), ("prefill", 32), ("decode", 512), ("prefill", 16), ("prefill", 8),
         ("prefill", 4), ("prefill", 2)]
TOKENS = sorted({tokens for _, tokens in STEPS})
# How many steps later the problems come that engines ask for, each further context, and all the
# rest.
LATER_ENGINES, LATER_CONTEXT, LATER_OTHERS = 6, 8, 100


def run(tool, path, *options):
    """Returns what `worklist` prints of a configuration."""
    ran = subprocess.run([tool, "worklist", str(path), *options], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return ran.stdout


class Model:
    """A configuration, and who asks for which of its problems."""

    def __init__(self, tool, path):
        self.path = path
        values = json.loads(run(tool, path, "--values", "type,hidden,vocabulary,experts,q_columns,"
                                "k_columns,inner,layers"))
        self.fused, self.normalises_heads = values["type"] in FUSED, values["type"] in NORMALISING
        self.hidden, self.vocabulary = values["hidden"], values["vocabulary"]
        self.experts = values["experts"]
        self.qkv = values["q_columns"] + 2 * values["k_columns"]
        # The approximate number of its weights, to order models by.
        inner = values["inner"] * max(self.experts, 1)
        self.weights = values["layers"] * self.hidden * (self.hidden + inner)

    def problems(self, tool, tokens):
        """Yields its problems with these tokens, each as text and as words by name."""
        listed = run(tool, self.path, "--tokens", str(tokens),
                     "--contexts", ",".join(map(str, CONTEXTS)))
        for text in json.loads(listed)["problems"]:
            operation, *words = text.split()
            problem = {"operation": operation, **dict(word.split("=") for word in words)}
            if int(problem.get("batch", 1)) * int(problem.get("kv_len", 1)) <= MOST_KEYS:
                yield text, problem

    def is_patched(self, kind, tokens, problem):
        """Returns true if a step of the model asks for it after kernwright.torch.patch has patched
        the model."""
        operation = problem["operation"]
        if operation == "attention":
            appends = "append" in problem and problem.get("layout") == "bhsd"
            return self.fused and (appends if kind == "decode" else
                                   "lengths" not in problem and tokens > 1)
        if operation == "rmsnorm":
            of_heads = int(problem["columns"]) != self.hidden
            return "residual" not in problem and not (self.fused and of_heads)
        if operation in ("rope", "kv_append"):
            appends = "append" in problem or "cache" in problem
            return (self.fused and kind == "prefill" and not appends
                    and (operation == "kv_append") == self.normalises_heads)
        if operation != "matmul" or "out" in problem:
            return False
        n = int(problem["n"])
        if n == self.vocabulary:
            return kind == "decode"
        if not self.fused:
            return n not in (self.qkv, self.experts) and not problem.keys() & {
                "residual", "split", "gate"}
        normalises = tokens <= MOST_NORMALISED_ROWS
        return "residual" in problem or (("split" in problem or "gate" in problem)
                                         and ("norm" in problem) == normalises)

    def is_of_engine(self, tokens, problem):
        """Returns true if an engine asks for it by a plug-in."""
        operation = problem["operation"]
        if operation == "matmul":
            return tokens <= MOST_ENGINE_ROWS and not problem.keys() & {
                "residual", "split", "gate", "norm", "out"}
        return operation == "gated_activation" or (operation == "rmsnorm" and "residual" in problem)

    def place(self, kind, tokens, problem):
        """Returns its place in the order, the lower the earlier."""
        step = STEPS.index((kind, tokens))
        if self.is_patched(kind, tokens, problem):
            # First the problems that patched models ask for, with one context, and then with the
            # others.
            context = int(problem["kv_len"]) if "append" in problem else CONTEXTS[0]
            return step + LATER_CONTEXT * CONTEXTS.index(context)
        if self.is_of_engine(tokens, problem):
            return step + LATER_ENGINES
        return step + LATER_OTHERS


def main():
    tool = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/bin/kernwright")
    models = sorted((Model(tool, path) for folder in CONFIGS for path in folder.glob("*.json")),
                    key=lambda model: model.weights)
    places = {}
    for number, model in enumerate(models):
        for tokens in TOKENS:
            for text, problem in model.problems(tool, tokens):
                for kind in ("decode", "prefill"):
                    if (kind, tokens) in STEPS:
                        place = (model.place(kind, tokens, problem), number, len(places))
                        places[text] = min(places.get(text, place), place)
    problems = sorted(places, key=places.get)
    lines = ",\n".join(f"  {json.dumps(problem)}" for problem in problems)
    print(f'{{"problems": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()

"""Measures what the guards of a patched model cost at each call, on the host: microseconds for a decode step of
36 layers, and for a module alone. Needs PyTorch and transformers, and no GPU.

    PYTHONPATH=build/python python3 bench/vendor/patch_guards.py"""

import time

import torch
import transformers
from kernwright import torch as kw
from kernwright.torch import _modules

_modules.on_gpu = lambda tensor: True


def microseconds(holds, module):
    """The least of many short runs, since other programs run too."""
    best = float("inf")
    for _ in range(3000):
        begin = time.perf_counter()
        for _ in range(3):
            assert holds(module)
        best = min(best, (time.perf_counter() - begin) / 3)
    return best * 1e6


def main():
    for family in ("Llama", "Qwen3"):
        config = getattr(transformers, f"{family}Config")(
            hidden_size=64, num_hidden_layers=36, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, intermediate_size=96, vocab_size=50)
        model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16).eval()
        kw.patch(model.requires_grad_(False))
        for name, module in (("36 layers", model.model), ("a layer", model.model.layers[0]),
                             ("a linear layer", model.lm_head)):
            print(f"{family}, {name}: {microseconds(module._kernwright.holds, module):.2f} us")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The purpose of an installed data package: products and models that it was swept for need neither a compiler
nor tuning, and are right. Skips if there is no package for the GPU."""

import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw
from kernwright import _data

TOOL = os.path.join(os.path.dirname(kw.__file__), "bin", "kernwright")
MOST_PRODUCTS = 12
ROWS = (1, 3, 29, 700, 2047)


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def families_of(folder):
    """The problems with ranges that have records below an unpacked bundle, as words by name."""
    listed = subprocess.run([TOOL, "cache", "list", "--json", "--cache", folder], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    for family in json.loads(listed)["families"]:
        operation, *words = family["key"]["problem"].split()
        yield {"operation": operation, **dict(word.split("=") for word in words)}


@unittest.skipIf(NO_GPU, NO_GPU)
class DataPackageGpuTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.service = kw.Service(folder.name, on_miss="fail")
        sku = re.search(r'kernwright_records_info{.*sku="(.*)"}', self.service.metrics())[1]
        self.packages = [package for package in _data.data_folders()
                         if any(pathlib.Path(package, "v1", "records").glob(f"*/{sku}"))]
        if not self.packages:
            self.skipTest(f"there is no data package for {sku}")
        self.service.seal()

    def no_compiles(self):
        for name in ("kernwright_compiles_total", "kernwright_compiles_after_ready_total"):
            self.assertIn(f"{name} 0", self.service.metrics())

    def all_were_measured(self):
        self.assertLessEqual({count.match for count in self.service.lookup_counts()},
                             {"exact", "family"})

    def test_products_are_right_at_their_first_call(self):
        plain = {"operation", "m", "n", "k", "dtype", "residual"}
        products = [problem for package in self.packages for problem in families_of(package)
                    if problem["operation"] == "matmul" and problem["dtype"] == "bf16"
                    and problem.keys() <= plain and ".." in problem["m"]]
        self.assertTrue(products)
        for m, problem in itertools.product(ROWS, products[:MOST_PRODUCTS]):
            n, k = int(problem["n"]), int(problem["k"])
            x, weight = randn(m, k), randn(n, k) * k ** -0.5
            residual = randn(m, n) if "residual" in problem else None
            with self.subTest(m=m, n=n, k=k), self.service:
                result = kw.linear(x, weight, residual=residual)
                wide = x.float() @ weight.float().t() + (0 if residual is None else residual)
                self.assertLess((result - wide).abs().max().item(), 0.01 * wide.abs().max().item())
        self.no_compiles()
        self.all_were_measured()

    def test_a_patched_model_decodes_and_reads_a_prompt(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        import kernwright.torch
        # Two layers of Qwen3-8B, and of Llama-3.1-8B.
        sizes = dict(hidden_size=4096, num_hidden_layers=2, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=128, max_position_embeddings=40960)
        for model, config in (
                (transformers.Qwen3ForCausalLM, transformers.Qwen3Config(
                    intermediate_size=12288, vocab_size=151936, **sizes)),
                (transformers.LlamaForCausalLM, transformers.LlamaConfig(
                    intermediate_size=14336, vocab_size=128256, **sizes))):
            with self.subTest(model=model.__name__), torch.device("cuda"):
                torch.manual_seed(1)
                self.check_patched(model._from_config(config, dtype=torch.bfloat16).eval(), config)
        self.no_compiles()
        self.all_were_measured()

    def check_patched(self, model, config):
        import transformers
        model.requires_grad_(False)

        def run(batch):
            cache = transformers.StaticCache(config=config, max_cache_len=1024)
            cache.early_initialization(batch_size=batch, num_heads=8, head_dim=128,
                                       dtype=torch.bfloat16, device="cuda")
            step = torch.arange(batch, device="cuda").view(batch, 1)
            prompt = torch.arange(1000 + batch, device="cuda").view(1, -1)
            with torch.no_grad():
                decoded = [model(step + i, past_key_values=cache).logits for i in range(3)]
                return torch.cat([*decoded, model(prompt, logits_to_keep=1).logits]).float()

        expected = {batch: run(batch) for batch in (1, 5, 16, 40)}
        self.assertEqual(kw.torch.patch(model).left, [])
        with self.service:
            for batch, right in expected.items():
                self.assertLess(((run(batch) - right).norm() / right.norm()).item(), 0.03)


if __name__ == "__main__":
    unittest.main()

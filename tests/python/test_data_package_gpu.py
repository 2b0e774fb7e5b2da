#!/usr/bin/env python3
"""The purpose of an installed data package: products and models that it was swept for need neither a compiler
nor tuning, and are right. Skips if there is no package for the GPU."""

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


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def problems_of(folder):
    """The problems with records below an unpacked bundle, as words by name."""
    listed = subprocess.run([TOOL, "cache", "list", "--json", "--cache", folder], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    for record in json.loads(listed)["records"]:
        operation, *words = record["problem"].split()
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

    def test_products_are_right_at_their_first_call(self):
        plain = {"operation", "m", "n", "k", "dtype", "residual"}
        products = [problem for package in self.packages for problem in problems_of(package)
                    if problem["operation"] == "matmul" and problem["dtype"] == "bf16"
                    and problem.keys() <= plain]
        self.assertTrue(products)
        for problem in products[::max(1, len(products) // MOST_PRODUCTS)]:
            m, n, k = (int(problem[name]) for name in "mnk")
            x, weight = random(m, k), random(n, k) * k ** -0.5
            residual = random(m, n) if "residual" in problem else None
            with self.subTest(m=m, n=n, k=k), self.service:
                result = kw.linear(x, weight, residual=residual)
                wide = x.float() @ weight.float().t() + (0 if residual is None else residual)
                self.assertLess((result - wide).abs().max().item(), 0.01 * wide.abs().max().item())
        self.no_compiles()
        self.assertEqual({count.match for count in self.service.lookup_counts()}, {"exact"})

    def test_a_patched_model_decodes_and_reads_a_prompt(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        import kernwright.torch
        config = transformers.Qwen3Config(
            hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960)
        torch.manual_seed(1)
        model = transformers.Qwen3ForCausalLM(config).to("cuda", torch.bfloat16).eval()
        model.requires_grad_(False)

        def run(batch):
            cache = transformers.StaticCache(config=config, max_cache_len=1024)
            cache.early_initialization(batch_size=batch, num_heads=8, head_dim=128,
                                       dtype=torch.bfloat16, device="cuda")
            step = torch.arange(batch, device="cuda").view(batch, 1)
            prompt = torch.arange(2048, device="cuda").view(1, 2048)
            with torch.no_grad():
                decoded = [model(step + i, past_key_values=cache).logits for i in range(3)]
                return torch.cat([*decoded, model(prompt, logits_to_keep=1).logits]).float()

        expected = {batch: run(batch) for batch in (1, 16)}
        self.assertEqual(kw.torch.patch(model).left, [])
        with self.service:
            for batch, right in expected.items():
                self.assertLess(((run(batch) - right).norm() / right.norm()).item(), 0.03)
        self.no_compiles()


if __name__ == "__main__":
    unittest.main()

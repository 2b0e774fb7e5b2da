#!/usr/bin/env python3
"""Operators on a GPU: what they give beside direct calls; scaled and grouped products under torch.compile
and in CUDA graphs, against PyTorch in fp64; and mixtures of experts that kernwright.torch.patch has put on
them, against the same models in fp32."""

import copy
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

try:
    import torch
    from torch.nn import functional
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"
try:
    import transformers
    NO_MODELS = ""
except ImportError:
    NO_MODELS = "transformers is not installed"

if not NO_GPU:
    import kernwright
    import kernwright.torch as kw
    from kernwright.torch.ops import define

BLOCK = 128


def random(*shape, seed=0, dtype=None, scale=1.0):
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator, device="cuda") * scale).to(dtype or torch.bfloat16)


def relative(result, expected):
    return float((result.double() - expected.double()).norm() / expected.double().norm())


def in_blocks(scales, rows, columns, of_rows):
    """Scales of blocks for every element, in fp64."""
    of_rows = scales.double().repeat_interleave(of_rows, -2)[..., :rows, :]
    return of_rows.repeat_interleave(BLOCK, -1)[..., :columns]


def mixture(x, weights, down, offs):
    inner = kw.grouped_matmul(x, weights.transpose(1, 2), offs, activation="silu", gated=True)
    return kw.grouped_matmul(inner, down.transpose(1, 2), offs, out=torch.zeros_like(x))


def exact_mixture(x, weights, down, offs):
    result = torch.zeros_like(x, dtype=torch.float64)
    ends = offs.tolist()
    for group, (begin, end) in enumerate(zip([0, *ends], ends)):
        gate, other = (x[begin:end].double() @ weights[group].double().t()).chunk(2, -1)
        inner = (functional.silu(gate) * other).bfloat16().double()  # as it is handed on
        result[begin:end] = inner @ down[group].double().t()
    return result


def mixture_of_fp8(x, weights, scale_x, scale_weights, offs):
    return kw.grouped_matmul(x, weights.transpose(1, 2), offs, scale_a=scale_x.t(),
                             scale_b=scale_weights.transpose(1, 2))


def exact_mixture_of_fp8(x, weights, scale_x, scale_weights, offs):
    wide = x.double() * in_blocks(scale_x.t(), *x.shape, 1)
    every = weights.double() * in_blocks(scale_weights, *weights.shape[1:], BLOCK)
    ends = offs.tolist()
    return torch.cat([wide[begin:end] @ every[group].t()
                      for group, (begin, end) in enumerate(zip([0, *ends], ends))])


def scaled(x, weight, scale_x, scale_weight, bias):
    whole = kw.scaled_matmul(x, weight.t(), 0.5, 0.25, bias=bias)
    return kw.scaled_matmul(x, weight.t(), scale_x.t(), scale_weight.t(), residual=whole)


def exact_scaled(x, weight, scale_x, scale_weight, bias):
    whole = (x.double() @ weight.double().t() * 0.125 + bias.double()).bfloat16().double()
    return whole + (x.double() * in_blocks(scale_x.t(), *x.shape, 1)) @ (
        weight.double() * in_blocks(scale_weight, *weight.shape, BLOCK)).t()


@unittest.skipIf(NO_GPU, NO_GPU)
class OperatorsGpuTest(unittest.TestCase):
    def test_operators_give_what_direct_calls_give(self):
        x, weight, bias = random(6, 256), random(512, 256, scale=1 / 16), random(512)
        norm, gate = random(256, seed=1), random(6, 512)
        q, k, v = random(2, 4, 9, 64), random(2, 2, 16, 64), random(2, 2, 16, 64, seed=1)
        token, new = random(2, 1, 4, 64), random(2, 1, 2, 64)
        angles = torch.rand(16, 32, device="cuda")
        lengths = torch.tensor([5, 16], device="cuda", dtype=torch.int32)
        out = torch.empty(6, 512, device="cuda", dtype=torch.bfloat16)
        calls = [
            lambda: kw.linear(x, weight, bias, activation="silu", residual=gate),
            lambda: kw.linear(x, weight, out=out).clone(),
            lambda: kw.matmul(x, weight.t(), bias=bias.float(), out_dtype=torch.float32),
            lambda: kw.matmul(x, weight.t(), residual=gate, out=out).clone(),
            lambda: kw.gated_linear(x, weight),
            lambda: kw.gated_linear(x, weight, norm, eps=1e-5),
            lambda: kw.qkv_linear(x, weight, bias, norm, kv_heads=2, head_dim=64, eps=1e-5),
            lambda: kw.rms_norm(x, norm, 1e-5), lambda: kw.rms_norm(x),
            lambda: kw.rms_norm(x, norm, 1e-5, residual=x),
            lambda: kw.layer_norm(x, norm, norm, 1e-4), lambda: kw.layer_norm(x, norm, residual=x),
            lambda: kw.silu_and_mul(gate), lambda: kw.gelu_and_mul(gate, approximate="tanh"),
            lambda: kw.silu_mul(x, x), lambda: kw.softmax(gate, scale=0.5, causal=True),
            lambda: kw.softmax(gate, mask=gate),
            lambda: kw.rope(token[0], new[0], angles[:1], angles[1:2], interleaved=True),
            lambda: kw.norm_rope(random(2, 16, 4, 64), random(2, 16, 2, 64), random(2, 16, 2, 64),
                                 norm[:64], norm[64:128], angles, angles, eps=1e-5),
            lambda: kw.attention(q, k, v, causal=True, softcap=20.0, kv_lengths=lengths.clamp(min=9)),
            lambda: kw.attention(q, k, v, window=4, scale=0.2, sinks=norm[:4].float(), return_lse=True),
            lambda: kw.append_attention(token, k.clone(), v.clone(), new, new, lengths, angles, angles,
                                        norm[:64], norm[64:128], eps=1e-5),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i):
                direct = call()
                with mock.patch.object(define, "_PLAIN", ()):
                    self.assertFalse(define._direct(x))
                    through = call()
                both = [each if isinstance(each, tuple) else (each,) for each in (direct, through)]
                self.assertEqual(len(both[0]), len(both[1]))
                for one, other in zip(*both):
                    self.assertTrue(torch.equal(one, other))
                    self.assertEqual(one.stride(), other.stride())

    def test_heads_are_normalised_and_rotated(self):
        for batch, tokens, heads, kv_heads, head_dim in ((1, 300, 32, 8, 128), (3, 17, 4, 4, 64)):
            q, k, v = (random(batch, tokens, count, head_dim, seed=count + i)
                       for i, count in enumerate((heads, kv_heads, kv_heads)))
            norms = random(head_dim, seed=1), random(head_dim, seed=2)
            angles = torch.rand(tokens, head_dim // 2, device="cuda") * 6
            found = kw.norm_rope(q, k, v, *norms, angles.cos(), angles.sin(), eps=1e-5)
            cos, sin = (table.double()[:, None] for table in (angles.cos(), angles.sin()))
            for result, given, norm in zip(found, (q, k), norms):
                wide = given.double()
                wide = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.double()
                one, other = wide.chunk(2, -1)
                exact = torch.cat((one * cos - other * sin, other * cos + one * sin), -1)
                self.assertLess((result.double() - exact).abs().max().item(),
                                2.0 ** -8 * exact.abs().max().item())
                self.assertLess(relative(result, exact), 0.003)
            self.assertTrue(torch.equal(found[2], v))


@unittest.skipIf(NO_GPU, NO_GPU)
class CompiledProductsGpuTest(unittest.TestCase):
    """A result may be off by the roundoff of bf16, twice where one product feeds the next."""

    def cases(self, seed):
        ends = torch.tensor([[0, 40, 40, 100], [10, 10, 64, 100]][seed % 2], device="cuda",
                            dtype=torch.int32)
        fp8 = dict(seed=seed, dtype=torch.float8_e4m3fn)

        def scales(*shape):
            return random(*shape, seed=seed, dtype=torch.float32).abs() + 0.5

        yield mixture, exact_mixture, (random(112, 256, seed=seed), random(4, 512, 256, scale=1 / 16),
                                       random(4, 256, 256, scale=1 / 16), ends)
        yield mixture_of_fp8, exact_mixture_of_fp8, (
            random(100, 384, **fp8), random(4, 256, 384, **fp8), scales(3, 100), scales(4, 2, 3), ends)
        yield scaled, exact_scaled, (random(100, 384, **fp8), random(256, 384, **fp8), scales(3, 100),
                                     scales(2, 3), random(256, seed=seed))

    def expect_right(self, result, exact, arguments):
        self.assertLess(relative(result, exact(*arguments)), 0.01)

    def test_without_graph_breaks(self):
        for mode in ("default", "reduce-overhead"):
            torch.compiler.reset()
            for call, exact, arguments in self.cases(0):
                compiled = torch.compile(call, fullgraph=True, mode=mode)
                with self.subTest(f"{mode} {call.__name__}"), torch.no_grad():
                    for _ in range(4):  # reduce-overhead records its graph in the second
                        result = compiled(*arguments)
                    self.expect_right(result, exact, arguments)
                    self.assertTrue(torch.equal(result, call(*arguments)))

    def test_a_capture_computes_anew_from_what_its_inputs_have(self):
        for (call, exact, arguments), (_, _, others) in zip(self.cases(0), self.cases(1)):
            for form in ("plain", "compiled"):
                torch.compiler.reset()
                step = call if form == "plain" else torch.compile(call, fullgraph=True)
                kept = [argument.clone() for argument in arguments]
                with self.subTest(f"{form} {call.__name__}"), torch.no_grad():
                    step(*kept)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        result = step(*kept)
                    for given in (others, arguments):
                        for place, value in zip(kept, given):
                            place.copy_(value)
                        graph.replay()
                        torch.cuda.synchronize()
                        self.expect_right(result, exact, given)

    def test_numbers_of_rows_that_a_compiler_does_not_know(self):
        torch.compiler.reset()
        compiled = torch.compile(mixture, fullgraph=True, dynamic=True)
        weights, down = random(4, 512, 256, scale=1 / 16), random(4, 256, 256, scale=1 / 16)
        for rows in (16, 48):
            ends = torch.tensor([0, 9, rows - 3, rows], device="cuda", dtype=torch.int32)
            arguments = random(rows, 256), weights, down, ends
            with torch.no_grad():
                self.expect_right(compiled(*arguments), exact_mixture, arguments)

    def test_gradients_and_wrong_calls_are_refused(self):
        _, _, (x, weights, _, ends) = next(self.cases(0))
        with self.assertRaisesRegex(kernwright.Error, "grouped_matmul has no backward"):
            kw.grouped_matmul(x.requires_grad_(), weights.transpose(1, 2), ends)
        x = x.detach()
        for call in (kw.grouped_matmul, torch.compile(kw.grouped_matmul, fullgraph=True)):
            with self.assertRaisesRegex(Exception, "offs is int64, and int32 expected"):
                call(x, weights.transpose(1, 2), ends.long())


SIZES = dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
             intermediate_size=128, vocab_size=512, max_position_embeddings=256)
# Every expert is chosen, since a choice among them may hang on roundoff.
MIXTURES = {
    "Qwen3Moe": dict(num_experts=8, num_experts_per_tok=8, moe_intermediate_size=128),
    "Mixtral": dict(num_local_experts=8, num_experts_per_tok=8, sliding_window=None),
}
BATCH, PROMPT, STEPS = 2, 24, 4


@unittest.skipIf(NO_GPU or NO_MODELS, NO_GPU or NO_MODELS)
class MixturesGpuTest(unittest.TestCase):
    def model(self, family):
        torch.manual_seed(3)
        config = getattr(transformers, f"{family}Config")(**SIZES, **MIXTURES[family])
        model = getattr(transformers, f"{family}ForCausalLM")(config).cuda().eval().requires_grad_(False)
        for name, value in model.named_parameters():
            if "norm" in name:
                value.uniform_(0.5, 1.5)
            else:
                value.normal_(0, value.shape[-1] ** -0.5)
            value.copy_(value.bfloat16())
        return model

    def logits(self, model, ids, step=None):
        """Of the last token of a prompt, and of what follows it token by token."""
        cache = transformers.StaticCache(config=model.config, max_cache_len=64)
        cache.early_initialization(batch_size=BATCH, num_heads=2, head_dim=64, device="cuda",
                                   dtype=next(model.parameters()).dtype)
        found = [model(ids[:, :PROMPT], past_key_values=cache).logits[:, -1].clone()]
        for i in range(PROMPT, PROMPT + STEPS):
            token = ids[:, i:i + 1].clone()
            given = (model if step is None else step)(token, past_key_values=cache)
            found.append(given.logits[:, -1].clone())
        return torch.stack(found)

    def test_logits_of_patched_mixtures(self):
        ids = torch.randint(512, (BATCH, PROMPT + STEPS), device="cuda",
                            generator=torch.Generator("cuda").manual_seed(4))
        for family in MIXTURES:
            torch.compiler.reset()
            wide = self.model(family)
            model = copy.deepcopy(wide).bfloat16()
            with self.subTest(family), torch.no_grad():
                exact = self.logits(wide, ids)
                noise = relative(self.logits(model, ids), exact)
                report = kw.patch(model)
                self.assertTrue(all(row.replaced for row in report.rows), str(report))
                patched = self.logits(model, ids)
                compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead", dynamic=False)
                again = self.logits(model, ids, step=compiled)
                print(f"{family}: off from fp32 by {noise:.4f} in bf16, {relative(patched, exact):.4f} "
                      f"patched, {relative(again, exact):.4f} compiled")
                self.assertLess(noise, 0.05)
                self.assertLess(relative(patched, exact), 1.5 * noise)
                self.assertLess(relative(again, exact), 1.5 * noise)
                report.undo()
                self.assertLess(relative(self.logits(model, ids), exact), 1.1 * noise)

    def test_experts_of_a_whole_prompt_in_a_capture(self):
        model = self.model("Qwen3Moe").bfloat16()
        experts = model.model.layers[0].mlp.experts
        index = torch.stack([torch.randperm(8, device="cuda")[:2] for _ in range(200)])
        shares = torch.rand(200, 2, device="cuda").bfloat16()
        x = random(200, 256)
        with torch.no_grad():
            expected = experts(x, index, shares)
            kw.patch(model, ops=("experts",))
            experts(x, index, shares)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = experts(x, index, shares)
            graph.replay()
            torch.cuda.synchronize()
            self.assertLess(relative(result, expected), 0.01)
            index.copy_(index.flip(0))
            x.copy_(x.flip(0))
            shares.copy_(shares.flip(0))
            graph.replay()
            torch.cuda.synchronize()
            self.assertLess(relative(result, expected.flip(0)), 0.01)


# Models whose decode steps the passes of torch.compile fuse, and prompts.
DECODED = {
    "Llama": {}, "Qwen3": {}, "Phi3": dict(original_max_position_embeddings=256, head_dim=None), "Olmo2": dict(head_dim=None),
    "Glm4": {}, "Gemma3Text": dict(sliding_window=48, query_pre_attn_scalar=64,
                                   layer_types=["sliding_attention", "full_attention"]),
    "GptOss": dict(sliding_window=48, num_local_experts=4, num_experts_per_tok=4),
    "Qwen3Moe": dict(num_experts=8, num_experts_per_tok=8, moe_intermediate_size=128)}


@unittest.skipIf(NO_GPU or NO_MODELS, NO_GPU or NO_MODELS)
class CompiledStepsGpuTest(unittest.TestCase):
    def model(self, family):
        torch.manual_seed(3)
        sizes = {name: value for name, value in {**SIZES, "pad_token_id": 0, **DECODED[family]}.items()
                 if value is not None}
        config = getattr(transformers, f"{family}Config")(**sizes)
        model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
        model = model.cuda().eval().requires_grad_(False)
        for name, value in model.named_parameters():
            if "norm" in name:
                value.uniform_(0.5, 1.5)
            elif value.dim() > 1:
                value.normal_(0, value.shape[-1] ** -0.5)
            value.copy_(value.bfloat16())
        return model

    def logits(self, model, ids, compiled=False):
        """Returns the logits of a prompt and of the tokens behind it, and the caches."""
        cache = transformers.StaticCache(config=model.config, max_cache_len=64)

        def prompt(tokens):
            return model(tokens, use_cache=True).logits

        def step(token):
            return model(token, past_key_values=cache).logits

        if compiled:
            prompt, step = (torch.compile(call, fullgraph=True, mode=mode)
                            for call, mode in ((prompt, None), (step, "reduce-overhead")))
        found = [prompt(ids[:, :PROMPT]).clone()]
        model(ids[:, :PROMPT], past_key_values=cache)
        for i in range(PROMPT, PROMPT + STEPS):
            torch.compiler.cudagraph_mark_step_begin()
            found.append(step(ids[:, i:i + 1].clone()).clone())
        return torch.cat(found, 1), [part.clone() for layer in cache.layers for part in (layer.keys, layer.values)]

    def expect_right(self, family):
        ids = torch.randint(1, 512, (BATCH, PROMPT + STEPS), device="cuda",
                            generator=torch.Generator("cuda").manual_seed(4))
        kw.use_in_transformers()
        torch.compiler.reset()
        wide = self.model(family)
        model = copy.deepcopy(wide).bfloat16()
        with torch.no_grad():
            exact, exact_caches = self.logits(wide, ids)
            plain, plain_caches = self.logits(model, ids)
            kw.pack(model)
            model.set_attn_implementation("kernwright")
            left = kernwright._fallbacks.counts["operator append_attention"]
            kw.fuse_in_inductor()
            try:
                ours, our_caches = self.logits(model, ids, compiled=True)
            finally:
                kw.fuse_in_inductor(False)
        self.assertEqual(kernwright._fallbacks.counts["operator append_attention"], left)
        noise = relative(plain, exact)
        print(f"{family}: off from fp32 by {noise:.4f} in bf16, {relative(ours, exact):.4f} compiled")
        self.assertLess(relative(ours, exact), 1.5 * noise)
        for one, other, right in zip(our_caches, plain_caches, exact_caches):
            self.assertLess(relative(one, right), 1.5 * relative(other, right) + 1e-6)

    def test_counters_that_disagree_write_nothing(self):
        """In a process of its own, since the assertion ends the use of the device."""
        program = """
import sys
import torch, transformers
import kernwright.torch as kw
sys.path.insert(0, sys.argv[1])
import test_compiled_gpu as test
model = test.CompiledStepsGpuTest().model("Llama").bfloat16()
kw.use_in_transformers()
model.set_attn_implementation("kernwright")
cache = transformers.StaticCache(config=model.config, max_cache_len=64)
with torch.no_grad():
    model(torch.ones(1, 7, dtype=torch.int64, device="cuda"), past_key_values=cache)
    kw.fuse_in_inductor()
    step = torch.compile(lambda ids: model(ids, past_key_values=cache).logits, fullgraph=True)
    token = torch.ones(1, 1, dtype=torch.int64, device="cuda")
    step(token)
    torch.cuda.synchronize()
    cache.layers[1].cumulative_length.add_(1)
    print("begins", flush=True)
    step(token)
    torch.cuda.synchronize()
    print("ended", flush=True)
"""
        done = subprocess.run([sys.executable, "-c", program, str(pathlib.Path(__file__).parent)],
                              capture_output=True, text=True)
        self.assertIn("begins", done.stdout, done.stderr)
        self.assertNotIn("ended", done.stdout)
        self.assertIn("assert", done.stderr)


for _family in DECODED:
    setattr(CompiledStepsGpuTest, f"test_steps_of_{_family}",
            lambda self, family=_family: self.expect_right(family))


if __name__ == "__main__":
    unittest.main()

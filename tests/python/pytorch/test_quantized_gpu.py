#!/usr/bin/env python3
"""Quantized weights on a GPU: what pack_weights writes against the same in plain PyTorch, and products
against PyTorch in fp64."""

import itertools
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

if not NO_GPU:
    import kernwright.torch as kw
    from checkpoints import Layer
    from kernwright.torch._quantized import GatedWeight
    from kernwright.torch.ops.quantized_products import quantized_gated_linear


def made(layer, device):
    """The weight of every format that can have the layer."""
    def on(tensors):
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    if layer.n % 8 == 0:
        yield kw.QuantizedWeight.from_gptq(**on(layer.gptq()), bits=layer.bits, group=layer.group)
        if layer.bits == 4 and torch.equal(layer.groups, layer.groups.sort().values):
            yield kw.QuantizedWeight.from_awq(**on(layer.awq()), group=layer.group)
    yield kw.QuantizedWeight.from_compressed_tensors(**on(layer.compressed_tensors()), bits=layer.bits,
                                                     group=layer.group, weight_g_idx=layer.groups.int().to(device))


@unittest.skipIf(NO_GPU, NO_GPU)
class QuantizedGpu(unittest.TestCase):
    def test_packed_bytes_are_those_of_plain_pytorch(self):
        for (n, k), group, bits, ordered in itertools.product(
                [(72, 232), (1000, 520), (65, 136)], [32, 64, 128], [4, 8], [False, True]):
            dtype = torch.float16 if group == 64 else torch.bfloat16
            layer = Layer(n, k, group, bits, scale=dtype, ordered=ordered, symmetric=n == 1000)
            for ours, plain in zip(made(layer, "cuda"), made(layer, "cpu"), strict=True):
                for name, tensor in plain.named_buffers():
                    self.assertTrue(torch.equal(getattr(ours, name).cpu(), tensor), (layer.__dict__, name))
                exact = layer.weight().to(dtype)
                self.assertTrue(torch.equal(ours.dequantize(dtype).cpu(), exact), layer.__dict__)

    def test_products(self):
        for rows, (n, k), ordered in itertools.product((1, 16, 100), [(72, 232), (1000, 520)], (False, True)):
            layer = Layer(n, k, 64, scale=torch.bfloat16, ordered=ordered)
            x, bias, residual = (torch.randn(size, device="cuda").bfloat16() for size in ((rows, k), n, (rows, n)))
            expected = torch.nn.functional.silu(x.double() @ layer.weight().t().cuda() + bias.double()) + residual.double()
            compiled = torch.compile(lambda x, weight: kw.quantized_linear(
                x, weight, bias, activation="silu", residual=residual), fullgraph=True)
            for weight in made(layer, "cuda"):
                with torch.no_grad():
                    for result in (kw.quantized_linear(x, weight, bias, activation="silu", residual=residual),
                                   compiled(x, weight)):
                        error = (result.double() - expected).norm() / expected.norm()
                        self.assertLess(float(error), 0.01)

    def test_gated_products_and_their_parts(self):
        for rows, (n, k), bits, ordered in itertools.product((1, 16, 100), [(72, 232), (1000, 520)], (4, 8), (False, True)):
            both = [Layer(n, k, 64, bits, scale=torch.bfloat16, ordered=ordered, symmetric=i == 1) for i in range(2)]
            both[1].groups = both[0].groups
            weights = [list(made(layer, "cuda"))[-1] for layer in both]
            gated, x = GatedWeight.join(*weights), torch.randn((rows, k), device="cuda").bfloat16()
            gate, up = (x.double() @ layer.weight().t().cuda() for layer in both)
            expected = torch.nn.functional.silu(gate) * up
            with torch.no_grad():
                error = (quantized_gated_linear(x, gated).double() - expected).norm() / expected.norm()
            self.assertLess(float(error), 0.01)
            for i, weight in enumerate(weights):
                for (name, one), (_, other) in zip(weight.named_buffers(), gated.part(i).named_buffers(), strict=True):
                    self.assertTrue(torch.equal(one, other), (n, k, bits, name))

    def test_norms_and_gates_quantize_for_products_of_8_bits(self):
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError:
            self.skipTest("transformers is not installed")
        torch.manual_seed(2)
        model = LlamaForCausalLM(LlamaConfig(
            hidden_size=512, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, intermediate_size=1024,
            vocab_size=1000)).bfloat16().cuda().eval()
        for dtype in (torch.int8, torch.float8_e4m3fn):
            with torch.no_grad():
                for layer in model.model.layers:
                    for part in (layer.self_attn, layer.mlp):
                        for name, own in list(part.named_children()):
                            if name.endswith("_proj"):
                                weight = own.weight
                                weight = weight if isinstance(weight, torch.Tensor) else weight.dequantize()
                                setattr(part, name, kw.QuantizedLinear(kw.QuantizedRows.from_float(weight, dtype)))
                for tokens in (1, 7, 300):
                    ids = torch.arange(tokens, device="cuda")[None]
                    plain = model(ids).logits.double()
                    report = kw.patch(model, ("rms_norm", "swiglu", "decoder_layer"))
                    self.assertEqual(sum(row.op == "decoder_layer" for row in report.replaced), 2, str(report))
                    result = model(ids).logits.double()
                    report.undo()
                    self.assertLess(float((result - plain).norm() / plain.norm()), 0.1, (dtype, tokens))

    def test_experts(self):
        draw = torch.Generator().manual_seed(3)
        for experts, rows, k, top in (5, 136, 96, 2), (32, 5760, 2880, 4), (48, 200, 320, 1):
            blocks = torch.randint(0, 256, (experts, rows, k // 32, 16), generator=draw).to(torch.uint8)
            scales = torch.randint(119, 124, (experts, rows, k // 32), generator=draw).to(torch.uint8)
            bias = torch.randn(experts, rows, generator=draw).bfloat16()
            given = blocks, scales, bias
            plain = kw.QuantizedExperts.from_mxfp4(*given, gate="interleaved")
            ours = kw.QuantizedExperts.from_mxfp4(*(part.cuda() for part in given), gate="interleaved")
            for name, tensor in plain.named_buffers():
                self.assertTrue(torch.equal(getattr(ours, name).cpu(), tensor), (rows, name))
            for tokens in (1, 7, 64):
                of = torch.randint(0, experts, (tokens * top,), generator=draw).sort().values
                ends = torch.bincount(of, minlength=experts).cumsum(0).int().cuda()
                row_of = torch.randint(0, tokens, (tokens * top,), generator=draw).int().cuda()
                x = torch.randn(tokens, k, generator=draw).bfloat16().cuda()
                row_scale = torch.rand(tokens * top, generator=draw).cuda()
                result = kw.quantized_grouped_matmul(x, ours, ends, row_of=row_of, row_scale=row_scale,
                                                     activation="swiglu_oai")
                weight = ours.dequantize(torch.bfloat16).double()
                sums = torch.stack([x[row].double() @ weight[expert].t() + ours.bias[expert].double()
                                    for row, expert in zip(row_of.tolist(), of.tolist())])
                gate, up = sums.chunk(2, 1)
                gate = gate.clamp(max=7)
                expected = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7, 7) + 1) * row_scale[:, None]
                error = (result.double() - expected).norm() / expected.norm()
                self.assertLess(float(error), 0.01, (experts, tokens))


if __name__ == "__main__":
    unittest.main(verbosity=2)

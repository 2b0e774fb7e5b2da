"""The weights in int4 of bench/vendor/decode_models.py, which bf16 holds exactly."""

import dataclasses
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "bench" / "vendor"))
import decode_models as models  # noqa: E402

SIZES = dataclasses.replace(models.MODELS["qwen3-8b"], hidden=256, heads=4, kv_heads=2, head_dim=64, inner=384)


def test_packed_weights_are_those_that_the_other_ways_read():
    draw = torch.Generator().manual_seed(1)
    drawn = {name: torch.randn(shape, generator=draw).bfloat16() * shape[1] ** -0.5
             for name, shape in SIZES.matrices().items()}
    layer = {name: matrix.clone() for name, matrix in drawn.items()}
    views = {name: matrix[:64] for name, matrix in layer.items()}  # as Hugging Face's model has them
    packed, = models.quantize(torch, SIZES, {"layers": [layer]})
    for name, weight in packed.items():
        rows = weight.dequantize(torch.float32)
        if name == "gate_up":  # packed rows take turns: eight gates and the eight that they open
            rows = rows.unflatten(0, (-1, 2, 8)).transpose(0, 1).reshape(rows.shape)
        assert torch.equal(rows, layer[name].float()), name
        assert torch.equal(views[name], layer[name][:64])
        assert weight.group == models.GROUP and weight.scales.dtype is torch.bfloat16
        error = (layer[name].float() - drawn[name].float()).norm() / drawn[name].float().norm()
        assert 0.05 < error < 0.15
        assert len(layer[name].flatten().unique()) > 100

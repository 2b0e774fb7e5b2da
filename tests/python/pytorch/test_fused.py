"""What decode steps and prefills fuse: the problem of each call, and that its kernel takes the arrays as they
lie, up to the launch."""

import fakes
import pytest
from kernwright.torch import _fused


class Array(fakes.TorchTensor):
    def new_empty(self, shape, dtype):
        name = next(name for name, names in fakes.DTYPES.items() if f"torch.{names[3]}" == str(dtype))
        return Array(*shape, dtype=name)


STEP = [Array(2, 1, 8, 64), Array(2, 2, 96, 64), Array(2, 2, 96, 64), Array(2, 1, 2, 64),
        Array(2, 1, 2, 64), Array(2, dtype="int32"), Array(96, 32, dtype="fp32"),
        Array(96, 32, dtype="fp32")]


@pytest.mark.parametrize("call, arguments, problem", [
    (_fused.silu_mul, (Array(5, 64), Array(5, 64)), "gated_activation rows=5 columns=64 dtype=bf16"),
    (_fused.gated_linear, (Array(2, 1, 256), Array(128, 256), Array(256), "silu", 1e-6),
     "matmul m=2 n=64 k=256 dtype=bf16 norm=rms activation=silu gate=stacked"),
    (_fused.qkv_linear, (Array(2, 7, 256), Array(768, 256), None, None, 2, 64, 1e-6),
     "matmul m=14 n=768 k=256 n_kv=128 dtype=bf16 split=qkv"),
    (_fused.qkv_linear, (Array(2, 1, 256), Array(768, 256), Array(768), Array(256), 2, 64, 1e-6),
     "matmul m=2 n=768 k=256 n_kv=128 dtype=bf16 norm=rms split=qkv bias=column"),
    (_fused.norm_rope, (Array(2, 7, 8, 64), Array(2, 7, 2, 64), Array(2, 7, 2, 64), Array(64), Array(64),
                        Array(7, 32, dtype="fp32"), Array(7, 32, dtype="fp32")),
     "kv_append batch=2 kv_heads=2 heads=8 q_len=7 kv_len=7 head_dim=64 dtype=bf16 rope=qk norm=rms"),
    (_fused.append_attention, STEP,
     "attention batch=2 heads=8 kv_heads=2 q_len=1 kv_len=96 head_dim=64 dtype=bf16 layout=bhsd "
     "lengths=kv append=rope"),
    (_fused.append_attention, (*STEP, Array(64), Array(64)),
     "attention batch=2 heads=8 kv_heads=2 q_len=1 kv_len=96 head_dim=64 dtype=bf16 layout=bhsd "
     "lengths=kv append=norm_rope"),
])
def test_problems(planned, call, arguments, problem):
    assert planned(call, *arguments) == problem


@pytest.mark.parametrize("call, arguments, reason", [
    (_fused.silu_mul, (Array(5, 64), Array(4, 64)), "up has the shape"),
    (_fused.qkv_linear, (Array(2, 256), Array(128, 256), None, None, 1, 64, 1e-6),
     "those of q, and 2 * 1 heads of 64"),
    (_fused.norm_rope, (Array(2, 7, 8, 64), *[Array(2, 7, 2, 64)] * 2, *[Array(64)] * 2,
                        *[Array(14, 32, dtype="fp32")] * 2), "cos has the shape (14, 32), and (7, 32)"),
    (_fused.append_attention, (Array(2, 3, 8, 64), *STEP[1:]), "one token of each of the 2"),
    (_fused.append_attention, (STEP[0], Array(2, 96, 64), *STEP[2:]), "k has 3 dimensions"),
    (_fused.append_attention, (Array(2, 1, 8, 64, dtype="fp16"), *STEP[1:]), "one dtype expected"),
])
def test_refusals(refused, call, arguments, reason):
    assert reason in refused(call, *arguments)

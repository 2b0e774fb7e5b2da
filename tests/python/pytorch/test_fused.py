"""What decode steps and prefills fuse: the problem of each call, and that its kernel takes the arrays as they
lie, up to the launch."""

import math

import fakes
import kernwright
import pytest
from kernwright.torch import _fused

Array = fakes.TorchTensor
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
     "matmul m=2 n=768 k=256 n_kv=128 dtype=bf16 norm=rms bias=column split=qkv"),
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


def stacked(*shapes, gap=0, **named):
    """Arrays of which each begins where the one before ends, and `gap` elements further on."""
    arrays, first, offset = [], Array(1, **named), 0
    for shape in shapes:
        arrays.append(first.like(shape, fakes.contiguous(shape), offset))
        offset += math.prod(shape) + gap
    return tuple(arrays)


QKV = (512, 256), (128, 256), (128, 256)


@pytest.mark.parametrize("call, arguments, problem", [
    (_fused.gated_linear, (Array(2, 1, 256), stacked((64, 256), (64, 256)), None, "silu", 1e-6),
     "matmul m=2 n=64 k=256 dtype=bf16 activation=silu gate=stacked"),
    (_fused.qkv_linear, (Array(2, 1, 256), stacked(*QKV), stacked((512,), (128,), (128,)), None, 2,
                         64, 1e-6),
     "matmul m=2 n=768 k=256 n_kv=128 dtype=bf16 bias=column split=qkv"),
])
def test_members_that_lie_together_are_read_as_one(planned, call, arguments, problem):
    assert planned(call, *arguments) == problem


@pytest.mark.parametrize("members", [
    stacked(*QKV, gap=8), stacked(*QKV)[::-1], (*stacked(*QKV)[:2], Array(128, 256)),
    (*stacked(*QKV)[:2], Array(128, 256, address=stacked(*QKV)[0].address, dtype="fp16")),
    tuple(Array(*shape, device=device, address=array.address) for array, shape, device in zip(
        stacked(*QKV), QKV, (0, 0, 1)))])
def test_members_that_lie_apart_are_read_by_nobody(service, members):
    with service:
        assert _fused.qkv_linear(Array(2, 1, 256), members, None, None, 2, 64,
                                 1e-6) is NotImplemented


def test_sizes_of_members_are_told_apart(service, planned):
    """Though they are the same as one."""
    call = Array(2, 1, 256), None, None, "silu", 1e-6
    planned(_fused.gated_linear, call[0], stacked((64, 256), (64, 256)), *call[2:])
    with service, pytest.raises(kernwright.Error, match="72 rows of up, and 56 expected"):
        _fused.gated_linear(call[0], stacked((56, 256), (72, 256)), *call[2:])


def test_tuples_are_no_arrays_of_operations(service):
    with service, pytest.raises(kernwright.Error, match="weight is a tuple"):
        kernwright.linear(Array(2, 256), stacked((64, 256), (64, 256)))


@pytest.mark.parametrize("call, arguments, reason", [
    (_fused.silu_mul, (Array(5, 64), Array(4, 64)), "up has the shape"),
    (_fused.qkv_linear, (Array(2, 256), Array(128, 256), None, None, 1, 64, 1e-6),
     "those of q, and 2 * 1 heads of 64"),
    (_fused.norm_rope, (Array(2, 7, 8, 64), *[Array(2, 7, 2, 64)] * 2, *[Array(64)] * 2,
                        *[Array(14, 32, dtype="fp32")] * 2), "cos has the shape [14, 32], and [7, 32]"),
    (_fused.append_attention, (Array(2, 3, 8, 64), *STEP[1:]), "one token of each of the 2"),
    (_fused.append_attention, (STEP[0], Array(2, 96, 64), *STEP[2:]), "k has 3 dimensions"),
    (_fused.append_attention, (Array(2, 1, 8, 64, dtype="fp16"), *STEP[1:]), "one dtype expected"),
])
def test_refusals(refused, call, arguments, reason):
    assert reason in refused(call, *arguments)

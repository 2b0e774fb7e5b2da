"""Attention with masks and biases: PyTorch's results on the CPU, and the problem of each call; and
scaled_dot_product_attention with PyTorch's own samples and masks of all kinds."""

import contextlib
import json

import pytest
import torch
from torch.nn import functional as F

import kernwright
from kernwright import _kernwright
from kernwright import torch as kw
from kernwright._service import asking
from kernwright.torch.ops import define

from sdpa_samples import masked_samples, named, own_samples


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


Q, K = meta(2, 4, 3, 8), meta(2, 4, 5, 8)


class Recorder(define._Contracts):
    """Asks for the problems of calls whose arrays would be on a GPU."""

    def __init__(self):
        super().__init__(strict=True)
        self.problem = None

    def bind(self, _, options, tensors, scalars):
        binding = json.loads(_kernwright.bind(None, options, tensors, scalars))
        if binding["refusal"]:
            raise kernwright._arrays.make_error(binding["refusal"])
        self.problem = binding["problem"]
        raise define._Fit


@pytest.fixture
def problem_of(monkeypatch):
    """Returns the problem whose kernel a call launches if its tensors are on a GPU."""
    def problem(call, *arguments, **named):
        recorder = Recorder()
        monkeypatch.setattr("kernwright.torch.ops.sequences._direct", lambda *_: True)
        monkeypatch.setattr("kernwright.torch.ops.sequences._attention",
                            kw.ops.sequences._our_attention)
        with asking(recorder), contextlib.suppress(define._Fit):
            call(*arguments, **named)
        return recorder.problem
    return problem


@pytest.mark.parametrize("named, text", [
    ({"seen": meta(3, 5, dtype=torch.bool)}, "bias_batch=1 bias_heads=1 {} bias=boolean"),
    ({"seen": meta(2, 1, 1, 8, dtype=torch.bool)[..., :5]},
     "bias_heads=1 bias_q=1 ldbias_batch=8 {} bias=boolean"),
    ({"seen": meta(2, 1, 3, 5, dtype=torch.bool).expand(2, 4, 3, 5), "window": 2},
     "window=2 bias_heads=1 {} mask=window bias=boolean"),
    ({"bias": meta(2, 4, 3, 5), "return_lse": True}, "{} bias=additive lse=natural"),
    ({"bias": meta(4, 1, 5, dtype=torch.float32), "causal_first": True},
     "bias_batch=1 bias_q=1 {} bias_dtype=fp32 mask=causal_first bias=additive"),
    ({"causal_first": True}, "{} mask=causal_first")])
def test_masks_and_biases_are_part_of_the_problem(problem_of, named, text):
    problem = problem_of(kw.attention, Q, K, K, **named)
    sizes, _, flags = text.partition("{}")
    expected = f"attention batch=2 heads=4 q_len=3 kv_len=5 head_dim=8 {sizes}dtype=bf16{flags}"
    assert set(problem.split()) == set(expected.split()) | {"layout=bhsd"}


def test_the_first_of_as_many_queries_as_keys_is_the_last_of_one(problem_of):
    first = problem_of(kw.attention, Q, Q, Q, causal_first=True)
    assert first == problem_of(kw.attention, Q, Q, Q, causal=True)


@pytest.mark.parametrize("named, text", [
    ({"seen": meta(4, 5, dtype=torch.bool)}, "an entry for each sequence, head and query"),
    ({"seen": meta(2, 3, 3, 5, dtype=torch.bool)}, "an entry for each sequence, head and query"),
    ({"bias": meta(3, 5, dtype=torch.float16)}, "has the dtype of q or is fp32"),
    ({"seen": meta(3, 5)}, "seen"),
    ({"seen": meta(3, 5, dtype=torch.bool), "bias": meta(3, 5)}, "seen|bias"),
    ({"causal_first": True, "causal": True}, "causal_first and causal are given"),
    ({"causal_first": True, "window": 3}, "causal_first and window are given")])
def test_what_no_kernel_takes_is_refused(problem_of, named, text):
    with pytest.raises(kernwright.Error, match=text):
        problem_of(kw.attention, Q, K, K, **named)


def test_pytorch_computes_the_same_with_masks():
    generator = torch.Generator().manual_seed(1)

    def new(*shape):
        return torch.randn(*shape, generator=generator)

    q, k, v = new(2, 4, 9, 64), new(2, 2, 21, 64), new(2, 2, 21, 72)
    causal = torch.ones(9, 21, dtype=torch.bool).tril(12)
    for shape in [(9, 21), (2, 1, 9, 21), (2, 4, 9, 21), (4, 1, 21)]:
        seen = torch.rand(*shape, generator=generator) < 0.7
        seen[..., 0] = True
        for named, mask in [({"seen": seen}, seen), ({"seen": seen, "causal": True}, seen & causal)]:
            wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
            torch.testing.assert_close(kw.attention(q, k, v, **named), wanted)
        bias = new(*shape)
        wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
        torch.testing.assert_close(kw.attention(q, k, v, bias=bias), wanted)
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(kw.attention(q, k, v, causal_first=True), wanted)


@pytest.mark.parametrize("hidden", [False, -torch.inf, torch.finfo(torch.float32).min])
def test_a_query_that_sees_no_key_has_a_result_of_zero(hidden):
    q, k = torch.ones(1, 2, 3, 8), torch.ones(1, 2, 5, 8)
    mask = torch.ones(3, 5, dtype=torch.bool) if hidden is False else torch.zeros(3, 5)
    mask[1] = hidden
    named = {"seen" if hidden is False else "bias": mask}
    result, lse = kw.attention(q, k, k, return_lse=True, **named)
    assert (result[:, :, 1] == 0).all() and (lse[:, :, 1] == -torch.inf).all()
    torch.testing.assert_close(result[:, :, ::2], torch.ones(1, 2, 2, 8))


# scaled_dot_product_attention


def samples(dtype):
    try:
        return own_samples("cpu", dtype) + masked_samples("cpu", dtype)
    except ImportError as error:
        pytest.skip(f"PyTorch's samples need a package: {error}")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_sample_without_dropout_has_a_problem(problem_of, dtype):
    kept = dropped = 0
    problems = set()
    for arguments, options in samples(dtype):
        if options.get("dropout_p", 0) > 0:
            with pytest.raises(kernwright.Error, match="dropout_p is 0.5, and no kernel drops"):
                kw.scaled_dot_product_attention(*arguments, **options)
            dropped += 1
            continue
        problem = problem_of(kw.scaled_dot_product_attention, *arguments, **options)
        kept += 1
        problems.add(problem)
        assert problem.startswith("attention "), named(arguments, options)
    assert kept >= 13 + 41 and dropped >= 12 and len(problems) >= 20


def test_pytorchs_own_samples_have_kernels(problem_of, compiler):
    try:
        calls = own_samples("cpu", torch.bfloat16)
    except ImportError as error:
        pytest.skip(f"PyTorch's samples need a package: {error}")
    problems = {problem_of(kw.scaled_dot_product_attention, *arguments, **options)
                for arguments, options in calls if options.get("dropout_p", 0) == 0}
    for problem in problems:
        assert str(compiler.kernel(problem).problem) == problem
    assert len(problems) >= 4


def test_pytorch_computes_the_same():
    for arguments, options in samples(torch.float32):
        if options.get("dropout_p", 0) > 0:
            continue
        wanted = F.scaled_dot_product_attention(*arguments, **options)
        result = kw.scaled_dot_product_attention(*arguments, **options)
        assert result.shape == wanted.shape, named(arguments, options)
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5,
                                   msg=lambda text: f"{named(arguments, options)}: {text}")


@pytest.mark.parametrize("arguments, options, text", [
    ((Q, K, K), {"attn_mask": meta(3, 5), "is_causal": True}, "attn_mask and is_causal are given"),
    ((Q, K, K), {"dropout_p": 0.1}, "dropout_p is 0.1"),
    ((Q, K[:, :2], K[:, :2]), {}, r"\[2, 4, 3, 8\], \[2, 2, 5, 8\] and .* without enable_gqa=True"),
    ((Q[0, 0, 0], K, K), {}, "at least 2 expected"),
    ((Q[0, 0], K, K), {"enable_gqa": True}, "at least 3 expected"),
    ((Q, K, K), {"attn_mask": meta(3, 4)}, "expand"),
])
def test_wrong_arguments_are_refused(arguments, options, text):
    with pytest.raises((kernwright.Error, RuntimeError), match=text):
        kw.scaled_dot_product_attention(*arguments, **options)


@pytest.mark.parametrize("arguments, options, text", [
    ((Q[:, :3], K[:, :2], K[:, :2]), {"enable_gqa": True}, "serves the same number of query heads"),
    ((Q, K, K), {"attn_mask": meta(2, 3, 3, 5)}, "an entry for each sequence, head and query"),
])
def test_arguments_that_no_kernel_takes_are_refused(problem_of, arguments, options, text):
    with pytest.raises(kernwright.Error, match=text):
        problem_of(kw.scaled_dot_product_attention, *(one.contiguous() for one in arguments), **options)

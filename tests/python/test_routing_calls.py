"""The routing of mixtures of experts: the problems of its calls, and what they refuse."""

import inspect

import pytest
from fakes import floats, ints, tensor

import kernwright as kw


def test_a_choice_follows_from_its_arrays(planned):
    out = ints(2, 5, 8), floats(2, 5, 8)
    assert planned(kw.choose_experts, tensor(2, 5, 160), out=out) == (
        "choose_experts tokens=10 experts=160 top=8 dtype=bf16")
    assert planned(kw.choose_experts, floats(64, 256), bias=floats(256), real=ints(1), top=6, score="sigmoid",
                   renormalise="sum", expert_groups=8, kept_groups=4, factor=2.5, out=(ints(64, 6), floats(64, 6))) == (
        "choose_experts tokens=64 experts=256 top=6 expert_groups=8 kept_groups=4 dtype=fp32 score=sigmoid bias=choice "
        "renormalise=sum padding=behind")
    assert planned(kw.choose_experts, tensor(64, 32), bias=floats(32), softmax_at="after", softcap="tanh", cap=20.0,
                   out=(ints(64, 4), floats(64, 4))) == (
        "choose_experts tokens=64 experts=32 top=4 dtype=bf16 bias_dtype=fp32 softmax_at=after softcap=tanh bias=choice")


@pytest.mark.parametrize("named, reason", [
    (dict(top=33), "a lane keeps one of the chosen experts"),
    (dict(top=8, expert_groups=7), "at most 32 groups have as many experts each"),
    (dict(top=8, bias=floats(63)), "bias has the shape [63], and [64] expected"),
    (dict(top=8, real=ints(2)), "real has the shape [2], and [1] expected"),
    (dict(), "top is not told"),
    (dict(top=8, score="tanh"), "tanh"),
])
def test_what_no_choice_is(refused, named, reason):
    assert reason in refused(kw.choose_experts, floats(5, 64), **named)


def test_an_order_and_a_sum_follow_from_their_arrays(planned, refused):
    ids, place = ints(3, 5, 4), ints(3, 5, 4)
    assert planned(kw.order_experts, ids, first=32, experts=16, out=(ints(16), ints(60), place)) == (
        "order_experts tokens=15 top=4 experts=16")
    y, out = tensor(60, 128), tensor(3, 5, 128)
    assert planned(kw.combine_experts, y, place, out=out) == (
        "combine_experts tokens=15 top=4 columns=128 dtype=bf16 weights=none")
    assert planned(kw.combine_experts, tensor(100, 128), place, weights=floats(3, 5, 4), shared=tensor(3, 5, 128),
                   residual=out, out=out) == (
        "combine_experts tokens=15 top=4 columns=128 rows=100 dtype=bf16 shared=add residual=add")
    assert "ids is int64, and int32 expected" in refused(kw.order_experts, tensor(5, 4, dtype="int64"), experts=16)
    assert "experts is not told" in refused(kw.order_experts, ids)
    assert "one dtype expected" in refused(kw.combine_experts, y, place, shared=floats(3, 5, 128))
    assert "weights is bf16, and fp32 expected" in refused(kw.combine_experts, y, place, weights=tensor(3, 5, 4))


def test_their_texts_name_what_they_take_and_return():
    text = inspect.getdoc(kw.choose_experts)
    assert "logits: [..., experts]" in text and "Result ids: [..., top], int32" in text
    assert "score: softmax, sigmoid, sqrt_softplus, none" in text and "factor: a number, by default 1" in text
    assert list(inspect.signature(kw.order_experts).parameters) == ["ids", "experts", "first", "out"]

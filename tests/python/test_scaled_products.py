"""Which problems grouped and scaled products make of their arrays, and what they refuse."""

import pytest
from fakes import floats, tensor

import kernwright as kw


def fp8(*shape):
    return tensor(*shape, dtype="fp8_e4m3")


def swapped(array):
    """The view with the last two axes swapped."""
    shape, strides = ([*of[:-2], of[-1], of[-2]] for of in array.layout)
    return array.like(tuple(shape), tuple(strides))


def grouped(rows=64, groups=4, n=128, k=256, kind=tensor):
    return kind(rows, k), swapped(kind(groups, n, k)), tensor(groups, dtype="int32")


def test_grouped_matmul(planned):
    assert planned(kw.grouped_matmul, *grouped(), out=tensor(64, 128)) == (
        "grouped_matmul groups=4 rows=64 n=128 k=256 dtype=bf16")
    assert planned(kw.grouped_matmul, *grouped(), activation="silu", gated=True,
                   out=tensor(64, 64)) == (
        "grouped_matmul groups=4 rows=64 n=64 k=256 dtype=bf16 activation=silu gate=stacked")


def test_rows_of_groups_that_an_index_names(planned, refused):
    a, b, offs = grouped(rows=20)
    row_of, out = tensor(64, dtype="int32"), tensor(64, 128)
    assert planned(kw.grouped_matmul, a, b, offs, row_of=row_of, out=out) == (
        "grouped_matmul groups=4 rows=64 n=128 k=256 tokens=20 dtype=bf16 a_rows=indexed")
    assert planned(kw.grouped_matmul, *grouped(), row_of=row_of, activation="silu", gated=True, out=tensor(64, 64)) == (
        "grouped_matmul groups=4 rows=64 n=64 k=256 dtype=bf16 a_rows=indexed activation=silu gate=stacked")
    assert "row_of is int64, and int32 expected" in refused(kw.grouped_matmul, a, b, offs, out=out,
                                                            row_of=tensor(64, dtype="int64"))
    assert "[63, 128] expected" in refused(kw.grouped_matmul, a, b, offs, row_of=tensor(63, dtype="int32"), out=out)
    a, b, offs = grouped(kind=fp8)
    assert "so rows of fp8 are sorted" in refused(
        kw.grouped_matmul, a, b, offs, row_of=row_of, scale_a=swapped(floats(2, 64)), scale_b=swapped(floats(4, 1, 2)),
        out=out)


def test_weights_of_groups_with_biases_and_gates_that_interleave(planned, refused):
    a, b, offs = tensor(64, 256), tensor(4, 256, 128), tensor(4, dtype="int32")
    out, opened, bias = tensor(64, 128), tensor(64, 64), tensor(4, 128)
    assert planned(kw.grouped_matmul, a, b, offs, out=out) == (
        "grouped_matmul groups=4 rows=64 n=128 k=256 dtype=bf16 b_layout=kn")
    assert planned(kw.grouped_matmul, *grouped(), bias=bias, activation="silu", gated=True, out=opened) == (
        "grouped_matmul groups=4 rows=64 n=64 k=256 dtype=bf16 bias=expert activation=silu gate=stacked")
    assert planned(kw.grouped_matmul, a, b, offs, bias=bias, activation="swiglu_oai", gated=True, interleaved=True,
                   row_of=tensor(64, dtype="int32"), limit=5.0, out=opened) == (
        "grouped_matmul groups=4 rows=64 n=64 k=256 dtype=bf16 a_rows=indexed b_layout=kn bias=expert "
        "activation=swiglu_oai gate=interleaved")
    for change, reason in ((dict(bias=tensor(4, 64)), "bias has the shape [4, 64], and [4, 128] expected"),
                           (dict(bias=floats(4, 128)), "bias is fp32, and bf16 expected"),
                           (dict(activation="swiglu_oai"), "swiglu_oai takes a gate and the row that it opens"),
                           (dict(interleaved=True), "interleaved is True and gated is False")):
        assert reason in refused(kw.grouped_matmul, a, b, offs, out=out, **change)
    a, b, offs = grouped(kind=fp8)
    scales = dict(scale_a=swapped(floats(2, 64)), scale_b=swapped(floats(4, 1, 2)))
    assert "fp8 only along k" in refused(kw.grouped_matmul, a, fp8(4, 256, 128), offs, out=out, **scales)
    assert "blocks of their own" in refused(kw.grouped_matmul, a, b, offs, gated=True, interleaved=True, out=opened,
                                            **scales)


def test_grouped_matmul_of_fp8(planned, refused):
    a, b, offs = grouped(kind=fp8)
    of_a, of_b = swapped(floats(2, 64)), swapped(floats(4, 1, 2))
    assert planned(kw.grouped_matmul, a, b, offs, scale_a=of_a, scale_b=of_b,
                   out=tensor(64, 128)) == (
        "grouped_matmul groups=4 rows=64 n=128 k=256 dtype=fp8_e4m3 out=bf16")
    assert "scale_a, scale_b is missing" in refused(kw.grouped_matmul, a, b, offs, out=tensor(64, 128))
    assert "scale_a has the strides" in refused(kw.grouped_matmul, a, b, offs, scale_a=floats(64, 2),
                                                scale_b=of_b, out=tensor(64, 128))
    assert "scale_b has the shape" in refused(kw.grouped_matmul, a, b, offs, scale_a=of_a,
                                              scale_b=swapped(floats(4, 2, 2)), out=tensor(64, 128))


@pytest.mark.parametrize("change, reason", [
    (lambda a, b, offs: (a, swapped(b), offs), "b has the shape [4, 128, 256], and [4, 256, 256] expected"),
    (lambda a, b, offs: (a, b.like(b.layout[0], (1 << 15, 256, 2)), offs), "b has the strides [32768, 256, 2]"),
    (lambda a, b, offs: (a, b, tensor(3, dtype="int32")), "offs has the shape"),
    (lambda a, b, offs: (a, b, tensor(4, dtype="int64")), "offs is int64, and int32 expected"),
    (lambda a, b, offs: (a, tensor(256, 128), offs), "b has 2 dimensions, and 3 expected"),
    (lambda a, b, offs: (tensor(64, 256, strides=(512, 1)), b, offs), "a has the strides [512, 1], and [256, 1] expected"),
    (lambda a, b, offs: (a, b.like(b.layout[0], (1 << 20, 1, 256)), offs), "b has the strides"),
])
def test_groups_that_do_not_fit_are_refused(refused, change, reason):
    assert reason in refused(kw.grouped_matmul, *change(*grouped()), out=tensor(64, 128))


def test_scaled_matmul(planned):
    a, b, out = fp8(64, 256), fp8(128, 256).t(), tensor(64, 128)
    assert planned(kw.scaled_matmul, a, b, 0.5, 2.0, out=out) == (
        "matmul m=64 n=128 k=256 dtype=fp8_e4m3 out=bf16 scaling=alpha")
    assert planned(kw.scaled_matmul, a, b, swapped(floats(2, 64)), swapped(floats(1, 2)),
                   bias=tensor(128), out=out) == (
        "matmul m=64 n=128 k=256 dtype=fp8_e4m3 out=bf16 scaling=block bias=column")


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "int8"])
@pytest.mark.parametrize("n", [1, 128, 200])
def test_scaled_matmul_by_rows(planned, dtype, n):
    a, b = tensor(2, 32, 256, dtype=dtype), tensor(n, 256, dtype=dtype).t()
    assert planned(kw.scaled_matmul, a, b, floats(64, 1), floats(1, n), activation="silu",
                   bias=tensor(n), out=tensor(2, 32, n)) == (
        f"matmul m=64 n={n} k=256 dtype={dtype} out=bf16 scaling=row bias=column activation=silu")


@pytest.mark.parametrize("scale_a, scale_b, reason", [
    (1.0, floats(1, 2), "two numbers or two arrays"),
    (None, None, "two numbers or two arrays"),
    (floats(64, 2), swapped(floats(1, 2)), "scale_a has the strides"),
    (swapped(floats(2, 32)), swapped(floats(1, 2)), "scale_a has the shape"),
    (swapped(tensor(2, 64)), swapped(floats(1, 2)), "scale_a is bf16, and fp32 expected"),
])
def test_scales_that_do_not_fit_are_refused(refused, scale_a, scale_b, reason):
    assert reason in refused(kw.scaled_matmul, fp8(64, 256), fp8(128, 256).t(), scale_a, scale_b,
                             out=tensor(64, 128))


def test_scales_of_rows_that_do_not_fit_are_refused(refused):
    int8 = tensor(64, 256, dtype="int8"), tensor(128, 256, dtype="int8").t()
    assert "scale_a has the shape" in refused(kw.scaled_matmul, *int8, floats(32, 1), floats(1, 128),
                                              out=tensor(64, 128))
    assert "a is int8, and fp8_e4m3 expected" in refused(
        kw.scaled_matmul, *int8, swapped(floats(2, 64)), swapped(floats(1, 2)), out=tensor(64, 128))
    assert "quantized by rows" in refused(kw.scaled_matmul, tensor(64, 256), tensor(128, 256).t(),
                                          floats(64, 1), floats(1, 128), out=tensor(64, 128))


def test_scaled_operands_are_fp8_and_b_is_a_transposed_view(refused):
    assert "a is bf16, and fp8_e4m3 expected" in refused(kw.scaled_matmul, tensor(64, 256), tensor(128, 256).t(),
                                         1, 1, out=tensor(64, 128))
    assert "b has the strides [128, 1], and [1, 256] expected" in refused(
        kw.scaled_matmul, fp8(64, 256), fp8(256, 128), 1, 1, out=tensor(64, 128))

"""Calls of kernels: what they check before they launch."""

import copy
import json
import pickle

import pytest
from fakes import KINDS, NO_GPU, DlpackArray, ExchangeTensor, InterfaceArray, TorchTensor

import kernwright as kw

ADD = "vector_add n=1024 dtype=fp32"
PRODUCT = "matmul m=16 n=64 k=128 dtype=bf16"


@pytest.fixture(scope="session")
def add(compiler):
    return compiler.kernel(ADD)


@pytest.fixture(scope="session")
def product(compiler):
    return compiler.kernel(kw.Problem("matmul", m=16, n=64, k=128, dtype="bf16"))


def reason(kernel, *arguments, **named):
    with pytest.raises(kw.Error) as caught:
        kernel(*arguments, **named)
    assert caught.value.problem == str(kernel.problem)
    return caught.value.reason


def vectors(kind=ExchangeTensor, count=3, dtype="fp32"):
    return [kind(1024, dtype=dtype) for _ in range(count)]


def product_arrays(kind=ExchangeTensor):
    return kind(16, 128), kind(64, 128), kind(16, 64)


def test_what_is_read_only_is_no_output(add):
    def reason(**read_only):
        arrays = {name: InterfaceArray(1024, dtype="fp32") for name in "abc"}
        for name in read_only:
            arrays[name].read_only = True
        with pytest.raises(kw.Error) as caught:
            add(*arrays.values())
        return caught.value.reason

    assert NO_GPU in reason(a=True, b=True)
    assert reason(c=True) == "c is read-only, and an output is written"


def test_it_says_what_it_is(product):
    assert str(product.problem) == PRODUCT
    assert product.problem == kw.Problem(PRODUCT) and hash(product.problem) == hash(kw.Problem(PRODUCT))
    assert product.template.startswith("matmul/") and "=" in product.configuration
    assert product.match == "predicted" and product.measured_us is None
    assert product.workspace_bytes >= 0 and product.handle > 0
    assert PRODUCT in repr(product)


def test_its_summary_is_a_copy(product):
    summary = product.summary
    assert [a["name"] for a in summary["arguments"]] == ["a", "b", "d"]
    assert summary["arguments"][0]["strides"] == [128, 1]
    summary.clear()
    assert product.match == "predicted"


def test_strides_are_those_of_the_problem(compiler):
    kernel = compiler.kernel("matmul m=16 n=64 k=128 lda=256 ldd=96 dtype=bf16")
    assert [a["strides"] for a in kernel.summary["arguments"]] == [[256, 1], [128, 1], [96, 1]]
    a = ExchangeTensor(16, 128, strides=(256, 1))
    d = ExchangeTensor(16, 64, strides=(96, 1))
    assert NO_GPU in reason(kernel, a, ExchangeTensor(64, 128), d)
    assert "d has the shape [16, 64] and the strides [64, 1]" in reason(
        kernel, a, ExchangeTensor(64, 128), ExchangeTensor(16, 64))


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind_pass_all_checks(add, kind):
    assert NO_GPU in reason(add, *vectors(kind))


def test_neighbouring_dimensions_that_lie_as_one_are_one(add, product):
    shapes = [(32, 32), (1, 1024), (1024, 1), (2, 1, 512), (4, 4, 64)]
    for shape in shapes:
        a, b, c = (ExchangeTensor(*shape, dtype="fp32") for _ in range(3))
        assert NO_GPU in reason(add, a, b, c), shape
    _, b, d = product_arrays()
    assert NO_GPU in reason(product, ExchangeTensor(4, 4, 128), b, d)
    assert NO_GPU in reason(product, ExchangeTensor(16, 2, 64), b, d)
    gaps = ExchangeTensor(4, 4, 128, strides=(1024, 128, 1))
    assert "a has the shape" in reason(product, gaps, b, d)
    for shape in [(512,), (2, 1024), (1024, 2), (0,), ()]:
        assert "a has the shape" in reason(add, ExchangeTensor(*shape, dtype="fp32"), *vectors(count=2))


@pytest.mark.parametrize("arguments, expected", [
    (lambda: [], "0 arguments, and 3 tensors and up to 0 scalars expected"),
    (lambda: vectors(count=4), "4 arguments"),
    (lambda: vectors(dtype="bf16"), "a is bf16, and fp32 expected"),
    (lambda: vectors(dtype="int64"), "a is int64, and fp32 expected"),
    (lambda: vectors(TorchTensor, 2) + [TorchTensor(1024, dtype="fp32", device=None)],
     "c lies on the CPU, and a GPU .CUDA. expected"),
    (lambda: [ExchangeTensor(1024, dtype="fp32", strides=(2,))] + vectors(count=2),
     "a has the shape \\[1024\\] and the strides \\[2\\]"),
    (lambda: [1, 2, 3], "a: .* is no array"),
    (lambda: vectors(count=2) + [None], "c: .* is no array"),
])
def test_wrong_calls_say_what_is_wrong(add, arguments, expected):
    assert pytest.raises(kw.Error, add, *arguments()).match(expected)


def test_unknown_names_are_errors_of_the_call(add):
    with pytest.raises(TypeError, match="only stream"):
        add.launch(*vectors(), workspace=3)
    with pytest.raises(TypeError, match="workspace"):
        add(*vectors(), workspace=3)


def test_scalars_are_numbers(compiler):
    kernel = compiler.kernel("elementwise n=1024 dtype=fp32 formula=a*x")
    x, r = vectors(count=2)
    assert NO_GPU in reason(kernel, x, r)
    assert NO_GPU in reason(kernel, x, r, 2)
    assert "a: must be real number" in reason(kernel, x, r, "two")
    assert "up to 2 scalars" in reason(kernel, x, r, 1, 2, 3)


def at(address, *shape, strides=None):
    return ExchangeTensor(*shape, strides=strides, address=address)


def test_outputs_lie_apart(add, product):
    a, b, c = vectors()
    assert "c overlaps a in memory" in reason(add, c, b, c)
    assert NO_GPU in reason(add, a, a, c)  # inputs may be the same
    x, weight, _ = product_arrays()
    end = x.address + 16 * 128 * 2
    assert "d overlaps a" in reason(product, x, weight, at(end - 2, 16, 64))
    assert NO_GPU in reason(product, x, weight, at(end, 16, 64))
    assert "d overlaps a" in reason(product, x, weight, at(x.address - 16 * 64 * 2 + 2, 16, 64))
    assert NO_GPU in reason(product, x, weight, at(x.address - 16 * 64 * 2, 16, 64))


def test_what_is_computed_in_place_may_lie_where_its_input_does(compiler):
    kernel = compiler.kernel("embedding tokens=4 hidden=64 vocabulary=100 dtype=bf16"
                             " lengths=advance")
    tokens, lengths = (ExchangeTensor(4, dtype="int32") for _ in range(2))
    table, x = ExchangeTensor(100, 64), ExchangeTensor(4, 64)
    beside = ExchangeTensor(4, dtype="int32", address=lengths.address + 4)
    assert NO_GPU in reason(kernel, tokens, table, lengths, x, lengths)
    assert "lengths_out overlaps lengths" in reason(kernel, tokens, table, lengths, x, beside)
    assert "lengths_out overlaps tokens" in reason(kernel, tokens, table, lengths, x, tokens)


def test_columns_of_one_matrix_lie_apart(compiler):
    kernel = compiler.kernel("matmul m=16 n=64 k=128 lda=192 ldd=192 dtype=bf16")
    weight, base = ExchangeTensor(64, 128), 1 << 50

    def call(first, second):
        return reason(kernel, at(base + 2 * first, 16, 128, strides=(192, 1)), weight,
                      at(base + 2 * second, 16, 64, strides=(192, 1)))

    assert NO_GPU in call(0, 128)
    assert NO_GPU in call(64, 0)
    assert NO_GPU in call(64, 192)
    for first, second in ((0, 127), (0, 0), (63, 0), (65, 1), (64, 193)):
        assert ("overlaps" in call(first, second)) == (
            not disjoint(first, 128, second, 64)), (first, second)


def disjoint(first, wide, second, narrow):
    used = {192 * row + first + i for row in range(16) for i in range(wide)}
    return not any(192 * row + second + i in used for row in range(16) for i in range(narrow))


def test_only_a_service_makes_kernels(add):
    for make in (kw.Kernel, lambda: kw.Kernel(3), lambda: kw.Kernel.__new__(kw.Kernel),
                 lambda: object.__new__(kw.Kernel), lambda: copy.copy(add), lambda: pickle.dumps(add)):
        with pytest.raises(TypeError):
            make()


def test_what_it_takes_is_said_once(add):
    with pytest.raises(kw.Error, match="known already"):
        add._expect([], 0)


@pytest.mark.parametrize("arguments", [
    [3], [{}], [{"name": "a"}], [{"name": 3, "dtype": "fp32"}],
    [{"name": "a", "dtype": "fp32", "extent": [1] * 9, "strides": [1] * 9}],
    [{"name": "a", "dtype": "fp32", "extent": ["x"], "strides": [1]}],
    [{"name": "a", "dtype": "none", "extent": [1], "strides": [1]}],
    [{"name": "s", "dtype": "fp32", "scalar": True},
     {"name": "a", "dtype": "fp32", "extent": [1], "strides": [1]}],
    [{"name": "a", "dtype": "fp32", "extent": [1], "strides": [1]}] * 40,
])
def test_what_is_not_understood_is_refused(compiler, arguments):
    from kernwright import _kernwright
    bare = _kernwright.best_kernel(compiler._handle, kw.Kernel, ADD)
    with pytest.raises(kw.Error):
        bare._expect(arguments, 0)
    with pytest.raises(kw.Error):
        bare(*vectors())
    bare._expect(json.loads(bare._description)["arguments"], -1)
    assert NO_GPU in pytest.raises(kw.Error, bare, *vectors()).value.reason


def test_a_kernel_outlives_its_service():
    own = kw.Service(sku="h200")
    try:
        kernel = own.kernel(ADD)
    except kw.Error as error:
        pytest.skip(error.reason)
    del own
    assert NO_GPU in reason(kernel, *vectors())


def test_arrays_that_are_asked_for_a_stream_are_asked_at_a_launch_alone(add):
    arrays = vectors(DlpackArray)
    reason(add, *arrays)
    assert [array.streams for array in arrays] == [[-1]] * 3

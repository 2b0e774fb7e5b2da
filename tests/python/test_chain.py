"""Baked launches and chains: what is checked before the driver is asked for anything."""

import pytest
from fakes import NO_GPU, ExchangeTensor, InterfaceArray, TorchTensor

import kernwright as kw
from kernwright import _kernwright

ADD = "vector_add n=1024 dtype=fp32"


@pytest.fixture(scope="session")
def add(compiler):
    return compiler.kernel(ADD)


def vectors(count=3, **named):
    return [ExchangeTensor(1024, **{"dtype": "fp32", **named}) for _ in range(count)]


def reason(call, *arguments):
    with pytest.raises(kw.Error) as caught:
        call(*arguments)
    return caught.value.reason


def chain_of(*steps):
    """Why a chain is refused, of steps that `steps` add to a builder."""
    builder = kw.ChainBuilder()
    for step in steps:
        step(builder)
    return reason(builder.build)


def test_a_baked_kernel_takes_what_a_call_takes(add):
    assert NO_GPU in reason(add.bake, *vectors())
    assert "a is bf16, and fp32 expected" in reason(add.bake, *vectors(dtype="bf16"))
    assert "2 arguments, and 3 tensors" in reason(add.bake, *vectors(2))
    a, b, c = vectors()
    assert "c overlaps a" in reason(add.bake, c, b, c)
    assert "c lies on the CPU, and a GPU (CUDA) expected" in reason(add.bake, a, b, TorchTensor(1024, dtype="fp32", device=None))


def test_a_chain_takes_arrays_numbers_and_slots(add, compiler):
    scaled = compiler.kernel("elementwise n=1024 dtype=fp32 formula=a*x")
    a, b, c = vectors()

    def whole(builder):
        x, between = builder.parameter(a), builder.buffer(4096)
        builder.add(add, x, b, between)
        builder.add([scaled], between, c, 2.0)

    assert NO_GPU in chain_of(whole)


@pytest.mark.parametrize("arguments, expected", [
    (lambda builder: vectors(2), "2 arguments, and 3 tensors"),
    (lambda builder: vectors(dtype="bf16"), "a is bf16, and fp32 expected"),
    (lambda builder: [*vectors(2), 3], "c: .* is no array"),
    (lambda builder: [builder.parameter(ExchangeTensor(512, dtype="fp32")), *vectors(2)],
     r"a has the shape \[512\]"),
    (lambda builder: [builder.parameter(vectors()[0]).at(4), *vectors(2)],
     "a has 4096 bytes and begins 4 bytes into a parameter of 4096 bytes"),
    (lambda builder: [builder.parameter(ExchangeTensor(2048, dtype="fp32")).at(-4), *vectors(2)],
     "begins -4 bytes into"),
    (lambda builder: [kw.ChainSlot(False, 7), *vectors(2)], "a is a slot of another builder"),
    (lambda builder: [kw.ChainSlot(True, 0), *vectors(2)], "a is a slot of another builder"),
])
def test_arguments_of_a_chain_are_checked(add, arguments, expected):
    import re
    assert re.search(expected, chain_of(lambda builder: builder.add(add, *arguments(builder))))


def test_memory_within_a_parameter_may_be_an_argument(add):
    def step(builder):
        large = builder.parameter(ExchangeTensor(4096, dtype="fp32"))
        builder.add(add, large.at(4096), large.at(8192).at(4096), vectors()[0])

    assert NO_GPU in chain_of(step)


def test_parameters_are_arrays_on_a_gpu():
    assert "parameter 0" in chain_of(lambda builder: builder.parameter(3))
    assert "parameter 1 lies on the CPU, and a GPU (CUDA) expected" in chain_of(
        lambda builder: builder.parameter(vectors()[0]),
        lambda builder: builder.parameter(TorchTensor(8, device=None)))


def test_a_chain_and_a_step_have_kernels(add):
    assert "a chain without kernels" in chain_of()
    assert "a step without kernels" in chain_of(lambda builder: builder.add([], *vectors()))
    builder = kw.ChainBuilder()
    builder.add(["kernel"], *vectors())
    with pytest.raises(TypeError, match="is no kernel"):
        builder.build()


def test_buffers_have_a_size():
    assert "a buffer of 0 bytes" in reason(kw.ChainBuilder().buffer, 0)


def test_a_slot_moves_on():
    slot = kw.ChainSlot(True, 2)
    assert slot.at(16).at(16) == kw.ChainSlot(True, 2, 32) and slot.offset_bytes == 0


def test_a_service_gives_several_kernels(compiler):
    kernels = compiler.kernels("matmul m=16 n=64 k=128 dtype=bf16", most=3)
    assert 1 <= len(kernels) <= 3
    assert kernels[0].configuration == compiler.kernel("matmul m=16 n=64 k=128 dtype=bf16").configuration
    assert len({str(kernel.problem) for kernel in kernels}) == 1
    with pytest.raises(ValueError, match="at least 1"):
        compiler.kernels(ADD, most=0)
    with pytest.raises(kw.Error, match="nonsense"):
        compiler.kernels("nonsense n=1")


@pytest.mark.parametrize("kind", [kw.Chain, kw.BakedLaunch, _kernwright.ChainHandle,
                                  _kernwright.BakedHandle])
def test_they_are_not_made_by_calling_them(kind):
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError):
            make()


@pytest.mark.parametrize("call", [
    lambda: _kernwright.bake(), lambda: _kernwright.bake(kw.BakedLaunch, 3),
    lambda: _kernwright.build_chain(kw.Chain, (), (), ()),
    lambda: _kernwright.build_chain(kw.Chain, [], [], [3]),
    lambda: _kernwright.build_chain(kw.Chain, [], ["x"], []),
])
def test_wrong_calls_of_the_extension_are_errors_of_the_call(call):
    with pytest.raises(TypeError):
        call()


def test_what_is_read_only_stays_so(add):
    """In whatever order arrays are read."""
    def built(*read_only, slots):
        arrays = [InterfaceArray(1024, dtype="fp32") for _ in range(3)]
        for index in read_only:
            arrays[index].read_only = True
        builder = kw.ChainBuilder()
        given = [builder.parameter(array) if index in slots else array
                 for index, array in enumerate(arrays)]
        builder.add(add, *given)
        with pytest.raises(kw.Error) as caught:
            builder.build()
        return caught.value.reason

    for slots in ((), (0,), (2,), (0, 1, 2)):
        for _ in range(20):
            assert NO_GPU in built(0, 1, slots=slots)
            assert "c is read-only, and an output is written" in built(2, slots=slots)
    builder = kw.ChainBuilder()
    assert repr(builder) == "<kernwright.ChainBuilder: 0 kernels, 0 parameters, 0 buffers>"


def test_a_parameter_of_another_gpu_is_refused(compiler):
    import json
    kernel = _kernwright.best_kernel(compiler._handle, kw.Kernel, ADD)
    kernel._facts = json.loads(kernel._description)
    kernel._expect(kernel._facts["arguments"], 0)
    for offset in (0, 4):
        builder = kw.ChainBuilder()
        slot = builder.parameter(ExchangeTensor(2048 if offset else 1024, dtype="fp32", device=1))
        builder.add(kernel, slot.at(offset), *[ExchangeTensor(1024, dtype="fp32") for _ in range(2)])
        with pytest.raises(kw.Error, match="a lies on GPU 1, and the kernel was made for GPU 0"):
            builder.build()

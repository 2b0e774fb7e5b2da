"""How arrays of frameworks are read."""

import pytest
from fakes import (DTYPES, KINDS, DlpackArray, ExchangeTensor, InterfaceArray, TorchTensor)

import kernwright as kw
from kernwright import _arrays, _kernwright


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_alike(kind):
    array = kind(2, 3, 4, dtype="fp32", strides=(24, 8, 1), address=4096)
    assert _kernwright.read(array) == (4096, "fp32", (2, 3, 4), (24, 8, 1), 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_dtype_is_known(kind, dtype):
    if kind is InterfaceArray and DTYPES[dtype][2] is None:
        pytest.skip("the interface has no type string for it")
    assert _kernwright.read(kind(8, dtype=dtype))[1] == dtype


@pytest.mark.parametrize("kind", [TorchTensor, DlpackArray, ExchangeTensor])
def test_the_device_is_read(kind):
    assert _kernwright.read(kind(8, device=3))[4] == 3
    assert _kernwright.read(kind(8, device=None))[4] == "the CPU"


@pytest.mark.parametrize("kind", KINDS)
def test_scalars_and_empty_arrays_are_read(kind):
    assert _kernwright.read(kind(dtype="fp32"))[2:4] == ((), ())
    assert _kernwright.read(kind(0, 4, dtype="fp32"))[2] == (0, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_eight_dimensions_are_refused(kind):
    with pytest.raises(ValueError, match="9 dimensions"):
        _kernwright.read(kind(*[1] * 9, dtype="fp32"))


def test_reading_does_not_wait():
    array = DlpackArray(8)
    _kernwright.read(array)
    assert array.streams == [-1]


@pytest.mark.parametrize("thing", [None, 3, "text", [1, 2], {}, object(), int])
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(TypeError, match="no array"):
        _kernwright.read(thing)


def test_arrays_that_contradict_themselves_are_refused():
    class Crooked(TorchTensor):
        def stride(self):
            return (1,)

    class Half(InterfaceArray):
        @property
        def __cuda_array_interface__(self):
            return {"shape": (3,)}

    class Lying(DlpackArray):
        def __dlpack__(self, stream=None):
            return object()

    for array in (Crooked(2, 2), Half(3), Lying(3)):
        with pytest.raises(TypeError):
            _kernwright.read(array)


def interface(**members):
    return type("Given", (), {"__cuda_array_interface__": {
        "data": (4096, False), "shape": (4, 8), "typestr": "<f4", "version": 3, **members}})()


def test_strides_between_elements_are_refused():
    assert _kernwright.read(interface(strides=(64, 4)))[3] == (16, 1)
    with pytest.raises(ValueError, match="6 bytes, and a multiple of the 4"):
        _kernwright.read(interface(strides=(48, 6)))


def test_masked_arrays_are_refused():
    _kernwright.read(interface(mask=None))
    with pytest.raises(TypeError, match="mask"):
        _kernwright.read(interface(mask=interface()))


def test_errors_of_an_array_are_handed_on():
    class Broken(DlpackArray):
        def __dlpack__(self, stream=None):
            raise BufferError("it is gone")

    with pytest.raises(BufferError):
        _kernwright.read(Broken(3))
    with pytest.raises(kw.Error, match="x: it is gone"):
        _arrays.read("x", Broken(3))


def test_signatures_differ_where_plans_do():
    signature = _kernwright.signature
    a = ExchangeTensor(4, 8)
    assert signature(a) == signature(ExchangeTensor(4, 8))
    for other in (ExchangeTensor(8, 4), ExchangeTensor(4, 8, dtype="fp16"), ExchangeTensor(4, 8, device=1),
                  ExchangeTensor(4, 8, strides=(16, 1)), ExchangeTensor(32), None):
        assert signature(a) != signature(other)
    assert signature(a, None) != signature(None, a)

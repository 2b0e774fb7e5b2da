"""Services without a GPU. Their kernels are compiled, and refuse to be launched as the last thing that
they check."""

import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
# No test reads or writes the cache of who runs it.
os.environ["KERNWRIGHT_CACHE"] = os.environ.get("KERNWRIGHT_TEST_CACHE") or tempfile.mkdtemp(
    prefix="kernwright-tests-")

import kernwright as kw  # noqa: E402
from fakes import NO_GPU  # noqa: E402


@pytest.fixture(scope="session")
def service():
    return kw.Service(sku="h200")


@pytest.fixture(scope="session")
def compiler(service):
    """The same service, if there is a compiler."""
    try:
        service.kernel("vector_add n=1024 dtype=fp32")
    except kw.Error as error:
        if "no library could be loaded" not in error.reason:
            raise
        pytest.skip(f"no compiler: {error.reason}")
    return service


@pytest.fixture
def planned(compiler):
    """Calls an operation, which does everything but the launch, and returns the problem of its kernel."""
    def call(operation, *arguments, **named):
        with compiler, pytest.raises(kw.Error) as caught:
            operation(*arguments, **named)
        assert NO_GPU in caught.value.reason, caught.value
        return caught.value.problem
    return call


@pytest.fixture
def refused(service):
    """Calls an operation that must be refused, and returns the reason."""
    def call(operation, *arguments, **named):
        with service, pytest.raises(kw.Error) as caught:
            operation(*arguments, **named)
        assert NO_GPU not in caught.value.reason, "it was not refused"
        assert caught.value.reason in str(caught.value)
        return caught.value.reason
    return call

"""Stands in for the GPU: operators of kernwright compute in PyTorch on the CPU."""

import contextlib
from unittest import mock

import pytest

try:
    import reference
    import torch
    from kernwright._arrays import make_error
    from kernwright.torch import _modules
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    collect_ignore_glob = ["test_*.py"]

CALLS = []  # names of the operators that were computed


def counted(name, function, tf32):
    """Notes the call, and refuses what no kernel takes."""
    def call(*arguments, **named):
        CALLS.append(name)
        for tensor in torch.utils._pytree.tree_leaves((arguments, named)):
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                if tensor.data_ptr() % 16 != 0:
                    raise make_error("a tensor must be aligned to 16 bytes", name)
                if tensor.dtype is torch.float32 and "linear" in name and not tf32:
                    raise make_error("tensor cores take fp32 as tf32", name)
        return function(*arguments, **named)

    return call


@contextlib.contextmanager
def standing_in(tf32=True):
    """Operators compute on the CPU, and modules with weights there are patched. Gives the list of
    the operators that were called. Products may refuse fp32, as without tf32."""
    CALLS.clear()
    with (mock.patch.object(_modules, "on_gpu", lambda tensor: True),
          mock.patch("torch.cuda.is_current_stream_capturing", lambda: False),
          torch.library._scoped_library("kernwright", "IMPL") as library):
        for name, function in reference.IMPLEMENTATIONS.items():
            short = name.replace(".members", "")
            library.impl(name, counted(short, function, tf32), "CPU")
        yield CALLS


@pytest.fixture
def on_cpu():
    with standing_in() as calls:
        yield calls
    torch.compiler.reset()

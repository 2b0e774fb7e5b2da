"""Stands in for the GPU: operators of kernwright compute in PyTorch on the CPU."""

import contextlib
from unittest import mock

import pytest

try:
    import reference
    import torch
    from kernwright._arrays import make_error
    from kernwright.torch import _modules
    from kernwright.torch.ops import plain
    from kernwright.torch.ops.define import _or_plain
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    collect_ignore_glob = ["test_*.py"]

CALLS = []  # names of the operators that were computed


def counted(name, function, tf32):
    """Notes the call, and leaves to PyTorch what no kernel takes, as the operators do."""
    def call(*arguments, **named):
        CALLS.append(name)
        for tensor in torch.utils._pytree.tree_leaves((arguments, named)):
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                if tensor.data_ptr() % 16 != 0:
                    raise make_error("a tensor must be aligned to 16 bytes", name)
                if tensor.dtype is torch.float32 and "linear" in name and not tf32:
                    raise make_error("tensor cores take fp32 as tf32", name)
        return function(*arguments, **named)

    own = (plain.add_norm(plain.rms_norm) if name == "add_rms_norm"
           else getattr(plain, name.partition(".")[0]))
    compute = _or_plain(name, call, own, lambda *given, **named: None)
    # An operator with `out` returns nothing.
    return lambda *given, **named: (compute(*given, **named), None)["out" in named]


@contextlib.contextmanager
def standing_in(tf32=True):
    """Operators compute on the CPU, and modules with weights there are patched. Gives the list of
    the operators that were called. Products may refuse fp32, as without tf32."""
    CALLS.clear()
    with (mock.patch.object(_modules, "on_gpu", lambda tensor: True),
          mock.patch("torch.cuda.is_current_stream_capturing", lambda: False),
          torch.library._scoped_library("kernwright", "IMPL") as library):
        for name, function in reference.IMPLEMENTATIONS.items():
            library.impl(name, counted(name.replace(".members", ""), function, tf32), "CPU")
        yield CALLS


@pytest.fixture
def on_cpu():
    with standing_in() as calls:
        yield calls
    torch.compiler.reset()

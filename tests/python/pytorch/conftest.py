"""Stands in for the GPU: operators of kernwright compute in PyTorch on the CPU."""

import pytest

try:
    import reference
    import torch
    from kernwright.torch import _modules
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    collect_ignore_glob = ["test_*.py"]

CALLS = []  # names of the operators that were computed


def counted(name, function):
    def call(*arguments, **named):
        CALLS.append(name)
        return function(*arguments, **named)

    return call


@pytest.fixture
def on_cpu(monkeypatch):
    """Operators compute on the CPU, and modules with weights there are patched. Gives the list of the
    operators that were called."""
    monkeypatch.setattr(_modules, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    CALLS.clear()
    with torch.library._scoped_library("kernwright", "IMPL") as library:
        for name, function in reference.IMPLEMENTATIONS.items():
            library.impl(name, counted(name.replace(".members", ""), function), "CPU")
        yield CALLS
    torch.compiler.reset()

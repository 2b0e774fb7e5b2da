"""kernwright as a choice of Inductor's matrix products."""

import logging
from typing import Any

import torch
from torch import Tensor

from .. import _operations as _arrays
from .._arrays import make_error
from .._kernwright import Error

_log = logging.getLogger("kernwright")
_DTYPES = (torch.bfloat16, torch.float16)


def kernwright_mm(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """out = a @ b by kernwright if it has a kernel, else by PyTorch."""
    if a.is_cuda and a.dtype in _DTYPES and a.dtype is b.dtype:
        try:
            _arrays.matmul(a, b, out=out)
            return
        except Error as error:
            _log.info("a product of Inductor is left to PyTorch: %s", error)
    torch.mm(a, b, out=out)


def _config() -> Any:
    from torch._inductor import config

    if not hasattr(config, "external_matmul"):
        raise make_error(f"PyTorch {torch.__version__} has no torch._inductor.config."
                         "external_matmul, by which kernels of others take part")
    return config


def use_in_inductor(enabled: bool = True) -> None:
    """Lets kernwright's products take part when torch.compile(mode="max-autotune") chooses the
    fastest, or no longer.

    Inductor times each choice once a shape, and takes ours if it wins. This is for aten.mm, which
    linear layers without bias become; Inductor has no such place for aten.addmm, with bias. Graphs
    that are compiled already stay as they are. Errors: Error if this PyTorch has no such place."""
    choices = _config().external_matmul
    if enabled and kernwright_mm not in choices:
        choices.append(kernwright_mm)
    elif not enabled and kernwright_mm in choices:
        choices.remove(kernwright_mm)

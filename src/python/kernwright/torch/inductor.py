"""kernwright in Inductor: as a choice of its matrix products, and as passes over its graphs."""

import logging
import pathlib
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


_SOURCES = [pathlib.Path(__file__).with_name(name) for name in (
    "_compiled.py", "_lowered.py", "_mixtures.py", "_packing.py", "_passes.py")]


def _make_pass() -> Any:
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    class Fusions(CustomGraphPass):
        """The passes in Inductor's form. The hash of their sources is a part of the key of compiled graphs."""

        def __call__(self, graph: torch.fx.Graph) -> None:
            from ._compiled import fuse_model  # defines operators for engines
            fuse_model(graph)

        def uuid(self) -> Any:
            return get_hash_for_files(tuple(map(str, _SOURCES)))

    return Fusions()


_fusions: Any = None  # made once, since Inductor compares passes


def fuse_in_inductor(enabled: bool = True) -> None:
    """Lets torch.compile fuse the layers of any model in inference on a GPU, in bf16 and fp16, or no
    longer.

    A residual is added in the product before it. SwiGLU and GeGLU by tanh are one product, and so
    are q, k and v of one input, if their weights are one behind the other, as `pack` lays them. An
    RMSNorm is computed in the product behind it if that is its only user and there are few rows,
    unless Inductor's own kernel makes what it normalises. One that `quantize_rows` alone reads, as with `QuantizedRows`,
    writes codes itself, and so does SwiGLU or GeGLU of one product of gate and up. The argmax of logits is ours. Counters of all layers' caches are one
    kernel. A decode step of the attention "kernwright" with a StaticCache normalises the heads of q
    and k, rotates, appends and attends in one kernel; a device assertion fails if layers' counters
    disagree or a cache is full. Other calls of it rotate in one kernel. Of mixtures that Transformers
    computes by grouped products, the choice of experts by a softmax, the order of rows, their products with
    biases, and the sum are a kernel each. Other products are linear layers, gated ones without bias. Sums are kept in fp32 and rounded once. All else is Inductor's: other norms and weights, results with other users, graphs with a
    backward. One graph is for all sizes. Graphs that are compiled already stay as they are. Errors:
    Error if this PyTorch has no place for passes, or if another's is in it."""
    global _fusions
    from torch._inductor import config

    if not hasattr(config, "post_grad_custom_pre_pass"):
        raise make_error(f"PyTorch {torch.__version__} has no torch._inductor.config.post_grad_custom_pre_pass")
    _fusions = _fusions or _make_pass()
    there = config.post_grad_custom_pre_pass
    if there not in (None, _fusions):
        raise make_error(f"torch._inductor.config.post_grad_custom_pre_pass is {there!r}, and None expected")
    config.post_grad_custom_pre_pass = _fusions if enabled else None

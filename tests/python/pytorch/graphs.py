"""Compiles steps with our passes on the CPU, where operators run their implementation, on which kernwright refuses and
PyTorch computes."""

import contextlib
import types
from unittest import mock

import torch

from kernwright import torch as kw
from kernwright.torch import _lowered, _operators, inductor


@contextlib.contextmanager
def on_cpu():
    """Tensors on the CPU count as those on a GPU, for the passes and for operators of engines."""
    with (mock.patch.object(_lowered, "on_gpu", lambda tensor: True),
          mock.patch.object(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=lambda _: None)),
          torch.library._scoped_library("kernwright_engine", "IMPL") as library):
        for name in ("argmax", "count", "rms_norm", "linear_add", "gated_linear", "qkv_linear", "norm_linear",
                     "norm_gated_linear", "norm_qkv_linear"):
            with contextlib.suppress(RuntimeError):  # another test's is there
                library.impl(name, getattr(_operators, f"_{name}"), "CPU")
        yield


# Without kernels of Inductor, which calls PyTorch's instead: compiles in less time.
CALLED = {"fallback_by_default": True} if hasattr(torch._inductor.config, "fallback_by_default") else {}


@contextlib.contextmanager
def passes(generated=False):
    """Compiles with our passes in its scope. Yields the names of the operators in the graphs, first of engines, then of
    models."""
    names, others = [], []
    kw.fuse_in_inductor()

    class Watched(type(inductor._fusions)):
        def __call__(self, graph):
            super().__call__(graph)
            graph.lint()
            names.extend(str(node.target).split(".")[1] for node in graph.nodes
                         if str(node.target).startswith("kernwright_engine"))
            others.extend(str(node.target).split(".")[1] for node in graph.nodes
                          if str(node.target).startswith("kernwright."))

        def uuid(self):
            return None

    try:
        torch._dynamo.reset()
        with torch._inductor.config.patch(post_grad_custom_pre_pass=Watched(), force_disable_caches=True,
                                          **({} if generated else CALLED)):
            yield names, others
    finally:
        kw.fuse_in_inductor(False)


def compiled(step, *calls, dynamic=None, generated=False, all_names=False):
    """Returns what the step computes when it is compiled with our passes, and the operators that are in its graphs: those
    of engines, and with `all_names` those of models too."""
    with passes(generated) as (names, others):
        step = torch.compile(step, fullgraph=True, dynamic=dynamic)
        results = [step(*arguments) for arguments in calls]
        return (results, names, others) if all_names else (results, names)


def expect_near(found, wanted, limit=0.02):
    assert found.shape == wanted.shape and found.dtype is wanted.dtype
    error = (found.float() - wanted.float()).norm() / wanted.float().norm()
    assert error < limit, f"a relative error of {error}"

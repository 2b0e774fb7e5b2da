"""kernwright: tuned GPU kernels on the arrays you have.

    import kernwright as kw
    y = kw.linear(x, weight, activation="silu")         # torch, CuPy, JAX: anything with DLPack

Operations find the best kernel for the shape: one that was tuned for it, else the one that the cost
model predicts. `kernwright.Service` has the settings, `kernwright.tune` tunes, and
`kernwright.doctor` says what this machine can do."""

from typing import Any, Iterable, List, Optional, Union

from ._chain import BakedLaunch, Chain, ChainBuilder, ChainSlot, ChainTime
from ._kernwright import Error
from ._kernwright import version as _version
from ._operations import (attention, elementwise, gated_linear, gelu_and_mul, grouped_matmul,
                          grouped_quantized_matmul, layer_norm, linear, matmul, reduce, rms_norm,
                          rope, scaled_matmul, silu_and_mul, softmax)
from ._progress import AnyProgress, TuneProgress
from ._record import Record
from ._service import (AnyPath, AnyProblem, Kernel, LookupCount, Problem, Service, Watch, default_service,
                       last_kernel, set_default)
from ._tool import doctor, main
from .plugins import fuse_graph  # vLLM looks for a pass in the package itself

__version__ = _version()

# The operations whose functions are made from their contracts, when they are asked for.
_MADE = ("argmax", "attention_merge", "attention_schedule", "bias_activation", "choose_experts",
         "combine_experts", "dequantize_weights", "embedding", "kv_append", "mla_append",
         "mla_attention", "order_experts", "pack_weights", "quantize_rows", "quantized_matmul")

__all__ = ["BakedLaunch", "Chain", "ChainBuilder", "ChainSlot", "ChainTime", "Error", "Kernel",
           "LookupCount", "Problem", "Record", "Service", "TuneProgress", "argmax", "attention",
           "attention_merge", "attention_schedule", "autotune", "bias_activation",
           "choose_experts", "combine_experts", "default_service", "dequantize_weights", "doctor",
           "elementwise", "embedding", "gated_linear", "gelu_and_mul", "grouped_matmul",
           "grouped_quantized_matmul", "kv_append", "last_kernel", "layer_norm", "linear",
           "lookup_counts", "matmul", "metrics", "mla_append", "mla_attention", "order_experts",
           "pack_weights", "prewarm", "quantize_rows", "quantized_matmul", "record",
           "record_shapes", "reduce", "rms_norm", "rope", "scaled_matmul", "seal", "set_default",
           "silu_and_mul", "softmax", "tune"]


def tune(problem: AnyProblem, seconds: Optional[float] = None, *, trials: Optional[int] = None,
         strategy: str = "portfolio", progress: AnyProgress = "auto") -> Kernel:
    """Tunes a problem on the active service; see Service.tune."""
    return default_service().tune(problem, seconds, trials=trials, strategy=strategy,
                                  progress=progress)


def record(problem: AnyProblem) -> Record:
    """Returns the record that answers a problem on the active service; see Service.record."""
    return default_service().record(problem)


def prewarm(problems: Union[AnyPath, Problem, Iterable[AnyProblem]]) -> None:
    """Gets the best kernels of problems, or of a worklist file, into memory, on the active service;
    see Service.prewarm."""
    default_service().prewarm(problems)


def record_shapes(file: AnyPath) -> Watch:
    """Appends the problems that the active service is asked for to a worklist, until the end of a
    `with` block; see Service.record_shapes."""
    return default_service().record_shapes(file)


def autotune(seconds: float = 30.0) -> Watch:
    """Tunes the problems that the active service is asked for, until the end of a `with` block; see
    Service.autotune."""
    return default_service().autotune(seconds)


def seal(mode: str = "error") -> None:
    """Rules out compiles of the active service; see Service.seal."""
    default_service().seal(mode)


def metrics() -> str:
    """Returns the figures of the active service that operators watch, in Prometheus' text format;
    see Service.metrics."""
    return default_service().metrics()


def lookup_counts() -> List[LookupCount]:
    """Returns how problems were answered so far, on the active service; see
    Service.lookup_counts."""
    return default_service().lookup_counts()


def __dir__() -> List[str]:
    return sorted([*__all__, "__version__", "torch"])


def __getattr__(name: str) -> Any:
    """Imports kernwright.torch, and with it PyTorch, when it is asked for. Makes the function of an
    operation from its contract."""
    if name in _MADE:
        from ._call import make_function
        return make_function(name)
    if name == "torch":
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

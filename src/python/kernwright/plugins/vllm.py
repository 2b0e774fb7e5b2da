"""kernwright in vLLM: attention, RMSNorm, SiluAndMul, linear layers and the head of a model.

    KERNWRIGHT_PLUGINS=vllm vllm serve MODEL --attention-backend CUSTOM --compilation-config \\
        '{"custom_ops": ["+rms_norm", "+silu_and_mul"],
          "inductor_passes": {"post_grad_custom_post_pass": "kernwright.plugins.fuse_graph"}}'

vLLM calls `load` through its entry point `vllm.general_plugins`, in every process. The classes take the
places of vLLM's by `register_oot`, its documented seam for layers from elsewhere. Without custom_ops vLLM
compiles norms and activations itself. Quantized layers have kernels in vLLM's lists of these
(`kernwright.plugins.vllm_linear`), and quantized experts configurations under the names of vLLM's, by
`register_quantization_config` (`kernwright.plugins.vllm_experts`). Attention is the backend CUSTOM of vLLM's registry
(`kernwright.plugins.vllm_attention`), which vLLM takes if it is asked for. The pass fuses the layers."""

import functools
import importlib
from typing import Any, List, Optional

from .. import __version__
from . import VARIABLE, is_wanted

_LINEAR_LAYERS = ("ReplicatedLinear", "ColumnParallelLinear", "MergedColumnParallelLinear",
                  "QKVParallelLinear", "RowParallelLinear")
_HEADS = ("VocabParallelEmbedding", "ParallelLMHead")
_ATTENTION = f"{__package__}.vllm_attention.KernwrightAttentionBackend"


def load() -> None:
    """The entry point. Does nothing unless KERNWRIGHT_PLUGINS has vllm."""
    if is_wanted("vllm"):
        register()


@functools.lru_cache(maxsize=None)
def register() -> List[str]:
    """Registers the layers, and returns the names of vLLM's classes that they replace, and of our kernels.
    A class that this vLLM does not have, or not for replacement, is left, with a line in the log. If results
    must not depend on the batch, all of them are left: a kernel is tuned for its number of rows."""
    from ..torch import _operators as operators
    try:
        from vllm import envs
    except ImportError as error:
        operators.say_once("vLLM stays as it is: %s", error)
        return []
    if getattr(envs, "VLLM_BATCH_INVARIANT", False):
        operators.say_once("vLLM stays as it is: VLLM_BATCH_INVARIANT is set")
        return []
    # vLLM keeps compiled models under a key of its settings and of the variables that it knows, and hands these
    # variables to workers on other hosts. Without ours it would take a model that was compiled without us.
    envs.environment_variables[VARIABLE] = lambda: f"vllm, of kernwright {__version__}"
    done = []
    for module, names, make in (
            ("vllm.model_executor.layers.layernorm", ("RMSNorm",), _norm_class),
            ("vllm.model_executor.layers.activation", ("SiluAndMul",), _activation_class),
            ("vllm.model_executor.layers.linear", _LINEAR_LAYERS, _product_class),
            ("vllm.model_executor.layers.vocab_parallel_embedding", _HEADS, _product_class)):
        for name in names:
            if _replace(module, name, make):
                done.append(name)
    try:
        from .vllm_linear import register_kernels
        done += register_kernels()
    except (ImportError, AttributeError) as error:
        operators.say_once("vLLM's quantized layers stay as they are: %s", error)
    try:
        from .vllm_experts import register_experts
        done += register_experts()
    except (ImportError, AttributeError) as error:
        operators.say_once("vLLM's experts stay as they are: %s", error)
    try:
        from vllm.v1.attention.backends import registry
        registry.register_backend(registry.AttentionBackendEnum.CUSTOM, _ATTENTION)
        done.append("CUSTOM")
    except (ImportError, AttributeError) as error:
        operators.say_once("vLLM's attention stays as it is: %s", error)
    return done


def _replace(module: str, name: str, make: Any) -> bool:
    from ..torch import _operators as operators
    try:
        theirs = getattr(importlib.import_module(module), name)
        ours = make(theirs, operators)
        theirs.register_oot(name=name)(ours)
        if hasattr(theirs, "name"):
            ours.name = theirs.name  # by which custom_ops turns it on, and which register_oot changed
        return True
    except (ImportError, AttributeError, TypeError, AssertionError) as error:
        operators.say_once("vLLM's %s stays as it is: %s", name, error)
        return False


def _norm_class(theirs: type, operators: Any) -> type:
    class KernwrightRMSNorm(theirs):  # type: ignore[valid-type, misc]
        def forward_cuda(self, x: Any, residual: Any = None, *more: Any) -> Any:
            plain = (not more and getattr(self, "variance_size_override", None) is None
                     and getattr(self, "has_weight", True))
            result = None
            if plain:
                result = operators.norm(x, residual, self.weight, self.variance_epsilon)
            return super().forward_cuda(x, residual, *more) if result is None else result

    return KernwrightRMSNorm


def _activation_class(theirs: type, operators: Any) -> type:
    class KernwrightSiluAndMul(theirs):  # type: ignore[valid-type, misc]
        def forward_cuda(self, x: Any) -> Any:
            result = operators.silu_and_mul(x)
            return super().forward_cuda(x) if result is None else result

    return KernwrightSiluAndMul


def _product_class(theirs: type, operators: Any) -> type:
    class KernwrightProduct(theirs):  # type: ignore[valid-type, misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            method = getattr(self, "quant_method", None)
            if type(method).__name__ in ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"):
                self.quant_method = _method_class(type(method), operators)()

    KernwrightProduct.__name__ = f"Kernwright{theirs.__name__}"
    return KernwrightProduct


@functools.lru_cache(maxsize=None)
def _method_class(theirs: type, operators: Any) -> type:
    class KernwrightMethod(theirs):  # type: ignore[valid-type, misc]
        def apply(self, layer: Any, x: Any, bias: Optional[Any] = None) -> Any:
            result = operators.linear(x, getattr(layer, "weight", None), bias)
            return super().apply(layer, x, bias) if result is None else result

    return KernwrightMethod

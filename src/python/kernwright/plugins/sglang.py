"""kernwright in SGLang: RMSNorm, SiluAndMul, and linear layers of few tokens.

    KERNWRIGHT_PLUGINS=sglang python -m sglang.launch_server --model-path MODEL

SGLang calls `load` through its entry point `sglang.srt.plugins`. Its registry of hooks puts ours around the
CUDA forward of its operators for several platforms, and around linear layers without quantization."""

import functools
import pkgutil
from typing import Any, Callable, Dict, List

from . import is_wanted


def load() -> None:
    """The entry point. Does nothing unless KERNWRIGHT_PLUGINS has sglang."""
    if is_wanted("sglang"):
        register()


@functools.lru_cache(maxsize=None)
def register() -> List[str]:
    """Registers the hooks, and returns the names of the methods that they are around. If this
    SGLang has no such registry, nothing changes. A method that it does not have stays as it is.
    Each case has a line in the log."""
    from ..torch import _operators as operators
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError as error:
        operators.say_once("SGLang stays as it is: %s", error)
        return []
    done = []
    for target, hook in _hooks(operators).items():
        try:
            pkgutil.resolve_name(target)  # the registry itself looks only when it applies its hooks
        except (AttributeError, ImportError) as error:
            operators.say_once("SGLang's %s stays as it is: %s", target, error)
            continue
        HookRegistry.register(target, hook, HookType.AROUND)
        done.append(target)
    return done


def _batch_invariance() -> Callable[[], bool]:
    """Returns a function that says whether results must not depend on the batch, which SGLang
    decides after it has loaded plug-ins."""
    try:
        from sglang.srt.batch_invariant_ops import is_batch_invariant_mode_enabled
        return is_batch_invariant_mode_enabled
    except ImportError:
        return lambda: False


def _hooks(operators: Any) -> Dict[str, Callable[..., Any]]:
    """Returns the hook around each method of SGLang. A hook gets the method, then its arguments."""
    is_batch_invariant = _batch_invariance()

    def is_plain(layer: Any) -> bool:
        """Returns true if a norm is over whole rows, rounded once, and SGLang does not fuse it with
        the fp8 quantization of the linear layer behind it, as it does if that layer has a static
        scale."""
        behind = getattr(layer, "_quant_linear", None)
        return (getattr(layer, "variance_size_override", None) is None
                and not getattr(layer, "cast_x_before_out_mul", False)
                and getattr(behind, "input_scale", None) is None)

    def norm(original: Callable[..., Any], layer: Any, x: Any, residual: Any = None, *more: Any,
             **named: Any) -> Any:
        result = None
        if (all(value is None for value in (*more, *named.values())) and is_plain(layer)
                and not is_batch_invariant()):
            result = operators.norm(x, residual, layer.weight, layer.variance_epsilon)
        return original(layer, x, residual, *more, **named) if result is None else result

    def silu_and_mul(original: Callable[..., Any], layer: Any, x: Any) -> Any:
        result = None if is_batch_invariant() else operators.silu_and_mul(x)
        return original(layer, x) if result is None else result

    def linear(original: Callable[..., Any], method: Any, layer: Any, x: Any,
               bias: Any = None) -> Any:
        result = None if is_batch_invariant() else operators.linear(x, layer.weight, bias)
        return original(method, layer, x, bias) if result is None else result

    return {"sglang.srt.layers.layernorm.RMSNorm.forward_cuda": norm,
            "sglang.srt.layers.activation.SiluAndMul.forward_cuda": silu_and_mul,
            "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply": linear}

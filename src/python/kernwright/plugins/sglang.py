"""kernwright in SGLang: RMSNorm, SiluAndMul, and linear layers of few tokens.

    KERNWRIGHT_PLUGINS=sglang python -m sglang.launch_server --model-path MODEL

SGLang calls `load` through its entry point `sglang.srt.plugins`. Its registry of hooks puts ours around the
CUDA forward of its operators for several platforms, and around linear layers without quantisation."""

import functools
from typing import Any, Callable, Dict, List

from . import is_wanted

def load() -> None:
    """The entry point. Does nothing unless KERNWRIGHT_PLUGINS has sglang."""
    if is_wanted("sglang"):
        register()


@functools.lru_cache(maxsize=None)
def register() -> List[str]:
    """Registers the hooks, and gives what they are around. Where this SGLang has no such registry, all stays
    as it is, with a line in the log."""
    from . import _operators as operators
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError as error:
        operators.say_once("SGLang stays as it is: %s", error)
        return []
    done = []
    for target, hook in _hooks(operators).items():
        try:
            HookRegistry.register(target, hook, HookType.AROUND)
            done.append(target)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            operators.say_once("SGLang's %s stays as it is: %s", target, error)
    return done


def _hooks(operators: Any) -> Dict[str, Callable[..., Any]]:
    """What is around which method of SGLang. A hook gets the method, then its arguments."""
    def norm(original: Callable[..., Any], layer: Any, x: Any, residual: Any = None, *more: Any,
             **named: Any) -> Any:
        result = None
        if (all(value is None for value in (*more, *named.values()))
                and getattr(layer, "variance_size_override", None) is None):
            result = operators.norm(x, residual, layer.weight, layer.variance_epsilon)
        return original(layer, x, residual, *more, **named) if result is None else result

    def silu_and_mul(original: Callable[..., Any], layer: Any, x: Any) -> Any:
        result = operators.silu_and_mul(x)
        return original(layer, x) if result is None else result

    def linear(original: Callable[..., Any], method: Any, layer: Any, x: Any,
               bias: Any = None) -> Any:
        result = operators.linear(x, layer.weight, bias)
        return original(method, layer, x, bias) if result is None else result

    return {"sglang.srt.layers.layernorm.RMSNorm.forward_cuda": norm,
            "sglang.srt.layers.activation.SiluAndMul.forward_cuda": silu_and_mul,
            "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply": linear}

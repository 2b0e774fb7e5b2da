"""kernwright in SGLang: attention, RMSNorm, SiluAndMul, and linear layers, with weights of 4 and 8 bits too.

    KERNWRIGHT_PLUGINS=sglang python -m sglang.launch_server --model-path MODEL --attention-backend kernwright

SGLang calls `load` through its entry point `sglang.srt.plugins`. Its registry of hooks puts ours around the
CUDA forward of its operators for several platforms, and around linear layers: those that are not quantized,
and those that it has Marlin for. Attention is a backend of its registry (`kernwright.plugins.sglang_attention`),
which SGLang takes if it is asked for."""

import functools
import pkgutil
from typing import Any, Callable, Dict, List, Optional

from . import is_wanted

#: The name of our attention backend.
BACKEND = "kernwright"
_SCHEMES = "sglang.srt.layers.quantization"
_GPTQ = f"{_SCHEMES}.gptq.schemes.gptq_marlin.GPTQMarlinLinearScheme"
_AWQ = f"{_SCHEMES}.awq.schemes.awq_marlin.AWQMarlinLinearScheme"
_COMPRESSED = f"{_SCHEMES}.compressed_tensors.schemes.compressed_tensors_wNa16.CompressedTensorsWNA16"


def load() -> None:
    """The entry point. Does nothing unless KERNWRIGHT_PLUGINS has sglang."""
    if is_wanted("sglang"):
        register()


@functools.lru_cache(maxsize=None)
def register() -> List[str]:
    """Registers the hooks, and returns the names of the methods that they are around, and of our
    attention. If this SGLang has no such registry, nothing changes. A method that it does not have
    stays as it is. Each case has a line in the log."""
    from ..torch import _operators as operators
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError as error:
        operators.say_once("SGLang stays as it is: %s", error)
        return []
    done = []
    for target, hook in {**_hooks(operators), **_quantized_hooks(operators)}.items():
        try:
            pkgutil.resolve_name(target)  # the registry itself looks only when it applies its hooks
        except (AttributeError, ImportError) as error:
            operators.say_once("SGLang's %s stays as it is: %s", target, error)
            continue
        HookRegistry.register(target, hook, HookType.AROUND)
        done.append(target)
    try:
        from sglang.srt.arg_groups.choices import add_attention_backend_choices
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
    except ImportError as error:
        operators.say_once("SGLang's attention stays as it is: %s", error)
        return done
    register_attention_backend(BACKEND)(_make_attention)
    add_attention_backend_choices([BACKEND])
    return [*done, BACKEND]


def _make_attention(runner: Any) -> Any:
    from .sglang_attention import make_backend
    return make_backend(runner)


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


def is_deterministic() -> bool:
    """Returns true if SGLang was asked for results that do not depend on the batch, which it turns on after it has
    loaded a model; also if it does not say so."""
    try:
        from sglang.srt.runtime_context import get_exec
        return bool(get_exec().deterministic.enable_deterministic_inference)
    except (ImportError, AttributeError, RuntimeError):
        return True


def _quantized_hooks(operators: Any) -> Dict[str, Callable[..., Any]]:
    """Returns the hooks that pack layers with weights of 4 and 8 bits when these are loaded, and multiply by what
    was packed. A layer that is left has its own weights, and SGLang's kernel."""
    from ..torch._quantized import QuantizedWeight
    from ._packed_layers import DTYPES, keep, pack, reasons_against, weight_of

    def pack_awq(scheme: Any, layer: Any) -> None:
        own, group = ("qweight", "qzeros", "scales"), scheme.quant_config.group_size
        if layer.scales.dtype not in DTYPES:
            raise ValueError(f"scales are {layer.scales.dtype}, and 16 bits expected")
        keep(layer, list(own), QuantizedWeight.from_awq(*(getattr(layer, name).data for name in own),
                                                        group=None if group == -1 else group))

    def pack_by(config_of: Callable[[Any], Any], *names: Optional[str]) -> Callable[[Any, Any], None]:
        def packs(scheme: Any, layer: Any) -> None:
            config = config_of(scheme)
            reasons = reasons_against(config)
            if reasons:
                raise ValueError(f"{', '.join(reasons)} not supported")
            pack(layer, config, *names)

        return packs

    def loaded(packs: Callable[[Any, Any], None]) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], scheme: Any, layer: Any) -> Any:
            if is_deterministic():
                return original(scheme, layer)
            try:
                return packs(scheme, layer)
            except ValueError as error:
                operators.say_once("a quantized layer is left to SGLang: %s", error)
                return original(scheme, layer)

        return hook

    def apply(original: Callable[..., Any], scheme: Any, layer: Any, x: Any, bias: Any = None) -> Any:
        weight = weight_of(layer)
        return original(scheme, layer, x, bias) if weight is None else operators.quantized_linear(x, weight, bias)

    hooks: Dict[str, Callable[..., Any]] = {}
    for scheme, packs in (
            (_GPTQ, pack_by(lambda scheme: scheme.kernel.kernel_config, "qweight", "scales", None, "g_idx")),
            (_AWQ, pack_awq),
            (_COMPRESSED, pack_by(lambda scheme: scheme.kernel_config, "weight_packed", "weight_scale",
                                  "weight_zero_point", "weight_g_idx"))):
        hooks[f"{scheme}.process_weights_after_loading"] = loaded(packs)
        hooks[f"{scheme}.apply_weights"] = apply
    return hooks

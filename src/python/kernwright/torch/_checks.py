"""Checks that a module computes what its replacement computes: by its class and members, and by a
run on a few random rows."""

import functools
import math
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._kernwright import Error
from . import _decoder as decoder
from . import _modules as modules
from ._guards import hooks_of
from ._decoder import head_norms
from ._modules import epsilon
from .ops import plain

# The layers of these classes are norm, attention, residual, norm, SwiGLU, residual and nothing
# else. A router with experts may be in the place of the SwiGLU.
LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "MixtralDecoderLayer", "Qwen2DecoderLayer",
          "Qwen2MoeDecoderLayer", "Qwen3DecoderLayer", "Qwen3MoeDecoderLayer", "GptOssDecoderLayer")
# The attention of these has sinks, and in some layers a window; their angles have a column for each pair.
LAYERS_WITH_SINKS = ("GptOssDecoderLayer",)
MOST_EXPERTS = 1024  # of a grouped product
LARGEST_ERROR = 0.03  # between two computations in 16 bits, relative


class Left(Exception):
    """The reason why a module is left as it is."""


def random_rows(weight: Tensor, *shape: int) -> Tensor:
    """Returns random rows, and leaves the program's own random numbers as they are."""
    generator = torch.Generator(weight.device).manual_seed(1)
    return torch.randn(shape, generator=generator, device=weight.device, dtype=torch.float32).to(
        weight.dtype)


def relative_error(result: Any, expected: Tensor) -> float:
    """Returns infinity for results of other shapes, and NaN if there is one in them."""
    if not isinstance(result, Tensor) or result.shape != expected.shape:
        return math.inf
    return float((result.double() - expected.double()).norm() / expected.double().norm())


def expect_near(result: Any, expected: Tensor, formula: str) -> None:
    if not relative_error(result, expected) <= LARGEST_ERROR:
        raise Left(f"does not compute {formula}")


def expect_kernels_for(weight: Any, dtypes: Sequence[torch.dtype]) -> None:
    if not isinstance(weight, Tensor) or type(weight) not in (Tensor, nn.Parameter):
        raise Left(f"its weight is a {type(weight).__name__}, no plain tensor")
    if weight.is_meta:
        raise Left("its weight is on the meta device; patch the model when it has weights")
    if not modules.on_gpu(weight):
        raise Left(f"its weight is on {weight.device}, and kernels are for GPUs")
    if weight.dtype not in dtypes:
        raise Left(f"its weight is {str(weight.dtype).rpartition('.')[2]}, which no kernel takes")


def expect_own_forward(module: nn.Module) -> None:
    if "forward" in vars(module):
        raise Left("its forward was replaced by another library")


def expect_names(module: nn.Module, count: int) -> Tuple[str, ...]:
    """Returns the names of the arguments of its forward."""
    names = modules.parameter_names(type(module).forward)
    if len(names) != count:
        raise Left(f"its forward takes {', '.join(names)}, and {count} arguments expected")
    return names


def _expect_no_hooks(*parts: Any) -> None:
    everywhere = nn.modules.module
    if everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks:
        raise Left("there are forward hooks of all modules, which it would not call")
    for part in parts:
        if isinstance(part, nn.Module):
            expect_own_forward(part)
            if hooks_of(part):
                raise Left("a module in it has forward hooks, which it would not call")


def check_linear(module: nn.Module) -> None:
    if type(module).forward is not nn.Linear.forward:
        raise Left(f"{type(module).__name__} has a forward of its own")
    expect_kernels_for(module.weight, modules.DTYPES)


def check_norm(module: nn.Module) -> None:
    expect_kernels_for(getattr(module, "weight", None), (*modules.DTYPES, torch.float32))
    weight = module.weight
    if weight.dim() != 1 or getattr(module, "bias", None) is not None:
        raise Left("is no norm over the last dimension with a weight alone")
    if not hasattr(module, "variance_epsilon") and not hasattr(module, "eps"):
        raise Left("has neither variance_epsilon nor eps")
    x = random_rows(weight, 4, weight.shape[0])
    wide = x.float()
    expected = wide * (wide.square().mean(-1, keepdim=True) + epsilon(module)).rsqrt()
    expect_near(module(x), expected * weight.float(), "weight * x / rms(x)")


ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu, "gelu_erf": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}


def _activation_of(call: Callable[[Tensor], Tensor], device: torch.device) -> str:
    x = torch.linspace(-4, 4, 257, device=device)
    for name, function in ACTIVATIONS.items():
        if torch.allclose(call(x), function(x), rtol=1e-5, atol=1e-6):
            return name
    raise Left("its activation is neither SiLU nor GELU")


def check_swiglu(module: nn.Module) -> str:
    """Returns the activation."""
    gate, up, down = module.gate_proj, module.up_proj, module.down_proj
    for part in (gate, up, down):
        check_linear(part)
    if gate.weight.shape != up.weight.shape:
        raise Left("gate and up projection have other shapes")
    return check_swiglu_of(module, random_rows(gate.weight, 4, gate.weight.shape[1]),
                           lambda part, x: functional.linear(x, part.weight, part.bias))


def check_swiglu_of(module: nn.Module, x: Tensor, product: Callable[[nn.Module, Tensor], Tensor]) -> str:
    """Returns the activation. `x` are rows of its input, and `product` computes one of its linear layers."""
    gate, up, down = module.gate_proj, module.up_proj, module.down_proj
    if any(getattr(part, "bias", None) is not None for part in (gate, up)):
        raise Left("its gate or up projection has a bias, which a gated product has not")
    activation = _activation_of(module.act_fn, x.device)
    _expect_no_hooks(gate, up, module.act_fn)
    inner = ACTIVATIONS[activation](product(gate, x).float())
    inner = (inner * product(up, x).float()).to(x.dtype)
    expect_near(module(x), product(down, inner), "down(activation(gate(x)) * up(x))")
    return activation


def how_experts_lie(module: nn.Module) -> str:
    """Returns in what the layout differs from [experts, out, in] with the gates first and no biases."""
    flags = ("has_gate", "has_bias", "is_transposed", "is_concatenated")
    if not all(hasattr(module, flag) for flag in flags):
        raise Left("is none of Transformers' ExpertsInterface, which says how weights lie")
    if not module.has_gate:
        raise Left("its experts have no gate")
    if getattr(module, "has_post_expert_norm", False):
        raise Left("its experts have a norm behind them")
    wrong = []
    if module.is_transposed:
        wrong.append("weights are [experts, in, out]")
    if module.has_bias:
        wrong.append("products have biases")
    if not module.is_concatenated:
        wrong.append("gates and what they open are interleaved")
    return "; ".join(wrong)


def check_experts(module: nn.Module) -> str:
    """Returns the activation."""
    gate_up, down = module.gate_up_proj, module.down_proj
    for weight in (gate_up, down):
        expect_kernels_for(weight, modules.DTYPES)
        if not weight.is_contiguous():
            raise Left("its weights are not contiguous")
    experts, columns, inner = down.shape
    if gate_up.dtype is not down.dtype or gate_up.shape != (experts, 2 * inner, columns):
        raise Left(f"its weights are {tuple(gate_up.shape)} and {tuple(down.shape)}, which are no "
                   "gates, what they open, and what follows, in one dtype")
    if experts > MOST_EXPERTS or columns % 8 != 0 or inner % 8 != 0:
        raise Left(f"it has {experts} experts from {columns} to {inner} columns, and at most "
                   f"{MOST_EXPERTS} and multiples of 8 expected")
    if not callable(getattr(module, "act_fn", None)):
        raise Left("has no act_fn")
    activation = _activation_of(module.act_fn, down.device)
    x, choices = random_rows(down, 4, columns), min(2, experts)
    index = torch.arange(4 * choices, device=x.device).remainder(experts).view(4, choices)
    shares = torch.linspace(0.2, 0.8, 4 * choices, device=x.device).view(4, choices).to(x.dtype)
    expected = torch.zeros_like(x, dtype=torch.float32)
    for row in range(4):
        for expert, share in zip(index[row], shares[row]):
            gate, other = functional.linear(x[row], gate_up[expert]).float().chunk(2)
            opened = (ACTIVATIONS[activation](gate) * other).to(x.dtype)
            expected[row] += share * functional.linear(opened, down[expert]).float()
    expect_near(module(x, index, shares), expected,
                 "down(activation(gate(x)) * up(x)) of the experts of each row, by their shares")
    return activation


def _half_a_layer(layer: nn.Module, x: Tensor,
                  angles: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
    """Computes a layer of LAYERS up to its feed-forward layer, in plain PyTorch. Returns the sum so
    far, and the feed-forward layer's input."""
    attention = layer.self_attn
    batch, tokens, _ = x.shape

    def norm(own: nn.Module, rows: Tensor) -> Tensor:
        return functional.rms_norm(rows, rows.shape[-1:], own.weight, epsilon(own))

    def product(own: nn.Module, rows: Tensor) -> Tensor:
        return functional.linear(rows, own.weight, own.bias)

    def rotate(part: Tensor) -> Tensor:
        first, second = part.chunk(2, -1)
        cos, sin = (table[:, None, :, :first.shape[-1]] for table in angles)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    rows = norm(layer.input_layernorm, x)
    q, k, v = (product(own, rows).view(batch, tokens, -1, attention.head_dim).transpose(1, 2)
               for own in (attention.q_proj, attention.k_proj, attention.v_proj))
    norms = head_norms(attention)
    if norms:
        q, k = norm(norms[0], q), norm(norms[1], k)
    attended = plain.attention(rotate(q), rotate(k), v, decoder.sinks_of(attention), causal=True,
                               scale=attention.scaling)
    x = x + product(attention.o_proj, attended.transpose(1, 2).reshape(batch, tokens, -1))
    return x, norm(layer.post_attention_layernorm, x)


def _given_of(layer: nn.Module) -> Tuple[Tensor, Tuple[Tensor, ...]]:
    """Returns rows and angles for a decoder layer."""
    weight = layer.input_layernorm.weight
    turns = random_rows(weight, 1, 4, layer.self_attn.head_dim // 2).float()
    repeats = 1 if type(layer).__name__ in LAYERS_WITH_SINKS else 2
    return random_rows(weight, 1, 4, weight.shape[0]), tuple(
        table.repeat(1, 1, repeats).to(weight.dtype) for table in (turns.cos(), turns.sin()))


def _result_of(layer: nn.Module, x: Tensor, angles: Tuple[Tensor, ...]) -> Any:
    config = layer.self_attn.config
    own, mask = "sdpa", None
    if type(layer).__name__ in LAYERS_WITH_SINKS:  # PyTorch's attention has no sinks
        own, mask = "eager", torch.full((4, 4), torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device).triu(1)[None, None]
    implementation, config._attn_implementation = config._attn_implementation, own
    try:
        return layer(x, attention_mask=mask, position_embeddings=angles)
    finally:
        config._attn_implementation = implementation


def check_rows_of_norms(layer: nn.Module, norms: Dict[nn.Module, Any], quantized: Callable[..., Tensor],
                        fronts: Dict[nn.Module, type]) -> None:
    """Checks that a layer computes the same if these norms hand codes on in place of rows."""
    name = type(layer).__name__
    if name not in LAYERS:
        raise Left(f"{name} is none of {', '.join(LAYERS)}; its parts are looked at one by one")
    if any(fronts.get(norm) is not modules.RMSNorm or norm.weight.dtype not in modules.DTYPES for norm in norms):
        raise Left("one of its norms was left, or is not in 16 bits")
    _expect_no_hooks(*norms, *(part for each in norms.values() for part in (each.path[1], *each.modules())))
    x, angles = _given_of(layer)
    expected = _result_of(layer, x, angles)
    try:
        for norm in norms:
            norm.forward = functools.partial(quantized, norm, readers=norms[norm].modules())
        result = _result_of(layer, x, angles)
    except (TypeError, AttributeError, RuntimeError, Error) as error:
        raise Left(f"something else than products of 8 bits reads its norms: {error}") from error
    finally:
        for norm in norms:
            vars(norm).pop("forward", None)
    # A norm that is not rounded before it is quantized may have the next code.
    if not relative_error(result, expected) <= 2 * LARGEST_ERROR:
        raise Left("does not compute the same with codes in place of the rows of its norms")


def check_layer(layer: nn.Module, fronts: Dict[nn.Module, type]) -> Tuple[str, ...]:
    """Returns the names of its arguments. `fronts` has the replacements of the modules that
    passed."""
    name = type(layer).__name__
    if name not in LAYERS:
        raise Left(f"{name} is none of {', '.join(LAYERS)}; its parts are looked at one by one")
    attention = layer.self_attn
    parts = [getattr(attention, part) for part in ("q_proj", "k_proj", "v_proj", "o_proj")]
    if any(fronts.get(part) is not modules.Linear for part in parts):
        raise Left("one of its linear layers was left, or is quantized")
    if len({part.bias is None for part in parts[:3]}) != 1:
        raise Left("some of q, k and v have a bias, and some have none")
    if name in LAYERS_WITH_SINKS:
        _expect_sinks(attention)
    elif decoder.sinks_of(attention) is not None or getattr(
            attention, "sliding_window", getattr(attention.config, "sliding_window", None)):
        raise Left("its attention has a sliding window or sinks")
    experts = getattr(layer.mlp, "experts", None)
    if fronts.get(layer.mlp) is not decoder.SwiGLU and fronts.get(experts) is not decoder.Experts and (
            experts is None or name not in LAYERS_WITH_SINKS):  # these may be packed, or are called as they are
        raise Left("its feed-forward layer was left")
    norms = (layer.input_layernorm, layer.post_attention_layernorm, *head_norms(attention))
    if any(fronts.get(norm) is not modules.RMSNorm for norm in norms):
        raise Left("one of its norms was left")
    if len({epsilon(norm) for norm in head_norms(attention)}) > 1:
        raise Left("the norms of q and of k have other epsilons")
    if any(norm.weight.dtype is not parts[0].weight.dtype for norm in norms):
        raise Left("its norms have another dtype than its products")
    mlp = layer.mlp
    _expect_no_hooks(*parts, *norms, attention, mlp, *(getattr(mlp, name, None) for name in (
        "gate_proj", "up_proj", "down_proj", "act_fn")))
    names = modules.parameter_names(type(layer).forward)
    if len(set(names) & set(modules.CACHES)) != 1 or not set(names) <= set(modules.OF_LAYERS):
        raise Left(f"its forward takes {', '.join(names)}, which are not all understood")
    if not getattr(attention, "is_causal", True) or not getattr(attention.config, "is_causal",
                                                                True):
        raise Left("its attention is not causal")
    x, angles = _given_of(layer)
    fed: List[Tuple[Tuple[Tensor, ...], Tensor]] = []
    handle = layer.mlp.register_forward_hook(lambda _, given, mixed: fed.append((given, mixed)))
    try:
        result = _result_of(layer, x, angles)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise Left(f"cannot be run: {error}") from error
    finally:
        handle.remove()
    known = "a layer as it was known"
    if [len(given) for given, _ in fed] != [1]:
        raise Left(f"does not compute {known}")
    # The feed-forward layer passed a check of its own. The experts that a router chooses may depend
    # on roundoff, so its result is taken as it was.
    so_far, rows = _half_a_layer(layer, x, angles)
    expect_near(fed[0][0][0], rows, known)
    expect_near(result, so_far + decoder.rows_of(fed[0][1]), known)
    return names


def _expect_sinks(attention: nn.Module) -> None:
    """Checks that the layer has sinks, and the window that the masks of its kind have."""
    sinks, config = decoder.sinks_of(attention), attention.config
    heads = attention.q_proj.weight.shape[0] // attention.head_dim
    if not isinstance(sinks, Tensor) or sinks.shape != (heads,):
        raise Left(f"its attention has no sink for each of {heads} heads")
    kind = config.layer_types[attention.layer_idx]
    windows = {"sliding_attention": config.sliding_window, "full_attention": None}
    if kind not in windows or decoder.window_of(attention) != windows[kind]:
        raise Left(f"its attention has a window of {decoder.window_of(attention)}, and masks are those of {kind}")


def _check_angles(rotary: nn.Module) -> None:
    if getattr(rotary, "rope_type", "default") not in modules.STATIC_ROPE:
        raise Left(f"its angles are of the kind {rotary.rope_type}, which change with the length")
    if not isinstance(getattr(rotary, "inv_freq", None), Tensor):
        raise Left("its rotary_emb has no inv_freq")
    places = torch.tensor([[0, 1, 7, 100]], device=rotary.inv_freq.device)
    known = rotary(torch.empty(0, device=places.device), places)
    angles = torch.outer(places[0].float(), rotary.inv_freq.float())
    for table, expected in zip((angles.cos(), angles.sin()), known):
        repeats = 1 if expected.shape[-1] == table.shape[-1] else 2
        expect_near(table.repeat(1, repeats) * rotary.attention_scaling, expected[0],
                     "angles as they were known")


class _Recorded(nn.Module):
    """Stands in for a layer, and keeps what it is called with."""

    def __init__(self, calls: List[Any]) -> None:
        super().__init__()
        self._calls = calls

    def forward(self, *given: Any, **named: Any) -> Tensor:
        self._calls.append((given, named))
        return given[0] if given else named["hidden_states"]


def _check_loop(model: nn.Module, names: Sequence[str]) -> None:
    """Runs the model's own forward with recorders for layers, and checks that each is called once,
    in order, and with the arguments that the forwards of layers read."""
    calls: List[Any] = []
    layers, modes = model.layers, [module.training for module in model.modules()]
    weight, step = model.norm.weight, object()
    embeds = random_rows(weight, 1, 2, weight.shape[0])
    mask = torch.zeros((1, 1, 1, 0), dtype=torch.bool, device=weight.device)
    cache_name = next(name for name in names if name in modules.CACHES)
    cache = _caches_of(model)[0](config=model.config, max_cache_len=4)
    model._modules["layers"] = nn.ModuleList(_Recorded(calls) for _ in layers)
    try:
        model.eval()
        model(inputs_embeds=embeds, attention_mask=mask, kernwright_step=step,
              use_cache=True, **{cache_name: cache})
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise Left(f"its forward does not hand things on as it was known: {error}") from error
    finally:
        model._modules["layers"] = layers
        for module, mode in zip(model.modules(), modes):
            module.training = mode
    places = torch.arange(2, device=weight.device)[None]
    angles = model.rotary_emb(embeds, places)
    for given, named in calls:
        call = dict(named, hidden_states=given[0] if given else named["hidden_states"])
        handed = [name for name in modules.CACHES if call.get(name) is cache]
        if (len(given) > 1 or len(handed) != 1 or call.get("kernwright_step") is not step
                or call.get("attention_mask") is not mask
                or not torch.equal(call["hidden_states"], embeds)
                or not all(torch.equal(*pair)
                           for pair in zip(call.get("position_embeddings", ()), angles))
                or not modules.asks_no_more({name: value for name, value in call.items()
                                             if name != "kernwright_step"}, modules.OF_LAYERS)):
            raise Left("its forward does not hand things on as it was known")
    if len(calls) != len(layers):
        raise Left(f"its forward calls {len(calls)} layers, and has {len(layers)}")


def _caches_of(model: nn.Module) -> Tuple[type, ...]:
    """Returns the classes of a cache whose length is fixed, and of its layers, also of those with a window."""
    utils = sys.modules.get("transformers.cache_utils")
    names = "StaticCache", "StaticLayer", "StaticSlidingWindowLayer"
    caches = tuple(getattr(utils, name, None) for name in names)
    if not all(isinstance(kind, type) for kind in caches):
        raise Left(f"Transformers has not all of {', '.join(names)}")
    return caches


def check_model(model: nn.Module,
                fronts: Dict[nn.Module, type]) -> Tuple[Tuple[str, ...], Tuple[type, ...]]:
    """Returns the names of its arguments, and the classes of a cache whose decode steps it
    knows."""
    if any(fronts.get(layer) is not decoder.DecoderLayer for layer in model.layers):
        raise Left("one of its layers was left, so that decode steps are not fused")
    if all(decoder.window_of(layer.self_attn) for layer in model.layers):
        raise Left("all of its layers have a window, and none counts all tokens")
    if not hasattr(model, "rotary_emb") or not hasattr(model, "norm"):
        raise Left("has no rotary_emb or no norm")
    expect_own_forward(model.rotary_emb)
    names = modules.parameter_names(type(model).forward)
    if not {"input_ids", "attention_mask", "position_ids", "inputs_embeds"} <= set(names) or (
            len(set(names) & set(modules.CACHES)) != 1):
        raise Left(f"its forward takes {', '.join(names)}, which are not understood")
    _check_angles(model.rotary_emb)
    _check_loop(model, names)
    return names, _caches_of(model)

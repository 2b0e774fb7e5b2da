"""Whether a module computes what a replacement is for: by its class and members, and by a run on a few
random rows."""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import _modules as modules
from ._modules import epsilon, head_norms

# Of these classes a layer is norm, attention, residual, norm, SwiGLU, residual and nothing else. A
# router with experts may be in the place of the SwiGLU.
LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "MixtralDecoderLayer", "Qwen2DecoderLayer",
          "Qwen2MoeDecoderLayer", "Qwen3DecoderLayer", "Qwen3MoeDecoderLayer")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")
DTYPES = (torch.bfloat16, torch.float16)
MOST_EXPERTS = 1024  # of a grouped product
LARGEST_ERROR = 0.03  # of what is computed in 16 bits twice, relative


class Left(Exception):
    """Why a module is left as it is."""


def _random(weight: Tensor, *shape: int) -> Tensor:
    """Random rows that leave the program's own random numbers as they are."""
    generator = torch.Generator(weight.device).manual_seed(1)
    return torch.randn(shape, generator=generator, device=weight.device, dtype=torch.float32).to(
        weight.dtype)


def _expect_near(result: Any, expected: Tensor, formula: str) -> None:
    if not isinstance(result, Tensor) or result.shape != expected.shape:
        raise Left(f"does not compute {formula}")
    error = (result.double() - expected.double()).norm() / expected.double().norm()
    if not error <= LARGEST_ERROR:
        raise Left(f"does not compute {formula}")


def _expect_kernels_for(weight: Any, dtypes: Sequence[torch.dtype]) -> None:
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


def check_linear(module: nn.Module) -> None:
    if type(module).forward is not nn.Linear.forward:
        raise Left(f"{type(module).__name__} has a forward of its own")
    _expect_kernels_for(module.weight, DTYPES)


def check_norm(module: nn.Module) -> None:
    _expect_kernels_for(getattr(module, "weight", None), (*DTYPES, torch.float32))
    weight = module.weight
    if weight.dim() != 1 or getattr(module, "bias", None) is not None:
        raise Left("is no norm over the last dimension with a weight alone")
    if not hasattr(module, "variance_epsilon") and not hasattr(module, "eps"):
        raise Left("has neither variance_epsilon nor eps")
    x = _random(weight, 4, weight.shape[0])
    wide = x.float()
    expected = wide * (wide.square().mean(-1, keepdim=True) + epsilon(module)).rsqrt()
    _expect_near(module(x), expected * weight.float(), "weight * x / rms(x)")


_ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu, "gelu_erf": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}


def _activation_of(call: Callable[[Tensor], Tensor], device: torch.device) -> str:
    x = torch.linspace(-4, 4, 257, device=device)
    for name, function in _ACTIVATIONS.items():
        if torch.allclose(call(x), function(x), rtol=1e-5, atol=1e-6):
            return name
    raise Left("its activation is neither SiLU nor GELU")


def check_swiglu(module: nn.Module) -> str:
    """Gives the activation."""
    gate, up, down = module.gate_proj, module.up_proj, module.down_proj
    for part in (gate, up, down):
        check_linear(part)
    if gate.bias is not None or up.bias is not None:
        raise Left("its gate or up projection has a bias, which a gated product has not")
    if gate.weight.shape != up.weight.shape:
        raise Left("gate and up projection have other shapes")
    activation = _activation_of(module.act_fn, gate.weight.device)
    x = _random(gate.weight, 4, gate.weight.shape[1])
    inner = _ACTIVATIONS[activation](functional.linear(x, gate.weight).float())
    inner = (inner * functional.linear(x, up.weight).float()).to(x.dtype)
    _expect_near(module(x), functional.linear(inner, down.weight, down.bias),
                 "down(activation(gate(x)) * up(x))")
    return activation


def _how_experts_lie(module: nn.Module) -> None:
    flags = ("has_gate", "has_bias", "is_transposed", "is_concatenated")
    if not all(hasattr(module, flag) for flag in flags):
        raise Left("is none of Transformers' ExpertsInterface, which says how weights lie")
    wrong = []
    if module.is_transposed:
        wrong.append("its weights are [experts, in, out], and [experts, out, in] expected")
    if module.has_bias:
        wrong.append("its products have biases, which grouped products have not")
    if not module.has_gate:
        wrong.append("its experts have no gate")
    elif not module.is_concatenated:
        wrong.append("gates and what they open are interleaved")
    if wrong:
        raise Left("; ".join(wrong))


def check_experts(module: nn.Module) -> str:
    """Gives the activation."""
    _how_experts_lie(module)
    gate_up, down = module.gate_up_proj, module.down_proj
    for weight in (gate_up, down):
        _expect_kernels_for(weight, DTYPES)
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
    x, choices = _random(down, 4, columns), min(2, experts)
    index = torch.arange(4 * choices, device=x.device).remainder(experts).view(4, choices)
    shares = torch.linspace(0.2, 0.8, 4 * choices, device=x.device).view(4, choices).to(x.dtype)
    expected = torch.zeros_like(x, dtype=torch.float32)
    for row in range(4):
        for expert, share in zip(index[row], shares[row]):
            gate, other = functional.linear(x[row], gate_up[expert]).float().chunk(2)
            opened = (_ACTIVATIONS[activation](gate) * other).to(x.dtype)
            expected[row] += share * functional.linear(opened, down[expert]).float()
    _expect_near(module(x, index, shares), expected,
                 "down(activation(gate(x)) * up(x)) of the experts of each row, by their shares")
    return activation


def _half_a_layer(layer: nn.Module, x: Tensor,
                  angles: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
    """What a layer of LAYERS computes before its feed-forward layer, in plain PyTorch: the sum so far,
    and what that layer gets of it."""
    attention = layer.self_attn
    batch, tokens, _ = x.shape

    def norm(own: nn.Module, rows: Tensor) -> Tensor:
        return functional.rms_norm(rows, rows.shape[-1:], own.weight, epsilon(own))

    def product(own: nn.Module, rows: Tensor) -> Tensor:
        return functional.linear(rows, own.weight, own.bias)

    def rotate(part: Tensor) -> Tensor:
        first, second = part.chunk(2, -1)
        return part * angles[0][:, None] + torch.cat((-second, first), -1) * angles[1][:, None]

    rows = norm(layer.input_layernorm, x)
    q, k, v = (product(own, rows).view(batch, tokens, -1, attention.head_dim).transpose(1, 2)
               for own in (attention.q_proj, attention.k_proj, attention.v_proj))
    norms = head_norms(attention)
    if norms:
        q, k = norm(norms[0], q), norm(norms[1], k)
    attended = functional.scaled_dot_product_attention(
        rotate(q), rotate(k), v, is_causal=True, scale=attention.scaling, enable_gqa=True)
    x = x + product(attention.o_proj, attended.transpose(1, 2).reshape(batch, tokens, -1))
    return x, norm(layer.post_attention_layernorm, x)


def check_layer(layer: nn.Module, fronts: Dict[nn.Module, type]) -> None:
    """`fronts` has what takes the place of the modules that passed."""
    name = type(layer).__name__
    if name not in LAYERS:
        raise Left(f"{name} is none of {', '.join(LAYERS)}; its parts are looked at one by one")
    attention = layer.self_attn
    parts = [getattr(attention, part) for part in ("q_proj", "k_proj", "v_proj", "o_proj")]
    if any(fronts.get(part) is not modules.Linear for part in parts):
        raise Left("one of its linear layers was left")
    if len({part.bias is None for part in parts[:3]}) != 1:
        raise Left("some of q, k and v have a bias, and some have none")
    if getattr(attention, "sliding_window", getattr(attention.config, "sliding_window", None)):
        raise Left("its attention has a sliding window")
    if fronts.get(layer.mlp) is not modules.SwiGLU and (
            fronts.get(getattr(layer.mlp, "experts", None)) is not modules.Experts):
        raise Left("its feed-forward layer was left")
    norms = (layer.input_layernorm, layer.post_attention_layernorm, *head_norms(attention))
    if any(fronts.get(norm) is not modules.RMSNorm for norm in norms):
        raise Left("one of its norms was left")
    if len({epsilon(norm) for norm in head_norms(attention)}) > 1:
        raise Left("the norms of q and of k have other epsilons")
    if any(norm.weight.dtype is not parts[0].weight.dtype for norm in norms):
        raise Left("its norms have another dtype than its products")
    for part in (*parts, *norms, layer.mlp, attention):
        if part._forward_hooks or part._forward_pre_hooks:
            raise Left("a module in it has forward hooks, which a fused layer would not call")
    x = _random(parts[0].weight, 1, 4, parts[0].weight.shape[1])
    turns = _random(parts[0].weight, 1, 4, attention.head_dim // 2).float()
    angles = tuple(torch.cat((table, table), -1).to(x.dtype) for table in (turns.cos(), turns.sin()))
    implementation = attention.config._attn_implementation
    attention.config._attn_implementation = "sdpa"
    fed: List[Tuple[Tuple[Tensor, ...], Tensor]] = []
    handle = layer.mlp.register_forward_hook(lambda _, given, mixed: fed.append((given, mixed)))
    try:
        result = layer(x, attention_mask=None, position_embeddings=angles, past_key_values=None,
                       position_ids=None)
    finally:
        handle.remove()
        attention.config._attn_implementation = implementation
    known = "a layer as it was known"
    if [len(given) for given, _ in fed] != [1]:
        raise Left(f"does not compute {known}")
    # The feed-forward layer passed a check of its own. Which experts a router chooses may hang on
    # roundoff, so what it gave is taken as it was.
    so_far, rows = _half_a_layer(layer, x, angles)
    _expect_near(fed[0][0][0], rows, known)
    _expect_near(result, so_far + fed[0][1], known)


def _angle_tables(model: nn.Module) -> Tuple[Tensor, Tensor]:
    """Cosines and sines of all positions, [positions, head_dim / 2]."""
    rotary = model.rotary_emb
    if getattr(rotary, "rope_type", "default") not in STATIC_ROPE:
        raise Left(f"its angles are of the kind {rotary.rope_type}, which change with the length")
    positions = torch.arange(model.config.max_position_embeddings, device=rotary.inv_freq.device)
    angles = torch.outer(positions.double(), rotary.inv_freq.double())
    cos, sin = ((table * rotary.attention_scaling).float()
                for table in (angles.cos(), angles.sin()))
    some = torch.arange(4, device=positions.device) * (positions.numel() // 4)
    known = rotary(torch.empty(0, device=positions.device), some[None])
    for table, expected in zip((cos, sin), known):
        _expect_near(torch.cat((table, table), -1)[some], expected[0], "angles as they were known")
    return cos, sin


def check_model(model: nn.Module, fronts: Dict[nn.Module, type]) -> Tuple[Tensor, Tensor]:
    """Gives the angles of all positions."""
    if any(fronts.get(layer) is not modules.DecoderLayer for layer in model.layers):
        raise Left("one of its layers was left, so that decode steps are not fused")
    if not hasattr(model, "rotary_emb") or not hasattr(model, "norm"):
        raise Left("has no rotary_emb or no norm")
    return _angle_tables(model)

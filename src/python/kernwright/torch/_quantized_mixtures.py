"""Experts of mixtures with quantized weights: our own module, and modules of Transformers whose weights are packed."""

import sys
from typing import Any, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor, nn

from . import _checks as checks
from . import ops as kw
from ._checks import MOST_EXPERTS, Left
from ._modules import Front, bind, fits, holds, only_argument
from ._packing import is_shared
from ._quantized_experts import QuantizedExperts

_PACKED = "kernwright_experts"  # the child that has the packed weights
PRODUCTS = ("gate_up_proj", "down_proj")
_MEMBERS = (*PRODUCTS, *(f"{name}_bias" for name in PRODUCTS))
_FORMULA = "down(gate(x)) of the experts of each row, by their shares"


class Gate(NamedTuple):
    """How experts open rows by gates. The numbers are those of "swiglu_oai"."""
    activation: str
    limit: float = 7.0
    gate_alpha: float = 1.702

    def open(self, gates: Tensor, ups: Tensor) -> Tensor:
        """Computes it in plain PyTorch."""
        if self.activation != "swiglu_oai":
            return checks.ACTIVATIONS[self.activation](gates) * ups
        gates = gates.clamp(max=self.limit)
        return gates * torch.sigmoid(self.gate_alpha * gates) * (ups.clamp(-self.limit, self.limit) + 1)


def gate_of(module: nn.Module) -> Gate:
    """Returns how Transformers' experts open rows, by the function that they do it with."""
    limit, alpha = getattr(module, "limit", None), getattr(module, "alpha", None)
    known = [Gate(name) for name in checks.ACTIVATIONS]
    if all(isinstance(number, (int, float)) and number > 0 for number in (limit, alpha)):
        known.append(Gate("swiglu_oai", float(limit), float(alpha)))
    places = torch.cartesian_prod(*[torch.linspace(-20, 20, 161, device="cpu")] * 2)
    gates, ups = places.unbind(1)
    try:
        found = module._apply_gate(torch.cat((gates, ups)) if module.is_concatenated else places.flatten())
    except Exception as error:
        raise Left(f"its gate cannot be looked at: {error}") from error
    for gate in known:
        if found.shape == gates.shape and torch.allclose(found, gate.open(gates, ups), rtol=1e-5, atol=1e-5):
            return gate
    raise Left("its gate is neither SiLU nor GELU times what it opens, nor gpt-oss's")


class QuantizedMixture(nn.Module):
    """The experts of a mixture with quantized weights, for inference, in the place of Transformers' own: two grouped
    products of the rows that a router gave to each expert. Nothing waits for the GPU.

    activation, limit, gate_alpha: as in `quantized_grouped_matmul`. Errors: ValueError if the sizes of both weights do
    not follow each other."""

    def __init__(self, gate_up: QuantizedExperts, down: QuantizedExperts, activation: str = "silu", limit: float = 7.0,
                 gate_alpha: float = 1.702) -> None:
        super().__init__()
        if not gate_up.gated or (gate_up.experts, gate_up.n, gate_up.k) != (down.experts, down.k, down.n):
            raise ValueError(f"gate_up is {gate_up.extra_repr()}, and gates of {down.experts} experts from {down.n} to "
                             f"{down.k} columns expected, which down goes on from")
        self.gate_up, self.down, self.gate = gate_up, down, Gate(activation, limit, gate_alpha)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Returns the sum of the experts of each row, by their shares. An expert that is not here, as expert
        parallelism names them, gives nothing."""
        x = hidden_states.contiguous()
        ends, row_of, place = kw.order_experts(top_k_index.to(torch.int32).contiguous(), self.down.experts)
        inner = kw.quantized_grouped_matmul(x, self.gate_up, ends, row_of=row_of, **self.gate._asdict())
        rows = kw.quantized_grouped_matmul(inner, self.down, ends)
        return kw.combine_experts(rows, place, top_k_weights.float().contiguous())

    def plain(self, x: Tensor, index: Tensor, shares: Tensor) -> Tensor:
        """Computes few rows in plain PyTorch, in fp32."""
        result = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert in index.unique().tolist():
            rows, places = torch.where(index == expert)
            gates, ups = self._product(self.gate_up, expert, x[rows].float()).chunk(2, 1)
            inner = self.gate.open(gates, ups).to(x.dtype)
            mixed = self._product(self.down, expert, inner.float())
            result.index_add_(0, rows, mixed * shares[rows, places, None].float())
        return result

    @staticmethod
    def _product(weights: QuantizedExperts, expert: int, x: Tensor) -> Tensor:
        bias = None if weights.bias is None else weights.bias[expert].float()
        return nn.functional.linear(x, weights.matrix_of(expert), bias)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.gate._asdict().items())


class PackedExperts(Front):
    """Experts of Transformers whose weights were packed, and their own tensors freed. A call that no kernel takes gets
    these meanwhile. If it needs their gradients, or the module is no longer what it was, it gets them for good."""

    def forward(self, *given: Any, **named: Any) -> Any:
        mixture = self._modules.get(_PACKED)
        if mixture is None:
            return super()._kernwright_own(given, named)
        if holds(self):
            result = self._kernwright_mix(mixture, given, named)
            if result is not NotImplemented:
                return result
            if not torch.compiler.is_compiling():
                if not self._kernwright_needs_gradient():
                    return self._kernwright_own_meanwhile(mixture, given, named)
                guard = self._kernwright
                guard.tally.add("module", guard.name, "a call needs gradients of its weights, so they are unpacked")
        self._kernwright_release()
        return super()._kernwright_own(given, named)

    def _kernwright_mix(self, mixture: QuantizedMixture, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        names = self._kernwright.names
        call = bind(names, given, named)
        if call is None or set(call) != set(names):
            return NotImplemented
        x, index, shares = (call[name] for name in names)
        if _takes(x, shares) and x.dim() == 2 and not self._kernwright_needs_gradient():
            return mixture(x, index, shares)
        return NotImplemented

    def _kernwright_own_meanwhile(self, mixture: QuantizedMixture, given: Tuple[Any, ...],
                                  named: Dict[str, Any]) -> Any:
        self._kernwright_restore(mixture, for_good=False)
        try:
            return super()._kernwright_own(given, named)
        finally:
            self._kernwright_free()

    @torch.compiler.disable
    def _kernwright_release(self) -> None:
        mixture = self._modules.pop(_PACKED, None)
        if mixture is not None:
            self._kernwright_restore(mixture, for_good=True)

    def _kernwright_needs_gradient(self) -> bool:
        return torch.is_grad_enabled() and any(own.requires_grad for own in self._kernwright_source.values())

    def _kernwright_experts(self) -> nn.Module:
        """Returns the module that has the tensors."""
        return self

    def _kernwright_restore(self, mixture: QuantizedMixture, for_good: bool) -> None:
        """Gives the experts their own tensors, as the same parameters if it is for good."""
        experts, source = self._kernwright_experts(), self._kernwright_source
        for name, tensor in _unpacked(experts, mixture, source).items():
            own = source[name] if for_good else nn.Parameter(tensor, requires_grad=False)
            own.data = tensor
            experts._parameters[name] = own

    def _kernwright_free(self) -> None:
        for name in self._kernwright_source:
            self._kernwright_experts()._parameters[name] = None

    def _kernwright_pack(self, mixture: QuantizedMixture) -> None:
        """Takes the place of the experts' own tensors. Their parameters are kept without elements."""
        self._kernwright_source = _own_of(self._kernwright_experts())
        self._kernwright_free()
        for own in self._kernwright_source.values():
            own.data = own.data.new_empty(0)
        self._modules[_PACKED] = mixture

    def _apply(self, function: Any, recurse: bool = True) -> Any:
        """Moves or converts the module. The parameters that are kept say which dtype its own would have."""
        super()._apply(function, recurse)
        if _PACKED in self._modules:
            for own in self._kernwright_source.values():
                own.data = function(own.data)
        return self


class PackedTritonExperts(PackedExperts):
    """A router with experts in the layouts of Triton's kernels, as Transformers loads gpt-oss beside the package
    `kernels`. Their weights are no parameters, and are restored by Transformers' own function."""

    def _kernwright_experts(self) -> nn.Module:
        experts: nn.Module = self.experts
        return experts

    def _kernwright_mix(self, mixture: QuantizedMixture, given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        x = only_argument(given, named)
        if not _takes(x) or x.dim() != 3 or self._kernwright_needs_gradient():
            return NotImplemented
        rows = x.flatten(0, 1)
        logits, shares, index = self.router(rows)
        if not _takes(rows, shares):
            return NotImplemented
        return mixture(rows, index, shares).view(x.shape), logits

    def _kernwright_restore(self, mixture: QuantizedMixture, for_good: bool) -> None:
        super()._kernwright_restore(mixture, for_good)
        for name, weights in zip(PRODUCTS, (mixture.gate_up, mixture.down)):
            _to_triton(self.experts, name, *weights.to_mxfp4())

    def _kernwright_free(self) -> None:
        super()._kernwright_free()
        for name in PRODUCTS:
            setattr(self.experts, name, None)
            setattr(self.experts, f"{name}_precision_config", None)


def _takes(x: Any, *shares: Tensor) -> bool:
    return fits(x, dtypes=(torch.bfloat16,)) and not (
        torch.is_grad_enabled() and any(share.requires_grad for share in shares))


def _own_of(experts: nn.Module) -> Dict[str, Any]:
    own = {name: experts._parameters.get(name) for name in _MEMBERS}
    return {name: parameter for name, parameter in own.items() if parameter is not None}


def _unpacked(experts: nn.Module, mixture: QuantizedMixture, own: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Returns the parameters of experts, in the dtypes of their own."""
    tensors = {}
    for name, weights in zip(PRODUCTS, (mixture.gate_up, mixture.down)):
        if name in own:
            rows = weights.as_it_was(weights.dequantize(own[name].dtype))
            tensors[name] = rows.mT.contiguous() if experts.is_transposed else rows
        if weights.bias is not None:
            tensors[f"{name}_bias"] = weights.as_it_was(weights.bias).to(own[f"{name}_bias"].dtype)
    return tensors


def _expect_restored(experts: nn.Module, mixture: QuantizedMixture) -> None:
    own = _own_of(experts)
    for name, tensor in _unpacked(experts, mixture, own).items():
        if not torch.equal(tensor, own[name]):
            raise Left(f"{name} could not be restored when it is unpacked")


def check_dense(module: nn.Module) -> Gate:
    """Returns the gate of experts that no grouped product takes as they lie, and whose weights may be packed."""
    for name in (*PRODUCTS, *(_MEMBERS[2:] if module.has_bias else ())):
        own = getattr(module, name, None)
        checks.expect_kernels_for(own, (torch.bfloat16,))
        if is_shared(own):
            raise Left(f"another tensor has a part of the memory of {name}")
    gate_up, down = (_rows_of(module, name) for name in PRODUCTS)
    experts, columns, inner = down.shape
    if gate_up.shape != (experts, 2 * inner, columns) or experts > MOST_EXPERTS:
        raise Left(f"its weights are {list(gate_up.shape)} and {list(down.shape)}, which are no gates, what they open, "
                   f"and what follows, of at most {MOST_EXPERTS} experts")
    return gate_of(module)


def _rows_of(module: nn.Module, name: str) -> Tensor:
    own: Tensor = getattr(module, name).detach()
    return own.mT if module.is_transposed else own


def expect_opened(module: nn.Module, gate: Gate) -> None:
    """Compares experts whose weights stay with their formula."""
    (gate_up, down), biases = (_rows_of(module, name) for name in PRODUCTS), [
        getattr(module, name).detach().float() if module.has_bias else None for name in _MEMBERS[2:]]
    experts, columns, inner = down.shape
    if columns % 8 != 0 or inner % 8 != 0:
        raise Left(f"its experts are from {columns} to {inner} columns, and multiples of 8 expected")
    x, choices = checks.random_rows(down, 4, columns), min(2, experts)
    index = torch.arange(4 * choices, device=x.device).remainder(experts).view(4, choices)
    shares = torch.linspace(0.2, 0.8, 4 * choices, device=x.device).view(4, choices).to(x.dtype)
    expected = torch.zeros_like(x, dtype=torch.float32)
    for row in range(4):
        for expert, share in zip(index[row].tolist(), shares[row]):
            shifts = [None if bias is None else bias[expert] for bias in biases]
            sums = nn.functional.linear(x[row].float(), gate_up[expert].float(), shifts[0])
            gates, ups = sums.chunk(2) if module.is_concatenated else (sums[0::2], sums[1::2])
            opened = gate.open(gates, ups).to(x.dtype).float()
            expected[row] += share * nn.functional.linear(opened, down[expert].float(), shifts[1])
    _expect_rows(module(x, index, shares), expected)


def pack_dense(module: nn.Module, gate: Gate) -> QuantizedMixture:
    """Returns the experts packed, after it has compared them with the module's results and tensors."""
    biases = [getattr(module, name).detach() if module.has_bias else None for name in _MEMBERS[2:]]
    how = "stacked" if module.is_concatenated else "interleaved"
    try:
        gate_up = QuantizedExperts.from_dequantized(_rows_of(module, "gate_up_proj"), biases[0], gate=how)
        down = QuantizedExperts.from_dequantized(_rows_of(module, "down_proj"), biases[1])
        mixture = QuantizedMixture(gate_up, down, *gate)
    except ValueError as error:
        raise Left(str(error)) from error
    _expect_restored(module, mixture)
    x = _rows_for(mixture, module.down_proj)
    experts, choices = mixture.down.experts, min(2, mixture.down.experts)
    index = torch.arange(4 * choices, device=x.device).remainder(experts).view(4, choices)
    shares = torch.linspace(0.2, 0.8, 4 * choices, device=x.device).view(4, choices).to(x.dtype)
    _expect_rows(module(x, index, shares), mixture.plain(x, index, shares))
    return mixture


def _rows_for(mixture: QuantizedMixture, like: Tensor) -> Tensor:
    """Returns four rows, two of which are so large that a gate limits what the first expert makes of them."""
    x = checks.random_rows(like, 4, mixture.gate_up.k)
    sums = mixture._product(mixture.gate_up, 0, x[2:].float())
    x[2:] *= 2 * mixture.gate.limit / sums.abs().max().clamp(min=1e-6)
    return x


def _expect_rows(result: Any, expected: Tensor) -> None:
    for row in range(expected.shape[0]):
        checks.expect_near(result[row], expected[row], _FORMULA)


# Experts in the layouts of Triton's kernels.

def _transformers_mxfp4() -> Any:
    """Returns the file of Transformers that has them."""
    return sys.modules.get("transformers.integrations.mxfp4")


def _to_triton(experts: nn.Module, name: str, blocks: Tensor, scales: Tensor) -> None:
    file = _transformers_mxfp4()
    file.swizzle_mxfp4_convertops(blocks, scales, experts, name, blocks.device, file.triton_kernels_hub)


def _from_triton(experts: nn.Module, name: str) -> List[Tensor]:
    """Returns the blocks [experts, rows, k / 2] and scales [experts, rows, k / 32] of a product."""
    tensors = getattr(experts, name), getattr(experts, f"{name}_precision_config").weight_scale
    return [tensor.storage.layout.unswizzle_data(tensor.storage.data).mT.contiguous() for tensor in tensors]


def has_triton_experts(module: nn.Module) -> bool:
    return getattr(getattr(module, "experts", None), "down_proj_precision_config", None) is not None


def check_triton(mlp: nn.Module) -> None:
    experts = mlp.experts
    checks.expect_kernels_for(getattr(getattr(mlp, "router", None), "weight", None), (torch.bfloat16,))
    for name in _MEMBERS[2:]:
        checks.expect_kernels_for(getattr(experts, name, None), (torch.bfloat16, torch.float32))
    if getattr(experts, "_is_hooked", False):
        raise Left("its experts are shared out among ranks")


def pack_triton(mlp: nn.Module) -> QuantizedMixture:
    """Returns the experts packed, after it has compared them with the results of the router and its experts, and has
    found the same weights in the layouts that they are restored to."""
    experts, packed = mlp.experts, []
    try:
        for name, how in zip(PRODUCTS, ("interleaved", "none")):
            blocks, scales = _from_triton(experts, name)
            bias = getattr(experts, f"{name}_bias").detach()
            packed.append(QuantizedExperts.from_mxfp4(blocks, scales, bias.to(torch.bfloat16), gate=how))
            scratch = nn.Module()
            scratch.intermediate_size, scratch.hidden_size = experts.intermediate_size, experts.hidden_size
            _to_triton(scratch, name, *packed[-1].to_mxfp4())
            if not all(map(torch.equal, _from_triton(scratch, name), (blocks, scales))):
                raise Left(f"{name} could not be restored when it is unpacked")
        mixture = QuantizedMixture(*packed, "swiglu_oai", float(experts.limit), float(experts.alpha))
        _expect_restored(experts, mixture)
        x = _rows_for(mixture, mlp.router.weight)
        logits, shares, index = mlp.router(x)
        result, own_logits = mlp(x[None])
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise Left(f"its weights are in no layout that is known: {error}") from error
    checks.expect_near(own_logits, logits, "the logits of its router")
    _expect_rows(result[0], mixture.plain(x, index, shares))
    return mixture

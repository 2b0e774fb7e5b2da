"""Models of Hugging Face, and others like them, on kernwright's kernels.

A module is replaced by giving the object a subclass of its class, whose forward calls an operator
of `ops` if that can compute the call, and the class's own forward otherwise: in training, for
another dtype, on another device. Parameters, their names, hooks and isinstance stay as they are.
Nothing outside of the model that was passed is touched.

The name of a module alone does not decide what it computes: it is run on a few random rows, and
must return the results of its replacement."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from . import _checks as checks
from ._checks import Left
from ._decoder import DecoderLayer, Experts, OpenedExperts, SwiGLU, experts_parts, layer_parts, swiglu_parts
from ._guards import Guard, Tally, original
from ._modules import Linear, RMSNorm, no_parts, pack_members, restore, swap
from ._quantized_mixtures import (PackedExperts, PackedTritonExperts, QuantizedMixture, check_dense, check_triton, expect_opened,
                                  has_triton_experts, pack_dense, pack_triton)
from ._quantized_modules import (PackedLinear, QuantizedLinear, QuantizedSwiGLU, RowsNorm, check_quantized,
                                 check_quantized_swiglu, is_part_quantized, is_quantized, modules_around,
                                 quantized_norm, readers_of_norms)
from ._whole_model import Model, RotaryEmbedding, model_parts

OPS = ("linear", "quantized_linear", "rms_norm", "swiglu", "experts", "decoder_layer")


class Row(NamedTuple):
    """The fate of a module. `reason` says why it was left, or what was done beside."""
    name: str
    kind: str
    op: str
    replaced: bool
    reason: str


class Report:
    """The result of `patch`, module by module: `rows`. Printed, it is a table with a line for each
    kind of module and reason. `undo()` makes the model what it was.

    The facts that a module was decided from are looked at again at each call. `fallbacks` counts
    the calls that ran as before because these facts had changed, by (module, reason)."""

    def __init__(self, model: nn.Module, tally: Tally) -> None:
        self.model = model
        self.rows: List[Row] = []
        self.fallbacks: Dict[Tuple[str, str], int] = tally.counts

    @property
    def replaced(self) -> List[Row]:
        """The modules that run on kernwright's kernels."""
        return [row for row in self.rows if row.replaced]

    @property
    def left(self) -> List[Row]:
        """The modules that run as before, each with a reason."""
        return [row for row in self.rows if not row.replaced]

    def undo(self) -> None:
        """Gives every module its class and every parameter memory of its own again."""
        for module in self.model.modules():
            restore(module)

    def __str__(self) -> str:
        lines: Dict[Tuple[str, str, bool, str], List[str]] = {}
        for row in self.rows:
            lines.setdefault((row.kind, row.op, row.replaced, row.reason), []).append(row.name)
        table = [("modules", "class", "became", "of which", "note")]
        for (kind, op, replaced, reason), found in lines.items():
            example = found[0] if len(found) == 1 else f"{found[0]} .. {found[-1]}"
            table.append((str(len(found)), kind, op if replaced else "left", example, reason))
        widths = [max(len(line[i]) for line in table) for i in range(4)]
        left_later = [f"{count} calls of {name or 'the model'} ran as before: {reason}"
                      for (name, reason), count in self.fallbacks.items()]
        return "\n".join(["  ".join(cell.ljust(width) for cell, width in zip(line, widths))
                          + f"  {line[4]}" for line in table] + left_later)

    def __repr__(self) -> str:
        return f"<kernwright.torch.Report: {len(self.replaced)} replaced, {len(self.left)} left>"


class _Patcher:
    """Looks at all modules first, as they are, and then replaces those that passed."""

    def __init__(self, model: nn.Module, ops: Sequence[str],
                 where: Optional[Callable[[str, nn.Module], bool]], unpadded: bool) -> None:
        self.model, self.ops, self.where, self.unpadded = model, ops, where, unpadded
        self.tally = Tally()
        self.fronts: Dict[nn.Module, type] = {}  # of the modules that passed

    # Each of these looks at a module, and returns a function that replaces it and returns a note.

    def linear(self, name: str, module: nn.Module) -> Callable[[], str]:
        checks.check_linear(module)
        return self.passed(name, module, Linear, no_parts)

    def quantized_linear(self, name: str, module: nn.Module) -> Callable[[], str]:
        source = check_quantized(module)

        def replace() -> str:
            swap(module, PackedLinear)
            note = module._kernwright_pack(source)
            module._kernwright = None
            module._kernwright = Guard(name, self.tally, module, no_parts)
            return note

        return replace

    def rms_norm(self, name: str, module: nn.Module) -> Callable[[], str]:
        checks.check_norm(module)
        return self.passed(name, module, RMSNorm, no_parts)

    def swiglu(self, name: str, module: nn.Module) -> Callable[[], str]:
        if is_part_quantized(module.gate_proj) and is_part_quantized(module.up_proj):
            return lambda: self.join_gate(name, module)
        activation = checks.check_swiglu(module)
        replace = self.passed(name, module, SwiGLU, swiglu_parts, activation)
        return lambda: replace() or self.pack(module, "gate_proj and up_proj")

    def join_gate(self, name: str, module: nn.Module) -> str:
        """Replaces a feed-forward layer whose linear layers have been packed."""
        activation = check_quantized_swiglu(module)
        kind = type(module)
        swap(module, QuantizedSwiGLU)
        try:
            module._kernwright_join()
        except Left:
            module.__class__ = kind
            raise
        module._kernwright_activation, module._kernwright = activation, None
        module._kernwright = Guard(name, self.tally, module, swiglu_parts)
        return "weights of gate_proj and up_proj were joined; undo() parts them"

    def experts(self, name: str, module: nn.Module) -> Callable[[], str]:
        how, names = checks.how_experts_lie(module), checks.expect_names(module, 3)
        if how:
            return self.packed_experts(name, module, names, how)
        activation = checks.check_experts(module)
        return self.passed(name, module, Experts, experts_parts, activation,
                           names=names)

    def packed_experts(self, name: str, module: nn.Module, names: Sequence[str], how: str) -> Callable[[], str]:
        """Packs experts whose weights are codes of MXFP4. Others are multiplied as they lie."""
        gate = check_dense(module)

        def replace() -> str:
            try:
                mixture = pack_dense(module, gate)
            except Left as left:
                expect_opened(module, gate)
                self.passed(name, module, OpenedExperts, experts_parts, gate.activation, names=names)()
                return f"multiplied as they lie ({how}): {left}"
            return self.pack_mixture(name, module, mixture, PackedExperts, experts_parts, names)

        return replace

    def triton_experts(self, name: str, module: nn.Module) -> Callable[[], str]:
        """Packs the experts of a router that Triton's kernels compute."""
        names = checks.expect_names(module, 1)
        check_triton(module)
        return lambda: self.pack_mixture(name, module, pack_triton(module), PackedTritonExperts,
                                         lambda mlp: {"router": mlp.router, "experts": mlp.experts}, names)

    def pack_mixture(self, name: str, module: nn.Module, mixture: QuantizedMixture, front: type,
                     parts: Callable[[nn.Module], Dict[str, nn.Module]], names: Sequence[str]) -> str:
        swap(module, front)
        module._kernwright_pack(mixture)
        module._kernwright = None
        module._kernwright = Guard(name, self.tally, module, parts, names=names)
        return "packed as mxfp4, which holds them exactly, and its own tensors freed; undo() unpacks them"

    def decoder_layer(self, name: str, module: nn.Module) -> Callable[[], str]:
        if isinstance(getattr(module.self_attn, "q_proj", None), QuantizedLinear):
            return self.rows_of_norms(name, module)
        names = checks.check_layer(module, self.fronts)
        replace = self.passed(name, module, DecoderLayer, layer_parts, names=names)
        return lambda: replace() or self.pack(module, "q_proj, k_proj and v_proj")

    def rows_of_norms(self, name: str, module: nn.Module) -> Callable[[], str]:
        """Lets the norms of a layer quantize for the products of 8 bits that alone read them."""
        norms = readers_of_norms(module)
        checks.check_rows_of_norms(module, norms, quantized_norm, self.fronts)

        def replace() -> str:
            names = {own: at for at, own in module.named_modules(prefix=name)}
            for norm, readers in norms.items():
                norm.__class__ = original(norm)
                swap(norm, RowsNorm)
                norm._kernwright_path, norm._kernwright_readers = readers
                norm._kernwright = None
                norm._kernwright = Guard(names[norm], self.tally, norm, modules_around)
            return "its norms quantize rows for the products that read them"

        return replace

    def base_model(self, name: str, module: nn.Module) -> Callable[[], str]:
        names, caches = checks.check_model(module, self.fronts)
        replace = self.passed(name, module, Model, model_parts, names=names, caches=caches,
                              unpadded=self.unpadded, counts=None)

        def finish() -> str:
            swap(module.rotary_emb, RotaryEmbedding)
            return replace()

        return finish

    def pack(self, module: nn.Module, parts: str) -> str:
        return f"{parts} were moved into one allocation" if pack_members(module) else ""

    def passed(self, name: str, module: nn.Module, front: type,
               parts: Callable[[nn.Module], Dict[str, nn.Module]],
               activation: Optional[str] = None, **decided: Any) -> Callable[[], str]:
        self.fronts[module] = front

        def replace() -> str:
            swap(module, front)
            if activation is not None:
                module._kernwright_activation = activation
            module._kernwright = None  # the guard's own place, which it finds there
            module._kernwright = Guard(name, self.tally, module, parts, **decided)
            return ""

        return replace

    def look(self, name: str, module: nn.Module,
             check: Callable[[str, nn.Module], Callable[[], str]]
             ) -> Callable[[], Tuple[bool, str]]:
        """Returns a function that replaces the module, and returns whether it did, and a note."""
        try:
            if self.where is not None and not self.where(name, module):
                raise Left("where() said no")
            checks.expect_own_forward(module)
            replace = check(name, module)
        except Left as left:
            reason = str(left)
            return lambda: (False, reason)

        def finish() -> Tuple[bool, str]:
            try:
                return True, replace()
            except Left as left:
                return False, str(left)

        return finish

    def run(self) -> Report:
        """Looks at parts before the modules that they are parts of, since a layer is fused if its
        parts passed."""
        tests: Tuple[Tuple[str, Callable[[nn.Module], bool], Callable[..., Any]], ...] = (
            ("linear", lambda m: isinstance(m, nn.Linear) and not is_quantized(m), self.linear),
            ("quantized_linear", is_quantized, self.quantized_linear),
            ("rms_norm", lambda m: type(m).__name__.endswith("RMSNorm"), self.rms_norm),
            ("swiglu", lambda m: all(hasattr(m, part) for part in (
                "gate_proj", "up_proj", "down_proj", "act_fn")), self.swiglu),
            ("experts", lambda m: isinstance(getattr(m, "down_proj", None), torch.Tensor),
             self.experts),
            ("experts", has_triton_experts, self.triton_experts),
            ("decoder_layer", lambda m: hasattr(m, "self_attn") and hasattr(m, "mlp")
             and hasattr(m, "input_layernorm"), self.decoder_layer),
            ("decoder_layer", lambda m: isinstance(getattr(m, "layers", None), nn.ModuleList)
             and hasattr(m, "config"), self.base_model))
        with torch.no_grad():
            found = [(name, type(module).__name__, op, self.look(name, module, check))
                     for op, is_one, check in tests if op in self.ops
                     for name, module in self.model.named_modules() if is_one(module)]
            known = {name for name, *_ in found}
            report = Report(self.model, self.tally)
            report.rows += [Row(name, type(module).__name__, "linear", False,
                                "holds a matrix, and is none of the classes that are known")
                            for name, module in self.model.named_modules()
                            if name not in known and "linear" in self.ops
                            and (type(module).__name__ == "Conv1D" or "Linear" in type(module).__name__)
                            and not isinstance(module, QuantizedLinear)]
            report.rows += [Row(name, kind, op, *finish()) for name, kind, op, finish in found]
        return report


def patch(model: nn.Module, ops: Union[str, Sequence[str]] = OPS, *,
          where: Optional[Callable[[str, nn.Module], bool]] = None,
          unpadded: bool = False) -> Report:
    """Puts a model on kernwright's kernels, for inference. Prints nothing; print the report.

    ops: what to replace, one or several of
        "linear": torch.nn.Linear in bf16 or fp16
        "quantized_linear": layers with the tensors of GPTQ or AWQ, qweight, qzeros, scales and g_idx,
            or of compressed-tensors, weight_packed and weight_scale, that compute x @ w.T + bias of
            these. They are packed one after another, and their own tensors are freed, until undo()
        "rms_norm": classes named ...RMSNorm that compute weight * x / rms(x)
        "swiglu": modules with gate_proj, up_proj, down_proj and act_fn that compute
            down(activation(gate(x)) * up(x)), whose first half becomes one kernel; of quantized
            layers if bits, groups and the order of columns are the same in gate_proj and up_proj. If they
            and down_proj are QuantizedRows, the activation quantizes for down_proj
        "experts": the experts of a mixture, as Transformers' ExpertsInterface has them, that
            compute down(activation(gate(x)) * up(x)) from weights [experts, out, in] without
            biases, by two grouped products: Mixtral, Qwen2-MoE, Qwen3-MoE and others. Experts with
            biases, transposed or interleaved weights, as gpt-oss has them, are packed if MXFP4 holds
            each weight exactly, as it does if they were dequantized from it, and else multiplied as
            they lie; experts of gpt-oss in the layouts of Triton's kernels are packed too. The own
            tensors of packed ones are freed, until undo() or a call that needs their gradients.
            Others run by their `experts_implementation` as before
        "decoder_layer": layers of Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen2-MoE, Qwen3-MoE and gpt-oss
            whose parts were replaced, or whose linear layers are QuantizedRows: then its norms quantize
            for the products that read them. A decode step with a StaticCache then has five kernels a
            layer, and a prefill eight; before a router with experts four and six. A prefill of gpt-oss
            is fused with attn_implementation="kernwright"
    where: where(name, module) says whether a module may be replaced
    unpadded: the promise that no sequence of a batch is ever padded, so that masks and positions of
        a decode step need not be looked at. Without it a step with a mask waits for the GPU to
        look. If it cannot wait, in a capture or in torch.compile, its layer is not fused

    Other weights stay the model's own. If a kernel reads several as one tensor, they are moved into
    one and become views of it, so that nothing is held twice; the report says so. Modules that need
    a gradient, other dtypes and other devices run as before. torch.compile takes a patched model.

    The facts that a module was decided from are compared at each call, in eager mode by the
    extension and under torch.compile by Dynamo's guards: classes and forwards, hooks, members, the
    config, the functions that a forward calls. If one of them has changed, such as for an adapter,
    the module's own forward runs. That is logged once, and counted in the report and in
    kernwright.metrics(). Dynamo does not see if a module is given another __class__ or __dict__,
    here as elsewhere. To pickle the model, undo() first.

    Returns the Report, whose undo() takes all of it back. Errors: TypeError if the model is not a
    module; ValueError for another op, or for a model that is patched already."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, and a torch.nn.Module expected")
    ops = (ops,) if isinstance(ops, str) else ops
    unknown = set(ops) - set(OPS)
    if unknown:
        raise ValueError(f"ops has {', '.join(sorted(unknown))}; there are {', '.join(OPS)}")
    if any(original(module) is not type(module) for module in model.modules()):
        raise ValueError("the model is patched already; undo() its report first")
    return _Patcher(model, ops, where, unpadded).run()


def unpatch(model: nn.Module) -> None:
    """Undoes `patch` on the model, or on the model that it is a copy of. Errors: ValueError if it
    is not patched."""
    if not any([restore(module) for module in model.modules()]):
        raise ValueError("the model is not patched")

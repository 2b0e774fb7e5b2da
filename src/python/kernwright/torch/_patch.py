"""Models of Hugging Face, and others like them, on kernwright's kernels.

A module is replaced by giving the object a subclass of its class, whose forward calls an operator of
`ops` where that can compute what was asked for, and the class's own forward elsewhere: in training,
for another dtype, on another device. Parameters, their names, hooks and isinstance stay as they are.
Nothing outside of the model that was handed in is touched.

What a module computes is not taken from its name alone: it is run on a few random rows, and has to
give what its replacement is for."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from . import _checks as checks
from ._checks import Left
from ._modules import (DecoderLayer, Experts, Linear, Model, RMSNorm, RotaryEmbedding, SwiGLU,
                       original, packs_moved, restore, swap)

OPS = ("linear", "rms_norm", "swiglu", "experts", "decoder_layer")


class Row(NamedTuple):
    """What became of a module. `reason` says why it was left, or what was done beside."""
    name: str
    kind: str
    op: str
    replaced: bool
    reason: str


class Report:
    """What `patch` did, module by module: `rows`. Printed, it is a table with a line for each kind of
    module and reason. `undo()` makes the model what it was."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.rows: List[Row] = []

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
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths))
                         + f"  {line[4]}" for line in table)

    def __repr__(self) -> str:
        return f"<kernwright.torch.Report: {len(self.replaced)} replaced, {len(self.left)} left>"


class _Patcher:
    """Looks at all modules first, as they are, and then replaces those that passed."""

    def __init__(self, model: nn.Module, ops: Sequence[str],
                 where: Optional[Callable[[str, nn.Module], bool]], unpadded: bool) -> None:
        self.model, self.ops, self.where, self.unpadded = model, ops, where, unpadded
        self.fronts: Dict[nn.Module, type] = {}  # of the modules that passed

    # Each of these looks at a module, and gives what replaces it and returns a note.

    def linear(self, module: nn.Module) -> Callable[[], str]:
        checks.check_linear(module)
        return self.passed(module, Linear)

    def rms_norm(self, module: nn.Module) -> Callable[[], str]:
        checks.check_norm(module)
        return self.passed(module, RMSNorm)

    def swiglu(self, module: nn.Module) -> Callable[[], str]:
        activation = checks.check_swiglu(module)

        def finish() -> str:
            module._kernwright_activation = activation
            return "gate_proj and up_proj were moved into one tensor, as views" if packs_moved(
                module) else ""

        return self.passed(module, SwiGLU, finish)

    def experts(self, module: nn.Module) -> Callable[[], str]:
        activation = checks.check_experts(module)

        def finish() -> str:
            module._kernwright_activation = activation
            return ""

        return self.passed(module, Experts, finish)

    def decoder_layer(self, module: nn.Module) -> Callable[[], str]:
        checks.check_layer(module, self.fronts)
        return self.passed(module, DecoderLayer, lambda: (
            "q_proj, k_proj and v_proj were moved into one tensor, as views" if packs_moved(module)
            else ""))

    def base_model(self, module: nn.Module) -> Callable[[], str]:
        cos, sin = checks.check_model(module, self.fronts)

        def finish() -> str:
            swap(module.rotary_emb, RotaryEmbedding)
            module.register_buffer("_kernwright_cos", cos, persistent=False)
            module.register_buffer("_kernwright_sin", sin, persistent=False)
            module._kernwright_unpadded = self.unpadded
            return f"angles of {cos.shape[0]} positions take {2 * cos.numel() * 4 / 1e6:.0f} MB"

        return self.passed(module, Model, finish)

    def passed(self, module: nn.Module, front: type,
               finish: Callable[[], str] = lambda: "") -> Callable[[], str]:
        self.fronts[module] = front

        def replace() -> str:
            swap(module, front)
            return finish()

        return replace

    def look(self, name: str, module: nn.Module,
             check: Callable[[nn.Module], Callable[[], str]]) -> Callable[[], Tuple[bool, str]]:
        """Gives what is to be done, which returns whether the module was replaced, and a note."""
        try:
            if self.where is not None and not self.where(name, module):
                raise Left("where() said no")
            checks.expect_own_forward(module)
            replace = check(module)
            return lambda: (True, replace())
        except Left as left:
            reason = str(left)
            return lambda: (False, reason)

    def run(self) -> Report:
        """Parts are looked at before what they are parts of, since a layer is fused where its parts
        passed."""
        tests: Tuple[Tuple[str, Callable[[nn.Module], bool], Callable[..., Any]], ...] = (
            ("linear", lambda m: isinstance(m, nn.Linear), self.linear),
            ("rms_norm", lambda m: type(m).__name__.endswith("RMSNorm"), self.rms_norm),
            ("swiglu", lambda m: all(hasattr(m, part) for part in (
                "gate_proj", "up_proj", "down_proj", "act_fn")), self.swiglu),
            ("experts", lambda m: isinstance(getattr(m, "down_proj", None), torch.Tensor),
             self.experts),
            ("decoder_layer", lambda m: hasattr(m, "self_attn") and hasattr(m, "mlp")
             and hasattr(m, "input_layernorm"), self.decoder_layer),
            ("decoder_layer", lambda m: isinstance(getattr(m, "layers", None), nn.ModuleList)
             and hasattr(m, "config"), self.base_model))
        with torch.no_grad():
            found = [(name, type(module).__name__, op, self.look(name, module, check))
                     for op, is_one, check in tests if op in self.ops
                     for name, module in self.model.named_modules() if is_one(module)]
            report = Report(self.model)
            report.rows += [Row(name, kind, op, *finish()) for name, kind, op, finish in found]
        return report


def patch(model: nn.Module, ops: Union[str, Sequence[str]] = OPS, *,
          where: Optional[Callable[[str, nn.Module], bool]] = None,
          unpadded: bool = False) -> Report:
    """Puts a model on kernwright's kernels, for inference. Prints nothing; print the report.

    ops: what to replace, one or several of
        "linear": torch.nn.Linear in bf16 or fp16
        "rms_norm": classes named ...RMSNorm that compute weight * x / rms(x)
        "swiglu": modules with gate_proj, up_proj, down_proj and act_fn that compute
            down(activation(gate(x)) * up(x)), whose first half becomes one kernel
        "experts": the experts of a mixture, as Transformers' ExpertsInterface has them, that compute
            down(activation(gate(x)) * up(x)) from weights [experts, out, in] without biases, by two
            grouped products: Mixtral, Qwen2-MoE, Qwen3-MoE and others, not gpt-oss. Others run by
            their `experts_implementation` as before
        "decoder_layer": layers of Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen2-MoE and Qwen3-MoE whose
            parts were replaced. A decode step with a StaticCache then has five kernels a layer, and a
            prefill eight; before a router with experts four and six
    where: where(name, module) says whether a module may be replaced
    unpadded: the promise that no sequence of a batch is ever padded, so that masks and positions of a
        decode step need not be looked at. Without it a step that is given a mask waits for the GPU to
        look, and where it cannot, in a capture or in torch.compile, its layer is not fused

    Weights stay the model's own. Where a kernel reads several as one tensor, they are moved into one
    and become views of it, so that nothing is held twice; the report says so. Modules that need a
    gradient, other dtypes and other devices run as before. torch.compile takes a patched model;
    hooks on modules inside of a fused layer are not called. To pickle the model, undo() first.

    Returns the Report, whose undo() takes all of it back. Errors: ValueError for another op, or for a
    model that is patched already."""
    ops = (ops,) if isinstance(ops, str) else ops
    unknown = set(ops) - set(OPS)
    if unknown:
        raise ValueError(f"ops has {', '.join(sorted(unknown))}; there are {', '.join(OPS)}")
    if any(original(module) is not type(module) for module in model.modules()):
        raise ValueError("the model is patched already; undo() its report first")
    return _Patcher(model, ops, where, unpadded).run()


def unpatch(model: nn.Module) -> None:
    """Takes back what `patch` did to the model, or to the one that it is a copy of. Errors: ValueError
    where it is not patched."""
    if not any([restore(module) for module in model.modules()]):
        raise ValueError("the model is not patched")

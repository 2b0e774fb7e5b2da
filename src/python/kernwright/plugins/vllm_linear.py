"""kernwright's kernels of quantized linear layers in vLLM: weights of 4 and 8 bits beside activations of 16, fp8 by
tensors and by blocks, and fp8 and int8 by rows. vLLM asks the kernels of its lists in their order, and takes the
first that can implement a layer; VLLM_DISABLED_KERNELS has the names of those that it leaves out."""

from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from vllm.model_executor.kernels import linear
from vllm.model_executor.kernels.linear.scaled_mm import Fp8BlockScaledMMLinearKernel
from vllm.platforms import PlatformEnum

from .._arrays import make_error
from ..torch import _operators as operators
from ._packed_layers import DTYPES, pack, reasons_against, those_that_hold, weight_of

_BLOCK = 128
_Answer = Tuple[bool, Optional[str]]


def _answer(reasons: List[str]) -> _Answer:
    return (False, f"{', '.join(reasons)} not supported") if reasons else (True, None)


class KernwrightMPLinearKernel(linear.MPLinearKernel):  # type: ignore[misc]
    """Weights in 4 or 8 bits of GPTQ, AWQ and compressed-tensors, which vLLM has brought into one layout."""

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def can_implement(cls, c: Any) -> _Answer:
        return _answer(reasons_against(c))

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Packs the weights, and leaves empty tensors in the places of the layer's own."""
        pack(layer, self.config, self.w_q_name, self.w_s_name, self.w_zp_name, getattr(self, "w_gidx_name", None))

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        return operators.quantized_linear(x, weight_of(layer), bias)


def _fp8_answer(c: Any, **more: bool) -> _Answer:
    return _answer(those_that_hold({
        f"results of {c.out_dtype}": c.out_dtype not in DTYPES,
        f"weights {list(c.weight_shape)}, no multiples of 16": any(size % 16 for size in c.weight_shape), **more}))


def _fp8_supported(capability: Optional[int]) -> _Answer:
    if capability is not None and capability < 89:
        return False, f"requires capability 89, and has {capability}"
    return True, None


class KernwrightFp8LinearKernel(linear.FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """fp8 with one scale for the weights, and one for the activations that the checkpoint has."""

    @classmethod
    def is_supported(cls, compute_capability: Optional[int] = None) -> _Answer:
        return _fp8_supported(compute_capability)

    @classmethod
    def can_implement(cls, c: Any) -> _Answer:
        of_weight, of_x = c.weight_quant_key.scale, c.activation_quant_key.scale
        return _fp8_answer(c, **{
            "scales other than one of the whole weight and one of all activations":
                not (of_weight.group_shape.is_per_tensor() and of_x.group_shape.is_per_tensor()),
            "scales of activations that are computed while it runs": not of_x.static,
            "scales of several weights in one": getattr(c, "is_fused_module", False)})

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Reads the scales, which a kernel takes as a number."""
        super().process_weights_after_loading(layer)
        _, weight_scale, input_scale, _ = self._get_layer_params(layer)
        if weight_scale.numel() != 1 or input_scale is None or input_scale.numel() != 1:
            raise ValueError(f"scales are {list(weight_scale.shape)} and "
                             f"{None if input_scale is None else list(input_scale.shape)}, and one each expected")
        self._scale = float(weight_scale) * float(input_scale)

    def apply_scaled_mm(self, *, A: Tensor, B: Tensor, out_dtype: torch.dtype, As: Tensor, Bs: Tensor,
                        bias: Optional[Tensor], output_shape: List[int]) -> Tensor:
        result: Tensor = operators.OPERATORS.scaled_linear(A, B.t(), self._scale, bias, out_dtype)
        return result.view(*output_shape)


def _answer_of_scales(config: Any, of_weights: Sequence[Tuple[int, int]], of_x: Tuple[int, int]) -> _Answer:
    """Says whether scales have one of these shapes of weights, and activations this one while the layer runs."""
    weight, x = config.weight_quant_key.scale, config.activation_quant_key.scale
    return _fp8_answer(config, **{
        f"scales of {tuple(weight.group_shape)} weights and {tuple(x.group_shape)} activations":
            tuple(weight.group_shape) not in of_weights or tuple(x.group_shape) != of_x,
        "scales of activations that the checkpoint has": x.static})


def _quantize_blocks(x: Tensor, scale: Optional[Tensor] = None, most: Optional[Tensor] = None,
                     **_: Any) -> Tuple[Tensor, Tensor]:
    """Quantizes in the place of vLLM's QuantFP8. The pass over vLLM's graph finds it behind norms and gates."""
    if scale is not None or most is not None:
        raise make_error("a scale of activations or its bound is given, and none expected for blocks of 128")
    codes, scales = operators.OPERATORS.quantize_rows(x.contiguous(), dtype=torch.float8_e4m3fn, quantize="block")
    return codes, scales.t()


class KernwrightFp8BlockLinearKernel(Fp8BlockScaledMMLinearKernel):  # type: ignore[misc]
    """fp8 with a scale for each 128 x 128 of the weights, and for each 128 of a row of the activations, as
    DeepSeek-V3 has them."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.quant_fp8 = _quantize_blocks

    @classmethod
    def is_supported(cls, compute_capability: Optional[int] = None) -> _Answer:
        return _fp8_supported(compute_capability)

    @classmethod
    def can_implement(cls, config: Any) -> _Answer:
        return _answer_of_scales(config, [(_BLOCK, _BLOCK)], (1, _BLOCK))

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Keeps scales that are powers of two in fp32, as kernels read them."""
        super().process_weights_after_loading(layer)
        name = "weight_scale" if getattr(layer, "weight_scale_inv", None) is None else "weight_scale_inv"
        scale = getattr(layer, name)
        if scale.dtype is not torch.float32:
            setattr(layer, name, nn.Parameter(scale.data.float(), requires_grad=False))

    def apply_block_scaled_mm(self, A: Tensor, B: Tensor, As: Tensor, Bs: Tensor) -> Tensor:
        result: Tensor = operators.OPERATORS.block_scaled_linear(A, B, As, Bs, self.config.out_dtype)
        return result


def _scales_of_rows(layer: nn.Module, scale: Tensor, n: int) -> Tensor:
    """Returns a scale for each row of the weights, [1, n], from as many, or from one for each of the weights that are
    joined in the layer."""
    scales, widths = scale.detach().float().flatten(), getattr(layer, "logical_widths", None) or [n]
    if scales.numel() == len(widths) and sum(widths) == n:
        scales = torch.cat([one.expand(width) for one, width in zip(scales, widths)])
    if scales.numel() not in (1, n):
        raise ValueError(f"scales are {list(scale.shape)}, and one or {n} expected")
    return scales.expand(n).reshape(1, n).contiguous()


class KernwrightFp8RowsLinearKernel(linear.FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """fp8 with a scale for each row of the weights, or one, and for each row of the activations. The pass over vLLM's
    graph lets norms and gates quantize these."""

    @classmethod
    def is_supported(cls, compute_capability: Optional[int] = None) -> _Answer:
        return _fp8_supported(compute_capability)

    @classmethod
    def can_implement(cls, c: Any) -> _Answer:
        return _answer_of_scales(c, [(-1, 1), (-1, -1)], (1, -1))

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        super().process_weights_after_loading(layer)
        weight, weight_scale, _, _ = self._get_layer_params(layer)
        self._scales = _scales_of_rows(layer, weight_scale, weight.shape[1])

    def apply_weights(self, layer: nn.Module, x: Any, bias: Optional[Tensor] = None) -> Tensor:
        weight, _, _, most = self._get_layer_params(layer)
        if not isinstance(x, Tensor) or most is not None:  # vLLM quantizes, within a bound of the scales
            result: Tensor = super().apply_weights(layer, x, bias)
            return result
        return operators.rows_linear(x, weight.t(), self._scales, bias, self.config.out_dtype or x.dtype)

    def apply_scaled_mm(self, *, A: Tensor, B: Tensor, out_dtype: torch.dtype, As: Tensor, Bs: Tensor,
                        bias: Optional[Tensor], output_shape: List[int]) -> Tensor:
        result: Tensor = operators.OPERATORS.row_scaled_linear(A, As.reshape(1, -1), B.t(), self._scales, bias,
                                                               out_dtype)
        return result.view(*output_shape)


class KernwrightInt8LinearKernel(linear.Int8ScaledMMLinearKernel):  # type: ignore[misc]
    """int8 with a scale for each row of the weights, or one of each, and for each row of the activations."""

    @classmethod
    def is_supported(cls, compute_capability: Optional[int] = None) -> _Answer:
        if compute_capability is not None and compute_capability < 80:
            return False, f"requires capability 80, and has {compute_capability}"
        return True, None

    @classmethod
    def can_implement(cls, c: Any) -> _Answer:
        return _answer(those_that_hold({"scales of activations that the checkpoint has": c.is_static_input_scheme,
                                        "zero points of activations": not c.input_symmetric}))

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        weight, weight_scale, *_ = self._get_layer_params(layer)
        self._scales = _scales_of_rows(layer, weight_scale, weight.shape[0])

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        return operators.rows_linear(x, self._get_layer_params(layer)[0], self._scales, bias, x.dtype)


def register_kernels() -> List[str]:
    """Puts our kernels before vLLM's, unless they are there, and returns their names. Kernels of a list that this
    vLLM does not have are left, with a line in the log."""
    done = []
    for kernel, lists in ((KernwrightMPLinearKernel, "_POSSIBLE_KERNELS"),
                          (KernwrightFp8LinearKernel, "_POSSIBLE_FP8_KERNELS"),
                          (KernwrightFp8RowsLinearKernel, "_POSSIBLE_FP8_KERNELS"),
                          (KernwrightInt8LinearKernel, "_POSSIBLE_INT8_KERNELS"),
                          (KernwrightFp8BlockLinearKernel, "_POSSIBLE_FP8_BLOCK_KERNELS")):
        kernels = getattr(linear, lists, {}).get(PlatformEnum.CUDA)
        if kernels is None:
            operators.say_once("vLLM's quantized layers stay as they are: it has no list %s", lists)
            continue
        if kernel not in kernels:
            kernels.insert(0, kernel)  # register_linear_kernel appends, and the first one is taken
        done.append(kernel.__name__)
    return done

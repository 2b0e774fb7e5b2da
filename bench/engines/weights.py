"""Weights drawn by their names: normal ones in bf16, or codes and scales of a quantized format.

vLLM's own dummy weights are equal and next to zero, so that a model computes next to nothing, and a wrong
kernel shows no error. Quantized weights are drawn as a checkpoint would hold them, and `meaning` returns the
same weights in fp32, for a model that is not quantized.
"""

import zlib

GROUP, BLOCK = 128, 128
_EXPERTS = {"w13": ("inner", "hidden"), "w2": ("hidden", "inner")}  # rows and columns of products, w13 twice
_CODES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # of MXFP4, before their sign
_FP8_SCALE = 2.0**-12  # a power of two, since vLLM quantizes the parts of a fused layer anew with one scale


def _int4(symmetric):
    weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": GROUP}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None,
                                          "output_activations": None}}}


def _rows(kind, format):
    """Weights of 8 bits with a scale for each row, and activations with one for each token."""
    sides = {name: {"num_bits": 8, "type": kind, "symmetric": True, "strategy": strategy, "dynamic": dynamic}
             for name, strategy, dynamic in (("weights", "channel", False), ("input_activations", "token", True))}
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": None, **sides}}}


# The quantization_config of each format.
FORMATS = {
    "bf16": None, "int4": _int4(True), "int4_zeros": _int4(False),
    "int8": _rows("int", "int-quantized"), "fp8_rows": _rows("float", "float-quantized"),
    # gpt-oss has layers in bf16 but for its experts.
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
    "fp8": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8_block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}}


def drawn(name, shape, dtype, device="cpu"):
    """Returns the tensor of a parameter, the same for the same name and shape."""
    import torch
    source = torch.Generator(device=device).manual_seed(zlib.crc32(name.encode()))
    last = name.rsplit(".", 1)[-1]
    if dtype is torch.int32:
        words = torch.randint(0, 1 << 32, shape, generator=source, device=device)
        # The mean of the weights is 0: with another one all texts of a model are the same soon.
        if last == "weight_zero_point":
            words = (words & 0x11111111) + (words >> 1 & 0x11111111) + 0x77777777  # 7, 8 twice, and 9
        else:
            used = words | words >> 1 | words >> 2 | words >> 3
            words = words | (~used & 0x11111111) << 3  # 8 instead of 0
        return words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32)
    if dtype is torch.uint8:
        if last.endswith("_scale"):
            return 119 + torch.randint(0, 2, shape, generator=source, device=device, dtype=torch.uint8)
        return torch.randint(0, 256, shape, generator=source, device=device, dtype=torch.uint8)
    if last == "input_scale":
        return torch.full(shape, 2.0**-4, dtype=dtype, device=device)
    if last == "weight_scale" and len(shape) == 1:
        return torch.full(shape, _FP8_SCALE, dtype=dtype, device=device)
    value = torch.randn(shape, generator=source, device=device)
    if last == "weight_scale_inv":
        value = _FP8_SCALE * (1 + 0.1 * value)
    elif last == "weight_scale":
        value = (_FP8_SCALE if shape[-1] == 1 else 0.0043) * (1 + 0.1 * value)
    elif dtype is torch.int8:
        value = (80 * value).round().clamp(-127, 127)
    elif dtype is torch.float8_e4m3fn:
        value = (80 * value).clamp(-448, 448)
    elif len(shape) == 1 and last != "sinks" and not last.endswith("bias"):
        value = 1 + 0.1 * value
    elif last != "sinks":
        value = (0.04 if _is_embedding(name) else 0.02) * value
    return value.to(torch.bfloat16).to(dtype)


def meaning(name, shape, format, device="cpu"):
    """Returns in fp32 what a parameter of a model that is not quantized must be to equal the weights of a format."""
    import torch
    product = name.rsplit(".", 1)[-1].removesuffix("_weight")
    if format == "mxfp4" and product in _EXPERTS:
        return _mxfp4(name, shape, device)
    if FORMATS[format] is None or format == "mxfp4" or len(shape) == 1 or _is_embedding(name):
        return drawn(name, shape, torch.float32, device)
    stem, (n, k) = name.removesuffix("weight"), shape

    def spread(values, rows, columns):
        return values.repeat_interleave(rows, 0)[:n].repeat_interleave(columns, 1)[:, :k]

    if format.startswith("int4"):
        codes = _codes(drawn(f"{stem}weight_packed", (n, k // 8), torch.int32, device))
        scales = drawn(f"{stem}weight_scale", (n, k // GROUP), torch.bfloat16, device).float()
        zeros = 8
        if format == "int4_zeros":
            packed = drawn(f"{stem}weight_zero_point", (n // 8, k // GROUP), torch.int32, device)
            zeros = spread(_codes(packed.t()).t(), 1, GROUP)
        return (codes - zeros) * spread(scales, 1, GROUP)
    codes = drawn(name, shape, torch.int8 if format == "int8" else torch.float8_e4m3fn, device).float()
    if format in ("int8", "fp8_rows"):
        return codes * drawn(f"{stem}weight_scale", (n, 1), torch.float32, device)
    if format == "fp8":
        return codes * _FP8_SCALE
    blocks = -(-n // BLOCK), -(-k // BLOCK)
    return codes * spread(drawn(f"{stem}weight_scale_inv", blocks, torch.float32, device), BLOCK, BLOCK)


def fill(model, meaning_of=None, **sizes):
    """Fills the parameters of a model: of a format, or with the meaning of one. Sizes, which are int64, and scales of
    a cache, which are single numbers, stay as they are.

    sizes: hidden and inner, of experts, whose parameters may be larger: the rest, which no checkpoint fills, is 0"""
    for name, parameter in model.named_parameters():
        shape, dtype, device = tuple(parameter.shape), parameter.dtype, parameter.device
        if shape and str(dtype) != "torch.int64":
            own = _of_checkpoint(name, shape, str(dtype) == "torch.uint8", sizes)
            part = parameter.data[tuple(slice(size) for size in own)]
            if own != shape:
                parameter.data.zero_()
            part.copy_(meaning(name, own, meaning_of, device) if meaning_of else drawn(name, own, dtype, device))


def _of_checkpoint(name, shape, packed, sizes):
    """Returns the shape of the part of a parameter that a checkpoint fills."""
    product, _, last = name.rsplit(".", 1)[-1].partition("_")
    if product not in _EXPERTS or not sizes:
        return shape
    rows, columns = (sizes[size] for size in _EXPERTS[product])
    own = shape[0], rows * (2 if product == "w13" else 1)
    if last == "bias":
        return own
    return *own, columns // (32 if last == "weight_scale" else 2 if packed else 1)


def _mxfp4(name, shape, device):
    """Returns weights of experts, [experts, rows, columns], of which two codes are a byte, the first in its low bits."""
    import torch
    rows, columns = shape[:-1], shape[-1]
    codes = drawn(name, (*rows, columns // 2), torch.uint8, device)
    scales = drawn(f"{name}_scale", (*rows, columns // 32), torch.uint8, device)
    numbers = torch.tensor([*_CODES, *(-code for code in _CODES)], device=device)
    values = numbers[torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()]
    return values * (2.0 ** (scales.float() - 127)).repeat_interleave(32, -1)


def _is_embedding(name):
    return "embed" in name or "lm_head" in name


def _codes(words):
    """Returns the eight codes of each word, the first in its lowest bits, along the last dim."""
    import torch
    return torch.stack([words >> shift & 15 for shift in range(0, 32, 4)], -1).flatten(-2)

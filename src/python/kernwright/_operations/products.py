"""Matrix products: plain, gated, scaled, grouped, and of quantized experts."""

from typing import Any, Optional, Tuple

from .._arrays import make_error
from .._call import Form, Given, call

_LINEAR = Form("matmul", (("a", "x"), ("b", "weight"), ("bias", "bias"), ("residual", "residual")),
               (("d", "out"),), ("activation", "out", "epilogue"), fixed={"batch": "1"})


def linear(x: Any, weight: Any, bias: Any = None, *, activation: Optional[str] = None,
           residual: Any = None, out: Any = None, out_dtype: Any = None,
           epilogue: Optional[str] = None) -> Any:
    """activation(x @ weight.T + bias) + residual, as torch.nn.functional.linear with more fused.

    x: [..., k], rows equally far apart
    weight: [n, k], or the transposed view of [k, n]; bf16, fp16 or fp8_e4m3, as x
    bias: [n]; residual: [..., n]; both of the result's dtype
    activation: None, "gelu_tanh", "gelu_erf" or "silu"
    epilogue: the name of a function that the service was opened with
    out: [..., n], rows equally far apart; out_dtype: dtype of a new result, by default x's

    Sums are kept in fp32 and rounded once. Source: the operation matmul."""
    return call(_LINEAR, ("linear", activation, out_dtype, epilogue), (x, weight, bias, residual),
                (out,))


def _expect_dims(given: Given, name: str, count: int) -> None:
    dims = len(given.arrays[name].shape)
    if dims != count:
        raise make_error(f"{name} has {dims} dimensions, and {count} expected")


def _settle_batch(given: Given) -> None:
    """A matrix b is one for all rows of a; several say by themselves how many they are."""
    dims = len(given.arrays["b"].shape)
    if dims < 3:
        given.options["batch"] = "1"
    else:
        _expect_dims(given, "a", dims)


_MATMUL = Form("matmul", (("a", "a"), ("b", "b"), ("bias", "bias"), ("residual", "residual")),
               (("d", "out"),), ("activation", "out"), turned=("b",), settle=_settle_batch)


def matmul(a: Any, b: Any, *, bias: Any = None, activation: Optional[str] = None,
           residual: Any = None, out: Any = None, out_dtype: Any = None) -> Any:
    """activation(a @ b + bias) + residual, as torch.matmul of matrices.

    a: [..., k]; b: [k, n], or the transposed view of [n, k]; the rest as in `linear`. With b
    [..., k, n] a is [..., m, k], and each of them is multiplied by its own matrix."""
    return call(_MATMUL, ("matmul", activation, out_dtype), (a, b, bias, residual), (out,))


_GATED_LINEAR = Form("matmul", (("a", "x"), ("b", "weight")), (("d", "out"),),
                     ("activation", "out"), fixed={"gate": "stacked", "batch": "1"})


def gated_linear(x: Any, weight: Any, *, activation: str = "silu", out: Any = None,
                 out_dtype: Any = None) -> Any:
    """activation(x @ gate.T) * (x @ up.T) in one kernel.

    x: [..., k]; weight: [2 * n, k], the rows of the gate, then those of the up projection, as
    torch.cat((gate, up)) returns them; result: [..., n]; activation: "silu", "gelu_tanh" or
    "gelu_erf". Source: the operation matmul with gate=stacked."""
    return call(_GATED_LINEAR, ("gated_linear", activation, out_dtype), (x, weight), (out,))


def _are_numbers(scale_a: Any, scale_b: Any) -> bool:
    """Returns true if both scales are numbers, one for all of an operand. Errors: Error if only one
    is."""
    numbers = [isinstance(scale, (int, float)) for scale in (scale_a, scale_b)]
    if any(numbers) != all(numbers) or scale_a is None or scale_b is None:
        raise make_error("scale_a and scale_b have to be two numbers or two arrays")
    return all(numbers)


_SCALED_MATMUL = Form(
    "matmul", (("a", "a"), ("b", "b"), ("scale_a", "scale_a"), ("scale_b", "scale_b"),
               ("bias", "bias"), ("residual", "residual")), (("d", "out"),),
    ("scaling", "activation", "out"), ("alpha",),
    {"dtype": "fp8_e4m3", "b_layout": "nk", "batch": "1"}, ("b", "scale_a", "scale_b"),
    lambda given: _expect_dims(given, "b", 2))
_ROW_SCALED_MATMUL = _SCALED_MATMUL._replace(
    options=("activation", "out"), scalars=(),
    fixed={"scaling": "row", "b_layout": "nk", "batch": "1"}, turned=("b", "scale_a"))


def _are_of_rows(b: Any, scale_b: Any) -> bool:
    """Returns true if there is a scale for each column of b, not for blocks of 128."""
    shape, columns = getattr(scale_b, "shape", ()), getattr(b, "shape", (0,))[-1]
    return len(shape) == 2 and shape[0] == 1 and shape[1] == columns


def scaled_matmul(a: Any, b: Any, scale_a: Any, scale_b: Any, *, bias: Any = None,
                  activation: Optional[str] = None, residual: Any = None, out: Any = None,
                  out_dtype: Any = "bf16") -> Any:
    """activation(dequantised a @ dequantised b + bias) + residual of 8 bits, as torch._scaled_mm.

    a: [..., k], fp8_e4m3 or int8, rows equally far apart
    b: [k, n], the transposed view of [n, k], of a's dtype
    scale_a, scale_b: numbers, one for the whole of a and of b, or in fp32, with m all rows of a:
        scales of rows: scale_a [m, 1] and scale_b [1, n]
        or of blocks: scale_a [m, ceil(k / 128)], the transposed view of [ceil(k / 128), m], and
        scale_b [ceil(k / 128), ceil(n / 128)], that of [ceil(n / 128), ceil(k / 128)]; fp8 alone,
        and so are numbers
    bias: [n]; residual: [..., n]; both of the result's dtype; activation: as in `linear`
    out_dtype: bf16, fp16, fp32 or fp8_e4m3. Source: the operation matmul with scaling=."""
    scalars: Tuple[float, ...] = ()
    scaling = "block"
    if _are_numbers(scale_a, scale_b):
        scalars, scale_a, scale_b, scaling = (scale_a * scale_b,), None, None, "alpha"
    elif _are_of_rows(b, scale_b):
        return call(_ROW_SCALED_MATMUL, ("row_scaled_matmul", activation, out_dtype),
                    (a, b, scale_a, scale_b, bias, residual), (out,))
    return call(_SCALED_MATMUL, ("scaled_matmul", scaling, activation, out_dtype),
                (a, b, scale_a, scale_b, bias, residual), (out,), scalars)


def _settle_result(given: Given) -> None:
    """A product of fp8 has 16 bits."""
    _expect_dims(given, "b", 3)
    if given.arrays["a"].dtype == "fp8_e4m3" and "d" not in given.arrays:
        given.options.setdefault("out", "bf16")


_GROUPED_MATMUL = Form(
    "grouped_matmul", (("a", "a"), ("b", "b"), ("scale_a", "scale_a"), ("scale_b", "scale_b"), ("bias", "bias"),
                       ("row_of", "row_of"), ("ends", "offs")), (("d", "out"),), ("activation", "gate", "out"),
    ("limit", "gate_alpha"), turned=("b", "scale_a", "scale_b"), settle=_settle_result)


def _limits(activation: Optional[str], limit: float, gate_alpha: float) -> Tuple[float, ...]:
    """Returns the scalars that a gate has."""
    return (limit, gate_alpha) if activation == "swiglu_oai" else ()


def grouped_matmul(a: Any, b: Any, offs: Any, *, scale_a: Any = None, scale_b: Any = None, bias: Any = None,
                   row_of: Any = None, activation: Optional[str] = None, gated: bool = False,
                   interleaved: bool = False, limit: float = 7.0, gate_alpha: float = 1.702,
                   out: Any = None, out_dtype: Any = None) -> Any:
    """activation(a of group g @ b[g] + bias[g]) for each group, the experts of a mixture, as
    torch._grouped_mm.

    a: [rows, k] without gaps, sorted by group, bf16, fp16 or fp8_e4m3; with row_of [tokens, k] in
        any order, bf16 or fp16
    b: [groups, k, n], or the transposed view of [groups, n, k], as a; fp8 as such a view alone
    offs: [groups], int32, on the GPU: the ends of the rows of each group. They never fall, and the
        last is at most `rows`, which nothing checks. Rows of the result that belong to no group are
        left as they are.
    scale_a, scale_b: for fp8, scales of blocks in fp32 as in `scaled_matmul`; scale_a: [rows,
        ceil(k / 128)]; scale_b: [groups, ceil(k / 128), ceil(n / 128)], both as transposed views
    bias: [groups, n], of the result's dtype
    row_of: [rows], int32, on the GPU: the row of a for each row of the result, which nothing checks
    gated: b and bias have 2 * n columns, and the result is activation(a @ first half) * (a @ second
        half): SwiGLU with activation="silu". With interleaved gates are the even columns, and the
        odd ones are what they open; not for fp8. activation: also "swiglu_oai", gated, with its
        limit and gate_alpha
    Result: [rows, n], of a's dtype, and for fp8 in bf16. Source: the operation grouped_matmul."""
    if interleaved and not gated:
        raise make_error("interleaved is True and gated is False, and only gates interleave with what they open")
    gate = "interleaved" if interleaved else "stacked" if gated else "none"
    return call(_GROUPED_MATMUL, ("grouped_matmul", activation, gate, out_dtype),
                (a, b, scale_a, scale_b, bias, row_of, offs), (out,), _limits(activation, limit, gate_alpha))


_GROUPED_QUANTIZED_MATMUL = Form(
    "grouped_quantized_matmul",
    (("a", "a"), ("b", "b"), ("b_scale", "b_scale"), ("b_zero", "b_zero"), ("bias", "bias"),
     ("row_of", "row_of"), ("row_scale", "row_scale"), ("ends", "offs")), (("d", "out"),),
    ("n", "group", "first", "weights", "activation", "gate", "out"), ("limit", "gate_alpha"))


def grouped_quantized_matmul(a: Any, b: Any, b_scale: Any, offs: Any, *, b_zero: Any = None,
                             bias: Any = None, row_of: Any = None, row_scale: Any = None,
                             n: Optional[int] = None, group: Optional[int] = None,
                             first: Optional[int] = None, weights: str = "int4",
                             activation: Optional[str] = None, gated: bool = False,
                             limit: float = 7.0, gate_alpha: float = 1.702, out: Any = None,
                             out_dtype: Any = None) -> Any:
    """row_scale * activation(a of expert e @ w[e].T + bias[e]) for each expert of a mixture, with
    packed weights w of 4 or 8 bits.

    a: [rows, k] without gaps, sorted by expert, bf16 or fp16; with row_of [tokens, k] in any order
    b, b_scale, b_zero: as pack_weights writes them with `experts`
    offs: [experts], int32, on the GPU: the ends of the rows of each expert, as in `grouped_matmul`
    bias: [experts, n], gated [experts, 2 * n]; row_of: [rows], int32, the rows of a, which nothing
        checks; row_scale: [rows], fp32, by which results are multiplied
    n: columns of the result, if 64, or gated 32, does not divide them; group, first, weights: as in
        the operation
    gated: w has 2 * n rows, and the result is activation(gate) * up; activation: also "swiglu_oai",
        gated, with its limit and gate_alpha
    Result: [rows, n], of a's dtype. Source: the operation grouped_quantized_matmul."""
    return call(_GROUPED_QUANTIZED_MATMUL,
                ("grouped_quantized_matmul", n, group, first, weights, activation,
                 "stacked" if gated else "none", out_dtype),
                (a, b, b_scale, b_zero, bias, row_of, row_scale, offs), (out,),
                _limits(activation, limit, gate_alpha))

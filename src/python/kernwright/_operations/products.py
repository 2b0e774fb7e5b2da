"""Matrix products: plain, gated, scaled and grouped."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from .._arrays import (Array, View, contiguous_rows, dtype_text, has_shape, make_error, read, rows_of,
                       same_dtype)
from .plan import (Output, Plan, _call, _kernel, _read_optional, _output,
                   _contiguous_output)


class _Weight(NamedTuple):
    layout: str
    n: int
    k: int
    pitch: int
    transposed: bool  # true if the caller's array is the transposed view of the operation's


def _weight(array: Array, n_axis: int) -> _Weight:
    """A matrix of a product, whose axis `n_axis` is n, as the operation's b: rows of k elements
    (nk), or of n elements (kn)."""
    if len(array.shape) != 2:
        raise make_error(f"{array.name} has {len(array.shape)} dimensions, and 2 expected")
    k_axis = 1 - n_axis
    n, k = array.shape[n_axis], array.shape[k_axis]
    if array.strides[k_axis] == 1 or k == 1:
        return _Weight("nk", n, k, array.strides[n_axis] if n > 1 else k, n_axis == 1)
    if array.strides[n_axis] == 1 or n == 1:
        return _Weight("kn", n, k, array.strides[k_axis], n_axis == 0)
    raise make_error(f"{array.name} has the strides {array.strides}, and one of them has to be 1")


def _product(given_x: Any, given_weight: Any, given_bias: Any, given_residual: Any, out: Any,
             n_axis: int, out_dtype: Any, gate: bool, values: Dict[str, Any],
             views: Mapping[str, View] = {}) -> Plan:
    """A product of the rows of x with a matrix whose axis `n_axis` is n, and what is fused to
    it."""
    x, matrix = read("x" if n_axis == 0 else "a", given_x), read(
        "weight" if n_axis == 0 else "b", given_weight)
    bias, residual = _read_optional("bias", given_bias), _read_optional("residual", given_residual)
    same_dtype(x, matrix)
    weight = _weight(matrix, n_axis)
    if gate and weight.n % 2 != 0:
        raise make_error(f"weight has {weight.n} rows, and an even number expected: those of the "
                         "gate, then those of the up projection")
    a = rows_of(x)
    n = weight.n // 2 if gate else weight.n
    if a.columns != weight.k:
        raise make_error(f"{x.name} has rows of {a.columns} elements, and {matrix.name} has "
                         f"k={weight.k}")
    shape = x.shape[:-1] + (n,)
    dtype = dtype_text(out_dtype) or (x.dtype if out is None else read("out", out).dtype)
    given = _output("out", out, shape, dtype)
    if bias is not None:
        has_shape(bias, n)
    if residual is not None:
        has_shape(residual, *shape)
        contiguous_rows(residual)
    if a.rows == 0 or n == 0:
        return Plan(None, (Output(shape, dtype),))
    ldd = n if given is None else rows_of(given).pitch
    natural_ldb = weight.k if weight.layout == "nk" else weight.n
    kernel = _kernel("matmul", x.device, {
        "m": a.rows, "n": n, "k": a.columns,
        "lda": a.pitch if a.pitch != a.columns else None,
        "ldb": weight.pitch if weight.pitch != natural_ldb else None,
        "ldd": ldd if ldd != n else None,
        "dtype": x.dtype, "out": dtype if dtype != x.dtype else None,
        "b_layout": weight.layout if weight.layout != "nk" else None,
        "bias": "column" if bias is not None else None,
        "gate": "stacked" if gate else None,
        "residual": "add" if residual is not None else None, **values},
        {**views, **({"b": View((1, 0))} if weight.transposed else {})})
    return Plan(kernel, (Output(shape, dtype),))


def _linear_plan(x: Any, weight: Any, bias: Any, residual: Any, out: Any,
                 activation: Optional[str], out_dtype: Any, epilogue: Optional[str]) -> Plan:
    return _product(x, weight, bias, residual, out, 0, out_dtype, False,
                    {"activation": activation, "epilogue": epilogue})


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
    return _call(("linear", activation, out_dtype, epilogue), (x, weight, bias, residual), (out,),
                 (), _linear_plan)


def _matmul_plan(a: Any, b: Any, bias: Any, residual: Any, out: Any, activation: Optional[str],
                 out_dtype: Any) -> Plan:
    return _product(a, b, bias, residual, out, 1, out_dtype, False, {"activation": activation})


def matmul(a: Any, b: Any, *, bias: Any = None, activation: Optional[str] = None,
           residual: Any = None, out: Any = None, out_dtype: Any = None) -> Any:
    """activation(a @ b + bias) + residual, as torch.matmul of matrices.

    a: [..., k]; b: [k, n], or the transposed view of [n, k]; the rest as in `linear`."""
    return _call(("matmul", activation, out_dtype), (a, b, bias, residual), (out,), (),
                 _matmul_plan)


def _gated_linear_plan(x: Any, weight: Any, out: Any, activation: str, out_dtype: Any) -> Plan:
    return _product(x, weight, None, None, out, 0, out_dtype, True, {"activation": activation})


def gated_linear(x: Any, weight: Any, *, activation: str = "silu", out: Any = None,
                 out_dtype: Any = None) -> Any:
    """activation(x @ gate.T) * (x @ up.T) in one kernel.

    x: [..., k]; weight: [2 * n, k], the rows of the gate, then those of the up projection, as
    torch.cat((gate, up)) returns them; result: [..., n]; activation: "silu", "gelu_tanh" or
    "gelu_erf". Source: the operation matmul with gate=stacked."""
    return _call(("gated_linear", activation, out_dtype), (x, weight), (out,), (),
                 _gated_linear_plan)


_BLOCK = 128  # elements that share a scale


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _has_layout(array: Array, shape: Tuple[int, ...], strides: Tuple[int, ...], what: str) -> None:
    """Checks shape and strides; strides of dimensions of size 1 count for nothing."""
    has_shape(array, *shape)
    if any(size > 1 and own != wanted
           for size, own, wanted in zip(shape, array.strides, strides)):
        raise make_error(f"{array.name} has the strides {array.strides}, and {strides} expected: "
                         f"{what}")


def _fp32(array: Array) -> Array:
    if array.dtype != "fp32":
        raise make_error(f"{array.name} is {array.dtype}, and fp32 expected")
    return array


def _are_numbers(scale_a: Any, scale_b: Any) -> bool:
    """Returns true if both scales are numbers, one for all of an operand. Errors: Error if only one
    is."""
    numbers = [isinstance(scale, (int, float)) for scale in (scale_a, scale_b)]
    if any(numbers) != all(numbers) or scale_a is None or scale_b is None:
        raise make_error("scale_a and scale_b have to be two numbers or two arrays")
    return all(numbers)


def _scaled_matmul_plan(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, residual: Any,
                        out: Any, activation: Optional[str], out_dtype: Any) -> Plan:
    rows, matrix = read("a", a), read("b", b)
    if same_dtype(rows, matrix) != "fp8_e4m3":
        raise make_error(f"a and b are {rows.dtype}, and fp8_e4m3 expected")
    weight = _weight(matrix, 1)
    if weight.layout != "nk":
        raise make_error(f"b has the strides {matrix.strides}, and {(1, weight.k)} expected: the "
                         "transposed view of [n, k]")
    values: Dict[str, Any] = {"activation": activation, "scaling": "alpha"}
    views: Dict[str, View] = {}
    if scale_a is not None:
        of_rows, of_matrix = _fp32(read("scale_a", scale_a)), _fp32(read("scale_b", scale_b))
        m, blocks = rows.elements // max(weight.k, 1), _blocks(weight.k)
        _has_layout(of_rows, (m, blocks), (1, m), "the transposed view of [ceil(k / 128), m]")
        _has_layout(of_matrix, (blocks, _blocks(weight.n)), (1, blocks),
                    "the transposed view of [ceil(n / 128), ceil(k / 128)]")
        values["scaling"] = "block"
        views = {"scale_a": View((1, 0)), "scale_b": View((1, 0))}
    return _product(a, b, bias, residual, out, 1, out_dtype, False, values, views)


def scaled_matmul(a: Any, b: Any, scale_a: Any, scale_b: Any, *, bias: Any = None,
                  activation: Optional[str] = None, residual: Any = None, out: Any = None,
                  out_dtype: Any = "bf16") -> Any:
    """activation(dequantised a @ dequantised b + bias) + residual of fp8, as torch._scaled_mm.

    a: [..., k], fp8_e4m3, rows equally far apart; b: [k, n], the transposed view of [n, k], fp8_e4m3
    scale_a, scale_b: numbers, one for the whole of a and of b, or scales of blocks in fp32:
        scale_a: [m, ceil(k / 128)], the transposed view of [ceil(k / 128), m]; m: all rows of a
        scale_b: [ceil(k / 128), ceil(n / 128)], the transposed view of [ceil(n / 128), ceil(k / 128)]
    bias: [n]; residual: [..., n]; both of the result's dtype; activation: as in `linear`
    out_dtype: bf16, fp16, fp32 or fp8_e4m3. Source: the operation matmul with scaling=."""
    scalars: Tuple[float, ...] = ()
    if _are_numbers(scale_a, scale_b):
        scalars, scale_a, scale_b = (scale_a * scale_b,), None, None
    return _call(("scaled_matmul", activation, out_dtype),
                 (a, b, scale_a, scale_b, bias, residual), (out,), scalars, _scaled_matmul_plan)


def _grouped_matmul_plan(a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any, out: Any,
                         activation: Optional[str], gated: bool, out_dtype: Any) -> Plan:
    array, matrices, ends = read("a", a), read("b", b), read("offs", offs)
    dtype = same_dtype(array, matrices)
    for given, dims, what in ((array, 2, "rows and k"), (matrices, 3, "groups, k and n"),
                              (ends, 1, "groups")):
        if len(given.shape) != dims:
            raise make_error(f"{given.name} has {len(given.shape)} dimensions, and {dims} "
                             f"expected: {what}")
    rows = contiguous_rows(array)
    groups, k, columns = matrices.shape
    if k != rows.columns:
        raise make_error(f"a has rows of {rows.columns} elements, and b has k={k}")
    if gated and columns % 2 != 0:
        raise make_error(f"b has {columns} columns, and an even number expected: those of the gates, "
                         "then those of what they open")
    _has_layout(matrices, (groups, k, columns), (k * columns, 1, k),
                "the transposed view of [groups, n, k]")
    if ends.dtype != "int32":
        raise make_error(f"offs is {ends.dtype}, and int32 expected")
    contiguous_rows(has_shape(ends, groups))
    scaled, views = dtype == "fp8_e4m3", {"b": View((0, 2, 1), groups)}
    if scaled != (scale_a is not None) or scaled != (scale_b is not None):
        raise make_error(f"a is {dtype}: scale_a and scale_b are for fp8_e4m3, and needed there")
    if scaled:
        blocks, of_columns = _blocks(k), _blocks(columns)
        _has_layout(_fp32(read("scale_a", scale_a)), (rows.rows, blocks), (1, rows.rows),
                    "the transposed view of [ceil(k / 128), rows]")
        _has_layout(_fp32(read("scale_b", scale_b)), (groups, blocks, of_columns),
                    (blocks * of_columns, 1, blocks),
                    "the transposed view of [groups, ceil(n / 128), ceil(k / 128)]")
        views.update(scale_a=View((1, 0)), scale_b=View((0, 2, 1), groups))
    n = columns // 2 if gated else columns
    kind = dtype_text(out_dtype) or (read("out", out).dtype if out is not None else
                                     "bf16" if scaled else dtype)
    _contiguous_output("out", out, (rows.rows, n), kind)
    result = (Output((rows.rows, n), kind),)
    if rows.rows == 0 or n == 0:
        return Plan(None, result)
    return Plan(_kernel("grouped_matmul", array.device, {
        "groups": groups, "rows": rows.rows, "n": n, "k": k, "dtype": dtype,
        "out": kind if kind != dtype else None, "activation": activation,
        "gate": "stacked" if gated else None}, views), result)


def grouped_matmul(a: Any, b: Any, offs: Any, *, scale_a: Any = None, scale_b: Any = None,
                   activation: Optional[str] = None, gated: bool = False, out: Any = None,
                   out_dtype: Any = None) -> Any:
    """activation(a of group g @ b[g]) for each group (experts of a mixture), as torch._grouped_mm.

    a: [rows, k] without gaps, sorted by group, bf16, fp16 or fp8_e4m3
    b: [groups, k, n], the transposed view of [groups, n, k], as a
    offs: [groups], int32, on the GPU: the ends of the rows of each group. They never fall, and the
        last is at most `rows`, which nothing checks. Rows of the result that belong to no group are
        left as they are.
    scale_a, scale_b: for fp8, scales of blocks in fp32 as in `scaled_matmul`; scale_a: [rows,
        ceil(k / 128)]; scale_b: [groups, ceil(k / 128), ceil(n / 128)], both as transposed views
    gated: b has 2 * n columns, and the result is activation(a @ first half) * (a @ second half):
        SwiGLU with activation="silu"
    Result: [rows, n], of a's dtype, and for fp8 in bf16. Source: the operation grouped_matmul."""
    return _call(("grouped_matmul", activation, gated, out_dtype), (a, b, scale_a, scale_b, offs),
                 (out,), (), _grouped_matmul_plan)

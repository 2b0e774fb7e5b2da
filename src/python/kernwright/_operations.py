"""Operations on arrays, under the names of torch.nn.functional and FlashInfer.

They take arrays of any framework with DLPack or `__cuda_array_interface__` that lie on a GPU, and
work on the framework's current stream. Results are new arrays of the same framework, or `out=`.
Nothing is copied: what no kernel can take as it lies is refused. All of them raise Error."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _kernwright
from ._arrays import (Array, View, contiguous_rows, has_shape, make_error, read, rows_of,
                      same_dtype)
from ._service import Kernel, active, launching_like

_MOST_PLANS = 1 << 16

_FRAMEWORK_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
                     "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "half": "fp16",
                     "float": "fp32"}


class Output(NamedTuple):
    """A result as it is made: contiguous, and then with these two axes swapped."""
    shape: Tuple[int, ...]
    dtype: str
    swap: Optional[Tuple[int, int]] = None


class Plan(NamedTuple):
    """What calls of one signature do: the kernel that is launched, and the results that are made
    where the caller gives none. Without a kernel there is nothing to compute."""
    kernel: Optional[Kernel]
    outputs: Tuple[Output, ...]


def dtype_text(dtype: Any) -> Optional[str]:
    """kernwright's name of a dtype, which may be one of a framework's; None of None."""
    if dtype is None:
        return None
    name = str(dtype).rpartition(".")[2]
    return _FRAMEWORK_DTYPES.get(name, name)


def _call(tag: Tuple[Any, ...], inputs: Tuple[Any, ...], outs: Tuple[Any, ...],
          scalars: Tuple[float, ...], make: Callable[..., Plan]) -> Any:
    """The results of an operation on its inputs, some of which may be None. Results are made where
    `outs` has None. `tag` is its name and whatever else a plan depends on. Plans are kept by tag and
    signature of the arrays; a new one is what `make` gives of the arrays as they were given and of
    what stands behind the name in the tag."""
    plans = active().plans
    results = _kernwright.run(plans, tag, inputs, outs, scalars)
    if results is not None:
        return results
    if len(plans) >= _MOST_PLANS:
        plans.clear()
    with launching_like(inputs):
        plans[tag, _kernwright.signature(*inputs, *outs)] = make(*inputs, *outs, *tag[1:])
    return _kernwright.run(plans, tag, inputs, outs, scalars)


def _kernel(operation: str, device: Optional[int], values: Dict[str, Any],
            views: Mapping[str, View] = {}, read_only: Sequence[str] = ()) -> Kernel:
    words = [operation] + [f"{name}={value}" for name, value in values.items() if value is not None]
    return active().kernel_on(device, " ".join(words), views, read_only)


def _size(name: str, array: Any, axis: int) -> int:
    """The size of an axis counted from the last, at least 1."""
    try:
        return max(int(array.shape[axis]), 1)
    except Exception:
        raise make_error(f"{name} is no array of as many dimensions: at least {-axis} expected"
                         ) from None


def _read_optional(name: str, array: Any) -> Optional[Array]:
    return None if array is None else read(name, array)


def _output(name: str, out: Any, shape: Tuple[int, ...], dtype: str) -> Optional[Array]:
    """`out` as an array of that shape and dtype, None where it is left to be made."""
    if out is None:
        return None
    array = has_shape(read(name, out), *shape)
    if array.dtype != dtype:
        raise make_error(f"{name} is {array.dtype}, and {dtype} expected")
    return array


def _contiguous_output(name: str, out: Any, shape: Tuple[int, ...], dtype: str) -> None:
    given = _output(name, out, shape, dtype)
    if given is not None:
        contiguous_rows(given)


class _Weight(NamedTuple):
    layout: str
    n: int
    k: int
    pitch: int
    transposed: bool  # what the caller gave is the transposed view of what the operation takes


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
    if a.rows == 0:
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
    out: [..., n], rows equally far apart; out_dtype: that of a new result, x's where left out

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
    torch.cat((gate, up)) gives them; result: [..., n]; activation: "silu", "gelu_tanh" or
    "gelu_erf". Source: the operation matmul with gate=stacked."""
    return _call(("gated_linear", activation, out_dtype), (x, weight), (out,), (),
                 _gated_linear_plan)


_BLOCK = 128  # elements that share a scale


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _has_layout(array: Array, shape: Tuple[int, ...], strides: Tuple[int, ...], what: str) -> None:
    """Whether it lies so; strides of dimensions of size 1 count for nothing."""
    has_shape(array, *shape)
    if any(size > 1 and own != wanted
           for size, own, wanted in zip(shape, array.strides, strides)):
        raise make_error(f"{array.name} has the strides {array.strides}, and {strides} expected: "
                         f"{what}")


def _fp32(array: Array) -> Array:
    if array.dtype != "fp32":
        raise make_error(f"{array.name} is {array.dtype}, and fp32 expected")
    return array


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
    numbers = [isinstance(scale, (int, float)) for scale in (scale_a, scale_b)]
    if all(numbers):
        scalars, scale_a, scale_b = (scale_a * scale_b,), None, None
    elif any(numbers) or scale_a is None or scale_b is None:
        raise make_error("scale_a and scale_b have to be two numbers or two arrays")
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
    if rows.rows == 0:
        return Plan(None, result)
    return Plan(_kernel("grouped_matmul", array.device, {
        "groups": groups, "rows": rows.rows, "n": n, "k": k, "dtype": dtype,
        "out": kind if kind != dtype else None, "activation": activation,
        "gate": "stacked" if gated else None}, views), result)


def grouped_matmul(a: Any, b: Any, offs: Any, *, scale_a: Any = None, scale_b: Any = None,
                   activation: Optional[str] = None, gated: bool = False, out: Any = None,
                   out_dtype: Any = None) -> Any:
    """activation(a of group g @ b[g]) for each group, the experts of a mixture, as torch._grouped_mm.

    a: [rows, k] without gaps, sorted by group, bf16, fp16 or fp8_e4m3
    b: [groups, k, n], the transposed view of [groups, n, k], as a
    offs: [groups], int32, on the GPU: where the rows of each group end. They never fall, and the last
        is at most `rows`, which nothing checks. Rows of the result that belong to no group are left
        as they are.
    scale_a, scale_b: of fp8, scales of blocks in fp32 as in `scaled_matmul`; scale_a: [rows,
        ceil(k / 128)]; scale_b: [groups, ceil(k / 128), ceil(n / 128)], both as transposed views
    gated: b has 2 * n columns, and the result is activation(a @ first half) * (a @ second half):
        SwiGLU with activation="silu"
    Result: [rows, n], of a's dtype, and of fp8 in bf16. Source: the operation grouped_matmul."""
    return _call(("grouped_matmul", activation, gated, out_dtype), (a, b, scale_a, scale_b, offs),
                 (out,), (), _grouped_matmul_plan)


def _norm_plan(x: Any, residual: Any, weight: Any, bias: Any, *outs_and_operation: Any) -> Plan:
    """x, plus the residual, with its rows normalised; with a residual also their sum."""
    *outs, operation = outs_and_operation
    array, added = read("x", x), _read_optional("residual", residual)
    scale, shift = _read_optional("weight", weight), _read_optional("bias", bias)
    dtype = same_dtype(array, added, scale, shift)
    rows = contiguous_rows(array)
    if added is not None:
        contiguous_rows(has_shape(added, *array.shape))
    for vector in (scale, shift):
        if vector is not None:
            contiguous_rows(has_shape(vector, rows.columns))
    for name, result in zip(("out", "out[1], the sum,"), outs):
        _contiguous_output(name, result, array.shape, dtype)
    results = tuple(Output(array.shape, dtype) for _ in outs)
    if array.elements == 0:
        return Plan(None, results)
    values = {"rows": rows.rows, "columns": rows.columns, "dtype": dtype,
              "weight": "scale" if scale is not None else "none",
              "residual": "add" if added is not None else "none"}
    if operation == "layernorm":
        values["bias"] = "add" if shift is not None else "none"
    return Plan(_kernel(operation, array.device, values), results)


def _normalise(operation: str, x: Any, residual: Any, weight: Any, bias: Any, eps: float,
               out: Any) -> Any:
    if residual is None:
        return _call(("norm", operation), (x, None, weight, bias), (out,), (eps,), _norm_plan)
    return _call(("norm", operation), (x, residual, weight, bias), _pair(out), (eps,), _norm_plan)


def _pair(out: Any) -> Tuple[Any, Any]:
    """The two outputs that a caller gave as one argument, or neither."""
    if out is None:
        return None, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise make_error(f"out is {type(out).__name__}, and a pair of arrays expected")
    return out[0], out[1]


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, *, residual: Any = None,
             out: Any = None) -> Any:
    """weight * x / sqrt(mean(x * x) + eps) over the last dimension, as torch.nn.functional.rms_norm.

    x: [..., columns] without gaps; weight: [columns]; bf16, fp16 or fp32, all alike
    residual: as x; it is added first, and the result is then (normalised, sum); `out` is then a
    pair too. Source: the operation rmsnorm."""
    return _normalise("rmsnorm", x, residual, weight, None, eps, out)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *,
               residual: Any = None, out: Any = None) -> Any:
    """weight * (x - mean) / sqrt(variance + eps) + bias over the last dimension, as
    torch.nn.functional.layer_norm. Arguments as in `rms_norm`. Source: the operation layernorm."""
    return _normalise("layernorm", x, residual, weight, bias, eps, out)


def _gated_plan(x: Any, out: Any, activation: str) -> Plan:
    array = read("x", x)
    rows = contiguous_rows(array)
    if rows.columns % 2 != 0:
        raise make_error(f"x has {rows.columns} columns, and an even number expected: the gate, "
                         "then what it multiplies")
    shape = array.shape[:-1] + (rows.columns // 2,)
    _contiguous_output("out", out, shape, array.dtype)
    result = (Output(shape, array.dtype),)
    if array.elements == 0:
        return Plan(None, result)
    return Plan(_kernel("gated_activation", array.device, {
        "rows": rows.rows, "columns": rows.columns // 2, "dtype": array.dtype,
        "activation": activation, "layout": "packed"}), result)


def _gated(x: Any, activation: str, out: Any) -> Any:
    return _call(("gated_activation", activation), (x,), (out,), (), _gated_plan)


def silu_and_mul(x: Any, *, out: Any = None) -> Any:
    """silu(x[..., :n]) * x[..., n:], as FlashInfer's. x: [..., 2 * n] without gaps; bf16, fp16 or
    fp32. Source: the operation gated_activation."""
    return _gated(x, "silu", out)


def gelu_and_mul(x: Any, *, approximate: str = "none", out: Any = None) -> Any:
    """gelu(x[..., :n]) * x[..., n:]; approximate: "none" or "tanh", as torch.nn.functional.gelu."""
    activations = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    if approximate not in activations:
        raise make_error(f"approximate is {approximate!r}, and 'none' or 'tanh' expected")
    return _gated(x, activations[approximate], out)


def _softmax_plan(x: Any, mask: Any, out: Any, causal: bool) -> Plan:
    array, added = read("x", x), _read_optional("mask", mask)
    dtype = same_dtype(array, added)
    rows = contiguous_rows(array)
    if causal and len(array.shape) < 2:
        raise make_error("x has 1 dimension, and with causal=True at least 2 expected")
    if added is not None:
        contiguous_rows(has_shape(added, *array.shape))
    _contiguous_output("out", out, array.shape, dtype)
    result = (Output(array.shape, dtype),)
    if array.elements == 0:
        return Plan(None, result)
    kind = "causal" if causal else "additive" if added is not None else None
    return Plan(_kernel("softmax", array.device, {
        "rows": rows.rows, "columns": rows.columns, "dtype": dtype, "mask": kind}), result)


def softmax(x: Any, *, scale: float = 1.0, causal: bool = False, mask: Any = None,
            out: Any = None) -> Any:
    """softmax(scale * x + mask) over the last dimension.

    x: [..., columns] without gaps, bf16, fp16 or fp32; mask: as x, added
    causal: x is [..., queries, keys], and a query does not see keys after its own, which is the
    last for the last query. Source: the operation softmax."""
    if causal and mask is not None:
        raise make_error("causal=True and a mask are given, and one of them expected")
    scalars: Tuple[float, ...] = (scale,)
    if causal:
        scalars = (scale, _size("x", x, -2))
    return _call(("softmax", causal), (x, mask), (out,), scalars, _softmax_plan)


def _reduce_plan(x: Any, out: Any, op: str, dim: Optional[int], out_dtype: Any) -> Plan:
    array = read("x", x)
    rows = contiguous_rows(array)
    if dim not in (-1, None, len(array.shape) - 1):
        raise make_error(f"dim is {dim}, and -1 or None expected: rows are reduced, or all")
    shape = () if dim is None else array.shape[:-1]
    kind = dtype_text(out_dtype) or (array.dtype if out is None else read("out", out).dtype)
    _output("out", out, shape, kind)
    result = (Output(shape, kind),)
    if rows.rows == 0 and dim is not None:
        return Plan(None, result)
    return Plan(_kernel("reduce", array.device, {
        "rows": rows.rows, "columns": rows.columns, "dtype": array.dtype,
        "out": kind if kind != array.dtype else None, "kind": op,
        "over": "tensor" if dim is None else None}), result)


def reduce(x: Any, op: str = "sum", dim: Optional[int] = -1, *, out: Any = None,
           out_dtype: Any = None) -> Any:
    """The sum, largest, mean or sum of squares of x.

    x: without gaps, bf16, fp16 or fp32; op: "sum", "max", "mean" or "sum_squares"
    dim: -1 for the last dimension, None for all. Sums are kept in fp32. Source: the operation
    reduce."""
    return _call(("reduce", op, dim, out_dtype), (x,), (out,), (), _reduce_plan)


def _rope_plan(q: Any, k: Any, cos: Any, sin: Any, q_out: Any, k_out: Any,
               interleaved: bool) -> Plan:
    q_array, k_array = read("q", q), read("k", k)
    dtype = same_dtype(q_array, k_array)
    for array in (q_array, k_array):
        contiguous_rows(array)
        if len(array.shape) < 3:
            raise make_error(f"{array.name} has {len(array.shape)} dimensions, and at least 3 "
                             "expected: tokens, heads and head_dim")
    heads, head_dim = q_array.shape[-2:]
    kv_heads = k_array.shape[-2]
    tokens = q_array.elements // max(heads * head_dim, 1)
    has_shape(k_array, *q_array.shape[:-2], kv_heads, head_dim)
    for name, angles in (("cos", cos), ("sin", sin)):
        contiguous_rows(has_shape(read(name, angles), tokens, head_dim // 2))
    for name, given, wanted in (("out[0]", q_out, q_array), ("out[1]", k_out, k_array)):
        _contiguous_output(name, given, wanted.shape, dtype)
    results = (Output(q_array.shape, dtype), Output(k_array.shape, dtype))
    if q_array.elements == 0:
        return Plan(None, results)
    return Plan(_kernel("rope", q_array.device, {
        "tokens": tokens, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
        "dtype": dtype, "pairs": "neighbours" if interleaved else None}), results)


def rope(q: Any, k: Any, cos: Any, sin: Any, *, interleaved: bool = False,
         out: Optional[Tuple[Any, Any]] = None) -> Tuple[Any, Any]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps, bf16, fp16 or fp32; what
    stands before the heads are tokens, equally many in both
    cos, sin: [tokens, head_dim / 2], fp32
    interleaved: pairs are neighbours, else elements head_dim / 2 apart
    Source: the operation rope."""
    rotated: Tuple[Any, Any] = _call(("rope", interleaved), (q, k, cos, sin), _pair(out), (),
                                     _rope_plan)
    return rotated


def _elementwise_plan(x: Any, y: Any, z: Any, w: Any, out: Any, formula: str,
                      out_dtype: Any) -> Plan:
    given = {"x": x, "y": y, "z": z, "w": w}
    arrays = {name: read(name, array) for name, array in given.items() if array is not None}
    if not arrays:
        raise make_error("no array is given, and at least one of x, y, z and w expected")
    first = next(iter(arrays.values()))
    for array in arrays.values():
        contiguous_rows(has_shape(array, *first.shape))
    kind = dtype_text(out_dtype) or (first.dtype if out is None else read("out", out).dtype)
    _contiguous_output("out", out, first.shape, kind)
    result = (Output(first.shape, kind),)
    if first.elements == 0:
        return Plan(None, result)
    dtypes = {f"{name}_dtype" if name != "x" else "dtype": array.dtype
              for name, array in arrays.items()}
    return Plan(_kernel("elementwise", first.device, {
        "n": first.elements, "dtype": first.dtype, **dtypes,
        "out": kind, "formula": formula}), result)


def elementwise(formula: str, *, x: Any = None, y: Any = None, z: Any = None, w: Any = None,
                a: float = 1.0, b: float = 1.0, out: Any = None, out_dtype: Any = None) -> Any:
    """A formula over up to four arrays of one shape, "a*x+silu(y)", in fp32 and in one kernel.

    x, y, z, w: without gaps, bf16, fp16 or fp32; those that the formula names
    a, b: numbers. Source: the operation elementwise, whose README has the functions."""
    return _call(("elementwise", formula.replace(" ", ""), out_dtype), (x, y, z, w), (out,), (a, b),
                 _elementwise_plan)


class _Heads(NamedTuple):
    """A tensor of attention as its operation has it."""
    batch: int
    heads: int
    tokens: int
    head_dim: int
    pitch: int


def _heads(array: Array, layout: str) -> Optional[_Heads]:
    """A tensor [batch, heads, tokens, head_dim], as torch's attention takes it, where it lies in
    this layout: contiguous (bhsd), or as the transposed view of [batch, tokens, heads, head_dim]
    (bshd). Tokens may lie further apart. None where it does not."""
    batch, heads, tokens, head_dim = array.shape
    batch_stride, head_stride, token_stride, last = array.strides
    if layout == "bhsd":
        pitch = token_stride if tokens > 1 else head_dim
        fits = (heads == 1 or head_stride == tokens * pitch) and (
            batch == 1 or batch_stride == heads * tokens * pitch)
    else:
        pitch = token_stride if tokens > 1 else heads * head_dim
        fits = (heads == 1 or head_stride == head_dim) and (
            batch == 1 or batch_stride == tokens * pitch) and pitch >= heads * head_dim
    if not fits or (head_dim > 1 and last != 1):
        return None
    return _Heads(batch, heads, tokens, head_dim, pitch)


def _layout(*arrays: Array) -> Tuple[str, List[_Heads]]:
    """The layout that all of the arrays have, and what they are in it."""
    for array in arrays:
        if len(array.shape) != 4:
            raise make_error(f"{array.name} has {len(array.shape)} dimensions, and 4 expected: "
                             "batch, heads, tokens and head_dim")
    for layout in ("bhsd", "bshd"):
        lying = [heads for array in arrays if (heads := _heads(array, layout))]
        if len(lying) == len(arrays):
            return layout, lying
    given = "; ".join(f"{array.name}: shape {array.shape}, strides {array.strides}"
                      for array in arrays)
    raise make_error("all contiguous, or all the transposed view of [batch, tokens, heads, "
                     f"head_dim] expected, and given {given}")


def _attention_plan(q: Any, k: Any, v: Any, kv_lengths: Any, sinks: Any, alibi_slopes: Any,
                    out: Any, *lse_and_flags: Any) -> Plan:
    *lse, causal, window, softcap = lse_and_flags
    return_lse = bool(lse)
    q_array, k_array, v_array = read("q", q), read("k", k), read("v", v)
    dtype = same_dtype(q_array, k_array, v_array)
    given = None if out is None else read("out", out)
    arrays = [q_array, k_array, v_array] + ([] if given is None else [given])
    layout, (queries, keys, values, *results_as) = _layout(*arrays)
    has_shape(k_array, queries.batch, keys.heads, keys.tokens, queries.head_dim)
    has_shape(v_array, queries.batch, keys.heads, keys.tokens, values.head_dim)
    shape = (queries.batch, queries.heads, queries.tokens, values.head_dim)
    _output("out", out, shape, dtype)
    pitch = results_as[0].pitch if results_as else None
    results = [Output(shape, dtype)]
    if layout == "bshd":
        batch, heads, tokens, head_dim = shape
        results = [Output((batch, tokens, heads, head_dim), dtype, (1, 2))]
    if return_lse:
        results.append(Output(shape[:3], "fp32"))
    per_head = queries.heads if layout == "bshd" else 1
    natural = {"ldq": per_head * queries.head_dim, "ldo": per_head * values.head_dim,
               "ldk": (keys.heads if layout == "bshd" else 1) * keys.head_dim,
               "ldv": (keys.heads if layout == "bshd" else 1) * values.head_dim}
    pitches = {"ldq": queries.pitch, "ldk": keys.pitch, "ldv": values.pitch, "ldo": pitch}
    return Plan(_kernel("attention", q_array.device, {
        "batch": queries.batch, "heads": queries.heads, "kv_heads": keys.heads,
        "q_len": queries.tokens, "kv_len": keys.tokens, "head_dim": queries.head_dim,
        "head_dim_v": values.head_dim if values.head_dim != queries.head_dim else None,
        "window": window, "dtype": dtype, "layout": layout,
        "mask": "window" if window else "causal" if causal else None,
        "softcap": "tanh" if softcap else None,
        "bias": "alibi" if alibi_slopes is not None else None,
        "sink": "head" if sinks is not None else None,
        "lengths": "kv" if kv_lengths is not None else None,
        "lse": "natural" if return_lse else None,
        **{name: value for name, value in pitches.items()
           if value is not None and value != natural[name]}},
        {name: View((0, 2, 1, 3)) for name in "qkvo"} if layout == "bshd" else {},
        read_only=("k", "v")), tuple(results))


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: Optional[float] = None,
              window: Optional[int] = None, softcap: Optional[float] = None, sinks: Any = None,
              alibi_slopes: Any = None, kv_lengths: Any = None, return_lse: bool = False,
              out: Any = None) -> Any:
    """softmax(scale * q @ k.T) @ v for each head, as scaled_dot_product_attention.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim]; v: the same with its
    own head_dim; bf16 or fp16. Each is contiguous or the transposed view of [batch, tokens, heads,
    head_dim], all alike. kv_heads divides heads.
    causal: the last query sees all keys; window: keys that a query sees, with its own, of those
    softcap: cap * tanh(logit / cap); sinks, alibi_slopes: [heads], fp32
    kv_lengths: [batch], int32: how many of a sequence's kv_len keys are there
    return_lse: also the logarithm of the sum, [batch, heads, q_len] in fp32
    Result: as q, with v's head_dim. Source: the operation attention."""
    outs = (out, None) if return_lse else (out,)
    scalars: Tuple[float, ...] = (_size("q", q, -1) ** -0.5 if scale is None else scale,)
    if softcap is not None:
        scalars += (softcap,)
    flags = (causal, window, softcap is not None)
    return _call(("attention",) + flags, (q, k, v, kv_lengths, sinks, alibi_slopes), outs, scalars,
                 _attention_plan)

"""Operations on arrays, under the names of torch.nn.functional and FlashInfer.

They take arrays of any framework with DLPack or `__cuda_array_interface__` that lie on a GPU, and
work on the framework's current stream. Results are new arrays of the same framework, or `out=`.
Nothing is copied: what no kernel can take as it lies is refused. All of them raise Error."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _kernwright
from ._arrays import (Array, contiguous_rows, has_shape, make_error, read, rows_of, same_dtype)
from ._kernwright import signature as _signature
from ._service import Kernel, active

_MOST_PLANS = 1 << 16

_TORCH_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn":
                 "fp8_e4m3", "half": "fp16", "float": "fp32"}


class Output(NamedTuple):
    shape: Tuple[int, ...]
    dtype: str


class Plan(NamedTuple):
    """What a call of one signature does: the kernel, and the results that it makes where the caller
    gave none. Without a kernel there is nothing to compute."""
    kernel: Optional[Kernel]
    outputs: Tuple[Output, ...]


def dtype_text(dtype: Any) -> str:
    """kernwright's name of a dtype, which may be one of a framework's."""
    name = str(dtype).rpartition(".")[2]
    return _TORCH_DTYPES.get(name, name)


def _plan(key: Tuple[Any, ...], make: Callable[[], Plan]) -> Plan:
    """The plan that is kept under `key`, else what `make` gives."""
    plans = active().plans
    plan = plans.get(key)
    if plan is None:
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plan = plans[key] = make()
    return plan


def _kernel(operation: str, device: Optional[int], values: Dict[str, Any],
            transposed: Sequence[str] = ()) -> Kernel:
    words = [operation] + [f"{name}={value}" for name, value in values.items() if value is not None]
    return active().kernel_on(device, " ".join(words), transposed)


def _run(plan: Plan, like: Any, inputs: Sequence[Any], outs: Sequence[Any],
         scalars: Sequence[float] = ()) -> Any:
    """Launches the plan's kernel on the inputs that are there and on `outs`, made where they are
    None, and gives the results."""
    results = [_kernwright.allocate(like, wanted.shape, wanted.dtype) if out is None else out
               for out, wanted in zip(outs, plan.outputs)]
    if plan.kernel is not None:
        plan.kernel.launch(*[array for array in inputs if array is not None], *results, *scalars)
    return results[0] if len(results) == 1 else tuple(results)


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


def _product(x: Array, weight: _Weight, bias: Optional[Array], residual: Optional[Array],
             out: Any, out_dtype: Optional[str], gate: bool, values: Dict[str, Any]) -> Plan:
    """A product of the rows of x, with what is fused to it."""
    a = rows_of(x)
    n = weight.n // 2 if gate else weight.n
    if a.columns != weight.k:
        raise make_error(f"x has rows of {a.columns} elements, and the weight has k={weight.k}")
    shape = x.shape[:-1] + (n,)
    dtype = out_dtype or (x.dtype if out is None else read("out", out).dtype)
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
        ("b",) if weight.transposed else ())
    return Plan(kernel, (Output(shape, dtype),))


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
    dtype = None if out_dtype is None else dtype_text(out_dtype)
    key = ("linear", activation, dtype, epilogue, _signature(x, weight, bias, residual, out))

    def make() -> Plan:
        x_array, b = read("x", x), read("weight", weight)
        same_dtype(x_array, b)
        return _product(x_array, _weight(b, 0), _read_optional("bias", bias),
                        _read_optional("residual", residual), out, dtype, False,
                        {"activation": activation, "epilogue": epilogue})

    return _run(_plan(key, make), x, (x, weight, bias, residual), (out,))


def matmul(a: Any, b: Any, *, bias: Any = None, activation: Optional[str] = None,
           residual: Any = None, out: Any = None, out_dtype: Any = None) -> Any:
    """activation(a @ b + bias) + residual, as torch.matmul of matrices.

    a: [..., k]; b: [k, n], or the transposed view of [n, k]; the rest as in `linear`."""
    dtype = None if out_dtype is None else dtype_text(out_dtype)
    key = ("matmul", activation, dtype, _signature(a, b, bias, residual, out))

    def make() -> Plan:
        a_array, b_array = read("a", a), read("b", b)
        same_dtype(a_array, b_array)
        return _product(a_array, _weight(b_array, 1), _read_optional("bias", bias),
                        _read_optional("residual", residual), out, dtype, False,
                        {"activation": activation})

    return _run(_plan(key, make), a, (a, b, bias, residual), (out,))


def gated_linear(x: Any, weight: Any, *, activation: str = "silu", out: Any = None,
                 out_dtype: Any = None) -> Any:
    """activation(x @ gate.T) * (x @ up.T) in one kernel.

    x: [..., k]; weight: [2 * n, k], the rows of the gate, then those of the up projection, as
    torch.cat((gate, up)) gives them; result: [..., n]; activation: "silu", "gelu_tanh" or
    "gelu_erf". Source: the operation matmul with gate=stacked."""
    dtype = None if out_dtype is None else dtype_text(out_dtype)
    key = ("gated_linear", activation, dtype, _signature(x, weight, out))

    def make() -> Plan:
        x_array, b = read("x", x), read("weight", weight)
        same_dtype(x_array, b)
        matrix = _weight(b, 0)
        if matrix.n % 2 != 0:
            raise make_error(f"weight has {matrix.n} rows, and an even number expected: those of "
                             "the gate, then those of the up projection")
        return _product(x_array, matrix, None, None, out, dtype, True, {"activation": activation})

    return _run(_plan(key, make), x, (x, weight), (out,))


def _normalise(operation: str, x: Any, residual: Any, weight: Any, bias: Any, eps: float,
               out: Any) -> Any:
    """x, plus the residual, with its rows normalised; with a residual also their sum."""
    outs: Tuple[Any, ...] = (out,)
    if residual is not None:
        outs = (None, None) if out is None else tuple(out)
    key = (operation, _signature(x, residual, weight, bias, *outs))

    def make() -> Plan:
        array, added = read("x", x), _read_optional("residual", residual)
        scale, shift = _read_optional("weight", weight), _read_optional("bias", bias)
        dtype = same_dtype(array, added, scale, shift)
        rows = contiguous_rows(array)
        if added is not None:
            contiguous_rows(has_shape(added, *array.shape))
        for vector in (scale, shift):
            if vector is not None:
                has_shape(vector, rows.columns)
        for i, result in enumerate(outs):
            given = _output("out" if i == 0 else "out[1], the sum,", result, array.shape, dtype)
            if given is not None:
                contiguous_rows(given)
        results = tuple(Output(array.shape, dtype) for _ in outs)
        if rows.rows == 0:
            return Plan(None, results)
        return Plan(_kernel(operation, array.device, {
            "rows": rows.rows, "columns": rows.columns, "dtype": dtype,
            "weight": "scale" if scale is not None else "none",
            "bias": "add" if shift is not None else None,
            "residual": "add" if added is not None else None}), results)

    return _run(_plan(key, make), x, (x, residual, weight, bias), outs, (eps,))


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


def _gated(x: Any, activation: str, out: Any) -> Any:
    key = ("gated_activation", activation, _signature(x, out))

    def make() -> Plan:
        array = read("x", x)
        rows = contiguous_rows(array)
        if rows.columns % 2 != 0:
            raise make_error(f"x has {rows.columns} columns, and an even number expected: the gate, "
                             "then what it multiplies")
        shape = array.shape[:-1] + (rows.columns // 2,)
        given = _output("out", out, shape, array.dtype)
        if given is not None:
            contiguous_rows(given)
        result = (Output(shape, array.dtype),)
        if rows.rows == 0:
            return Plan(None, result)
        return Plan(_kernel("gated_activation", array.device, {
            "rows": rows.rows, "columns": rows.columns // 2, "dtype": array.dtype,
            "activation": activation, "layout": "packed"}), result)

    return _run(_plan(key, make), x, (x,), (out,))


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


def softmax(x: Any, *, scale: float = 1.0, causal: bool = False, mask: Any = None,
            out: Any = None) -> Any:
    """softmax(scale * x + mask) over the last dimension.

    x: [..., columns] without gaps, bf16, fp16 or fp32; mask: as x, added
    causal: x is [..., queries, keys], and a query does not see keys after its own, which is the
    last for the last query. Source: the operation softmax."""
    key = ("softmax", causal, _signature(x, mask, out))
    if causal and mask is not None:
        raise make_error("causal=True and a mask are given, and one of them expected")

    def make() -> Plan:
        array, added = read("x", x), _read_optional("mask", mask)
        dtype = same_dtype(array, added)
        rows = contiguous_rows(array)
        if causal and len(array.shape) < 2:
            raise make_error("x has 1 dimension, and with causal=True at least 2 expected")
        if added is not None:
            contiguous_rows(has_shape(added, *array.shape))
        given = _output("out", out, array.shape, dtype)
        if given is not None:
            contiguous_rows(given)
        result = (Output(array.shape, dtype),)
        if rows.rows == 0:
            return Plan(None, result)
        kind = "causal" if causal else "additive" if added is not None else None
        return Plan(_kernel("softmax", array.device, {
            "rows": rows.rows, "columns": rows.columns, "dtype": dtype, "mask": kind}), result)

    scalars: List[float] = [scale]
    if causal:
        scalars.append(x.shape[-2])
    return _run(_plan(key, make), x, (x, mask), (out,), scalars)


def reduce(x: Any, op: str = "sum", dim: Optional[int] = -1, *, out: Any = None,
           out_dtype: Any = None) -> Any:
    """The sum, largest, mean or sum of squares of x.

    x: without gaps, bf16, fp16 or fp32; op: "sum", "max", "mean" or "sum_squares"
    dim: -1 for the last dimension, None for all. Sums are kept in fp32. Source: the operation
    reduce."""
    dtype = None if out_dtype is None else dtype_text(out_dtype)
    key = ("reduce", op, dim, dtype, _signature(x, out))

    def make() -> Plan:
        array = read("x", x)
        rows = contiguous_rows(array)
        if dim not in (-1, None, len(array.shape) - 1):
            raise make_error(f"dim is {dim}, and -1 or None expected: rows are reduced, or all")
        shape = () if dim is None else array.shape[:-1]
        kind = dtype or (array.dtype if out is None else read("out", out).dtype)
        _output("out", out, shape, kind)
        result = (Output(shape, kind),)
        if rows.rows == 0 and dim is not None:
            return Plan(None, result)
        return Plan(_kernel("reduce", array.device, {
            "rows": rows.rows, "columns": rows.columns, "dtype": array.dtype,
            "out": kind if kind != array.dtype else None, "kind": op,
            "over": "tensor" if dim is None else None}), result)

    return _run(_plan(key, make), x, (x,), (out,))


def rope(q: Any, k: Any, cos: Any, sin: Any, *, interleaved: bool = False,
         out: Optional[Tuple[Any, Any]] = None) -> Tuple[Any, Any]:
    """q and k with the pairs of each head rotated by their token's angles.

    q: [..., heads, head_dim], k: [..., kv_heads, head_dim], without gaps, bf16, fp16 or fp32; what
    stands before the heads are tokens, equally many in both
    cos, sin: [tokens, head_dim / 2], fp32
    interleaved: pairs are neighbours, else elements head_dim / 2 apart
    Source: the operation rope."""
    outs = (None, None) if out is None else tuple(out)
    key = ("rope", interleaved, _signature(q, k, cos, sin, *outs))

    def make() -> Plan:
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
        for name, array in (("cos", cos), ("sin", sin)):
            contiguous_rows(has_shape(read(name, array), tokens, head_dim // 2))
        for name, given, wanted in (("out[0]", outs[0], q_array), ("out[1]", outs[1], k_array)):
            if given is not None:
                contiguous_rows(_output(name, given, wanted.shape, dtype))
        results = (Output(q_array.shape, dtype), Output(k_array.shape, dtype))
        if tokens == 0:
            return Plan(None, results)
        return Plan(_kernel("rope", q_array.device, {
            "tokens": tokens, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
            "dtype": dtype, "pairs": "neighbours" if interleaved else None}), results)

    return _run(_plan(key, make), q, (q, k, cos, sin), outs)


def elementwise(formula: str, *, x: Any = None, y: Any = None, z: Any = None, w: Any = None,
                a: float = 0.75, b: float = 1.25, out: Any = None, out_dtype: Any = None) -> Any:
    """A formula over up to four arrays of one shape, "a*x+silu(y)", in fp32 and in one kernel.

    x, y, z, w: without gaps, bf16, fp16 or fp32; those that the formula names
    a, b: numbers. Source: the operation elementwise, whose README has the functions."""
    dtype = None if out_dtype is None else dtype_text(out_dtype)
    named = {"x": x, "y": y, "z": z, "w": w}
    key = ("elementwise", formula, dtype, _signature(x, y, z, w, out))

    def make() -> Plan:
        arrays = {name: read(name, array) for name, array in named.items() if array is not None}
        if not arrays:
            raise make_error("no array is given, and at least one of x, y, z and w expected")
        first = next(iter(arrays.values()))
        for array in arrays.values():
            contiguous_rows(has_shape(array, *first.shape))
        kind = dtype or (first.dtype if out is None else read("out", out).dtype)
        given = _output("out", out, first.shape, kind)
        if given is not None:
            contiguous_rows(given)
        result = (Output(first.shape, kind),)
        if first.elements == 0:
            return Plan(None, result)
        dtypes = {f"{name}_dtype" if name != "x" else "dtype": array.dtype
                  for name, array in arrays.items()}
        return Plan(_kernel("elementwise", first.device, {
            "n": first.elements, "dtype": first.dtype, **dtypes,
            "out": kind, "formula": formula.replace(" ", "")}), result)

    like = next((array for array in named.values() if array is not None), None)
    scalars = [value for name, value in (("a", a), ("b", b)) if _uses(formula, name)]
    return _run(_plan(key, make), like, tuple(named.values()), (out,), scalars)


def _uses(formula: str, name: str) -> bool:
    """Whether the formula has the variable."""
    word = ""
    for letter in formula + " ":
        if letter.isalnum() or letter in "_.":
            word += letter
            continue
        if word == name:
            return True
        word = ""
    return False


class _Heads(NamedTuple):
    """A tensor of attention as its operation has it."""
    layout: str
    batch: int
    heads: int
    tokens: int
    head_dim: int
    pitch: int


def _heads(array: Array, layout: Optional[str] = None) -> _Heads:
    """[batch, heads, tokens, head_dim], as torch's attention takes it: either contiguous like this
    (bhsd), or the transposed view of [batch, tokens, heads, head_dim] (bshd)."""
    if len(array.shape) != 4:
        raise make_error(f"{array.name} has {len(array.shape)} dimensions, and 4 expected: batch, "
                         "heads, tokens, head_dim")
    batch, heads, tokens, head_dim = array.shape
    batch_stride, head_stride, token_stride, last = array.strides
    for name in ("bhsd", "bshd") if layout is None else (layout,):
        if name == "bhsd":
            pitch = token_stride if tokens > 1 else head_dim
            fits = (heads == 1 or head_stride == tokens * pitch) and (
                batch == 1 or batch_stride == heads * tokens * pitch)
        else:
            pitch = token_stride if tokens > 1 else heads * head_dim
            fits = (heads == 1 or head_stride == head_dim) and (
                batch == 1 or batch_stride == tokens * pitch) and pitch >= heads * head_dim
        if fits and (head_dim == 1 or last == 1):
            return _Heads(name, batch, heads, tokens, head_dim, pitch)
    raise make_error(f"{array.name} has the shape {array.shape} and the strides {array.strides}, "
                     "and heads or tokens that lie without gaps expected"
                     + (f", in the layout {layout} of q" if layout else ""))


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
    lse = (None,) if return_lse else ()
    key = ("attention", causal, window, softcap is not None, return_lse,
           _signature(q, k, v, sinks, alibi_slopes, kv_lengths, out))

    def make() -> Plan:
        q_array, k_array, v_array = read("q", q), read("k", k), read("v", v)
        dtype = same_dtype(q_array, k_array, v_array)
        given = None if out is None else read("out", out)
        layout = _layout(q_array, k_array, v_array, given)
        queries, keys, values = (_heads(array, layout) for array in (q_array, k_array, v_array))
        has_shape(k_array, queries.batch, keys.heads, keys.tokens, queries.head_dim)
        has_shape(v_array, queries.batch, keys.heads, keys.tokens, values.head_dim)
        shape = (queries.batch, queries.heads, queries.tokens, values.head_dim)
        _output("out", out, shape, dtype)
        if given is None and layout == "bshd":
            raise make_error("q is a transposed view, so that a new result would lie otherwise than "
                             "q does; give out=, a view like q")
        pitch = None if given is None else _heads(given, layout).pitch
        results = [Output(shape, dtype)]
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
            "softcap": "tanh" if softcap is not None else None,
            "bias": "alibi" if alibi_slopes is not None else None,
            "sink": "head" if sinks is not None else None,
            "lengths": "kv" if kv_lengths is not None else None,
            "lse": "natural" if return_lse else None,
            **{name: value for name, value in pitches.items()
               if value is not None and value != natural[name]}}), tuple(results))

    plan = _plan(key, make)
    scalars = [q.shape[-1] ** -0.5 if scale is None else scale]
    if softcap is not None:
        scalars.append(softcap)
    return _run(plan, q, (q, k, v, kv_lengths, sinks, alibi_slopes), (out, *lse), scalars)


def _layout(*arrays: Optional[Array]) -> str:
    """The layout that all of the arrays have."""
    failure = None
    for layout in ("bhsd", "bshd"):
        try:
            for array in arrays:
                if array is not None:
                    _heads(array, layout)
            return layout
        except Exception as error:
            failure = failure or error
    raise failure

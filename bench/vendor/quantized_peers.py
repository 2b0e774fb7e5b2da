"""The problems of quantized_vs_peers.py, their weights and the peers.

Weights are drawn as codes [n, k], with scales and zero points [n, groups]. Each peer makes its own
layout of them before the clock runs, as vLLM 0.33 does when a model is loaded.
"""

import json
import random

import rows_vs_pytorch as rows
from attention_peers import Peer, refuse_where

DEVICE = "cuda"
KEYS = {"m", "n", "k", "group", "dtype", "scale", "zero", "weights"}
SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (5120, 25600))
TOKENS = (1, 16, 64, 256, 4096)
WEIGHTS = "group=128 dtype=bf16"
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
MARLIN_BLOCKS = 4  # of a multiprocessor, each with a lock


# Pure parts, which the tests run without a GPU.

class Shape:
    def __init__(self, problem):
        operation, values = rows.parse_problem(problem)
        unknown = set(values) - KEYS
        if operation != "quantized_matmul" or unknown:
            raise ValueError(f"the bench does not know {', '.join(sorted(unknown)) or operation}: {problem}")
        self.problem, self.values = problem, values
        self.m, self.n, self.k, self.dtype = (values[name] for name in ("m", "n", "k", "dtype"))
        self.group = values.get("group", self.k)
        self.weights = values.get("weights", "int4")
        self.scale = values.get("scale", self.dtype)
        self.has_zero = values.get("zero", "none") == "code"
        self.bits = 8 if self.weights == "int8" else 4
        self.groups = -(-self.k // self.group)

    def flops(self):
        return 2 * self.m * self.n * self.k

    def bytes(self):
        factors = self.n * self.groups * (rows.BYTES.get(self.scale, 1) + self.has_zero)
        return self.n * self.k * self.bits // 8 + factors + self.m * (self.k + self.n) * 2

    def line_us(self):
        """The fixed part of a lone product, and then what memory or the tensor cores take."""
        return 2.3 + max(self.bytes() / 4.35e6, self.flops() / 700e6)

    def of_weights(self, operation, more=""):
        """The problem of another operation with these weights."""
        words = [f"{name}={self.values[name]}" for name in ("group", "zero", "weights") if name in self.values]
        return " ".join([operation, f"n={self.n} k={self.k}", *words, *more.split()])


def listed(shapes, tokens, weights):
    return [f"quantized_matmul m={m} n={n} k={k} {weights}" for n, k in shapes for m in tokens]


def random_sizes(count, seed):
    """Returns `count` pairs n, k between 1024 and 32768, drawn log-uniformly in steps of 128."""
    chosen, sizes = random.Random(seed), []
    while len(sizes) < count:
        n, k = (128 * round(2 ** chosen.uniform(10, 15) / 128) for _ in "nk")
        if (n, k) not in (*SHAPES, *sizes):
            sizes.append((n, k))
    return sizes


def scalar_type(exponent, mantissa, is_signed=False, bias=0, is_finite=False, nan=1):
    """The number that vLLM's operators take for a type of weights: bits of the exponent, of the mantissa
    (of an integer, all of them), what is added to a value when it is stored, whether it has no infinity,
    and how it stores NaN: 0, not at all; 1, as IEEE 754 does."""
    return exponent | mantissa << 8 | is_signed << 16 | bias << 17 | is_finite << 49 | nan << 50


def weight_type(shape):
    if shape.weights == "mxfp4":
        return scalar_type(2, 1, is_signed=True, is_finite=True, nan=0)
    return scalar_type(0, shape.bits, bias=0 if shape.has_zero else 1 << shape.bits - 1)


# Weights.

def draw(torch, shape):
    """Returns a, codes that are all as probable, scales between 2^-6 and 2^-5, and zero points."""
    dtype = rows.torch_dtype(torch, shape.dtype)
    factors = (shape.n, shape.groups)

    def codes(*extent):
        return torch.randint(0, 1 << shape.bits, extent, dtype=torch.uint8, device=DEVICE)

    t = {"a": torch.randn(shape.m, shape.k, device=DEVICE).to(dtype), "codes": codes(shape.n, shape.k)}
    if shape.weights == "mxfp4":
        t["scales"] = torch.randint(120, 123, factors, dtype=torch.uint8, device=DEVICE)
    else:
        t["scales"] = ((1 + torch.rand(factors, device=DEVICE)) / 64).to(rows.torch_dtype(torch, shape.scale))
    if shape.has_zero:
        t["zeros"] = codes(*factors)
    return t


def dequantized(torch, shape, t):
    """Returns the weights [n, k] in fp32, in which they are exact."""
    def spread(factors):
        return factors.float().repeat_interleave(shape.group, 1)[:, :shape.k]

    if shape.weights == "mxfp4":
        values = torch.tensor(E2M1, device=t["codes"].device)[t["codes"].int()]
        return values * torch.exp2(spread(t["scales"]) - 127)
    zeros = spread(t["zeros"]) if shape.has_zero else 1 << shape.bits - 1
    return (t["codes"].float() - zeros) * spread(t["scales"])


def row_bytes(shape, codes):
    """Returns the codes of each row one after another, the first of two in the lower half of a byte."""
    return codes if shape.bits == 8 else codes[:, ::2] | codes[:, 1::2] << 4


def row_words(torch, shape, codes):
    """Returns the same as words of 32 bits."""
    return row_bytes(shape, codes).contiguous().view(torch.int32)


def rounded(torch, shape, t):
    return dequantized(torch, shape, t).to(rows.torch_dtype(torch, shape.dtype))


# Ours.

class Ours:
    """Our kernels: they pack weights, dequantize them, and multiply by plain ones."""

    def __init__(self, torch, library, shape):
        self.torch, self.library, self.shape = torch, library, shape
        scale = f"scale={shape.scale}"
        self.pack = library.function(torch, library.service.kernel(shape.of_weights("pack_weights", scale)))
        self.dequantize = library.function(torch, library.service.kernel(
            shape.of_weights("dequantize_weights", f"{scale} dtype={shape.dtype}")))
        self.product = library.service.kernel(
            f"matmul m={shape.m} n={shape.n} k={shape.k} dtype={shape.dtype}")

    def packed(self, t):
        names = ("b", "b_scale", "b_zero")
        values = self.pack({"b": row_bytes(self.shape, t["codes"]).contiguous(), "b_scale": t["scales"],
                            "b_zero": t.get("zeros")})
        return {"a": t["a"], **dict(zip(names, values))}

    def plain(self, t):
        return {"a": t["a"], "b": rounded(self.torch, self.shape, t)}

    def unfused(self):
        product = self.library.function(self.torch, self.product)
        return Peer(lambda t: product({"a": t["a"], "b": self.dequantize(t)[0]}), self.packed)


# The peers.

def multiprocessors(torch):
    return torch.cuda.get_device_properties(0).multi_processor_count


def cublas(torch, shape):
    return Peer(lambda t: (torch.mm(t["a"], t["b"].t()),),
                lambda t: {"a": t["a"], "b": rounded(torch, shape, t)})


def torch_int4(torch, shape):
    refuse_where(shape.weights != "int4" or shape.dtype != "bf16", "it has int4 and bf16 alone")
    refuse_where(shape.group not in (32, 64, 128, 256), "its groups have 32, 64, 128 or 256 columns")
    refuse_where(shape.k % 1024 or shape.n % 8, "torchao fills up k to a multiple of 1024")

    def prepare(t):
        """Its numbers are (code - 8) * scale + zero."""
        packed = torch._convert_weight_to_int4pack(t["codes"][:, ::2] << 4 | t["codes"][:, 1::2], 8)
        zeros = (8 - t["zeros"].float()) * t["scales"] if shape.has_zero else torch.zeros_like(t["scales"])
        factors = torch.stack([t["scales"], zeros.to(t["scales"].dtype)], -1).transpose(0, 1).contiguous()
        return {"a": t["a"], "b": packed, "factors": factors}

    return Peer(lambda t: (torch._weight_int4pack_mm(t["a"], t["b"], shape.group, t["factors"]),), prepare)


def marlin_factors(shape, factors):
    """Returns scales [n, groups] in the order of Marlin's threads, [groups, n]."""
    whole = factors.t().contiguous()
    if shape.groups == 1:
        return whole.view(-1, 4, 4, 2).transpose(1, 2).reshape(whole.shape)
    return whole.view(-1, 8, 8).transpose(1, 2).reshape(whole.shape)


def marlin_zeros(torch, shape, zeros):
    """Returns zero points in the same order, in words whose parts are those of a conversion."""
    whole = zeros.t().contiguous()
    order = [0, 2, 4, 6, 1, 3, 5, 7] if shape.bits == 4 else [0, 2, 1, 3]
    spread = whole.view(-1, 8, 8).transpose(1, 2).reshape(-1, len(order))[:, order]
    return row_words(torch, shape, spread.reshape(whole.shape))


def marlin(torch, shape):
    refuse_where((shape.n % 64 or shape.k % 128) and (shape.n % 128 or shape.k % 64),
                 "vLLM fills up n to a multiple of 64 and k to one of 128")
    refuse_where(shape.group not in (32, 64, 128, shape.k), "its groups have 32, 64, 128 or all columns")
    operators = torch.ops._C
    kind = weight_type(shape)

    def prepare(t):
        """It packs the words of GPTQ, [k / 8, n]."""
        words = row_words(torch, shape, t["codes"]).t().contiguous()
        scales = marlin_factors(shape, t["scales"])
        if shape.weights == "mxfp4":
            scales = scales.view(-1, 4)[:, [0, 2, 1, 3]].reshape(scales.shape).view(torch.float8_e8m0fnu)
        return {"a": t["a"], "scales": scales,
                "b": operators.gptq_marlin_repack(words, shape.k, shape.n, shape.bits, False),
                "zeros": marlin_zeros(torch, shape, t["zeros"]) if shape.has_zero else None,
                "locks": torch.zeros(multiprocessors(torch) * MARLIN_BLOCKS, dtype=torch.int32, device=DEVICE)}

    def call(t):
        """With sums in fp32 and without atomics, as vLLM calls it."""
        return (operators.marlin_gemm(t["a"], None, t["b"], None, t["scales"], None, None, t["zeros"], t["locks"],
                                      kind, shape.m, shape.n, shape.k, False, True, False),)

    return Peer(call, prepare)


def machete(torch, shape):
    refuse_where(shape.weights == "mxfp4", "it has integers alone")
    refuse_where(shape.n % 128 or shape.k % 64, "n is a multiple of 128 and k one of 64")
    refuse_where(shape.group not in (64, 128, shape.k), "its groups have 64, 128 or all columns")
    operators = torch.ops._C
    kind, dtype = weight_type(shape), rows.torch_dtype(torch, shape.dtype)

    def prepare(t):
        scales = t["scales"].t().contiguous()
        zeros = -scales * t["zeros"].t().to(dtype) if shape.has_zero else None
        words = row_words(torch, shape, t["codes"]).t()  # the words of GPTQ, with columns outside
        return {"a": t["a"], "b": operators.machete_prepack_B(words, dtype, kind, dtype), "scales": scales,
                "zeros": zeros}

    def call(t):
        return (operators.machete_mm(t["a"], t["b"], kind, None, t["scales"], t["zeros"], shape.group, None, None,
                                     None),)

    return Peer(call, prepare)


class Humming:
    """A layer of Humming, which compiles a kernel at its first call."""

    COMPUTE = json.dumps({"use_batch_invariant": False, "use_f16_accum": False, "gemm_type": "dense"})
    PADDING = {"pad_n_to_multiple": 256, "pad_k_to_multiple": 128}

    def __init__(self, torch, shape):
        from humming import forward, schema, transform, tune
        from humming.kernel import humming as kernel
        self.torch, self.shape, self.dtype = torch, shape, rows.torch_dtype(torch, shape.dtype)
        self.forward, self.transform, self.tune, self.kernel = forward, transform, tune, kernel
        self.schema = schema.BaseWeightSchema.from_config(
            {"quant_method": "mxfp4"} if shape.weights == "mxfp4" else
            {"quant_method": "humming", "dtype": f"int{shape.bits}", "has_zero_point": shape.has_zero,
             "group_size": 0 if shape.groups == 1 else shape.group})
        self.inputs = schema.HummingInputSchema()
        self.config = self.tuning = None

    def settle(self, config):
        """Takes the one of its kernels that its rules have for this m. Without an early start, with which
        replays of its kernels one behind another do not end."""
        self.config = config
        self.tuning = next(json.dumps({**tuning, "use_pdl": False})
                           for least, most, tuning in self.tune.get_heuristics_config(config)
                           if least < self.shape.m <= (most or 1 << 30))

    def compile(self):
        """Compiles the kernel without weights."""
        shape = self.shape
        self.settle(self.transform.prepare_layer_config(
            shape_n=shape.n, shape_k=shape.k, weight_schema=self.schema.to_humming_schema(self.dtype),
            input_schema=self.inputs, torch_dtype=self.dtype, **self.PADDING))
        self.kernel.HummingKernel.prepare_kernels(self.config.to_str(), self.COMPUTE, self.tuning)

    def prepare(self, t):
        torch, shape = self.torch, self.shape
        tensors = {"weight": row_words(torch, shape, t["codes"]), "weight_scale": t["scales"]}
        if shape.weights == "mxfp4":
            tensors["weight"] = tensors["weight"].view(torch.uint8)
        if shape.has_zero:
            tensors["zero_point"] = row_words(torch, shape, t["zeros"].t()).t().contiguous()
        sizes = {"shape_n_stacks": [shape.n], "shape_k_stacks": [shape.k], "param_dtype": self.dtype}
        schema, tensors = self.schema.convert_humming(tensors=tensors, **sizes)
        inputs, _ = self.inputs.convert_humming(tensors={}, **sizes)
        config, tensors = self.transform.prepare_and_transform_humming_tensors(
            tensors=tensors, shape_n=shape.n, shape_k=shape.k, weight_schema=schema, input_schema=inputs,
            torch_dtype=self.dtype, **self.PADDING)
        self.settle(config)
        locks = torch.zeros(multiprocessors(torch) * 8, dtype=torch.int32, device=DEVICE)
        return {"a": t["a"], "locks": locks, **tensors}

    def call(self, t):
        return (self.forward.humming_forward(
            self.config, inputs=t["a"], weight=t["weight"], weight_scale=t["weight_scale"],
            zero_point=t.get("zero_point"), weight_scale_2=t.get("weight_scale_2"), locks=t["locks"],
            compute_config=self.COMPUTE, tuning_config=self.tuning),)


def humming(torch, shape):
    layer = Humming(torch, shape)
    return Peer(layer.call, layer.prepare)


def load_vllm(torch, folder):
    """Registers Marlin and Machete. Returns the reason if that is not possible, else None."""
    if folder is None:
        return "no folder of peers"
    library = folder / "vllm/_C_stable_libtorch.abi3.so"
    if not library.exists():
        return f"no {library}"
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        return str(error.__cause__ or error)
    return None


def makers(torch, shape):
    """Returns, by name, functions that return a peer or refuse."""
    return {name: lambda make=make: make(torch, shape)
            for name, make in (("marlin", marlin), ("machete", machete), ("humming", humming),
                               ("torch_int4", torch_int4), ("cublas", cublas))}

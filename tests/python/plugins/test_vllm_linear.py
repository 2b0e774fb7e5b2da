"""Kernels of quantized linear layers in vLLM without a GPU: which layers they take, and what these compute from
the tensors that vLLM has loaded. In vLLM itself if that is installed, and in a stub."""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from engines import parameter  # noqa: E402
from checkpoints import Layer, words  # noqa: E402
from kernwright.torch import _operators  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
NAMES = {"KernwrightMPLinearKernel": "_POSSIBLE_KERNELS", "KernwrightFp8LinearKernel": "_POSSIBLE_FP8_KERNELS",
         "KernwrightFp8RowsLinearKernel": "_POSSIBLE_FP8_KERNELS", "KernwrightInt8LinearKernel": "_POSSIBLE_INT8_KERNELS",
         "KernwrightFp8BlockLinearKernel": "_POSSIBLE_FP8_BLOCK_KERNELS"}


@pytest.fixture(params=engines.forms("vllm"))
def kernels(request, monkeypatch, tmp_path):
    """Our module, imported beside the engine. Operators run on the CPU, where kernwright refuses and PyTorch
    computes."""
    name = "kernwright.plugins.vllm_linear"
    form = engines.vllm_itself if request.param == "itself" else engines.vllm_stub
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=lambda _: None))
    with form(monkeypatch, tmp_path), torch.no_grad(), torch.library._scoped_library(
            "kernwright_engine", "IMPL") as library:
        for operator in ("quantized_linear", "scaled_linear", "block_scaled_linear", "quantize_rows",
                         "row_scaled_linear"):
            with contextlib.suppress(RuntimeError):  # another test's is there
                library.impl(operator, getattr(_operators, f"_{operator}"), "CPU")
        yield importlib.import_module(name)
    sys.modules.pop(name, None)


def of_cuda(kernels, name):
    return getattr(kernels.linear, NAMES[name])[kernels.PlatformEnum.CUDA]


def test_our_kernels_are_first_and_once(kernels):
    theirs = {name: list(of_cuda(kernels, name)) for name in NAMES}
    for _ in range(2):
        assert kernels.register_kernels() == list(NAMES)
    for name, others in theirs.items():
        ours = [getattr(kernels, each) for each in reversed(NAMES) if NAMES[each] == NAMES[name]]
        assert of_cuda(kernels, name) == [*ours, *others]


def test_a_list_that_vllm_does_not_have_is_left(kernels, monkeypatch, caplog):
    monkeypatch.delattr(kernels.linear, "_POSSIBLE_FP8_BLOCK_KERNELS")
    _operators._said.clear()
    assert kernels.register_kernels() == [name for name in NAMES if "Block" not in name]
    assert "it has no list _POSSIBLE_FP8_BLOCK_KERNELS" in caplog.text


def config_of(kernels, n=96, k=256, *, part=None, bits=4, zeros=False, ordered=False, group=32, act=BF16, out=None):
    types_of = importlib.import_module("vllm.scalar_type").scalar_types
    kind = {(4, True): types_of.uint4, (8, True): types_of.uint8, (4, False): types_of.uint4b8,
            (8, False): types_of.uint8b128}[bits, zeros]
    given = dict(full_weight_shape=(k, n), partition_weight_shape=(part or k, n), weight_type=kind, act_type=act,
                 group_size=group, zero_points=zeros, has_g_idx=ordered, out_type=out)
    known = {field.name for field in dataclasses.fields(kernels.linear.MPLinearLayerConfig)}
    return kernels.linear.MPLinearLayerConfig(**{name: value for name, value in given.items() if name in known})


@pytest.mark.parametrize("given, reason", [
    ({}, None), ({"bits": 8, "zeros": True}, None), ({"group": -1}, None), ({"ordered": True}, None),
    ({"part": 128}, None), ({"part": 128, "group": -1}, None), ({"act": torch.float16}, None),
    ({"part": 128, "ordered": True}, "128 of 256 columns sorted by group"),
    ({"part": 144}, "groups of 32 of 144 columns"), ({"k": 300, "group": -1}, "300 columns, no multiple of 8"),
    ({"group": 8}, "groups of 8 of 256 columns"), ({"act": FP8}, "activations of torch.float8_e4m3fn"),
    ({"out": torch.float32}, "results of torch.float32")])
def test_layers_that_are_taken(kernels, given, reason):
    config = config_of(kernels, **given)
    if given.get("ordered") and not hasattr(config, "has_g_idx"):
        pytest.skip("this vLLM has no layers sorted by group")
    kernel = kernels.KernwrightMPLinearKernel
    assert kernel.can_implement(config) == ((True, None) if reason is None else (False, f"{reason} not supported"))
    wrong = dataclasses.replace(config, zero_points=not config.zero_points)
    assert kernel.can_implement(wrong)[0] is False and "zero points" in kernel.can_implement(wrong)[1]


def layer_of(given, form):
    """A layer with the tensors that vLLM has when it calls a kernel. It has brought those of AWQ into this form."""
    layer = torch.nn.Module()
    if form == "compressed_tensors":
        tensors = given.compressed_tensors()
        layer.q, layer.s = parameter(tensors["weight_packed"], 0, 1), parameter(given.scales, 0)
    else:
        layer.q, layer.s = parameter(given.gptq()["qweight"], 1, 0), parameter(given.scales.t().contiguous(), 1)
    layer.z, layer.g = parameter(words(given.zeros, 0, given.bits), 0, 0), parameter(given.groups.int(), 0)
    return layer


def expect_near(found, wanted, limit):
    assert found.shape == wanted.shape and found.dtype is BF16
    error = (found.double() - wanted).norm() / wanted.norm()
    assert error < limit, f"a relative error of {error}"


@pytest.mark.parametrize("form", ["gptq", "compressed_tensors"])
@pytest.mark.parametrize("bits, zeros, ordered", [
    (4, False, False), (4, True, False), (8, False, True), (8, True, True)])
def test_a_layer_is_packed_and_multiplied_by(kernels, form, bits, zeros, ordered):
    config = config_of(kernels, 72, 192, bits=bits, zeros=zeros, ordered=ordered)
    ordered = ordered and hasattr(config, "has_g_idx")
    given = Layer(72, 192, 32, bits, symmetric=not zeros, scale=BF16, ordered=ordered)
    layer = layer_of(given, form)
    named = {"w_gidx_param_name": "g"} if hasattr(config, "has_g_idx") else {}
    kernel = kernels.KernwrightMPLinearKernel(config, "q", "s", "z", **named)
    kernel.process_weights_after_loading(layer)
    assert {name for name, each in layer.named_parameters() if each.numel() == 0} == {
        "q", "s", *(["z"] if zeros else []), *(["g"] if ordered else [])}
    bias = torch.randn(72).to(BF16)
    for x in (torch.randn(3, 192).to(BF16), torch.randn(2, 5, 192).to(BF16), torch.randn(192, 4).to(BF16).t()):
        wanted = x.double() @ given.weight().t() + bias.double()
        expect_near(kernel.apply_weights(layer, x, bias), wanted, 0.01)
    expect_near(kernel.apply_weights(layer, x), x.double() @ given.weight().t(), 0.01)


def test_a_layer_is_compiled_for_any_number_of_tokens(kernels):
    given, config = Layer(72, 192, 32, symmetric=True, scale=BF16), config_of(kernels, 72, 192)
    layer = layer_of(given, "gptq")
    kernel = kernels.KernwrightMPLinearKernel(config, "q", "s")
    kernel.process_weights_after_loading(layer)
    compiled = torch.compile(lambda x: kernel.apply_weights(layer, x * 2), backend="aot_eager", fullgraph=True,
                             dynamic=True)
    for rows in (2, 40):
        x = torch.randn(rows, 192).to(BF16)
        expect_near(compiled(x), 2 * x.double() @ given.weight().t(), 0.01)


def test_words_along_another_dim_are_refused(kernels):
    layer = layer_of(Layer(72, 192, 32, symmetric=True, scale=BF16), "gptq")
    layer.q.packed_dim = 1
    kernel = kernels.KernwrightMPLinearKernel(config_of(kernels, 72, 192), "q", "s")
    with pytest.raises(ValueError, match=r"packed along dim 1, and along its input expected"):
        kernel.process_weights_after_loading(layer)


class Shape(tuple):
    def is_per_tensor(self):
        return self == (-1, -1)


def fp8_config(kernels, weight=(-1, -1), x=(-1, -1), *, static=True, shape=(64, 256), out=BF16):
    if isinstance(kernels.linear.FP8ScaledMMLinearLayerConfig, type) and dataclasses.is_dataclass(
            kernels.linear.FP8ScaledMMLinearLayerConfig):
        quant = engines.seam("vllm.model_executor.layers.quantization.utils.quant_utils")

        def key(still, group):
            return quant.QuantKey(FP8, quant.ScaleDesc(torch.float32, still, quant.GroupShape(*group)))
    else:
        def key(still, group):
            return types.SimpleNamespace(scale=types.SimpleNamespace(static=still, group_shape=Shape(group)))
    return kernels.linear.FP8ScaledMMLinearLayerConfig(
        weight_quant_key=key(True, weight), activation_quant_key=key(static, x), weight_shape=shape,
        input_dtype=BF16, out_dtype=out)


ROWS = {"weight": (-1, 1), "x": (1, -1), "static": False}
BLOCKS = {"weight": (128, 128), "x": (1, 128), "static": False}


@pytest.mark.parametrize("name, given, reason", [
    ("KernwrightFp8LinearKernel", {}, None),
    ("KernwrightFp8LinearKernel", {"static": False}, "scales of activations that are computed while it runs"),
    ("KernwrightFp8LinearKernel", {"weight": (-1, 1)}, "scales other than one of the whole weight"),
    ("KernwrightFp8LinearKernel", {"out": torch.float32}, "results of torch.float32"),
    ("KernwrightFp8LinearKernel", {"shape": (60, 256)}, r"weights [60, 256], no multiples of 16"),
    ("KernwrightFp8RowsLinearKernel", ROWS, None), ("KernwrightFp8RowsLinearKernel", {**ROWS, "weight": (-1, -1)}, None),
    ("KernwrightFp8RowsLinearKernel", {**ROWS, "x": (-1, -1)}, "scales of (-1, 1) weights and (-1, -1) activations"),
    ("KernwrightFp8RowsLinearKernel", {**ROWS, "static": True}, "scales of activations that the checkpoint has"),
    ("KernwrightFp8RowsLinearKernel", {**ROWS, "shape": (60, 256)}, r"weights [60, 256], no multiples of 16"),
    ("KernwrightFp8BlockLinearKernel", BLOCKS, None),
    ("KernwrightFp8BlockLinearKernel", {**BLOCKS, "weight": (1, 128)}, "scales of (1, 128) weights"),
    ("KernwrightFp8BlockLinearKernel", {**BLOCKS, "static": True}, "scales of activations that the checkpoint has")])
def test_fp8_layers_that_are_taken(kernels, name, given, reason):
    kernel = getattr(kernels, name)
    taken, why = kernel.can_implement(fp8_config(kernels, **given))
    assert taken is (reason is None) and (reason is None or reason in why)
    assert kernel.is_supported() == kernel.is_supported(90) == (True, None) and not kernel.is_supported(80)[0]


def test_fp8_with_one_scale(kernels):
    kernel = kernels.KernwrightFp8LinearKernel(
        fp8_config(kernels), ["weight", "weight_scale", "input_scale", "input_scale_ub"])
    layer, bias = torch.nn.Module(), torch.randn(64).to(BF16)
    layer.weight, layer.weight_scale = torch.randn(64, 256).to(FP8).t(), torch.tensor(0.25)
    layer.input_scale, x = torch.tensor(0.5), torch.randn(2, 3, 256).to(BF16)
    kernel.process_weights_after_loading(layer)
    rounded = (x / 0.5).to(FP8).double() * 0.5
    wanted = rounded @ layer.weight.double() * 0.25 + bias.double()
    expect_near(kernel.apply_weights(layer, x, bias), wanted, 0.01)
    layer.weight_scale = torch.ones(3)
    with pytest.raises(ValueError, match=r"scales are \[3\] and \[\], and one each expected"):
        kernel.process_weights_after_loading(layer)


def rounded(x, dtype):
    codes, scales = _operators.plain.quantize_rows(x, dtype=dtype)
    return (codes.double() * scales.double().t().view(*x.shape[:-1], 1)).view(x.shape)


@pytest.mark.parametrize("scale", [torch.rand(64, 1) + 0.5, torch.tensor([0.25]), torch.tensor([0.5, 2.0])])
@pytest.mark.parametrize("dtype", [FP8, torch.int8])
def test_8_bits_by_rows(kernels, scale, dtype):
    of_int, layer, x = dtype is torch.int8, torch.nn.Module(), torch.randn(2, 3, 256).to(BF16)
    names, bias = ["weight", "weight_scale", "input_scale"], torch.randn(64).to(BF16)
    layer.weight = (torch.randn(64, 256) * (40 if of_int else 1)).to(dtype)
    layer.weight_scale, layer.logical_widths, layer.input_scale_ub = scale, [16, 48], None
    wide = scale.flatten() if len(scale) == 64 else torch.cat(
        [scale[:1].expand(16), scale[-1:].expand(48)])
    wanted = rounded(x, dtype) @ (layer.weight.double() * wide.double()[:, None]).t() + bias.double()
    if of_int:
        config = kernels.linear.Int8ScaledMMLinearLayerConfig(
            is_static_input_scheme=False, is_channelwise=True, input_symmetric=True)
        kernel = kernels.KernwrightInt8LinearKernel(config, [*names, "input_zero_point", "azp_adj"])
    else:
        layer.weight = layer.weight.t()  # as vLLM turns it
        kernel = kernels.KernwrightFp8RowsLinearKernel(fp8_config(kernels, **ROWS), [*names, "input_scale_ub"])
    kernel.process_weights_after_loading(layer)
    expect_near(kernel.apply_weights(layer, x, bias), wanted, 0.01)
    if not of_int:
        layer.input_scale_ub = torch.tensor(1e6)  # vLLM quantizes then
        expect_near(kernel.apply_weights(layer, x, bias), wanted, 0.01)
    layer.weight_scale = torch.ones(3)
    with pytest.raises(ValueError, match=r"scales are \[3\], and one or 64 expected"):
        kernel.process_weights_after_loading(layer)


def test_int8_layers_that_are_taken(kernels):
    kernel, make = kernels.KernwrightInt8LinearKernel, kernels.linear.Int8ScaledMMLinearLayerConfig
    for changes, reason in (({}, None), ({"is_static_input_scheme": True}, "scales of activations that the checkpoint has"),
                            ({"input_symmetric": False}, "zero points of activations")):
        config = make(**{"is_static_input_scheme": False, "is_channelwise": True, "input_symmetric": True, **changes})
        assert kernel.can_implement(config) == ((True, None) if reason is None else (False, f"{reason} not supported"))
    assert kernel.is_supported(80) == (True, None) and not kernel.is_supported(75)[0]


@pytest.mark.parametrize("kind", [torch.float32, torch.float8_e8m0fnu])
def test_fp8_with_scales_of_blocks(kernels, kind):
    kernel = kernels.KernwrightFp8BlockLinearKernel(fp8_config(kernels, **BLOCKS, shape=(192, 256)))
    layer, x = torch.nn.Module(), torch.randn(2, 3, 256).to(BF16)
    layer.weight = torch.nn.Parameter(torch.randn(192, 256).to(FP8), requires_grad=False)
    layer.weight_scale_inv = torch.nn.Parameter(torch.tensor([[0.5, 1.0], [2.0, 0.25]]).to(kind), requires_grad=False)
    kernel.process_weights_after_loading(layer)
    assert layer.weight_scale_inv.dtype is torch.float32
    scales = layer.weight_scale_inv.double().repeat_interleave(128, 0)[:192].repeat_interleave(128, 1)
    wanted = x.double() @ (layer.weight.double() * scales).t()
    expect_near(kernel.apply_weights(layer, x), wanted, 0.05)  # x is rounded to fp8


def test_kernels_are_made_ready_for_all_numbers_of_tokens(kernels, monkeypatch):
    asked = []
    monkeypatch.setattr(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=asked.extend))
    monkeypatch.setattr(_operators, "_ready", set())
    given = Layer(72, 192, 32, symmetric=False, scale=BF16)
    weight = _operators.QuantizedWeight.from_compressed_tensors(**given.compressed_tensors(), group=32)
    for rows in (1, 300):
        _operators.quantized_linear(torch.ones(rows, 192, dtype=BF16), weight, None)
        x, b = torch.ones(rows, 256).to(FP8), torch.ones(64, 256).to(FP8)
        _operators.OPERATORS.scaled_linear(x, b, 0.5, torch.ones(64, dtype=BF16), BF16)
        _operators.OPERATORS.block_scaled_linear(x, b, torch.ones(2, rows).t(), torch.ones(1, 2), BF16)
        _operators.rows_linear(torch.ones(rows, 256, dtype=BF16), b.to(torch.int8), torch.ones(1, 64), None, BF16)
        wide, named = torch.ones(rows, 256, dtype=BF16), {"quantize": "row", "dtype": FP8}
        _operators._quantized_norm(wide, wide, wide[0], None, None, 1e-6, norm="rms_norm", **named)
        _operators._quantized_gate(wide, None, activation="silu", **named)
    assert asked == [
        "quantized_matmul m=1..8192 n=72 k=192 group=32 weights=int4 scale=bf16 zero=code bias=none dtype=bf16",
        "matmul m=1..8192 n=64 k=256 ldb=256 bias=column out=bf16 scaling=alpha dtype=fp8_e4m3",
        "matmul m=1..8192 n=64 k=256 ldb=256 bias=none out=bf16 scaling=block dtype=fp8_e4m3",
        "quantize_rows rows=1..8192 columns=256 out=int8 scaling=row dtype=bf16",
        "matmul m=1..8192 n=64 k=256 ldb=256 bias=none out=bf16 scaling=row dtype=int8",
        "rmsnorm rows=1..8192 columns=256 out=fp8_e4m3 quantize=row residual=add dtype=bf16",
        "gated_activation layout=packed rows=1..8192 columns=128 activation=silu out=fp8_e4m3 quantize=row dtype=bf16"]


# In vLLM itself alone: its own choice, and its own tensors.

@pytest.fixture
def itself(kernels, monkeypatch):
    if not hasattr(kernels.linear, "choose_mp_linear_kernel"):
        pytest.skip("a stub chooses nothing")
    platform = types.SimpleNamespace(_enum=kernels.PlatformEnum.CUDA, get_device_capability=lambda: (9, 0))
    monkeypatch.setattr(kernels.linear, "current_platform", platform)
    kernels.register_kernels()
    return kernels


def test_vllm_takes_our_kernels_unless_they_are_disabled(itself, monkeypatch):
    choose = itself.linear.choose_mp_linear_kernel
    config = config_of(itself)
    assert choose(config) is itself.KernwrightMPLinearKernel
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "KernwrightMPLinearKernel")
    with pytest.raises(ValueError, match="KernwrightMPLinearKernel disabled by environment variable"):
        choose(config)  # none of vLLM's own is for this machine


def test_layers_of_vllms_formats(itself, monkeypatch):
    schemes = engines.seam(
        "vllm.model_executor.layers.quantization.compressed_tensors.schemes.compressed_tensors_wNa16")
    given = Layer(72, 192, 32, scale=BF16)
    scheme, layer = schemes.CompressedTensorsWNA16("group", 4, 32, symmetric=False), torch.nn.Module()
    scheme.create_weights(layer, 72, 192, [72], 192, BF16, lambda *_: None)
    for name, tensor in given.compressed_tensors().items():
        getattr(layer, name).data.copy_(tensor)
    scheme.process_weights_after_loading(layer)
    x = torch.randn(3, 192).to(BF16)
    expect_near(scheme.apply_weights(layer, x, None), x.double() @ given.weight().t(), 0.01)


# The names that the newest vLLM has, read from its wheel.

def of_wheel(wheel, name):
    """The classes of a module of a wheel by their names, each a dictionary of its methods' arguments, and the names
    that the module itself assigns."""
    tree = ast.parse(wheel.read(name))
    classes = {node.name: {method.name: [argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)
                                         if argument.arg not in ("self", "cls")]
                           for method in node.body if isinstance(method, ast.FunctionDef)}
               for node in tree.body if isinstance(node, ast.ClassDef)}
    return classes, {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}


def test_our_kernels_take_what_a_wheels_vllm_passes(kernels):
    wheel = engines.wheel_of("vllm")
    folder = "vllm/model_executor/kernels/linear"
    assert set(engines.LISTS) <= of_wheel(wheel, f"{folder}/__init__.py")[1]
    bases = {kernels.KernwrightMPLinearKernel: ("mixed_precision/MPLinearKernel.py", "MPLinearKernel"),
             kernels.KernwrightFp8LinearKernel: ("scaled_mm/ScaledMMLinearKernel.py", "FP8ScaledMMLinearKernel"),
             kernels.KernwrightFp8RowsLinearKernel: ("scaled_mm/ScaledMMLinearKernel.py", "FP8ScaledMMLinearKernel"),
             kernels.KernwrightInt8LinearKernel: ("scaled_mm/ScaledMMLinearKernel.py", "ScaledMMLinearKernel"),
             kernels.KernwrightFp8BlockLinearKernel: ("scaled_mm/BlockScaledMMLinearKernel.py",
                                                      "Fp8BlockScaledMMLinearKernel")}
    for ours, (module, name) in bases.items():
        methods = of_wheel(wheel, f"{folder}/{module}")[0][name]
        found = [method for method in methods if inspect.isfunction(getattr(vars(ours).get(method), "__func__", vars(
            ours).get(method)))]
        assert found
        for method in found:
            taken = inspect.signature(getattr(ours, method)).parameters
            missing = [one for one in methods[method] if one not in taken]
            assert not missing, f"{name}.{method} does not take {missing}"

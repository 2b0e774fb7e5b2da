"""The plug-ins in vLLM and SGLang themselves, if these are installed, and in stubs of the parts that the
plug-ins touch. Each test's name says in which."""

import importlib.metadata
import inspect
import json
import logging
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from checkpoints import Layer  # noqa: E402
from torch._inductor import custom_graph_pass  # noqa: E402
from kernwright.plugins import _layers, fuse_graph, is_wanted  # noqa: E402
from kernwright.plugins import sglang as of_sglang  # noqa: E402
from kernwright.plugins import vllm as of_vllm  # noqa: E402
from kernwright.torch import QuantizedRows, _operators  # noqa: E402

F = torch.nn.functional
LINEAR = {"ReplicatedLinear", "ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear",
          "RowParallelLinear"}
HEADS = {"VocabParallelEmbedding", "ParallelLMHead"}
LAYERS = {"RMSNorm", "SiluAndMul"} | LINEAR | HEADS
KERNELS = ["KernwrightMPLinearKernel", "KernwrightFp8LinearKernel", "KernwrightFp8RowsLinearKernel",
           "KernwrightInt8LinearKernel", "KernwrightFp8BlockLinearKernel"]


@pytest.fixture(scope="session", autouse=True)
def on_cpu():
    """Operators run their implementation on the CPU, on which kernwright refuses and PyTorch computes."""
    library = torch.library.Library("kernwright_engine", "IMPL")
    for name in ("rms_norm", "add_rms_norm", "silu_and_mul", "linear", "linear_add", "gated_linear",
                 "qkv_linear", "quantized_linear", "norm_linear", "norm_gated_linear", "norm_qkv_linear",
                 "quantize_rows", "row_scaled_linear", "block_scaled_linear", "quantized_norm", "quantized_gate"):
        library.impl(name, getattr(_operators, f"_{name}"), "CPU")
    return library


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=lambda _: None))
    _operators._said.clear()
    of_vllm.register.cache_clear()
    of_sglang.register.cache_clear()


@pytest.fixture(params=engines.forms("vllm"))
def vllm(request, monkeypatch, tmp_path):
    form = engines.vllm_itself if request.param == "itself" else engines.vllm_stub
    with form(monkeypatch, tmp_path) as engine, torch.no_grad():
        yield engine


@pytest.fixture(params=engines.forms("sglang"))
def sglang(request, monkeypatch):
    form = engines.sglang_itself if request.param == "itself" else engines.sglang_stub
    with form(monkeypatch) as engine, torch.no_grad():
        yield engine


@pytest.fixture
def wanted(monkeypatch):
    monkeypatch.setenv("KERNWRIGHT_PLUGINS", "sglang, vllm")


@pytest.fixture
def theirs(monkeypatch):
    """Puts in the place of an engine's method one that only says that it was called, with arguments that the
    engine's own takes."""
    def put(kind, method):
        signature = inspect.signature(getattr(kind, method))

        def called(*arguments, **named):
            signature.bind(*arguments, **named)
            return "theirs"

        monkeypatch.setattr(kind, method, called)

    return put


def quantized(base):
    """A configuration whose linear layers have a method of another class."""
    class Fp8LinearMethod(base):
        pass

    return types.SimpleNamespace(get_quant_method=lambda layer, prefix: Fp8LinearMethod(),
                                 online_quantization_config=None)


def of_random_weights(layer):
    for parameter in layer.parameters():
        parameter.data.normal_()
    return layer


def experts():
    """Names of our configurations for experts."""
    return sorted({kind.__name__ for kind in sys.modules["kernwright.plugins.vllm_experts"].CONFIGS.values()})


def bf16(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16)


def test_a_plugin_is_off_unless_it_is_named(monkeypatch):
    assert not is_wanted("vllm") and not is_wanted("sglang")
    monkeypatch.setenv("KERNWRIGHT_PLUGINS", "sglang, vllm")
    assert is_wanted("vllm") and is_wanted("sglang") and not is_wanted("llm")


def test_vllm_loads_it_where_it_is_wanted(vllm, wanted):
    vllm.load()
    assert set(vllm.registry) == LAYERS
    assert of_vllm.register() == [*vllm.registry, *KERNELS, *experts(), "CUSTOM"]  # and not twice
    assert vllm.backends == {vllm.custom: "kernwright.plugins.vllm_attention.KernwrightAttentionBackend"}


def test_vllm_stays_as_it_is_where_it_is_not_wanted(vllm):
    vllm.load()
    assert vllm.registry == {} and vllm.backends == {}
    assert "KERNWRIGHT_PLUGINS" not in vllm.compile_factors()


def test_vllm_makes_our_layers(vllm):
    of_vllm.register()
    norm, activation = vllm.layernorm.RMSNorm(8, dtype=torch.bfloat16), vllm.activation.SiluAndMul()
    x, residual = bf16(3, 8), bf16(3, 8)
    of_random_weights(norm)
    # By these names custom_ops turns them on.
    assert (norm.name, activation.name) == ("rms_norm", "silu_and_mul")
    assert isinstance(norm, vllm.layernorm.RMSNorm)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
    y, both = norm(x.clone(), residual.clone())
    torch.testing.assert_close(both, x + residual)
    torch.testing.assert_close(y, F.rms_norm(both, (8,), norm.weight, 1e-6))
    torch.testing.assert_close(activation.forward_cuda(x), F.silu(x[:, :4]) * x[:, 4:])


def test_vllm_keeps_what_no_kernel_computes(vllm, theirs):
    RMSNorm, SiluAndMul = vllm.layernorm.RMSNorm, vllm.activation.SiluAndMul
    theirs(RMSNorm, "forward_cuda")
    theirs(SiluAndMul, "forward_cuda")
    of_vllm.register()
    norm = RMSNorm(8, dtype=torch.bfloat16)
    assert norm.forward_cuda(bf16(8, 2).t()) == "theirs"
    assert norm.forward_cuda(bf16(2, 8).half()) == "theirs"
    assert norm.forward_cuda(bf16(2, 8), torch.ones(2, 8)) == "theirs"
    assert norm.forward_cuda(bf16(2, 8)) != "theirs"
    for other in (RMSNorm(8, var_hidden_size=4, dtype=torch.bfloat16),
                  RMSNorm(8, has_weight=False, dtype=torch.bfloat16)):
        assert other.forward_cuda(bf16(2, 8)) == "theirs"
    assert SiluAndMul().forward_cuda(bf16(8, 2).t()) == "theirs"


def test_vllms_linear_layers_without_quantization(vllm, theirs):
    method = vllm.linear.UnquantizedLinearMethod
    theirs(method, "apply")
    of_vllm.register()
    for name in ("ReplicatedLinear", "ColumnParallelLinear", "RowParallelLinear"):
        kind, x = getattr(vllm.linear, name), bf16(2, 8)
        layer = of_random_weights(kind(8, 4, params_dtype=torch.bfloat16))
        torch.testing.assert_close(layer(x)[0], F.linear(x, layer.weight, layer.bias))
        assert layer.quant_method.apply(layer, x.float()) == "theirs"
        assert isinstance(layer.quant_method, method)
        left = kind(8, 4, params_dtype=torch.bfloat16, quant_config=quantized(method))
        assert type(left.quant_method).__name__ == "Fp8LinearMethod"


def test_vllms_heads_without_quantization(vllm, theirs):
    method = vllm.head.UnquantizedEmbeddingMethod
    theirs(method, "apply")
    of_vllm.register()
    for name in HEADS:
        x, head = bf16(2, 8), of_random_weights(getattr(vllm.head, name)(64, 8, params_dtype=torch.bfloat16))
        torch.testing.assert_close(head.quant_method.apply(head, x), F.linear(x, head.weight))
        assert head.quant_method.apply(head, x.float()) == "theirs" and isinstance(head.quant_method, method)


def test_vllm_compiles_our_layers_into_one_graph(vllm):
    of_vllm.register()
    norm = vllm.layernorm.RMSNorm(8, dtype=torch.bfloat16)
    linear = of_random_weights(vllm.linear.ReplicatedLinear(8, 4, params_dtype=torch.bfloat16))

    def step(x, residual):
        y, both = norm(x, residual)
        return linear(y)[0], both

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (2, 40):
        x, residual = bf16(rows, 8), bf16(rows, 8)
        torch.testing.assert_close(compiled(x, residual), step(x, residual))


def test_vllm_keeps_models_compiled_with_us_apart(vllm):
    before = vllm.compile_factors()
    of_vllm.register()
    added = {name: value for name, value in vllm.compile_factors().items() if before.get(name) != value}
    assert list(added) == ["KERNWRIGHT_PLUGINS"] and "kernwright" in str(added)


def test_vllm_stays_as_it_is_where_it_is_batch_invariant(vllm, monkeypatch, caplog):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_vllm.register() == []
    assert vllm.registry == {} and "VLLM_BATCH_INVARIANT" in caplog.text


def test_a_class_that_vllm_does_not_have_is_left(vllm, monkeypatch, caplog):
    monkeypatch.delattr(vllm.linear, "RowParallelLinear")
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert set(of_vllm.register()) == LAYERS - {"RowParallelLinear"} | {*KERNELS, *experts(), "CUSTOM"}
    assert "vLLM's RowParallelLinear stays as it is" in caplog.text


def test_without_vllm_a_line_is_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_vllm.register() == []
    assert "vLLM stays as it is" in caplog.text


def test_sglang_loads_it_where_it_is_wanted(sglang, wanted):
    layers = (sglang.layernorm.RMSNorm, sglang.activation.SiluAndMul)
    before = [kind.forward_cuda for kind in layers]
    sglang.load()
    assert {*sglang.registry._patched, "kernwright"} == set(of_sglang.register())
    assert len(sglang.registry._patched) == 9
    assert "kernwright" in sglang.backends and sglang.choices.count("kernwright") == 1
    for kind, method in zip(layers, before):
        assert kind.forward_cuda is not method


def test_sglang_stays_as_it_is_where_it_is_not_wanted(sglang):
    sglang.load()
    assert sglang.registry._patched == set()
    assert "kernwright" not in sglang.backends and "kernwright" not in sglang.choices


def hooked(sglang, theirs):
    """SGLang with our hooks around methods that only say that they were called."""
    for kind, method in ((sglang.layernorm.RMSNorm, "forward_cuda"),
                         (sglang.activation.SiluAndMul, "forward_cuda"),
                         (sglang.unquant.UnquantizedLinearMethod, "apply")):
        theirs(kind, method)
    sglang.load()


def test_sglang_calls_our_hooks(sglang, theirs, wanted):
    hooked(sglang, theirs)
    norm = of_random_weights(sglang.layernorm.RMSNorm(8, weight_dtype=torch.bfloat16))
    x, residual = bf16(3, 8), bf16(3, 8)
    torch.testing.assert_close(norm.forward_cuda(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
    for more in ({}, {"post_residual_addition": None}):
        y, both = norm.forward_cuda(x, residual, **more)
        torch.testing.assert_close(both, x + residual)
        torch.testing.assert_close(y, F.rms_norm(both, (8,), norm.weight, 1e-6))
    torch.testing.assert_close(sglang.activation.SiluAndMul().forward_cuda(x),
                               F.silu(x[:, :4]) * x[:, 4:])
    linear = of_random_weights(sglang.linear.ReplicatedLinear(8, 4, params_dtype=torch.bfloat16))
    torch.testing.assert_close(linear(x)[0], F.linear(x, linear.weight, linear.bias))


def test_sglang_keeps_what_no_kernel_computes(sglang, theirs, wanted):
    hooked(sglang, theirs)
    RMSNorm, bf = sglang.layernorm.RMSNorm, torch.bfloat16
    norm, x = RMSNorm(8, weight_dtype=bf), bf16(3, 8)
    assert norm.forward_cuda(x, x, post_residual_addition=x) == "theirs"
    assert norm.forward_cuda(x, x, x) == "theirs"
    assert norm.forward_cuda(x.half()) == "theirs"
    assert RMSNorm(8, var_hidden_size=4, weight_dtype=bf).forward_cuda(x) == "theirs"
    assert RMSNorm(8, cast_x_before_out_mul=True, weight_dtype=bf).forward_cuda(x) == "theirs"
    assert sglang.activation.SiluAndMul().forward_cuda(bf16(8, 3).t()) == "theirs"
    linear = sglang.linear.ReplicatedLinear(8, 4, params_dtype=bf)
    assert linear.quant_method.apply(linear, x.float()) == "theirs"
    left = sglang.linear.ReplicatedLinear(
        8, 4, params_dtype=bf, quant_config=quantized(sglang.unquant.UnquantizedLinearMethod))
    assert type(left.quant_method).__name__ == "Fp8LinearMethod"


def test_sglang_keeps_a_norm_that_it_fuses_with_a_quantization(sglang, theirs, wanted):
    hooked(sglang, theirs)
    norm, x = sglang.layernorm.RMSNorm(8, weight_dtype=torch.bfloat16), bf16(3, 8)
    linear = sglang.linear.ReplicatedLinear(8, 4, params_dtype=torch.bfloat16)
    norm.fuse_input_quant(linear)  # models of Qwen do so for every layer, with a scale or without
    torch.testing.assert_close(norm.forward_cuda(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
    linear.input_scale = torch.ones(1)
    assert norm.forward_cuda(x) == "theirs"


def test_sglang_keeps_all_where_it_is_batch_invariant(sglang, theirs, wanted):
    hooked(sglang, theirs)
    sglang.be_batch_invariant()
    x, linear = bf16(3, 8), sglang.linear.ReplicatedLinear(8, 4, params_dtype=torch.bfloat16)
    assert sglang.layernorm.RMSNorm(8, weight_dtype=torch.bfloat16).forward_cuda(x) == "theirs"
    assert sglang.activation.SiluAndMul().forward_cuda(x) == "theirs"
    assert linear(x)[0] == "theirs"


def sglangs_layer(sglang, form, given, **changes):
    """A scheme of SGLang with its configuration, and a layer with the tensors that it has loaded."""
    scheme, layer = object.__new__(sglang.schemes[form]), torch.nn.Module()
    scheme.kernel_config = engines.MPLinearLayerConfig(**{**dict(
        full_weight_shape=(given.k, given.n), partition_weight_shape=(given.k, given.n),
        weight_type="uint4" if form == "compressed_tensors" else "uint4b8", act_type=torch.bfloat16,
        group_size=given.group, zero_points=form == "compressed_tensors", has_g_idx=form == "gptq"), **changes})
    scheme.kernel, scheme.quant_config = scheme, types.SimpleNamespace(group_size=given.group)
    dims = {"weight_packed": (0, 1), "weight_scale": (0,), "weight_zero_point": (0, 0), "qweight": (1, 0), "scales": (1,)}
    for name, tensor in getattr(given, form)().items():
        setattr(layer, name, engines.parameter(tensor, *dims.get(name, (0,))))
    return scheme, layer


@pytest.mark.parametrize("form", list(engines.SCHEMES))
def test_sglangs_layers_with_weights_of_4_bits(sglang, theirs, wanted, form, caplog):
    kind = sglang.schemes[form]
    for method in ("process_weights_after_loading", "apply_weights"):
        theirs(kind, method)
    sglang.load()
    given = Layer(72, 192, 32, symmetric=form == "gptq", ordered=form == "gptq", scale=torch.bfloat16)
    scheme, layer = sglangs_layer(sglang, form, given)
    sglang.be_deterministic(False)
    scheme.process_weights_after_loading(layer)
    assert layer.kernwright_weight.n == 72 and sum(each.numel() for each in layer.parameters()) < 100
    x, bias = bf16(3, 192), bf16(72)
    found = scheme.apply_weights(layer, x, bias)
    wanted_ = x.double() @ given.weight().t() + bias.double()
    assert (found.double() - wanted_).norm() < 0.01 * wanted_.norm()

    sglang.be_deterministic(True)
    scheme, layer = sglangs_layer(sglang, form, given)
    assert scheme.process_weights_after_loading(layer) == scheme.apply_weights(layer, x, bias) == "theirs"
    if form != "awq":
        sglang.be_deterministic(False)
        scheme, layer = sglangs_layer(sglang, form, given, partition_weight_shape=(176, 72))
        assert scheme.process_weights_after_loading(layer) == "theirs"
        assert "a quantized layer is left to SGLang: groups of 32 of 176 columns" in caplog.text


def test_a_method_that_sglang_does_not_have_is_left(sglang, monkeypatch, caplog):
    monkeypatch.delattr(sglang.activation, "SiluAndMul")
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert len(of_sglang.register()) == 9
    assert "SiluAndMul.forward_cuda stays as it is" in caplog.text


def test_without_sglangs_registry_of_attention_a_line_is_logged(sglang, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "sglang.srt.layers.attention.attention_registry", None)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert "kernwright" not in of_sglang.register()
    assert "SGLang's attention stays as it is" in caplog.text and "kernwright" not in sglang.choices


def test_sglang_makes_our_attention_where_it_is_asked_for(sglang, wanted, monkeypatch):
    made = types.ModuleType("kernwright.plugins.sglang_attention")
    made.make_backend = lambda runner: ("ours", runner)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    sglang.load()
    assert sglang.backends["kernwright"](7) == ("ours", 7)


def test_without_sglangs_registry_a_line_is_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", None)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_sglang.register() == []
    assert "SGLang stays as it is" in caplog.text


def test_what_kernwright_refuses_is_computed_and_said_once(caplog):
    x, weight = torch.randn(3, 8), torch.ones(8)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        for _ in range(3):
            _operators.norm(x, None, weight, 1e-6)
    assert len([record for record in caplog.records if "left to PyTorch" in record.message]) == 1


def test_weights_that_are_apart_are_multiplied_one_by_one(monkeypatch, caplog):
    monkeypatch.setattr(_operators._fused, "gated_linear", lambda *_: NotImplemented)
    x, gate, up = bf16(3, 8), bf16(4, 8), bf16(4, 8)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        found = _operators.OPERATORS.gated_linear(x, [gate, up], "silu")
    torch.testing.assert_close(found, F.silu(F.linear(x, gate)) * F.linear(x, up))
    assert "gated_linear multiplies its weights one by one: they are apart" in caplog.text


def test_kernels_are_made_ready_for_all_numbers_of_rows(monkeypatch):
    asked = []
    service = types.SimpleNamespace(prewarm=asked.extend)
    monkeypatch.setattr(_operators, "default_service", lambda: service)
    monkeypatch.setattr(_operators, "_ready", set())
    for rows in (1, 300):
        x, weight, of_rows = bf16(rows, 8), bf16(4, 8), bf16(8)
        for bias in (None, bf16(4)):
            _operators.linear(x, weight, bias)
        for residual in (None, x):
            _operators.norm(x, residual, of_rows, 1e-6)
        _operators.silu_and_mul(x)
        for bias in (None, bf16(4)):
            _operators.OPERATORS.linear_add(x, weight, bias, bf16(rows, 4))
        _operators.OPERATORS.norm_linear(x, of_rows, 1e-6, weight, None)
        _operators.OPERATORS.norm_gated_linear(x, of_rows, 1e-6, [weight], "silu")
        _operators.OPERATORS.gated_linear(x, [weight[:2], weight[2:]], "gelu_tanh")
        _operators.OPERATORS.norm_qkv_linear(x, of_rows, 1e-6, [weight[:2], weight[2:3], weight[3:]], [])
    product = "matmul m=1..{} n={} k=8 ldb=8 {}"
    assert asked == [f"{problem} dtype=bf16" for problem in (
        product.format(8192, 4, "bias=none"), product.format(8192, 4, "bias=column"),
        "rmsnorm rows=1..8192 columns=8", "rmsnorm rows=1..8192 columns=8 residual=add",
        "gated_activation layout=packed rows=1..8192 columns=4", product.format(8192, 4, "bias=none residual=add"),
        product.format(8192, 4, "bias=column residual=add"), product.format(16, 4, "bias=none norm=rms"),
        product.format(8192, 2, "gate=stacked activation=silu"),
        product.format(16, 2, "gate=stacked activation=silu norm=rms"),
        product.format(8192, 2, "gate=stacked activation=gelu_tanh"),
        product.format(8192, 2, "bias=none"),  # of gate and up one by one
        product.format(8192, 4, "split=qkv n_kv=1 bias=none"),
        product.format(16, 4, "split=qkv n_kv=1 bias=none norm=rms"), product.format(8192, 1, "bias=none"))]


def test_doctor_names_the_layers_that_are_ours(vllm, sglang, wanted, monkeypatch):
    said = logging.getLogger("kernwright").handlers[:]
    assert _layers.look("vllm") == {"ours": [*vllm.registry, *KERNELS, *experts(), "CUSTOM"], "left": []}
    assert logging.getLogger("kernwright").handlers == said
    found = _layers.look("sglang")
    assert found["ours"][:3] == ["RMSNorm", "SiluAndMul", "UnquantizedLinearMethod"]
    assert found["ours"][-1] == "kernwright" and not any("." in name for name in found["ours"])
    versions = {"vllm": "0.33.0", "sglang": "0.5.23"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    answers = {"vllm": (0, "noise\n" + json.dumps({"ours": ["RMSNorm", "CUSTOM"], "left": ["vLLM's X stays: why"]}), ""),
               "sglang": (1, "", "Traceback\nImportError: no libcuda")}

    def run(command, **named):
        assert command[:3] == [sys.executable, "-m", "kernwright.plugins._layers"]
        return types.SimpleNamespace(**dict(zip(("returncode", "stdout", "stderr"), answers[command[3]])))

    monkeypatch.setattr(_layers.subprocess, "run", run)
    assert _layers.describe() == ("  vLLM      0.33.0\n            ours: RMSNorm, CUSTOM\n            left: vLLM's X stays: why\n"
                                  "  SGLang    0.5.23\n            its layers cannot be looked at: ImportError: no libcuda\n")
    monkeypatch.setenv("KERNWRIGHT_PLUGINS", "vllm")
    assert _layers.describe().endswith("  SGLang    0.5.23\n            off: KERNWRIGHT_PLUGINS does not name sglang\n")


def decoder_layers(x, weights, norms):
    """Two layers without attention, as an engine's compiler sees them."""
    normal, sums = _operators.norm(x, None, norms[0], 1e-6), x
    for i in range(2):
        q = _operators.linear(normal, weights["q"], None)
        o = _operators.linear(q, weights["o"], None)
        normal, sums = _operators.norm(o, sums, norms[1], 1e-6)
        up = _operators.silu_and_mul(_operators.linear(normal, weights["up"], None))
        normal, sums = _operators.norm(_operators.linear(up, weights["down"], None), sums, norms[0], 1e-6)
    return normal, sums


class Pass(custom_graph_pass.CustomGraphPass):
    """The pass as vLLM gives it to Inductor, which keeps the names of our operators."""

    def __init__(self):
        self.targets = []

    def __call__(self, graph):
        fuse_graph(graph)
        graph.lint()
        self.targets += [str(node.target).split(".")[1] for node in graph.nodes
                         if str(node.target).startswith("kernwright_engine")]

    def uuid(self):
        return None


def fused(step, *arguments):
    """Returns what the step computes as Inductor compiles it with the pass, and the names of our operators."""
    torch._dynamo.reset()
    own = Pass()
    with torch._inductor.config.patch(post_grad_custom_post_pass=own, force_disable_caches=True):
        return torch.compile(step, fullgraph=True, dynamic=True)(*arguments), own.targets


def test_a_pass_fuses_norms_residuals_and_gates():
    torch.manual_seed(0)
    weights = {name: bf16(*shape) for name, shape in
               (("q", (24, 16)), ("o", (16, 24)), ("up", (64, 16)), ("down", (16, 32)))}
    norms = bf16(16), bf16(16)
    for rows in (3, 40):
        x = bf16(rows, 16)
        with torch.no_grad():
            found, targets = fused(decoder_layers, x, weights, norms)
        assert targets == ["norm_linear", "linear_add", "norm_gated_linear", "linear_add"] * 2 + ["rms_norm"]
        for one, wanted in zip(found, decoder_layers(x, weights, norms)):
            assert one.shape == wanted.shape
            error = (one.float() - wanted.float()).norm() / wanted.float().norm()
            assert error < 0.02


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, "blocks"])
def test_a_pass_quantizes_in_norms_and_gates(dtype):
    torch.manual_seed(0)
    of_blocks, dtype = dtype == "blocks", torch.float8_e4m3fn if dtype == "blocks" else dtype
    weights = {name: QuantizedRows.from_float(bf16(*shape), dtype) for name, shape in
               (("q", (24, 16)), ("o", (16, 24)), ("up", (64, 16)), ("down", (16, 32)))}
    norms = bf16(16), bf16(16)

    def layers(x):
        def product(x, name):
            if of_blocks:
                codes, scales = _operators.OPERATORS.quantize_rows(x, dtype=dtype, quantize="block")
                return _operators.OPERATORS.block_scaled_linear(codes, weights[name].codes, scales.t(),
                                                                weights[name].scales[:, :1] / 2, torch.bfloat16)
            return _operators.rows_linear(x, weights[name].codes, weights[name].scales, None, torch.bfloat16)

        normal, sums = _operators.norm(x, None, norms[0], 1e-6), x
        for i in range(2):
            normal, sums = _operators.norm(product(product(normal, "q"), "o"), sums, norms[1], 1e-6)
            opened = _operators.silu_and_mul(product(normal, "up"))
            normal, sums = _operators.norm(product(opened, "down"), sums, norms[0], 1e-6)
        return normal, sums

    for rows in (3, 40):
        x = bf16(rows, 16)
        with torch.no_grad():
            found, targets = fused(layers, x)
        product = "block_scaled_linear" if of_blocks else "row_scaled_linear"
        assert targets == ["quantized_norm", product, "quantize_rows", product, "quantized_norm", product,
                           "quantized_gate", product] * 2 + ["add_rms_norm"]
        for one, wanted in zip(found, layers(x)):
            assert one.shape == wanted.shape
            # fp8 has three bits behind the first, and a norm that is not rounded may have the next code.
            limit = 0.03 if dtype is torch.int8 else 0.12
            assert (one.float() - wanted.float()).norm() / wanted.float().norm() < limit


def test_a_pass_leaves_what_it_does_not_know():
    weight, norm, bias = bf16(16, 16), bf16(16), bf16(16)

    def shared(x):  # a norm and products that others use too
        y = _operators.norm(x, None, norm, 1e-6)
        z = _operators.linear(y, weight, None)
        return z, y, _operators.silu_and_mul(z), _operators.norm(z, x, norm, 1e-6)

    def biased(x):
        return _operators.norm(_operators.linear(_operators.norm(x, None, norm, 1e-6), weight, bias), x, norm,
                               1e-6)

    for step, wanted in ((shared, ["rms_norm", "linear", "add_rms_norm", "silu_and_mul"]),
                         (biased, ["rms_norm", "linear_add", "rms_norm"])):
        x = bf16(3, 16)
        with torch.no_grad():
            found, targets = fused(step, x)
            assert sorted(targets) == sorted(wanted)
            torch.testing.assert_close(found, step(x), rtol=0.02, atol=0.02)


def test_operators_compile_for_any_number_of_tokens():
    def step(x, weight, norm):
        return _operators.linear(_operators.norm(x, None, norm, 1e-6), weight, None)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    weight, norm = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)
    for rows in (2, 40):
        x = torch.ones(rows, 8, dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(x, weight, norm), step(x, weight, norm))

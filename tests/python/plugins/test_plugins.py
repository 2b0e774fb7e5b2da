"""The plug-ins against stubs of the documented seams: vLLM's register_oot and SGLang's registry of hooks.
The engines' own wheels do not import without a GPU."""

import logging
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from kernwright.plugins import _operators, is_wanted  # noqa: E402
from kernwright.plugins import sglang as of_sglang  # noqa: E402
from kernwright.plugins import vllm as of_vllm  # noqa: E402

F = torch.nn.functional


@pytest.fixture(scope="session", autouse=True)
def on_cpu():
    """Operators run their implementation on the CPU, where kernwright refuses and PyTorch computes."""
    library = torch.library.Library("kernwright_engine", "IMPL")
    for name in ("rms_norm", "add_rms_norm", "silu_and_mul", "linear"):
        library.impl(name, getattr(_operators, f"_{name}"), "CPU")
    return library


@pytest.fixture(autouse=True)
def fresh():
    _operators._said.clear()
    of_vllm.register.cache_clear()
    of_sglang.register.cache_clear()


def module(monkeypatch, name, **members):
    made = types.ModuleType(name)
    for key, value in members.items():
        setattr(made, key, value)
    monkeypatch.setitem(sys.modules, name, made)
    return made


class Replaceable(torch.nn.Module):
    """vLLM's CustomOp and PluggableLayer: what is registered for a class's name is made in its place."""
    registry = {}

    def __new__(cls, *arguments, **named):
        return super().__new__(Replaceable.registry.get(cls.__name__, cls))

    @classmethod
    def register_oot(cls, decorated=None, name=None):
        def decorate(kind):
            assert name not in Replaceable.registry, f"{name} is there already"
            Replaceable.registry[name] = kind
            kind.name = name
            return kind

        return decorate if decorated is None else decorate(decorated)


class RMSNorm(Replaceable):
    name = "rms_norm"

    def __init__(self, columns, eps=1e-6, variance_size_override=None):
        super().__init__()
        self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(columns) * 2), eps
        self.variance_size_override = variance_size_override

    def forward_cuda(self, x, residual=None):
        return "theirs"


class SiluAndMul(Replaceable):
    def forward_cuda(self, x):
        return "theirs"


class UnquantizedLinearMethod:
    def apply(self, layer, x, bias=None):
        return "theirs"


class Fp8LinearMethod(UnquantizedLinearMethod):
    pass


class ReplicatedLinear(Replaceable):
    def __init__(self, n, k, method=UnquantizedLinearMethod):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n, k), requires_grad=False)
        self.quant_method = method()


@pytest.fixture
def vllm(monkeypatch):
    monkeypatch.setattr(Replaceable, "registry", {})
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        module(monkeypatch, name)
    module(monkeypatch, "vllm.model_executor.layers.layernorm", RMSNorm=RMSNorm)
    module(monkeypatch, "vllm.model_executor.layers.activation", SiluAndMul=SiluAndMul)
    module(monkeypatch, "vllm.model_executor.layers.linear", ReplicatedLinear=ReplicatedLinear)


def test_a_plugin_is_off_unless_it_is_named(monkeypatch, vllm):
    of_vllm.load()
    of_sglang.load()
    assert Replaceable.registry == {}
    monkeypatch.setenv("KERNWRIGHT_PLUGINS", "sglang, vllm")
    assert is_wanted("vllm") and is_wanted("sglang") and not is_wanted("llm")
    of_vllm.load()
    assert set(Replaceable.registry) == {"RMSNorm", "SiluAndMul", "ReplicatedLinear"}


def test_vllm_makes_our_layers(vllm, caplog):
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_vllm.register() == ["RMSNorm", "SiluAndMul", "ReplicatedLinear"]
    assert "RowParallelLinear stays as it is" in caplog.text
    assert of_vllm.register() == ["RMSNorm", "SiluAndMul", "ReplicatedLinear"]  # and not twice
    norm, x, residual = RMSNorm(8), torch.randn(3, 8), torch.randn(3, 8)
    assert isinstance(norm, RMSNorm) and norm.name == "rms_norm"
    with torch.no_grad():
        torch.testing.assert_close(norm.forward_cuda(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
        y, both = norm.forward_cuda(x, residual)
    torch.testing.assert_close(both, x + residual)
    torch.testing.assert_close(y, F.rms_norm(both, (8,), norm.weight, 1e-6))
    torch.testing.assert_close(SiluAndMul().forward_cuda(x), F.silu(x[:, :4]) * x[:, 4:])


def test_vllm_keeps_what_no_kernel_computes(vllm):
    of_vllm.register()
    assert RMSNorm(8, variance_size_override=4).forward_cuda(torch.ones(2, 8)) == "theirs"
    assert RMSNorm(8).forward_cuda(torch.ones(8, 2).t()) == "theirs"
    assert RMSNorm(8).forward_cuda(torch.ones(2, 8).half()) == "theirs"
    assert SiluAndMul().forward_cuda(torch.ones(8, 2).t()) == "theirs"


def test_vllms_linear_layers_without_quantisation(vllm):
    of_vllm.register()
    layer, x = ReplicatedLinear(4, 8).to(torch.bfloat16), torch.ones(2, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(layer.quant_method.apply(layer, x), F.linear(x, layer.weight))
    assert layer.quant_method.apply(layer, x.float()) == "theirs"
    assert isinstance(layer.quant_method, UnquantizedLinearMethod)
    assert type(ReplicatedLinear(4, 8, Fp8LinearMethod).quant_method) is Fp8LinearMethod


def test_without_vllm_a_line_is_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_vllm.register() == []
    assert "vLLM's RMSNorm stays as it is" in caplog.text


class Hooks:
    """SGLang's HookRegistry."""
    around = {}

    @classmethod
    def register(cls, target, hook, kind):
        assert kind == "around"
        cls.around[target] = hook


@pytest.fixture
def sglang(monkeypatch):
    monkeypatch.setattr(Hooks, "around", {})
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        module(monkeypatch, name)
    module(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=Hooks,
           HookType=types.SimpleNamespace(AROUND="around"))


def test_sglang_calls_our_hooks(sglang):
    assert of_sglang.register() == list(Hooks.around)
    norm, activation, linear = Hooks.around.values()
    own = types.SimpleNamespace(weight=torch.ones(8) * 2, variance_epsilon=1e-6)
    x, residual = torch.randn(3, 8), torch.randn(3, 8)

    def theirs(*_, **__):
        return "theirs"

    torch.testing.assert_close(norm(theirs, own, x), F.rms_norm(x, (8,), own.weight, 1e-6))
    torch.testing.assert_close(norm(theirs, own, x, residual)[1], x + residual)
    torch.testing.assert_close(norm(theirs, own, x, residual, post_residual_addition=None)[1],
                               x + residual)
    assert norm(theirs, own, x, residual, post_residual_addition=x) == "theirs"
    torch.testing.assert_close(activation(theirs, None, x), F.silu(x[:, :4]) * x[:, 4:])
    layer = types.SimpleNamespace(weight=torch.ones(4, 8, dtype=torch.bfloat16))
    rows = torch.ones(2, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(linear(theirs, None, layer, rows), F.linear(rows, layer.weight))
    assert linear(theirs, None, layer, x) == "theirs"


def test_without_sglangs_registry_a_line_is_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "sglang", None)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        assert of_sglang.register() == []
    assert "SGLang stays as it is" in caplog.text


def test_what_kernwright_refuses_is_computed_and_said_once(caplog):
    x, weight = torch.randn(3, 8), torch.ones(8)
    with caplog.at_level(logging.WARNING, logger="kernwright"):
        for _ in range(3):
            _operators.norm(x, None, weight, 1e-6)
    assert len([record for record in caplog.records if "left to PyTorch" in record.message]) == 1


def test_many_rows_are_left_to_the_engine(monkeypatch):
    counts = []
    monkeypatch.setattr(_operators._arrays, "linear",
                        lambda x, weight, bias: counts.append(len(x)) or F.linear(x, weight, bias))
    weight = torch.ones(4, 8, dtype=torch.bfloat16)
    for rows in (1, 32, 33):
        _operators.linear(torch.ones(rows, 8, dtype=torch.bfloat16), weight, None)
    assert counts == [1, 32]


def test_operators_compile_for_any_number_of_tokens():
    def step(x, weight, norm):
        return _operators.linear(_operators.norm(x, None, norm, 1e-6), weight, None)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    weight, norm = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)
    for rows in (2, 40):
        x = torch.ones(rows, 8, dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(x, weight, norm), step(x, weight, norm))

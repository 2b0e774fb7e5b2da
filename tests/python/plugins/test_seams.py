"""What the plug-ins build on in vLLM and SGLang beside attention, quantized layers of vLLM and its experts, which have
such tests of their own: names and arguments as the wheels have them that KERNWRIGHT_VLLM_WHEEL and
KERNWRIGHT_SGLANG_WHEEL name."""

import ast
import functools
import inspect
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from engines import arguments_of  # noqa: E402
import kernwright  # noqa: E402
from kernwright.plugins import sglang, vllm  # noqa: E402

LAYERS = "model_executor/layers"


@pytest.fixture
def of_vllm():
    return engines.Wheel("vllm", "vllm")


@pytest.fixture
def of_sglang():
    return engines.Wheel("sglang", "sglang/srt")


def takes(function, method):
    """Fails unless a function can be called as a method is, by names too."""
    names = arguments_of(method)
    inspect.signature(function).bind(*[None] * len(names))
    inspect.signature(function).bind(**dict.fromkeys(names))


def assigned(tree, name):
    """The value that a module gives a name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", None) == name for target in targets):
            return node.value
    raise AssertionError(f"{name} is not assigned")


def test_a_wheels_vllm_passes_what_our_layers_take(of_vllm):
    theirs = type("Theirs", (), {})
    for path, kind, method, ours in (
            (f"{LAYERS}/layernorm", "RMSNorm", "forward_cuda", vllm._norm_class(theirs, None)),
            (f"{LAYERS}/activation", "SiluAndMul", "forward_cuda", vllm._activation_class(theirs, None)),
            (f"{LAYERS}/linear", "UnquantizedLinearMethod", "apply", vllm._method_class(theirs, None)),
            (f"{LAYERS}/vocab_parallel_embedding", "UnquantizedEmbeddingMethod", "apply",
             vllm._method_class(theirs, None))):
        takes(getattr(ours, method).__get__(object()), of_vllm.method(path, kind, method))
    assert {"variance_epsilon", "variance_size_override", "has_weight", "weight"} <= of_vllm.members(
        f"{LAYERS}/layernorm", "RMSNorm")


def test_a_wheels_vllm_has_classes_that_can_be_replaced(of_vllm):
    replaceable = [kind for kind in ("CustomOp", "PluggableLayer")
                   if "name" in arguments_of(of_vllm.method("model_executor/custom_op", kind, "register_oot"))]

    def bases(path, kind):
        for base in of_vllm.found(path, kind).bases:
            yield base.id
            if base.id not in replaceable:
                yield from bases(path, base.id)

    for path, names in ((f"{LAYERS}/layernorm", ["RMSNorm"]), (f"{LAYERS}/activation", ["SiluAndMul"]),
                        (f"{LAYERS}/linear", vllm._LINEAR_LAYERS), (f"{LAYERS}/vocab_parallel_embedding", vllm._HEADS)):
        for name in names:
            assert set(bases(path, name)) & set(replaceable), name


def test_a_wheels_vllm_has_our_settings(of_vllm):
    variables = assigned(of_vllm.tree("envs"), "environment_variables")
    assert "VLLM_BATCH_INVARIANT" in [key.value for key in variables.keys if isinstance(key, ast.Constant)]
    assert assigned(of_vllm.tree("plugins/__init__"), "DEFAULT_PLUGINS_GROUP").value == "vllm.general_plugins"
    registry = "v1/attention/backends/registry"
    assert [one.arg for one in of_vllm.found(registry, "register_backend").args.args][:2] == ["backend", "class_path"]
    assert "CUSTOM" in of_vllm.members(registry, "AttentionBackendEnum")
    settings = ast.unparse(of_vllm.found("config/compilation", "CompilationConfig"))
    assert {"inductor_passes", "custom_ops"} <= of_vllm.members("config/compilation", "CompilationConfig")
    # It looks for "kernwright.plugins.fuse_graph" in the package that __import__ returns.
    assert "func = __import__(module).__dict__[func_name]" in settings
    assert vars(__import__("kernwright.plugins"))["fuse_graph"] is kernwright.plugins.fuse_graph


def hooks():
    operators = types.SimpleNamespace(say_once=print)
    return {**sglang._hooks(operators), **sglang._quantized_hooks(operators)}


@pytest.mark.parametrize("target", hooks())
def test_a_wheels_sglang_passes_what_our_hooks_take(of_sglang, target):
    path, kind, method = target.removeprefix("sglang.srt.").replace(".", "/").rsplit("/", 2)
    takes(functools.partial(hooks()[target], None, None), of_sglang.method(path, kind, method))


def test_a_wheels_sglang_has_our_registry(of_sglang):
    registry = "plugins/hook_registry"
    assert arguments_of(of_sglang.method(registry, "HookRegistry", "register"))[:3] == ["target", "hook", "hook_type"]
    assert "AROUND" in of_sglang.members(registry, "HookType")
    assert assigned(of_sglang.tree("plugins/__init__"), "GENERAL_PLUGINS_GROUP").value == "sglang.srt.plugins"
    assert "is_batch_invariant_mode_enabled" in ast.unparse(of_sglang.tree("batch_invariant_ops/__init__"))
    assert {"variance_epsilon", "variance_size_override", "cast_x_before_out_mul"} <= of_sglang.members(
        "layers/layernorm", "RMSNorm")

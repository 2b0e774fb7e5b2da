"""vLLM and SGLang for tests of the plug-ins: the engines themselves if they are installed, and stubs of the
parts that the plug-ins touch. Both have the same names, so that one test takes either."""

import abc
import ast
import contextlib
import dataclasses
import importlib
import importlib.metadata
import os
import sys
import types
import zipfile

import pytest
import torch

import sglang_parts

# The tensors of quantized layers.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))


def forms(engine):
    """The engine of a test, and its stub, as parameters of a fixture."""
    try:
        version, marks = importlib.metadata.version(engine), ()
    except importlib.metadata.PackageNotFoundError:
        version, marks = "itself", pytest.mark.skip(reason=f"{engine} is not installed")
    return [pytest.param("itself", id=f"{engine} {version}", marks=marks),
            pytest.param("stub", id=f"stub of {engine}")]


def seam(module):
    """Imports a module of an engine that must be importable without a GPU."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module} cannot be imported: {error}")


def wheel_of(engine):
    """The wheel of an engine that KERNWRIGHT_<ENGINE>_WHEEL names, in which tests look names up."""
    variable = f"KERNWRIGHT_{engine.upper()}_WHEEL"
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no wheel of {engine}")
    return zipfile.ZipFile(os.environ[variable])


class Wheel:
    """The names in an engine's wheel."""

    def __init__(self, engine, root):
        self.archive, self.root = wheel_of(engine), root

    def tree(self, path):
        return ast.parse(self.archive.read(f"{self.root}/{path}.py"))

    def found(self, path, name):
        """The class or function of a module."""
        return next(node for node in self.tree(path).body if getattr(node, "name", None) == name)

    def members(self, path, name):
        """Fields, methods and what methods set of a class."""
        node = self.found(path, name)
        own = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
        own |= {target.id for each in node.body if isinstance(each, ast.Assign) for target in each.targets}
        own |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        return own | {each.attr for each in ast.walk(node)
                      if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
                      and isinstance(each.value, ast.Name) and each.value.id == "self"}

    def method(self, path, kind, name):
        """The method that a class has, of its own or of a base class in its module."""
        node = self.found(path, kind)
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == name:
                return each
        return next(self.method(path, base.id, name) for base in node.bases if isinstance(base, ast.Name))


def arguments_of(method):
    """The names of the arguments of a method, as it is written."""
    return [one.arg for one in (*method.args.args, *method.args.kwonlyargs) if one.arg not in ("self", "cls")]


def put_modules(monkeypatch, modules):
    """Puts modules of a stub, by their names, in the place of the engine's, if there are any."""
    for name, members in modules.items():
        made = types.ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)


def parameter(tensor, output_dim, packed_dim=None):
    """A parameter that says how its dims lie, as those of engines do."""
    made = torch.nn.Parameter(tensor, requires_grad=False)
    made.output_dim, made.input_dim, made.packed_dim = output_dim, 1 - output_dim, packed_dim
    return made


class Norm(torch.nn.Module):
    def __init__(self, columns, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns, dtype=dtype), requires_grad=False)
        self.variance_epsilon, self.variance_size_override = 1e-6, None

    def forward_cuda(self, x, residual=None):
        raise NotImplementedError

    def forward(self, *arguments):
        return self.forward_cuda(*arguments)


class Activation(torch.nn.Module):
    def forward_cuda(self, x):
        raise NotImplementedError


class LinearMethod:
    def apply(self, layer, x, bias=None):
        raise NotImplementedError


class Linear(torch.nn.Module):
    def __init__(self, input_size, output_size, bias, params_dtype, quant_config, method):
        super().__init__()
        self.weight = torch.nn.Parameter(
            torch.empty(output_size, input_size, dtype=params_dtype), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.empty(output_size, dtype=params_dtype)) if bias else None
        self.quant_method = quant_config.get_quant_method(self, "") if quant_config else method()

    def forward(self, x):
        return self.quant_method.apply(self, x, self.bias), None


LISTS = ("_POSSIBLE_KERNELS", "_POSSIBLE_FP8_KERNELS", "_POSSIBLE_INT8_KERNELS", "_POSSIBLE_FP8_BLOCK_KERNELS")


@contextlib.contextmanager
def vllm_itself(monkeypatch, folder):
    """vLLM, as it is when it makes a model: with a configuration, and one rank."""
    layernorm, activation, linear, head, custom_op, plugins, envs, config, distributed, backends = map(seam, (
        "vllm.model_executor.layers.layernorm", "vllm.model_executor.layers.activation",
        "vllm.model_executor.layers.linear", "vllm.model_executor.layers.vocab_parallel_embedding",
        "vllm.model_executor.custom_op", "vllm.plugins", "vllm.envs", "vllm.config", "vllm.distributed",
        "vllm.v1.attention.backends.registry"))
    registry, paths = {}, {}
    monkeypatch.setattr(backends, "_ATTN_OVERRIDES", paths)
    monkeypatch.setattr(custom_op, "op_registry_oot", registry)
    kernels = seam("vllm.model_executor.kernels.linear")
    for name in LISTS:
        monkeypatch.setattr(kernels, name, {each: list(found) for each, found in getattr(kernels, name).items()})
    monkeypatch.setattr(plugins, "plugins_loaded", False)
    monkeypatch.setattr(envs, "environment_variables", dict(envs.environment_variables))
    settings = config.VllmConfig(
        device_config=config.DeviceConfig(device="cpu"),
        compilation_config=config.CompilationConfig(custom_ops=["none", "+rms_norm", "+silu_and_mul"]))
    with config.set_current_vllm_config(settings):
        distributed.init_distributed_environment(
            world_size=1, rank=0, local_rank=0, backend="gloo",
            distributed_init_method=f"file://{folder}/rendezvous")
        distributed.initialize_model_parallel(1)
        try:
            yield types.SimpleNamespace(
                layernorm=layernorm, activation=activation, linear=linear, head=head, registry=registry,
                backends=paths, custom=backends.AttentionBackendEnum.CUSTOM,
                load=plugins.load_general_plugins, compile_factors=envs.compile_factors)
        finally:
            distributed.destroy_model_parallel()
            distributed.destroy_distributed_environment()


@dataclasses.dataclass
class MPLinearLayerConfig:
    full_weight_shape: tuple
    partition_weight_shape: tuple
    weight_type: object
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    has_g_idx: bool = False
    out_type: object = None


def kernels_stub():
    """The modules of the lists of kernels of quantized layers, and of what a kernel derives from."""
    class MPLinearKernel:
        def __init__(self, c, w_q_param_name, w_s_param_name, w_zp_param_name=None, w_gidx_param_name=None):
            self.config, self.w_q_name, self.w_s_name = c, w_q_param_name, w_s_param_name
            self.w_zp_name, self.w_gidx_name = w_zp_param_name, w_gidx_param_name

    class QuantFP8:
        def __init__(self, static, group_shape, column_major_scales=False, use_ue8m0=None, **_):
            self.static, self.group = static, group_shape[1]

        def __call__(self, x, scale=None, *_, **__):
            if self.static:
                return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
            groups = x.float().unflatten(-1, (-1, self.group if self.group > 0 else x.shape[-1]))
            scale = groups.abs().amax(-1, keepdim=True) / 448
            return (groups / scale).flatten(-2).to(torch.float8_e4m3fn), scale[..., 0].t().contiguous().t()

    class ScaledKernel:
        def process_weights_after_loading(self, layer):
            pass

    class FP8ScaledMMLinearKernel(ScaledKernel):
        def __init__(self, c, layer_param_names):
            scale = c.activation_quant_key.scale
            self.config, self.names = c, layer_param_names
            self.quant_fp8 = QuantFP8(scale.static, scale.group_shape)

        def _get_layer_params(self, layer):
            return tuple(getattr(layer, name, None) for name in self.names)

        def apply_weights(self, layer, x, bias=None):
            weight, weight_scale, input_scale, _ = self._get_layer_params(layer)
            rows, input_scale = self.quant_fp8(x.view(-1, x.shape[-1]), input_scale)
            return self.apply_scaled_mm(A=rows, B=weight, out_dtype=self.config.out_dtype, As=input_scale,
                                        Bs=weight_scale, bias=bias, output_shape=[*x.shape[:-1], weight.shape[1]])

    class Int8ScaledMMLinearKernel(ScaledKernel):
        def __init__(self, c, layer_param_names):
            self.config, self.names = c, layer_param_names

        def _get_layer_params(self, layer):
            return tuple(getattr(layer, name, None) for name in self.names)

    class Fp8BlockScaledMMLinearKernel(ScaledKernel):
        def __init__(self, config):
            self.config = config

        def apply_weights(self, layer, x, bias=None):
            rows, scale = self.quant_fp8(x.view(-1, x.shape[-1]))
            result = self.apply_block_scaled_mm(rows, layer.weight, scale, layer.weight_scale_inv)
            return (result if bias is None else result + bias).view(*x.shape[:-1], -1)

    path = "vllm.model_executor.kernels.linear"
    kernel = type("TheirKernel", (), {})
    return {
        "vllm.model_executor.kernels": {}, "vllm.model_executor.layers.quantization": quantization_stub(),
        path: {"MPLinearKernel": MPLinearKernel, "MPLinearLayerConfig": MPLinearLayerConfig,
               "FP8ScaledMMLinearKernel": FP8ScaledMMLinearKernel, "Int8ScaledMMLinearKernel": Int8ScaledMMLinearKernel,
               "Int8ScaledMMLinearLayerConfig": types.SimpleNamespace,
               "FP8ScaledMMLinearLayerConfig": types.SimpleNamespace, **{name: {"cuda": [kernel]} for name in LISTS}},
        f"{path}.scaled_mm": {"Fp8BlockScaledMMLinearKernel": Fp8BlockScaledMMLinearKernel},
        "vllm.model_executor.layers.quantization.input_quant_fp8": {"QuantFP8": QuantFP8},
        "vllm.platforms": {"PlatformEnum": types.SimpleNamespace(CUDA="cuda"),
                           "current_platform": types.SimpleNamespace(has_device_capability=lambda least: True)},
        "vllm.scalar_type": {"scalar_types": types.SimpleNamespace(
            **{name: name for name in ("uint4", "uint8", "uint4b8", "uint8b128")})}}


class MoEMethod(abc.ABC):
    """What vLLM's methods of experts derive from, with the tensors of each class as vLLM makes them."""
    is_monolithic = True

    def __init__(self, moe):
        self.moe, self.moe_kernel, self.moe_quant_config = moe, None, None

    def maybe_roundup_sizes(self, hidden_size, intermediate_size_per_partition, act_dtype, moe_parallel_config):
        return -(-hidden_size // 256) * 256, -(-intermediate_size_per_partition // 256) * 256

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **_):
        for product, rows, k in (("w13", 2 * intermediate_size_per_partition, hidden_size),
                                 ("w2", hidden_size, intermediate_size_per_partition)):
            for name, (shape, dtype) in self.shapes(rows, k).items():
                tensor = torch.zeros(num_experts, *shape, dtype=dtype or params_dtype)
                layer.register_parameter(f"{product}_{name}", torch.nn.Parameter(tensor, requires_grad=False))
                getattr(layer, f"{product}_{name}").is_transposed = self.is_transposed

    is_transposed = False


class GptOssMxfp4MoEMethod(MoEMethod):
    def shapes(self, rows, k):
        return {"weight": ((rows, k // 2), torch.uint8), "weight_scale": ((rows, k // 32), torch.uint8),
                "bias": ((rows,), torch.bfloat16)}


class CompressedTensorsWNA16MoEMethod(MoEMethod):
    def __init__(self, moe, num_bits, group_size, symmetric, actorder=None, is_transposed=False):
        super().__init__(moe)
        self.num_bits, self.group_size, self.symmetric, self.is_transposed = num_bits, group_size, symmetric, is_transposed
        self.weight_quant = types.SimpleNamespace(actorder=actorder)

    def shapes(self, rows, k):
        pack, groups = 32 // self.num_bits, 1 if self.group_size == -1 else k // self.group_size
        shapes = {"weight_packed": ((rows, k // pack), torch.int32), "weight_scale": ((rows, groups), None)}
        if self.is_transposed:
            shapes = {name: (shape[::-1], dtype) for name, (shape, dtype) in shapes.items()}
        if not self.symmetric:
            shapes["weight_zero_point"] = (rows // pack, groups), torch.int32
        return {**shapes, "weight_shape": ((2,), None)}


class AutoGPTQMoEMethod(MoEMethod):
    is_transposed = True

    def __init__(self, moe, **config):
        super().__init__(moe)
        self.quant_config = types.SimpleNamespace(**config)

    def shapes(self, rows, k):
        pack, groups = 32 // self.quant_config.weight_bits, k // self.quant_config.group_size
        return {"qweight": ((k // pack, rows), torch.int32), "scales": ((groups, rows), None),
                "qzeros": ((groups, rows // pack), torch.int32), "bias": ((rows,), None)}


class AutoAWQMoEMethod(AutoGPTQMoEMethod):
    def shapes(self, rows, k):
        groups = k // self.quant_config.group_size
        return {"qweight": ((k, rows // 8), torch.int32), "scales": ((groups, rows), None),
                "qzeros": ((groups, rows // 8), torch.int32)}


class QuantizationConfig:
    """A configuration that returns what it was made with, for each layer."""

    def __init__(self, method=None):
        self.method = method

    def get_quant_method(self, layer, prefix):
        return self.method


def quantization_stub():
    """The registry of configurations, in which several names have one."""
    kinds = {name: type(name, (QuantizationConfig,), {}) for name in ("Mxfp4Config", "AutoGPTQConfig", "CompressedConfig")}
    theirs = {"gpt_oss_mxfp4": "Mxfp4Config", "gptq": "AutoGPTQConfig", "gptq_marlin": "AutoGPTQConfig",
              "compressed-tensors": "CompressedConfig"}
    configs = {name: kinds[kind] for name, kind in theirs.items()}
    return {"QUANTIZATION_METHODS": ["fp8", *configs], "get_quantization_config": configs.__getitem__,
            "register_quantization_config": lambda name: lambda kind: configs.update({name: kind})}


def attention_stub(attention, backends):
    """The modules of a registry of attention backends, which keeps the paths of classes in `backends`, and of what
    a backend derives from."""
    class AttentionImpl:
        total_cp_world_size = 1

    class AttentionMetadataBuilder:
        def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
            self.vllm_config = vllm_config

        def _init_reorder_batch_threshold(self, threshold, supports_spec_as_decode):
            drafts = self.vllm_config.speculative_config
            self.reorder_batch_threshold = threshold + (drafts.num_speculative_tokens if drafts else 0)

    def split_decodes_and_prefills(common, decode_threshold, require_uniform):
        news = common.query_start_loc_cpu.diff().tolist()
        even = 0
        while news[0] <= decode_threshold and even < len(news) and news[even] in (news[0], 0):
            even += 1
        if even == len(news):
            return even, 0, common.num_actual_tokens, 0
        return even, len(news) - even, sum(news[:even]), sum(news[even:])

    return {
        attention: {}, f"{attention}.backends": {},
        "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
        f"{attention}.backend": {
            "AttentionBackend": object, "AttentionMetadata": object, "AttentionImpl": AttentionImpl,
            "AttentionMetadataBuilder": AttentionMetadataBuilder,
            "AttentionCGSupport": types.SimpleNamespace(UNIFORM_BATCH="uniform batch"),
            "AttentionType": types.SimpleNamespace(DECODER="decoder")},
        f"{attention}.backends.utils": {"split_decodes_and_prefills": split_decodes_and_prefills},
        f"{attention}.backends.registry": {
            "AttentionBackendEnum": types.SimpleNamespace(CUSTOM="CUSTOM"),
            "register_backend": lambda backend, path: backends.update({backend: path})}}


@contextlib.contextmanager
def vllm_stub(monkeypatch, folder):
    """CustomOp and PluggableLayer: what is registered for a class's name is made in its place."""
    from kernwright.plugins import vllm as plugin
    registry = {}
    variables = {"VLLM_BATCH_INVARIANT": lambda: os.environ.get("VLLM_BATCH_INVARIANT") == "1"}

    def variable(name):
        if name not in variables:
            raise AttributeError(name)
        return variables[name]()

    class Replaceable:
        def __new__(cls, *_, **__):
            return super().__new__(registry.get(cls.__name__, cls))

        @classmethod
        def register_oot(cls, name=None):
            def decorate(kind):
                assert name not in registry, f"Duplicate op name: {name}"
                registry[name], kind.name = kind, name
                return kind

            return decorate

    class RMSNorm(Replaceable, Norm):
        name = "rms_norm"

        def __init__(self, hidden_size, eps=1e-6, var_hidden_size=None, has_weight=True, dtype=None):
            super().__init__(hidden_size, dtype)
            self.has_weight = has_weight
            self.variance_size_override = var_hidden_size

    class SiluAndMul(Replaceable, Activation):
        name = "silu_and_mul"

    def linear(kind, method):
        class Layer(Replaceable, Linear):
            name = "linear"

            def __init__(self, input_size, output_size, bias=True, params_dtype=None, quant_config=None):
                super().__init__(input_size, output_size, bias, params_dtype, quant_config, method)

        Layer.__name__ = kind
        return Layer

    class UnquantizedLinearMethod(LinearMethod):
        pass

    class UnquantizedEmbeddingMethod(LinearMethod):
        pass

    class VocabParallelEmbedding(Replaceable, Linear):
        name = "vocab_parallel_embedding"

        def __init__(self, num_embeddings, embedding_dim, params_dtype=None, quant_config=None):
            super().__init__(embedding_dim, num_embeddings, False, params_dtype, quant_config,
                             UnquantizedEmbeddingMethod)

    class ParallelLMHead(VocabParallelEmbedding):
        name = "parallel_lm_head"

    backends = {}
    layers, attention = "vllm.model_executor.layers", "vllm.v1.attention"
    put_modules(monkeypatch, {
        **attention_stub(attention, backends), **kernels_stub(),
        f"{layers}.vocab_parallel_embedding": {
            "VocabParallelEmbedding": VocabParallelEmbedding, "ParallelLMHead": ParallelLMHead,
            "UnquantizedEmbeddingMethod": UnquantizedEmbeddingMethod},
        "vllm.envs": {"environment_variables": variables, "__getattr__": variable},
        f"{layers}.layernorm": {"RMSNorm": RMSNorm}, f"{layers}.activation": {"SiluAndMul": SiluAndMul},
        f"{layers}.linear": {"UnquantizedLinearMethod": UnquantizedLinearMethod,
                             **{kind: linear(kind, UnquantizedLinearMethod) for kind in (
                                 "ReplicatedLinear", "ColumnParallelLinear", "MergedColumnParallelLinear",
                                 "QKVParallelLinear", "RowParallelLinear")}}})
    put_modules(monkeypatch, {"vllm": {"envs": sys.modules["vllm.envs"]}, "vllm.model_executor": {},
                              layers: {}, "vllm.v1": {}})
    yield types.SimpleNamespace(
        layernorm=sys.modules[f"{layers}.layernorm"], activation=sys.modules[f"{layers}.activation"],
        linear=sys.modules[f"{layers}.linear"], registry=registry, load=plugin.load, backends=backends, custom="CUSTOM",
        head=sys.modules[f"{layers}.vocab_parallel_embedding"],
        compile_factors=lambda: {name: get() for name, get in variables.items()})


SCHEMES = {form: f"sglang.srt.layers.quantization.{path}" for form, path in (
    ("gptq", "gptq.schemes.gptq_marlin.GPTQMarlinLinearScheme"),
    ("awq", "awq.schemes.awq_marlin.AWQMarlinLinearScheme"),
    ("compressed_tensors", "compressed_tensors.schemes.compressed_tensors_wNa16.CompressedTensorsWNA16"))}


def execution(deterministic):
    """A part of SGLang's configuration."""
    return types.SimpleNamespace(deterministic=types.SimpleNamespace(enable_deterministic_inference=deterministic))


@contextlib.contextmanager
def sglang_itself(monkeypatch):
    """SGLang, before it has loaded its plug-ins."""
    plugins, hooks, layernorm, activation, linear, unquant, invariance = map(seam, (
        "sglang.srt.plugins", "sglang.srt.plugins.hook_registry", "sglang.srt.layers.layernorm",
        "sglang.srt.layers.activation", "sglang.srt.layers.linear",
        "sglang.srt.layers.quantization.unquant",
        "sglang.srt.batch_invariant_ops.batch_invariant_ops"))
    context, attention, choices = map(seam, (
        "sglang.srt.runtime_context", "sglang.srt.layers.attention.attention_registry", "sglang.srt.arg_groups.choices"))
    monkeypatch.setattr(plugins, "_plugins_loaded", False)
    monkeypatch.setattr(attention, "ATTENTION_BACKENDS", dict(attention.ATTENTION_BACKENDS))
    known = list(choices.ATTENTION_BACKEND_CHOICES)
    hooks.HookRegistry.reset()

    def be_deterministic(value):
        monkeypatch.setattr(context, "get_exec", lambda: execution(value))

    try:
        yield types.SimpleNamespace(
            layernorm=layernorm, activation=activation, linear=linear, unquant=unquant,
            registry=hooks.HookRegistry, load=plugins.load_plugins, be_deterministic=be_deterministic,
            backends=attention.ATTENTION_BACKENDS, choices=choices.ATTENTION_BACKEND_CHOICES,
            schemes={form: getattr(seam(path.rpartition(".")[0]), path.rpartition(".")[2])
                     for form, path in SCHEMES.items()},
            be_batch_invariant=lambda: monkeypatch.setattr(invariance, "_batch_invariant_MODE", True))
    finally:
        hooks.HookRegistry.reset()
        choices.ATTENTION_BACKEND_CHOICES[:] = known


@contextlib.contextmanager
def sglang_stub(monkeypatch):
    """HookRegistry: it keeps hooks, and applies them to what their targets name when all have loaded."""
    from kernwright.plugins import sglang as plugin
    modes, parts = {"batch invariant": False, "deterministic": False}, sglang_parts.Registries()

    class HookRegistry:
        _hooks, _patched = {}, set()

        @classmethod
        def register(cls, target, hook, hook_type):
            assert hook_type == "around"
            cls._hooks[target] = hook

        @classmethod
        def apply_hooks(cls):
            for target, hook in cls._hooks.items():
                module, kind, method = target.rsplit(".", 2)
                owner = getattr(sys.modules[module], kind)

                def around(*arguments, _hook=hook, _original=getattr(owner, method), **named):
                    return _hook(_original, *arguments, **named)

                setattr(owner, method, around)
                cls._patched.add(target)

    class RMSNorm(Norm):
        def __init__(self, hidden_size, var_hidden_size=None, cast_x_before_out_mul=False, weight_dtype=None):
            super().__init__(hidden_size, weight_dtype)
            self.variance_size_override = var_hidden_size
            self.cast_x_before_out_mul, self._quant_linear = cast_x_before_out_mul, None

        def fuse_input_quant(self, linear):
            self.__dict__["_quant_linear"] = linear

        def forward_cuda(self, x, residual=None, post_residual_addition=None, quant_linear=None):
            raise NotImplementedError

    class SiluAndMul(Activation):
        def forward_cuda(self, x):
            raise NotImplementedError

    class UnquantizedLinearMethod(LinearMethod):
        def apply(self, layer, x, bias=None):
            raise NotImplementedError

    class ReplicatedLinear(Linear):
        def __init__(self, input_size, output_size, bias=True, params_dtype=None, quant_config=None):
            super().__init__(input_size, output_size, bias, params_dtype, quant_config,
                             UnquantizedLinearMethod)

    def scheme(name):
        def process_weights_after_loading(self, layer):
            raise NotImplementedError

        def apply_weights(self, layer, x, bias):
            raise NotImplementedError

        return type(name, (), {each.__name__: each for each in (process_weights_after_loading, apply_weights)})

    schemes = {form: scheme(path.rpartition(".")[2]) for form, path in SCHEMES.items()}
    folders = {path.rsplit(".", count)[0]: {} for path in SCHEMES.values() for count in (2, 3)}
    srt = "sglang.srt"
    put_modules(monkeypatch, {
        **parts.modules(), **folders, **{path.rpartition(".")[0]: {path.rpartition(".")[2]: schemes[form]}
                      for form, path in SCHEMES.items()},
        f"{srt}.runtime_context": {"get_exec": lambda: execution(modes["deterministic"])},
        f"{srt}.plugins": {}, f"{srt}.layers.quantization": {},
        f"{srt}.plugins.hook_registry": {"HookRegistry": HookRegistry,
                                         "HookType": types.SimpleNamespace(AROUND="around")},
        f"{srt}.layers.layernorm": {"RMSNorm": RMSNorm},
        f"{srt}.layers.activation": {"SiluAndMul": SiluAndMul},
        f"{srt}.layers.linear": {"ReplicatedLinear": ReplicatedLinear},
        f"{srt}.layers.quantization.unquant": {"UnquantizedLinearMethod": UnquantizedLinearMethod},
        f"{srt}.batch_invariant_ops": {
            "is_batch_invariant_mode_enabled": lambda: modes["batch invariant"]}})

    def load():
        plugin.load()
        HookRegistry.apply_hooks()

    yield types.SimpleNamespace(
        layernorm=sys.modules[f"{srt}.layers.layernorm"],
        activation=sys.modules[f"{srt}.layers.activation"], linear=sys.modules[f"{srt}.layers.linear"],
        unquant=sys.modules[f"{srt}.layers.quantization.unquant"], registry=HookRegistry, load=load,
        backends=parts.backends, choices=parts.choices, schemes=schemes,
        be_deterministic=lambda value: modes.update({"deterministic": value}),
        be_batch_invariant=lambda: modes.update({"batch invariant": True}))

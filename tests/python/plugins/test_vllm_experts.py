"""Experts of mixtures in vLLM without a GPU: which layers are ours, and what these compute from the tensors that vLLM has
loaded. In a stub; the configurations also in vLLM itself if that is installed, and against the names in its wheel."""

import ast
import importlib
import inspect
import pickle
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import engines  # noqa: E402
from checkpoints import Layer, mxfp4, stacked  # noqa: E402
from kernwright.torch import _operators  # noqa: E402

BF16 = torch.bfloat16
HIDDEN, INNER, EXPERTS = 96, 64, 5


def module_in(form, monkeypatch, folder):
    name = "kernwright.plugins.vllm_experts"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=lambda _: None))
    _operators._said.clear()
    with form(monkeypatch, folder), torch.no_grad():
        yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.fixture
def ours(monkeypatch, tmp_path):
    """Our module beside the stub. Operators run on the CPU, where kernwright refuses and PyTorch computes."""
    yield from module_in(engines.vllm_stub, monkeypatch, tmp_path)


@pytest.fixture(params=engines.forms("vllm"))
def anywhere(request, monkeypatch, tmp_path):
    form = engines.vllm_itself if request.param == "itself" else engines.vllm_stub
    yield from module_in(form, monkeypatch, tmp_path)


def moe(**changes):
    return types.SimpleNamespace(**{
        "in_dtype": BF16, "moe_backend": "auto", "dp_size": 1, "pcp_size": 1, "is_sequence_parallel": False,
        "is_lora_enabled": False, "num_local_experts": EXPERTS, "has_bias": True,
        "moe_parallel_config": types.SimpleNamespace(enable_eplb=False), **changes})


def layer(activation="silu", **changes):
    made = torch.nn.Module()
    members = {"activation": types.SimpleNamespace(value=activation), "apply_router_weight_on_input": False,
               "expert_map": None, "swiglu_limit": None, "swiglu_alpha": None, "swiglu_beta": None,
               "_loaded_expert_biases": set(), **changes}
    for name, value in members.items():
        setattr(made, name, value)
    return made


def made(ours, method, own, inner=INNER):
    """The method of a layer, which has made its tensors, of sizes that are rounded as it says."""
    method = ours.take(method, own)
    hidden, inner = method.maybe_roundup_sizes(HIDDEN, inner, BF16, None)
    method.create_weights(own, num_experts=EXPERTS, hidden_size=hidden, intermediate_size_per_partition=inner,
                          params_dtype=BF16)
    return method


def load(own, tensors):
    for name, tensor in tensors.items():
        parameter = getattr(own, name)
        assert parameter.shape == tensor.shape and parameter.dtype is tensor.dtype, name
        parameter.data.copy_(tensor)


def routed(tokens=7, most=3, experts=EXPERTS):
    draw = torch.Generator().manual_seed(4)
    shares, index = torch.rand(tokens, experts, generator=draw).topk(most)
    return torch.randn(tokens, HIDDEN, generator=draw).to(BF16), shares, index.int()


def expected(x, shares, index, w13, w2, activation, b13=None, b2=None):
    """Rows of gates are first."""
    result = torch.zeros(x.shape, dtype=torch.float64)
    for row, (own, given) in enumerate(zip(index.tolist(), shares.tolist())):
        for expert, share in zip(own, given):
            if expert < 0:
                continue
            gate, up = (w13[expert] @ x[row].double() + (0 if b13 is None else b13[expert].double())).chunk(2)
            if activation == "swiglu_oai":
                gate = gate.clamp(max=7)
                inner = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7, 7) + 1)
            else:
                inner = torch.nn.functional.silu(gate) * up
            result[row] += share * (w2[expert] @ inner + (0 if b2 is None else b2[expert].double()))
    return result


def expect_near(found, wanted):
    assert found.shape == wanted.shape and found.dtype is BF16
    error = (found.double() - wanted).norm() / wanted.norm()
    assert error < 0.01, f"a relative error of {error}"


def of_gpt_oss():
    tensors, matrices, biases = {}, [], []
    for seed, (product, rows, k) in enumerate((("w13", 2 * INNER, HIDDEN), ("w2", HIDDEN, INNER))):
        blocks, scales, weight = mxfp4(EXPERTS, rows, k, seed)
        bias = torch.randn(EXPERTS, rows, generator=torch.Generator().manual_seed(seed)).to(BF16)
        tensors.update({f"{product}_weight": blocks.flatten(2), f"{product}_weight_scale": scales, f"{product}_bias": bias})
        matrices.append(weight), biases.append(bias)
    return tensors, (stacked(matrices[0]), matrices[1]), (stacked(biases[0]), biases[1])


def test_gpt_oss(ours):
    own = layer("swigluoai")
    method = made(ours, engines.GptOssMxfp4MoEMethod(moe()), own)
    assert type(method).__name__ == "GptOssMxfp4MoEMethod" and isinstance(method, engines.GptOssMxfp4MoEMethod)
    assert not (method.is_monolithic or method.supports_eplb or method.skip_forward_padding or method.has_unpadded_output)
    tensors, matrices, biases = of_gpt_oss()
    load(own, tensors)
    method.process_weights_after_loading(own)
    assert not any(each.numel() for each in own.parameters()) and method.get_fused_moe_quant_config(own) is None
    x, shares, index = routed()
    x[::2] *= 10
    wanted = expected(x, shares, index, *matrices, "swiglu_oai", *biases)
    expect_near(method.apply(own, x, shares, index, None, None), wanted)
    expect_near(method.apply(layer=own, x=x, topk_weights=shares, topk_ids=index.long(), shared_experts_input=None), wanted)
    index[2], index[4, 0] = -1, -1  # tokens that are padding
    expect_near(method.apply(own, x, shares, index), expected(x, shares, index, *matrices, "swiglu_oai", *biases))


def test_columns_of_a_rank_are_whole_groups(ours):
    method = ours.take(engines.GptOssMxfp4MoEMethod(moe()), layer("swigluoai"))
    assert method.maybe_roundup_sizes(2880, 720, BF16, None) == (2880, 736)
    method = ours.take(engines.CompressedTensorsWNA16MoEMethod(moe(), 4, 32, True), layer())
    assert method.maybe_roundup_sizes(hidden_size=96, intermediate_size_per_partition=40, act_dtype=BF16,
                                      moe_parallel_config=None) == (96, 40)


def test_experts_of_other_ranks_give_nothing(ours):
    places = torch.full((12,), -1, dtype=torch.int32)
    places[4:4 + EXPERTS] = torch.arange(EXPERTS, dtype=torch.int32)
    own = layer("swigluoai", expert_map=places)
    method = made(ours, engines.GptOssMxfp4MoEMethod(moe()), own)
    tensors, matrices, biases = of_gpt_oss()
    load(own, tensors)
    method.process_weights_after_loading(own)
    x, shares, index = routed(experts=12)
    index[3, 1] = -1
    local = torch.where(index < 0, -1, places[index.long()])
    expect_near(method.apply(own, x, shares, index), expected(x, shares, local, *matrices, "swiglu_oai", *biases))


def of_layers(group=32, bits=4, symmetric=True):
    """The layers of a gate, of what it opens, and of what follows, for each expert."""
    return [[Layer(rows, k, group, bits, symmetric=symmetric, scale=BF16, seed=3 * expert + place)
             for place, (rows, k) in enumerate(((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)))]
            for expert in range(EXPERTS)]


def joined(layers, tensors_of, dim):
    """The tensors of all experts, those of gates and what they open one behind the other along a dim."""
    tensors = {}
    for product, places in (("w13", (0, 1)), ("w2", (2,))):
        own = [[tensors_of(of_expert[place]) for place in places] for of_expert in layers]
        for name in own[0][0]:
            tensors[f"{product}_{name}"] = torch.stack([torch.cat([part[name] for part in parts], dim) for parts in own])
    return tensors


def matrices_of(layers):
    return (torch.stack([torch.cat((gate.weight(), up.weight())) for gate, up, _ in layers]),
            torch.stack([down.weight() for *_, down in layers]))


def without(tensors, *names):
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def compressed(ours, bits, symmetric, transposed):
    layers = of_layers(bits=bits, symmetric=symmetric)
    tensors = joined(layers, lambda each: without(each.compressed_tensors(symmetric), "weight_shape"), 0)
    if transposed:
        tensors = {name: tensor.mT.contiguous() for name, tensor in tensors.items()}
    return engines.CompressedTensorsWNA16MoEMethod(moe(), bits, 32, symmetric, is_transposed=transposed), layers, tensors


def gptq(ours, bits):
    layers = of_layers(bits=bits)
    method = engines.AutoGPTQMoEMethod(moe(), weight_bits=bits, group_size=32, is_sym=True, desc_act=False)
    return method, layers, joined(layers, lambda each: without(each.gptq(), "g_idx"), 1)


def awq(ours):
    layers = of_layers(symmetric=False)
    method = engines.AutoAWQMoEMethod(moe(), weight_bits=4, group_size=32, zero_point=True)
    return method, layers, joined(layers, lambda each: each.awq(), 1)


@pytest.mark.parametrize("make", [
    lambda ours: compressed(ours, 4, True, False), lambda ours: compressed(ours, 8, True, True),
    lambda ours: compressed(ours, 4, False, False), lambda ours: compressed(ours, 8, False, False),
    lambda ours: gptq(ours, 4), lambda ours: gptq(ours, 8), awq])
def test_integers(ours, make):
    method, layers, tensors = make(ours)
    own = layer()
    method = made(ours, method, own)
    load(own, tensors)
    method.process_weights_after_loading(own)
    x, shares, index = routed()
    expect_near(method.apply(own, x, shares, index), expected(x, shares, index, *matrices_of(layers), "silu"))


def test_biases_of_gptq_are_read_if_the_checkpoint_has_some(ours):
    method, layers, tensors = gptq(ours, 4)
    own = layer(_loaded_expert_biases={"w2_bias"})
    method = made(ours, method, own)
    biases = {name: torch.randn(EXPERTS, rows).to(BF16) for name, rows in (("w13_bias", 2 * INNER), ("w2_bias", HIDDEN))}
    load(own, {**tensors, **biases})
    method.process_weights_after_loading(own)
    x, shares, index = routed()
    wanted = expected(x, shares, index, *matrices_of(layers), "silu", None, biases["w2_bias"])
    expect_near(method.apply(own, x, shares, index), wanted)


def test_groups_of_whole_rows(ours):
    layers = [[Layer(rows, k, k, symmetric=True, scale=BF16, seed=3 * expert + place)
               for place, (rows, k) in enumerate(((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)))]
              for expert in range(EXPERTS)]
    own = layer()
    method = made(ours, engines.CompressedTensorsWNA16MoEMethod(moe(), 4, -1, True), own)
    load(own, joined(layers, lambda each: without(each.compressed_tensors(True), "weight_shape"), 0))
    method.process_weights_after_loading(own)
    x, shares, index = routed()
    expect_near(method.apply(own, x, shares, index), expected(x, shares, index, *matrices_of(layers), "silu"))


def gptq_method(**changes):
    return lambda config: engines.AutoGPTQMoEMethod(config, **{"weight_bits": 4, "group_size": 32, "is_sym": True,
                                                               "desc_act": False, **changes})


GPT_OSS = engines.GptOssMxfp4MoEMethod


@pytest.mark.parametrize("make, of_moe, of_layer, reason", [
    (GPT_OSS, {"in_dtype": torch.float16}, {"activation": "swigluoai"}, "activations of torch.float16"),
    (GPT_OSS, {"dp_size": 2}, {}, "tokens that ranks exchange"),
    (GPT_OSS, {"is_sequence_parallel": True}, {}, "tokens that ranks exchange"),
    (GPT_OSS, {"is_lora_enabled": True}, {}, "adapters"),
    (GPT_OSS, {"moe_backend": "marlin"}, {}, "the backend marlin that is asked for"),
    (GPT_OSS, {"num_local_experts": 2000}, {}, "2000 experts"),
    (GPT_OSS, {"moe_parallel_config": types.SimpleNamespace(enable_eplb=True)}, {}, "experts that move between ranks"),
    (GPT_OSS, {}, {"activation": "relu2"}, "the activation relu2"),
    (GPT_OSS, {}, {"activation": "silu", "swiglu_limit": 10.0}, "silu limited to 10.0"),
    (GPT_OSS, {}, {"activation": "swigluoai", "swiglu_beta": 0.0}, "swigluoai with 0.0 added"),
    (GPT_OSS, {}, {"apply_router_weight_on_input": True}, "weights of the router on the input"),
    (gptq_method(is_sym=False), {}, {}, "weights with zero points"),
    (gptq_method(desc_act=True), {}, {}, "columns sorted by group"),
    (gptq_method(weight_bits=3), {}, {}, "3 bits"),
    (lambda config: engines.CompressedTensorsWNA16MoEMethod(config, 4, 32, True, actorder="group"), {}, {},
     "columns sorted by group"),
    (lambda config: engines.AutoAWQMoEMethod(config, weight_bits=4, group_size=32, zero_point=False), {}, {},
     "weights without zero points")])
def test_layers_that_are_left(ours, caplog, make, of_moe, of_layer, reason):
    method = make(moe(**of_moe))
    kind = type(method)
    assert ours.take(method, layer(**of_layer)) is method and type(method) is kind
    assert f"vLLM's experts stay as they are, because of {reason}\n" in caplog.text


def test_they_are_left_out_by_name_and_on_old_gpus(ours, caplog, monkeypatch):
    method = GPT_OSS(moe())
    monkeypatch.setattr(ours.envs, "VLLM_DISABLED_KERNELS", ["KernwrightExperts"], raising=False)
    monkeypatch.setattr(ours.current_platform, "has_device_capability", lambda least: False)
    assert type(ours.take(method, layer("swigluoai"))) is GPT_OSS
    assert "because of KernwrightExperts in VLLM_DISABLED_KERNELS, GPUs older than sm_80\n" in caplog.text
    linear = types.SimpleNamespace()
    assert ours.take(linear, layer()) is linear and ours.take(None, layer()) is None


def test_configurations_ask_vllms(ours):
    assert ours.register_experts() == ["KernwrightAutoGPTQConfig", "KernwrightCompressedConfig", "KernwrightMxfp4Config"]
    kind = ours.quantization.get_quantization_config("gpt_oss_mxfp4")
    assert ours.quantization.get_quantization_config("gptq") is ours.quantization.get_quantization_config("gptq_marlin")
    method = kind(GPT_OSS(moe())).get_quant_method(layer("swigluoai"), "model.layers.0")
    assert not method.is_monolithic
    left = kind(GPT_OSS(moe())).get_quant_method(layer("relu2"), "model.layers.0")
    assert type(left) is GPT_OSS and kind().get_quant_method(torch.nn.Module(), "lm_head") is None


def test_configurations_reach_other_processes(anywhere):
    names = anywhere.register_experts()
    for name, kind in anywhere.CONFIGS.items():
        assert anywhere.quantization.get_quantization_config(name) is kind and kind.__name__ in names
        assert pickle.loads(pickle.dumps(kind)) is kind
        taken = inspect.signature(kind.get_quant_method).parameters
        assert list(taken) == list(inspect.signature(kind.__mro__[1].get_quant_method).parameters)


def test_kernels_are_made_ready_for_all_numbers_of_tokens(ours, monkeypatch):
    asked = []
    monkeypatch.setattr(_operators, "default_service", lambda: types.SimpleNamespace(prewarm=asked.extend))
    monkeypatch.setattr(_operators, "_ready", set())
    own = layer("swigluoai")
    method = made(ours, GPT_OSS(moe()), own)
    load(own, of_gpt_oss()[0])
    method.process_weights_after_loading(own)
    for tokens in (1, 9):
        x, shares, index = routed(tokens)
        method.apply(own, x, shares, index)
    assert asked == [
        "grouped_quantized_matmul experts=5 rows=1..24576 n=64 k=96 group=32 weights=mxfp4 scale=uint8 zero=none bias=expert "
        "tokens=1..8192 a_rows=indexed gate=stacked activation=swiglu_oai dtype=bf16",
        "grouped_quantized_matmul experts=5 rows=1..24576 n=96 k=64 group=32 weights=mxfp4 scale=uint8 zero=none bias=expert "
        "dtype=bf16", "combine_experts tokens=1..8192 top=3 columns=96 dtype=bf16",
        "order_experts tokens=1..8192 top=3 experts=5"]


# vLLM's own methods, without the choice of a kernel that a machine without a GPU has not.

def of_vllm(path, kind, of_moe, **members):
    own = getattr(engines.seam(f"vllm.model_executor.layers.quantization.{path}"), kind, None)
    if own is None:
        pytest.skip(f"this vLLM has no {kind}")
    method = own.__new__(own)
    method.moe, method.moe_kernel, method.moe_quant_config = of_moe, None, None
    vars(method).update(members)
    return method


OF_COMPRESSED = "compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_wna16"


@pytest.mark.parametrize("kind", ["GptOssMxfp4MoEMethod", "CompressedTensorsWNA16MoEMethod",
                                  "CompressedTensorsWNA16MarlinMoEMethod", "AutoGPTQMoEMethod", "AutoAWQMoEMethod"])
def test_tensors_of_vllms_own_methods(anywhere, monkeypatch, kind):
    if not hasattr(anywhere.quantization, "__file__"):
        pytest.skip("a stub has its own methods")
    monkeypatch.setattr(anywhere, "current_platform", types.SimpleNamespace(has_device_capability=lambda least: True))
    config = {"group_size": 32, "pack_factor": 8, "weight_bits": 4, "quant_type": types.SimpleNamespace(size_bits=4)}
    own = layer("swigluoai" if kind.startswith("GptOss") else "silu")
    of_moe = moe(w13_num_shards=2, is_act_and_mul=True, has_bias=kind.startswith("GptOss"))
    biases, activation = (), "silu"
    if kind == "GptOssMxfp4MoEMethod":
        method = of_vllm("mxfp4", kind, of_moe)
        (tensors, matrices, biases), activation = of_gpt_oss(), "swiglu_oai"
    elif kind.startswith("Compressed"):
        stub, layers, tensors = compressed(anywhere, 4, True, False)
        method = of_vllm(OF_COMPRESSED + ("_marlin" if "Marlin" in kind else ""), kind, of_moe, strategy="group",
                         packed_factor=8, kernel_backend="Marlin", actorder=None,
                         **{name: getattr(stub, name) for name in ("num_bits", "group_size", "symmetric", "weight_quant")})
    else:
        _, layers, tensors = (gptq(anywhere, 4) if kind == "AutoGPTQMoEMethod" else awq(anywhere))
        method = of_vllm("auto_gptq" if kind == "AutoGPTQMoEMethod" else "auto_awq", kind, of_moe, input_dtype=None,
                         quant_config=types.SimpleNamespace(**config, is_sym=True, desc_act=False, zero_point=True))
    if not biases:
        matrices = matrices_of(layers)
    method = anywhere.take(method, own)
    assert type(method).__mro__[1] is anywhere._Experts
    sizes = method.maybe_roundup_sizes(hidden_size=HIDDEN, intermediate_size_per_partition=INNER, act_dtype=BF16,
                                       moe_parallel_config=of_moe.moe_parallel_config)
    method.create_weights(own, num_experts=EXPERTS, hidden_size=sizes[0], intermediate_size_per_partition=sizes[1],
                          params_dtype=BF16, weight_loader=lambda *_: None, intermediate_size_full=INNER)
    if kind.startswith("Compressed") and own.w13_weight_packed.is_transposed:  # vLLM 0.20 transposes them as it loads
        tensors = {name: tensor.mT.contiguous() for name, tensor in tensors.items()}
    load(own, tensors)
    method.process_weights_after_loading(own)
    x, shares, index = routed()
    assert not method.is_monolithic and not method.supports_internal_mk
    expect_near(method.apply(layer=own, x=x, topk_weights=shares, topk_ids=index, shared_experts=None,
                             shared_experts_input=None), expected(x, shares, index, *matrices, activation, *biases))


# The names that the newest vLLM has, read from its wheel.

LAYERS = "vllm/model_executor/layers"
FILES = {"GptOssMxfp4MoEMethod": "mxfp4.py", "Mxfp4MoEMethod": "mxfp4.py", "AutoGPTQMoEMethod": "auto_gptq.py",
         "AutoAWQMoEMethod": "auto_awq.py",
         "CompressedTensorsWNA16MoEMethod": "compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_wna16.py"}
PARAMETERS = {"mxfp4": ["weight", "weight_scale", "bias"], "gptq": ["qweight", "scales", "bias"],
              "awq": ["qweight", "qzeros", "scales"],
              "compressed": ["weight_packed", "weight_scale", "weight_zero_point", "bias"]}


def classes_of(wheel, name):
    """The classes of a module of a wheel."""
    return {node.name: node for node in ast.parse(wheel.read(name)).body if isinstance(node, ast.ClassDef)}


def method_of(kind, name):
    return next(node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == name)


def members_of(kind):
    """What a class gives to itself, in its body or by its methods."""
    assigned = {node.attr for node in ast.walk(kind) if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"}
    own = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    return assigned | own | {node.target.id for node in kind.body if isinstance(node, ast.AnnAssign)}


@pytest.fixture
def wheel():
    return engines.wheel_of("vllm")


def test_our_methods_take_what_a_wheels_vllm_passes(ours, wheel):
    base = classes_of(wheel, f"{LAYERS}/fused_moe/fused_moe_method_base.py")["FusedMoEMethodBase"]
    methods = {node.name: node for node in base.body if isinstance(node, ast.FunctionDef)}
    methods["process_weights_after_loading"] = method_of(
        classes_of(wheel, f"{LAYERS}/quantization/base_config.py")["QuantizeMethodBase"], "process_weights_after_loading")
    for name, own in vars(ours._Experts).items():
        if name.startswith("__"):
            continue
        assert name in methods, f"FusedMoEMethodBase has no {name}"
        if inspect.isfunction(own):
            missing = [one.arg for one in methods[name].args.args if one.arg not in inspect.signature(own).parameters]
            assert not missing, f"{name} does not take {missing}"
    config = classes_of(wheel, f"{LAYERS}/quantization/base_config.py")["QuantizationConfig"]
    assert [one.arg for one in method_of(config, "get_quant_method").args.args] == ["self", "layer", "prefix"]


def test_our_formats_read_what_a_wheels_vllm_makes(ours, wheel):
    names = {ours._MXFP4: "mxfp4", ours._GPTQ: "gptq", ours._AWQ: "awq", ours._COMPRESSED: "compressed"}
    for kind, file in FILES.items():
        own = classes_of(wheel, f"{LAYERS}/quantization/{file}")[kind]
        made_there = {node.args[0].value for node in ast.walk(method_of(own, "create_weights")) if isinstance(
            node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_parameter"}
        for name in PARAMETERS[names[ours.FORMATS[kind]]]:
            assert {f"w13_{name}", f"w2_{name}"} <= made_there, (kind, name)
    assert {"num_bits", "group_size", "weight_quant"} <= members_of(classes_of(
        wheel, f"{LAYERS}/quantization/{FILES['CompressedTensorsWNA16MoEMethod']}")["CompressedTensorsWNA16MoEMethod"])
    for file, kind, members in (("auto_gptq.py", "AutoGPTQConfig", {"weight_bits", "group_size", "is_sym"}),
                                ("auto_awq.py", "AutoAWQConfig", {"weight_bits", "group_size", "zero_point"})):
        assert members <= members_of(classes_of(wheel, f"{LAYERS}/quantization/{file}")[kind])


def test_our_reasons_read_what_a_wheels_vllm_has(wheel):
    config = classes_of(wheel, f"{LAYERS}/fused_moe/config.py")
    assert {"in_dtype", "moe_backend", "dp_size", "pcp_size", "is_sequence_parallel", "is_lora_enabled",
            "num_local_experts", "moe_parallel_config"} <= members_of(config["FusedMoEConfig"])
    assert "enable_eplb" in members_of(config["FusedMoEParallelConfig"])
    assert {"activation", "apply_router_weight_on_input", "expert_map", "swiglu_limit", "swiglu_alpha", "swiglu_beta",
            "_loaded_expert_biases"} <= members_of(
        classes_of(wheel, f"{LAYERS}/fused_moe/routed_experts.py")["RoutedExperts"])
    values = {node.value.value for node in classes_of(wheel, f"{LAYERS}/fused_moe/activation.py")["MoEActivation"].body
              if isinstance(node, ast.Assign)}
    assert {"silu", "gelu", "gelu_tanh", "swigluoai", "swigluoai_uninterleave"} <= values

"""Small models of Hugging Face with random weights, and a play of a case on one of them: as it is,
patched, or in fp32 for the error that 16 bits have by themselves."""

import contextlib
import copy
import functools
import inspect
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))

import torch  # noqa: E402
import transformers  # noqa: E402
from kernwright import torch as kw  # noqa: E402
from torch import nn  # noqa: E402

SIZES = {
    "cpu": dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                intermediate_size=96),
    "cuda": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                 intermediate_size=512)}
SHARED = dict(num_hidden_layers=2, vocab_size=128, max_position_embeddings=64, pad_token_id=0,
              bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
# All experts of a mixture are chosen, so that roundoff changes no choice.
MIXTURE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=4, moe_intermediate_size=64,
               shared_expert_intermediate_size=64)
FUSED = {"Llama": {}, "Mistral": dict(sliding_window=None), "Mixtral": MIXTURE, "Qwen2": {},
         "Qwen3": {}, "Qwen2Moe": MIXTURE, "Qwen3Moe": MIXTURE, "GptOss": dict(MIXTURE, sliding_window=8)}
# Layers that compute something else: their products, and norms and SwiGLUs, are replaced alone.
IN_PARTS = {"Gemma3": dict(sliding_window=8), "Phi3": {}, "Olmo2": {}, "Glm4": {}, "Granite": {},
            "SmolLM3": {}}
TYPES = {**FUSED, **IN_PARTS}
MIXTURES = [name for name, config in TYPES.items() if "num_experts" in config]
SLIDING = ("Gemma3", "GptOss")
STAGES = ("whole", "prefill", "chunk", "decode")
BATCH, PLACES = 3, 16
CACHE = next(name for name in ("cache", "past_key_values") if name in inspect.signature(
    transformers.LlamaModel.forward).parameters)
PARTS = {"q": "q_proj|qkv_proj", "k": "k_proj|qkv_proj", "v": "v_proj|qkv_proj", "o": "o_proj",
         "gate": "gate_proj|gate_up_proj", "up": "up_proj|gate_up_proj", "down": "down_proj",
         "norm": "input_layernorm|post_attention_layernorm", "mlp": "mlp", "act": "act_fn",
         "attention": "self_attn", "k_norm": "k_norm", "layer": "", "embed": "embed_tokens",
         "head": "lm_head", "rotary": "rotary_emb", "model": "model"}
OFF = " off, and the unpatched model "
FAR_OFF = " far off, and the unpatched model "
OF_MODEL = ("embed", "head", "rotary", "model")


class Skip(Exception):
    """This type of model has not what the case changes."""


@functools.lru_cache(maxsize=None)
def _made(name, device, changes):
    torch.manual_seed(3)
    config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(name, f"{name}Config"))
    changes = {key: dict(value) if isinstance(value, tuple) else value for key, value in changes}
    config = config(**{**SIZES[device], **SHARED, **TYPES[name], **changes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval().requires_grad_(False)
    for path, value in model.named_parameters():
        if "norm" in path:
            value.uniform_(0.5, 1.5)
        else:
            value.normal_(0, 0.3 if "bias" in path else value.shape[-1] ** -0.5)
        value.copy_(value.to(torch.bfloat16))
    return model.to(device)


def tiny(name, device="cpu", **changes):
    """A model in fp32 whose weights are numbers of bf16."""
    return copy.deepcopy(_made(name, device, tuple(
        (key, tuple(value.items()) if isinstance(value, dict) else value)
        for key, value in changes.items())))


class Play:
    """Keeps in `results` what was computed, step by step. `wide` says that it is the model in fp32,
    whose dtype stays; `patched` that it is patched. Looks at `stage` alone, compiled if asked."""

    def __init__(self, name, variant, seed=0, device="cpu", stage=None, compiled=False,
                 fullgraph=True, config=None, before=None):
        self.name, self.seed, self.device, self.stage = name, seed, device, stage
        self.compiled, self.fullgraph = compiled, fullgraph
        self.wide, self.patched = variant == "wide", variant == "patched"
        self.results, self.undos = [], []
        self.stack, self.report = contextlib.ExitStack(), None
        self.stack.callback(self.take_back)
        self.step(seed)
        try:
            self.model = tiny(name, device, **(config or {}))
        except Exception as error:
            raise Skip(f"{config}: {error}") from error
        if not self.wide:
            self.model.bfloat16()
        with torch.no_grad():
            if before is not None:
                before(self)
            if self.patched:
                self.report = kw.patch(self.model)

    @torch.no_grad()
    def take_back(self):
        """Does what is left to undo, as hooks of all modules would stay for the next play."""
        while self.undos:
            with contextlib.suppress(Exception):
                self.undos.pop()()

    def step(self, seed):
        """Makes random numbers those of this seed."""
        self.step_seed, self.random = seed, random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)

    # The model and its parts.

    @property
    def model(self):
        return self._model

    @model.setter
    def model(self, model):
        self._model = self.call = model
        if self.compiled:
            self.call = torch.compile(model, backend="eager", fullgraph=self.fullgraph)

    @property
    def base(self):
        """The model that has `layers`."""
        return next(m for m in self.model.modules()
                    if isinstance(getattr(m, "layers", None), nn.ModuleList))

    @property
    def config(self):
        return self.base.config

    @property
    def dtype(self):
        return next(self.model.parameters()).dtype

    @property
    def modeling(self):
        return sys.modules[type(self.base).__module__]

    def layer(self):
        return self.random.choice(list(self.base.layers))

    def part(self, name):
        """A module of a random layer, or of the model."""
        root = self.model if name in OF_MODEL else self.layer()
        return root if name == "layer" else self.first(root.named_modules(), name)

    def leaf(self, name):
        """The module and name of a parameter of a random layer, or of the model."""
        root = self.model if name in OF_MODEL else self.layer()
        path = self.first(((path, path) for path, _ in root.named_parameters()), name,
                          r"(\.base_layer)?(\.weight)?")
        owner, _, leaf = path.rpartition(".")
        return root.get_submodule(owner), leaf

    def get(self, name):
        return getattr(*self.leaf(name))

    def put(self, name, make):
        owner, leaf = self.leaf(name)
        setattr(owner, leaf, nn.Parameter(make(getattr(owner, leaf)), requires_grad=False))

    @staticmethod
    def first(named, name, end=""):
        for path, found in named:
            if re.search(rf"(^|\.)({PARTS.get(name, name)}){end}$", path):
                return found
        raise Skip(f"has no {name}")

    def fresh(self, like, scale=1.0):
        """Random numbers of bf16 in the place of these."""
        wide = like.detach().float()
        deviation = max(float(wide.std()), 1e-3) if wide.numel() > 1 else 1.0
        value = torch.randn(like.shape, generator=self.generator) * deviation * scale
        return (value + float(wide.mean())).bfloat16().to(like.device, like.dtype)

    def fresh_state(self, pattern="."):
        return {name: self.fresh(value) for name, value in self.model.state_dict().items()
                if value.is_floating_point() and re.search(pattern, name)}

    def twin(self):
        """A model that is not patched, with the weights of this one."""
        twin = tiny(self.name, self.device).to(self.dtype)
        state = copy.deepcopy(self.model.state_dict())
        if set(state) != set(twin.state_dict()):
            raise Skip("has other parameters by now")
        twin.load_state_dict(state)
        return twin

    # What is compared.

    def ids(self, count, seed=None, batch=BATCH):
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        ids = torch.randint(3, SHARED["vocab_size"], (batch, count), generator=generator)
        return ids.to(self.device)

    def note(self, label, compute):
        """Keeps a result or an exception. Says whether there was none."""
        number = sum(other.partition(" #")[0] == label for other, _ in self.results)
        label = f"{label} #{number}" if number else label
        try:
            result = compute()
        except Skip:
            raise
        except Exception as error:
            self.results.append((label, error))
            return False
        if isinstance(result, torch.Tensor):
            result = f"on {result.device}" if result.is_meta else (
                result.detach().as_subclass(torch.Tensor).double().cpu())
        self.results.append((label, result))
        return True

    def cache(self, kind="dynamic", places=PLACES):
        if kind == "static":
            return transformers.StaticCache(config=self.config, max_cache_len=places)
        return transformers.DynamicCache(**({"config": self.config} if kind == "dynamic" else {}))

    def run(self, label, call=None, **given):
        """Logits of a call of the model. The stage is the last word of the label."""
        if call is None:
            call = self.call if self.stage in (None, label.split()[-1]) else self.model
        return self.note(label, lambda: call(**given).logits)

    def walk(self, label, kind, plan=((0, 6), (6, 9), (9, 10), (10, 11)), cache=None, call=None,
             **named):
        """Goes through a cache: (begin, end) of the tokens of each call. An exception ends it."""
        cache = self.cache(kind) if cache is None else cache
        ids = self.ids(plan[-1][1])
        word = "past_key_values" if kind == "static" else CACHE  # 5.24 takes both
        for begin, end in plan:
            stage = "decode" if end - begin == 1 else "chunk" if begin else "prefill"
            more = {key: value(begin, end) if callable(value) else value
                    for key, value in named.items()}
            if not self.run(f"{label} {kind} {stage}", call, input_ids=ids[:, begin:end],
                            **{word: cache}, **more):
                break
        return cache

    def look(self, label, call=None, **named):
        """All stages, or up to the one of the play."""
        with torch.no_grad():
            if self.stage in (None, "whole"):
                self.run(f"{label} whole", call, input_ids=self.ids(12),
                         **{"use_cache": False, **named})
            if self.stage in (None, "prefill"):
                plan = ((0, 6), (6, 9), (9, 10), (10, 11))[:1 if self.stage else 4]
                self.walk(label, "dynamic", plan, call=call, **named)
            if self.stage in (None, "chunk", "decode"):
                self.walk(label, "static", call=call, **named)


def relative(result, expected):
    return pooled([(result, expected)])


def errors(triples):
    """Those of the patched and of the unpatched model."""
    return tuple(pooled([(triple[i], triple[2]) for triple in triples]) for i in (0, 1))


def pooled(pairs):
    """The error of several results together."""
    return (sum(float((one - right).norm() ** 2) for one, right in pairs)
            / max(sum(float(right.norm() ** 2) for _, right in pairs), 1e-30)) ** 0.5


def finite(value):
    """Numbers in the place of NaN and infinities, which do not outweigh the others."""
    return value.nan_to_num(123, 321, -321) if isinstance(value, torch.Tensor) else value


def shown(value):
    text = "no error" if isinstance(value, torch.Tensor) else repr(value)
    return text.replace("\n", " ")[:200]


def differences(*runs, bound=1.2):
    """Gives what differs between plays of the patched, the unpatched and the wide model, as lines.
    Each run is these three, with other tokens. Pools errors by the first word of labels, as those
    of a few tokens vary; one stage alone may be off by twice as much."""
    found, groups = [], {}
    for run in runs:
        patched, plain, wide = ([(label, finite(value)) for label, value in results]
                                for results in run)
        exact = dict(wide)
        for i, (label, other) in enumerate(plain):
            seen, mine = patched[i] if i < len(patched) else ("the end", None)
            if seen != label:
                return [*found, f"{label}: in its place is {seen}: {shown(mine)}"]
            if not isinstance(mine, torch.Tensor) or not isinstance(other, torch.Tensor):
                if type(mine).__name__ != type(other).__name__ or (
                        mine != other and not isinstance(mine, Exception)):
                    found.append(f"{label}: {shown(mine)}, unpatched {shown(other)}")
            elif mine.shape != other.shape:
                found.append(f"{label}: shape {tuple(mine.shape)}, unpatched {tuple(other.shape)}")
            else:
                right = exact.get(label)
                if not isinstance(right, torch.Tensor) or right.shape != other.shape:
                    right = other  # an error in fp32 alone
                groups.setdefault(label.split()[0], {}).setdefault(label, []).append(
                    (mine, other, right))
        if len(patched) > len(plain):
            found.append(f"more steps were done: {patched[len(plain)][0]}")
    for stages in groups.values():
        everything = [triple for triples in stages.values() for triple in triples]
        (off_by, own), lines = errors(everything), []
        for label, triples in stages.items():
            off, usual = errors(triples)
            if not off <= 2 * max(own, usual) + 1e-5 and not all(
                    torch.equal(mine, other) for mine, other, _ in triples):
                usual = max(own, usual)
                says = OFF if off <= 8 * usual else FAR_OFF
                lines.append(f"{label}: {off:.3g}{says}{usual:.3g} off")
        if not lines and not off_by <= bound * own + 1e-5:
            lines.append(f"{next(iter(stages))} and {len(everything) - 1} more: "
                         f"{off_by:.3g}{OFF}{own:.3g} off")
        found += lines
    return found


def confirmed(play, reruns=((1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12))):
    """The differences of play(0). If all of them are errors of roundoff that are too large, which
    an attention that has become sharp may have by chance, those of plays with other tokens alone:
    with play(0), one value that is far off would outweigh all of them. One of six plays may be as
    unlucky as play(0) was, so six others must confirm them too."""
    found = differences(play(0))
    for rerun in reruns:
        if found and all(OFF in line for line in found):
            with contextlib.suppress(Skip):
                found = differences(*map(play, rerun))
    return found

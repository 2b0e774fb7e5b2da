"""The models of model_decode.py: their sizes, what a step must read, and PyTorch's ways to run one.

Weights are random: rows are scaled by 1 / sqrt(their length) and norms are in 0.5 to 1.5, so that every
tensor matters. Hugging Face's model owns them. q, k and v, and gate and up, are views of one weight
each, which the other ways read as one product.
"""

import dataclasses
import math

GROUP = 128  # columns of weights in int4 that share a scale
# Bytes a second that a kernel which only reads gets from the memory, measured.
BANDWIDTH = {"H200": 4.35e12, "H100": 3.0e12}


@dataclasses.dataclass(frozen=True)
class Sizes:
    family: str  # qwen3 or llama
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    theta: float
    epsilon: float
    tied: bool
    scaling: tuple = ()  # of Llama 3: factor, low and high frequency factor, original length

    @property
    def qkv(self):
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def has_query_norm(self):
        return self.family == "qwen3"

    def count(self, kernel):
        """How often a step has the kernel."""
        if kernel == "norm":  # a kernel of its own in front of quantized weights
            return 2 * self.layers
        return self.layers if kernel in ("qkv", "attention", "o", "gate_up", "down") else 1

    def kernel_bytes(self, batch, context, weights="bf16"):
        """Returns the bytes that each kernel of a step must move, by its name: weights and norms once in 16
        bits, a row of the embedding per sequence, K and V of `context` positions of each sequence and of one
        more, which is written. Weights of layers in int4 have 4 bits, and a scale in 16 for each GROUP."""
        q = self.heads * self.head_dim
        cache = 2 * batch * (context + 1) * self.kv_heads * self.head_dim
        head_norms = 2 * self.head_dim if self.has_query_norm else 0
        elements = {"embedding": batch * self.hidden, "qkv": (self.qkv + 1) * self.hidden,
                    "attention": cache + head_norms, "o": q * self.hidden,
                    "gate_up": (2 * self.inner + 1) * self.hidden, "down": self.inner * self.hidden,
                    "head": (self.vocabulary + 1) * self.hidden, "argmax": 0}
        if weights == "int4":
            for name, (rows, columns) in self.matrices().items():
                elements[name] = rows * (columns // 4 + columns // GROUP)
            elements["norm"] = self.hidden
        return {name: 2 * count for name, count in elements.items()}

    def matrices(self):
        """Rows and columns of the weights of a layer."""
        return {"qkv": (self.qkv, self.hidden), "o": (self.hidden, self.heads * self.head_dim),
                "gate_up": (2 * self.inner, self.hidden), "down": (self.hidden, self.inner)}

    def step_bytes(self, batch, context, weights="bf16"):
        return sum(self.count(name) * moved for name, moved in self.kernel_bytes(batch, context, weights).items())


LLAMA3 = (32.0, 1.0, 4.0, 8192)
MODELS = {
    "qwen3-0.6b": Sizes("qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 1e6, 1e-6, True),
    "qwen3-8b": Sizes("qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 1e6, 1e-6, False),
    "llama-3.2-1b": Sizes("llama", 2048, 16, 32, 8, 64, 8192, 128256, 5e5, 1e-5, True, LLAMA3),
    "llama-3.1-8b": Sizes("llama", 4096, 32, 32, 8, 128, 14336, 128256, 5e5, 1e-5, False,
                          (8.0, 1.0, 4.0, 8192)),
}


def frequencies(sizes):
    """Radians that a pair of elements turns from one position to the next."""
    half = sizes.head_dim // 2
    turns = [sizes.theta ** (-i / half) for i in range(half)]
    if not sizes.scaling:
        return turns
    factor, low, high, original = sizes.scaling
    scaled = []
    for turn in turns:
        share = (original * turn / (2 * math.pi) - low) / (high - low)
        share = min(1.0, max(0.0, share))
        scaled.append(turn * (share + (1 - share) / factor))
    return scaled


def rope_tables(torch, sizes, positions, device):
    """Cosines and sines in fp32, [positions, head_dim / 2]."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float64),
                         torch.tensor(frequencies(sizes), dtype=torch.float64))
    return angles.cos().float().to(device), angles.sin().float().to(device)


def hugging_face(torch, sizes, longest, device, seed=1):
    """The model in bf16 with random weights, and its weights as the other ways take them."""
    import transformers

    rope = {"rope_type": "default", "rope_theta": sizes.theta}
    if sizes.scaling:
        factor, low, high, original = sizes.scaling
        rope = {"rope_type": "llama3", "rope_theta": sizes.theta, "factor": factor, "low_freq_factor": low,
                "high_freq_factor": high, "original_max_position_embeddings": original}
    kind = {"qwen3": ("Qwen3Config", "Qwen3ForCausalLM"), "llama": ("LlamaConfig", "LlamaForCausalLM")}
    config_class, model_class = (getattr(transformers, name) for name in kind[sizes.family])
    config = config_class(
        hidden_size=sizes.hidden, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads, head_dim=sizes.head_dim, intermediate_size=sizes.inner,
        vocab_size=sizes.vocabulary, max_position_embeddings=max(longest, 16384), rms_norm_eps=sizes.epsilon,
        tie_word_embeddings=sizes.tied, rope_parameters=rope, attention_bias=False,
        attn_implementation="eager")
    with torch.device("meta"):
        model = model_class(config)
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(rows, columns):
        w = torch.empty(rows, columns, dtype=torch.bfloat16, device=device)
        return w.normal_(0, columns ** -0.5, generator=generator)

    def norm(columns):
        return torch.empty(columns, dtype=torch.bfloat16, device=device).uniform_(0.5, 1.5, generator=generator)

    def own(module, weight):
        module.weight = torch.nn.Parameter(weight, requires_grad=False)

    d, layers = sizes.head_dim, []
    for layer in model.model.layers:
        w = {"norm1": norm(sizes.hidden), "qkv": matrix(sizes.qkv, sizes.hidden),
             "o": matrix(sizes.hidden, sizes.heads * d), "norm2": norm(sizes.hidden),
             "gate_up": matrix(2 * sizes.inner, sizes.hidden), "down": matrix(sizes.hidden, sizes.inner)}
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = w["qkv"].split([sizes.heads * d, sizes.kv_heads * d, sizes.kv_heads * d])
        for module, weight in ((attention.q_proj, q), (attention.k_proj, k), (attention.v_proj, v),
                               (attention.o_proj, w["o"]), (mlp.gate_proj, w["gate_up"][:sizes.inner]),
                               (mlp.up_proj, w["gate_up"][sizes.inner:]), (mlp.down_proj, w["down"]),
                               (layer.input_layernorm, w["norm1"]),
                               (layer.post_attention_layernorm, w["norm2"])):
            own(module, weight)
        if sizes.has_query_norm:
            w["q_norm"], w["k_norm"] = norm(d), norm(d)
            own(attention.q_norm, w["q_norm"])
            own(attention.k_norm, w["k_norm"])
        layers.append(w)
    # A head of its scale makes logits of about 1; rows of the embedding are as large as what layers add.
    head = matrix(sizes.vocabulary, sizes.hidden)
    embedding = head if sizes.tied else matrix(sizes.vocabulary, sizes.hidden)
    last = norm(sizes.hidden)
    own(model.model.embed_tokens, embedding)
    own(model.lm_head, head)
    own(model.model.norm, last)
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    return model.eval(), {"layers": layers, "embedding": embedding, "head": head, "norm": last}


def quantize(torch, sizes, weights):
    """Rounds the weights of layers to int4, in place, and returns them packed, by layer and name. Scales have four
    bits, so that a code times a scale is exact in bf16: both kinds of weights are the same model."""
    from kernwright.torch import QuantizedWeight
    from kernwright.torch._quantized import GatedWeight

    def rounded(matrix):
        groups = matrix.float().unflatten(1, (-1, GROUP))
        scales = groups.abs().amax(-1) / 7
        power = scales.log2().floor() - 3
        scales = ((scales / power.exp2()).round() * power.exp2())[..., None]
        matrix.copy_(((groups / scales).round().clamp(-8, 7) * scales).flatten(1))
        codes = ((groups / scales).round().clamp(-8, 7) + 8).flatten(1).to(torch.int64).unflatten(1, (-1, 8))
        words = sum(codes[..., place] << 4 * place for place in range(8))
        words = words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32)
        return QuantizedWeight.from_compressed_tensors(words, scales[..., 0].to(matrix.dtype), group=GROUP)

    def packed(name, matrix):
        if name != "gate_up":
            return rounded(matrix)
        return GatedWeight.join(rounded(matrix[:sizes.inner]), rounded(matrix[sizes.inner:])).rows

    return [{name: packed(name, layer[name]) for name in sizes.matrices()} for layer in weights["layers"]]


def static_cache(torch, transformers, model, batch, longest, dtype, device):
    config = model.config
    cache = transformers.StaticCache(config=config, max_cache_len=longest)
    cache.early_initialization(batch_size=batch, num_heads=config.num_key_value_heads,
                               head_dim=config.head_dim, dtype=dtype, device=device)
    return cache


def set_length(cache, length):
    for layer in cache.layers:
        layer.cumulative_length.fill_(length)


def lean_step(torch, sizes, weights, tables, cache, batch):
    """One token of each sequence in plain PyTorch: `step(token, position)` returns logits and the last hidden
    state. `position` is an int64 tensor of one, and `cache` pairs of [batch, kv_heads, longest, head_dim]."""
    functional, d = torch.nn.functional, sizes.head_dim
    cosine, sine = (torch.cat([t, t], 1) for t in tables)
    places = torch.arange(cache[0][0].shape[2], device=cosine.device)

    def rotate(x, cos, sin):
        first, second = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    def norm(x, w):
        return functional.rms_norm(x, w.shape, w, sizes.epsilon)

    def step(token, position):
        x = functional.embedding(token, weights["embedding"])
        cos, sin = cosine[position], sine[position]
        seen = (places <= position)[None, None, None, :]
        for w, (keys, values) in zip(weights["layers"], cache):
            qkv = functional.linear(norm(x, w["norm1"]), w["qkv"]).view(batch, -1, d)
            q, k, v = qkv.split([sizes.heads, sizes.kv_heads, sizes.kv_heads], 1)
            if sizes.has_query_norm:
                q, k = norm(q, w["q_norm"]), norm(k, w["k_norm"])
            keys.index_copy_(2, position, rotate(k, cos, sin)[:, :, None])
            values.index_copy_(2, position, v[:, :, None])
            attended = functional.scaled_dot_product_attention(
                rotate(q, cos, sin)[:, :, None], keys, values, attn_mask=seen, enable_gqa=True)
            x = x + functional.linear(attended.reshape(batch, -1), w["o"])
            gate, up = functional.linear(norm(x, w["norm2"]), w["gate_up"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, w["down"])
        hidden = norm(x, weights["norm"])
        return functional.linear(hidden, weights["head"]).float(), hidden

    return step


def hugging_face_step(model, cache):
    """The same of Hugging Face's model, which counts positions in its cache."""
    def step(token, _):
        hidden = model.model(input_ids=token[:, None], past_key_values=cache, use_cache=True).last_hidden_state
        return model.lm_head(hidden)[:, -1].float(), hidden[:, -1]

    return step

"""Small models of gpt-oss, with the tensors that their checkpoints have."""

import torch
import transformers
from checkpoints import mxfp4
from test_patch import language_model
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


def gpt_oss(**changes):
    """A model in bf16 whose experts were dequantized by Transformers, and the tensors of MXFP4 that they are from. All
    experts of a layer are chosen, since a choice of fewer may hang on roundoff."""
    model = language_model("GptOss", **{"num_local_experts": 8, "num_experts_per_tok": 8, "sliding_window": 8, **changes})
    tensors = {}
    for number, (name, experts) in enumerate(named_experts(model)):
        for product, rows in (("gate_up_proj", 2 * experts.intermediate_size), ("down_proj", experts.hidden_size)):
            columns = experts.hidden_size if product == "gate_up_proj" else experts.intermediate_size
            blocks, scales, _ = mxfp4(experts.num_experts, rows, columns, seed=2 * number + len(tensors))
            tensors[f"{name}.{product}_blocks"], tensors[f"{name}.{product}_scales"] = blocks, scales
            getattr(experts, product).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
            getattr(experts, f"{product}_bias").data.normal_(0, 0.2)
    return model, tensors


def named_experts(model):
    return [(name, module) for name, module in model.named_modules() if name.endswith("mlp.experts")]


def double(model):
    """The same model in double precision, in plain PyTorch."""
    config = type(model.config).from_dict({**model.config.to_dict(), "experts_implementation": "eager"})
    made = transformers.GptOssForCausalLM(config).double().eval().requires_grad_(False)
    made.load_state_dict(model.state_dict())
    return made


def routed(tokens, most, columns, experts=8, seed=5):
    """Rows, `most` experts of each, and their shares."""
    draw = torch.Generator().manual_seed(seed)
    shares, index = torch.randn(tokens, experts, generator=draw).topk(most)
    return torch.randn(tokens, columns, generator=draw).bfloat16(), index, shares.softmax(1).bfloat16()

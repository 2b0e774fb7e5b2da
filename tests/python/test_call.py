"""Functions that are made from the contracts of operations, and attention with all that it takes."""

import inspect

import pytest
from fakes import floats, ints, tensor

import kernwright as kw
from kernwright._operations import products, rows


def test_the_signature_and_the_text_are_those_of_the_contract():
    parameters = inspect.signature(kw.kv_append).parameters
    assert list(parameters)[:4] == ["k", "v", "k_cache", "v_cache"]
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
               for name in ("q", "kv_lengths", "rope", "eps", "out"))
    text = inspect.getdoc(kw.bias_activation)
    assert "x: [..., columns]" in text and "residual: [..., columns]" in text
    assert "activation: none, gelu_tanh" in text


def test_embedding_and_argmax(planned, refused):
    table = tensor(1000, 64)
    assert planned(kw.embedding, ints(2, 8), table, out=tensor(2, 8, 64)) == (
        "embedding tokens=16 hidden=64 vocabulary=1000 dtype=bf16")
    lengths = ints(16)
    assert "lengths=advance" in planned(kw.embedding, ints(16), table, lengths=lengths,
                                        out=(tensor(16, 64), lengths))
    assert planned(kw.argmax, tensor(2, 1000), out=ints(2)) == (
        "argmax rows=2 columns=1000 dtype=bf16")
    assert "tokens is int64, and int32" in refused(kw.embedding, tensor(8, dtype="int64"), table)
    assert "at most 1 expected" in refused(kw.argmax, tensor(2, 1000), out=(ints(2), ints(2)))


def test_bias_activation(planned):
    x = tensor(8, 256)
    assert planned(kw.bias_activation, x, tensor(256), residual=tensor(8, 256), activation="silu",
                   out=tensor(8, 256)) == (
        "bias_activation rows=8 columns=256 dtype=bf16 activation=silu residual=add")


def test_kv_append(planned, refused):
    new, cache = tensor(2, 4, 1, 64), tensor(2, 4, 128, 64)
    assert planned(kw.kv_append, new, new, cache, tensor(2, 4, 128, 64), kv_lengths=ints(2)) == (
        "kv_append batch=2 kv_heads=4 q_len=1 kv_len=128 head_dim=64 dtype=bf16 layout=bhsd "
        "lengths=kv")
    pages = [tensor(100, 4, 16, 64, dtype="fp8_e4m3") for _ in range(2)]
    assert "page=16" not in planned(kw.kv_append, new, new, *pages, kv_lengths=ints(2),
                                    page_table=ints(2, 8), k_scale=0.5, v_scale=2.0)
    angles = {"cos": floats(128, 32), "sin": floats(128, 32)}
    assert "rope=qk" in planned(kw.kv_append, new, tensor(2, 4, 1, 64), cache,
                                tensor(2, 4, 128, 64), q=tensor(2, 8, 1, 64), kv_lengths=ints(2),
                                **angles, out=tensor(2, 8, 1, 64))
    assert refused(kw.kv_append, new, new, cache, cache, cos=floats(128, 32)) == "sin is missing"
    tokens, row = tensor(4, 9, 64), tensor(4, 700, 64)
    places = tensor(9, dtype="int64")
    assert planned(kw.kv_append, tokens, tokens, row, tensor(4, 700, 64), places=places) == (
        "kv_append batch=1 kv_heads=4 q_len=9 kv_len=700 head_dim=64 dtype=bf16 layout=bhsd places=given")
    for given, reason in (({"places": tensor(8, dtype="int64")}, "8"), ({"places": ints(9)}, "int64 expected"),
                          ({"places": places, "cos": floats(700, 32), "sin": floats(700, 32)}, "angles follow"),
                          ({"places": places, "kv_lengths": ints(1)}, "have no sequences")):
        assert reason in refused(kw.kv_append, tokens, tokens, row, row, **given)


def test_attention_merge_and_schedule(planned, refused):
    parts = tensor(3, 1, 8, 16, 64)
    assert planned(kw.attention_merge, parts, floats(3, 1, 8, 16), lse="natural",
                   out=(tensor(1, 8, 16, 64), floats(1, 8, 16))) == (
        "attention_merge parts=3 batch=1 heads=8 q_len=16 head_dim_v=64 dtype=bf16 layout=bhsd "
        "lse=natural")
    assert planned(kw.attention_schedule, kv_lengths=ints(64), kv_len=16384, kv_total=262144,
                   out=ints(33, 8)) == (
        "attention_schedule batch=64 slots=33 kv_len=16384 kv_total=262144")
    assert "slots is not told" in refused(kw.attention_schedule, kv_lengths=ints(64), kv_len=64)


def test_attention_over_latents(planned, refused):
    q, out, pages = tensor(4, 1, 16, 576), tensor(4, 1, 16, 512), {"page_table": ints(4, 20),
                                                                   "kv_lengths": ints(4)}
    assert planned(kw.mla_attention, q, tensor(100, 64, 576), **pages, out=out) == (
        "mla_attention batch=4 heads=16 kv_len=1280 pages=100 dtype=bf16")
    assert planned(kw.mla_attention, tensor(4, 1, 16, 512), tensor(100, 64, 512),
                   q_rope=tensor(4, 1, 16, 64), rope_cache=tensor(100, 64, 64), **pages,
                   out=out) == (
        "mla_attention batch=4 heads=16 kv_len=1280 pages=100 dtype=bf16 keys=apart query=split")
    assert "cache" in refused(kw.mla_attention, q, tensor(100, 64, 512), **pages, out=out)
    assert planned(kw.mla_append, tensor(4, 2112), tensor(512), floats(9, 32), floats(9, 32),
                   ints(4), ints(4), tensor(6400, 576), q_norm=tensor(1536),
                   out=tensor(4, 1536)) == "mla_append tokens=4 pool=6400 angles=9 dtype=bf16"


def test_attention_with_pages(planned):
    q, out, pool = tensor(4, 8, 1, 64), tensor(4, 8, 1, 64), [tensor(100, 2, 16, 64) for _ in "kv"]
    assert planned(kw.attention, q, *pool, kv_lengths=ints(4), page_table=ints(4, 20), out=out) == (
        "attention batch=4 heads=8 kv_heads=2 q_len=1 kv_len=320 head_dim=64 pages=100 dtype=bf16 "
        "layout=bhsd lengths=kv cache=paged")
    slots = planned(kw.attention, q, *pool, kv_lengths=ints(4), page_table=ints(4, 20),
                    work=ints(33, 8), kv_total=400, out=out)
    assert "kv_total=400" in slots and "slots=33" in slots and "schedule=given" in slots
    pages = [tensor(1000, 2, 1, 64) for _ in "kv"]
    rows = planned(kw.attention, q, *pages, kv_lengths=ints(4), table_rows=ints(4), out=out,
                   page_table=tensor(50, 300, dtype="int32", strides=(512, 1)))
    assert rows == ("attention batch=4 heads=8 kv_heads=2 q_len=1 kv_len=300 head_dim=64 kv_total=1000 "
                    "page=1 pages=1000 table_sequences=50 ld_table=512 dtype=bf16 layout=bhsd "
                    "lengths=kv cache=paged table_rows=given")
    listed = planned(kw.attention, q, *pages, kv_lengths=ints(4), page_offsets=ints(5),
                     page_list=ints(700), kv_len=300, out=out)
    assert listed == ("attention batch=4 heads=8 kv_heads=2 q_len=1 kv_len=300 head_dim=64 kv_total=700 "
                      "page=1 pages=1000 dtype=bf16 layout=bhsd lengths=kv cache=paged table=list")


def test_attention_of_ragged_sequences(planned):
    def heads(count, tokens):
        return tensor(count, tokens, 64, strides=(64, count * 64, 1))

    q, k, out = heads(8, 100), heads(2, 300), heads(8, 100)
    named = {"q_offsets": ints(5), "kv_offsets": ints(5), "causal": True, "out": out}
    assert planned(kw.attention, q, k, heads(2, 300), q_len=40, kv_len=120, **named) == (
        "attention batch=4 heads=8 kv_heads=2 q_len=40 kv_len=120 head_dim=64 q_total=100 "
        "kv_total=300 dtype=bf16 lengths=ragged mask=causal")
    at_most = planned(kw.attention, q, k, heads(2, 300), kv_len=120, **named)
    assert " q_len=100 " in at_most, "none can have more queries than all"


def test_attention_of_an_fp8_cache(planned):
    q, out = tensor(2, 8, 1, 64), tensor(2, 8, 1, 64)
    k, v = (tensor(2, 2, 128, 64, dtype="fp8_e4m3") for _ in "kv")
    scales = {"k_descale": floats(2, 2), "v_descale": floats(2, 2)}
    problem = planned(kw.attention, q, k, v, out=out, **scales)
    assert "kv=fp8_e4m3" in problem and "descale=head" in problem
    assert "descale=tensor" in planned(kw.attention, q, k, v, k_scale=2.0, v_scale=0.5, out=out)
    with pytest.raises(TypeError, match="colour"):
        kw.attention(q, k, v, colour=1)


def test_attention_of_a_new_token(planned):
    q, cache = tensor(2, 8, 1, 64), [tensor(2, 2, 128, 64) for _ in "kv"]
    new = {"k_new": tensor(2, 2, 1, 64), "v_new": tensor(2, 2, 1, 64), "cos": floats(128, 32),
           "sin": floats(128, 32), "kv_lengths": ints(2), "out": tensor(2, 8, 1, 64)}
    assert "append=rope" in planned(kw.attention, q, *cache, **new)
    assert "append=norm_rope" in planned(kw.attention, q, *cache, **new, q_norm=tensor(64),
                                         k_norm=tensor(64), eps=1e-5)


def test_matmul_of_a_batch(planned, refused):
    a, out = tensor(4, 16, 128), tensor(4, 16, 64)
    assert planned(kw.matmul, a, tensor(4, 128, 64), out=out) == (
        "matmul m=16 n=64 k=128 batch=4 dtype=bf16 b_layout=kn")
    assert "4 expected in place of the first size" in refused(
        kw.matmul, tensor(2, 32, 128), tensor(4, 128, 64))
    assert planned(kw.matmul, tensor(2, 3, 16, 128), tensor(2, 3, 128, 64),
                   out=tensor(2, 3, 16, 64)) == (
        "matmul m=16 n=64 k=128 batch=6 dtype=bf16 b_layout=kn")
    assert "b has the shape [3, 2, 128, 64], and [2, 3, 128, 64] expected" in refused(
        kw.matmul, tensor(2, 3, 16, 128), tensor(3, 2, 128, 64))
    assert "a has 2 dimensions, and 3 expected" in refused(
        kw.matmul, tensor(16, 128), tensor(1, 128, 64))
    assert "a has 3 dimensions, and 4 expected" in refused(
        kw.matmul, tensor(6, 16, 128), tensor(2, 3, 128, 64))


def test_a_scalar_that_stands_behind_a_missing_one_is_refused(refused):
    new, caches = tensor(2, 4, 1, 64), [tensor(2, 4, 128, 64, dtype="fp8_e4m3") for _ in "kv"]
    assert "k_scale is missing" in refused(kw.kv_append, new, new, *caches, kv_lengths=ints(2),
                                           v_scale=0.5)


@pytest.mark.parametrize("form, inputs, options, layout", [
    (rows._REDUCE, [tensor(8, 256)], ("sum", "row", None, -1, False), ((8,), (1,))),
    (rows._REDUCE, [tensor(8, 256)], ("sum", "row", None, -1, True), ((8, 1), (1, 1))),
    (rows._REDUCE, [tensor(8, 256)], ("sum", "tensor", None, None, True), ((1, 1), (1, 1))),
    (rows._REDUCE, [tensor(4, 256, 2, strides=(512, 1, 256))], ("max", "row", None, 1, True),
     ((4, 1, 2), (2, 2, 1))),
    (rows._SOFTMAX, [tensor(2, 256, 4, strides=(1024, 1, 256)), None], (None, 1),
     ((2, 256, 4), (1024, 1, 256))),
    (rows._ELEMENTWISE, [tensor(8, 256), tensor(1, 8, 256), None, None], ("x+y", None),
     ((1, 8, 256), (2048, 256, 1))),
    (products._MATMUL, [tensor(2, 3, 16, 128), tensor(2, 3, 128, 64), None, None], (None, None),
     ((2, 3, 16, 64), (3072, 1024, 64, 1))),
])
def test_results_lie_as_they_are_promised(compiler, form, inputs, options, layout):
    with compiler:
        plan, _ = form.plan(tuple(inputs), (None,), options, (), False)
    assert plan.outputs[0].layout() == layout


def test_quantized_weights(planned, refused):
    qweight = tensor(512, 4 * 96, dtype="uint8")
    scales = tensor(32, 96, dtype="fp16")
    assert planned(kw.pack_weights, qweight, scales, source="gptq", group=128,
                   out=(tensor(2, 64 * 2048, dtype="uint8"),
                        tensor(2, 32 * 64, dtype="fp16"))) == (
        "pack_weights n=96 k=4096 group=128 scale=fp16 source=gptq")
    assert planned(kw.pack_weights, tensor(3 * 160, 64, dtype="uint8"), tensor(3 * 160, 4, dtype="uint8"),
                   weights="mxfp4", group=32, experts=3, gate="interleaved",
                   out=(tensor(3 * 3, 2 * 2048, dtype="uint8"), tensor(3 * 3, 4 * 64, dtype="uint8"))) == (
        "pack_weights n=80 k=128 group=32 experts=3 scale=uint8 weights=mxfp4 gate=interleaved")
    packed, scale = tensor(2, 64 * 2048, dtype="uint8"), tensor(2, 32 * 64)
    assert planned(kw.dequantize_weights, packed, scale, n=96, group=128,
                   out=tensor(96, 4096)) == "dequantize_weights n=96 k=4096 group=128 dtype=bf16"
    assert planned(kw.quantized_matmul, tensor(3, 5, 4096), packed, scale, n=96, group=128,
                   bias=tensor(96), out=tensor(3, 5, 96)) == (
        "quantized_matmul m=15 n=96 k=4096 group=128 dtype=bf16 bias=column")
    assert planned(kw.quantized_matmul, tensor(16, 4096), packed, tensor(2, 64 * 128, dtype="uint8"),
                   group=32, weights="mxfp4", out=tensor(16, 128)) == (
        "quantized_matmul m=16 n=128 k=4096 group=32 dtype=bf16 scale=uint8 weights=mxfp4")
    assert refused(kw.quantized_matmul, tensor(3, 4160), packed, scale) == (
        "b has the shape [2, 131072], and [2, 133120] expected")


def test_quantize_rows(planned):
    assert planned(kw.quantize_rows, tensor(8, 512), scaling="block",
                   out=(tensor(8, 512, dtype="fp8_e4m3"), tensor(4, 8, dtype="fp32"))) == (
        "quantize_rows rows=8 columns=512 dtype=bf16 out=fp8_e4m3 scaling=block")

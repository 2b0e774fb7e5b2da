"""The peers of attention_vs_peers.py.

Each maker returns a function of the named inputs that returns o with tokens outside and heads inside,
or refuses. One that needs other inputs has them made by "prepare", once a set.
"""

import math

import rows_vs_pytorch as rows
from attention_problems import DEVICE, indices, offsets, widened


class Refused(Exception):
    """A computation that a peer cannot do."""


class Peer:
    def __init__(self, call, prepare=None, finish=None):
        self.call = call
        self.prepare = prepare or (lambda t: t)
        self.finish = finish or (lambda result: result)

    def of_wide_inputs(self, torch, dtype):
        """The same of inputs that are converted to 16 bits before the clock runs."""
        return Peer(self.call, lambda t: self.prepare(widened(torch, t, dtype)), self.finish)


def refuse_where(condition, reason):
    if condition:
        raise Refused(reason)


def visible_mask(torch, shape):
    """Returns [batch or 1, 1, q_len, kv_len], true if the query sees the key."""
    keys = torch.tensor(shape.kv_lengths if shape.lengths == "kv" else [shape.kv_len], device=DEVICE)
    keys = keys[:, None, None, None]
    j = torch.arange(shape.kv_len, device=DEVICE)
    position = torch.arange(shape.q_len, device=DEVICE)[:, None] + keys - shape.q_len
    seen = (j < keys) & (j <= position) if shape.mask != "none" else (j < keys).expand(-1, 1, shape.q_len, -1)
    return seen


def sdpa(torch, shape, backend, form):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
    refuse_where(shape.cache == "paged", "SDPA has no pages")
    refuse_where(shape.has_sink, "SDPA has no sinks")
    refuse_where(shape.mask == "window", "SDPA has no windows, only a mask as large as the scores")
    refuse_where(shape.is_biased and shape.is_masked, "SDPA has a mask or is_causal")
    chosen = {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_flash": SDPBackend.FLASH_ATTENTION,
              "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION}[backend]
    options = {"enable_gqa": True} if shape.heads != shape.kv_heads else {}
    if shape.mask == "causal_first" or (shape.is_masked and shape.lengths != "kv" and
                                        shape.q_lengths == shape.kv_lengths):
        options["is_causal"] = True
    elif shape.is_masked and shape.lengths == "full" and backend != "sdpa_cudnn":
        options["attn_mask"] = causal_lower_right(shape.q_len, shape.kv_len)
    elif shape.is_masked or shape.lengths == "kv":
        refuse_where(shape.lengths == "ragged", "SDPA has no ragged chunks")
        options["attn_mask"] = visible_mask(torch, shape)

    def call(t):
        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        mask = {"attn_mask": t.get("seen", t.get("bias"))} if shape.is_biased else {}
        with sdpa_kernel(chosen):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options, **mask)
        return o.transpose(1, 2)

    if shape.lengths != "ragged":
        return Peer(call)
    if form == "nested":
        def nested(t):
            return {name: torch.nested.nested_tensor_from_jagged(
                t[name][0], t["q_offsets" if name == "q" else "kv_offsets"].long(), min_seqlen=1,
                max_seqlen=max(shape.q_lengths)) for name in "qkv"}
        return Peer(call, nested, lambda result: result.values())

    def padded(t):
        wide = {}
        for name, counts in (("q", shape.q_lengths), ("k", shape.kv_lengths), ("v", shape.kv_lengths)):
            parts = torch.split(t[name][0], counts)
            wide[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        return wide

    def unpadded(result):
        return torch.cat([result[i, :count] for i, count in enumerate(shape.q_lengths)])

    return Peer(call, padded, unpadded)


def sdpa_direct(torch, shape):
    """The kernels of SDPA's FlashAttention backend by the function below SDPA, which has windows,
    lengths and, in newer versions, pages."""
    refuse_where(shape.has_sink, "FlashAttention 2 has no sinks")
    operator = torch.ops.aten._flash_attention_forward
    options = {"window_size_left": shape.window - 1, "window_size_right": 0} if shape.mask == "window" else {}
    q_offsets = indices(torch, offsets(shape.q_lengths))
    kv_offsets = indices(torch, offsets([shape.kv_len] * shape.batch))
    if shape.cache == "paged":
        names = [argument.name for argument in operator.default._schema.arguments]
        refuse_where("block_table" not in names, "this PyTorch's FlashAttention has no pages")

    def call(t):
        q, k, v = t["q"], t["k"], t["v"]
        given = dict(options)
        bounds = None, None
        if shape.lengths == "ragged":
            bounds = t["q_offsets"], t.get("kv_offsets", kv_offsets)
        elif not shape.is_dense:
            bounds = q_offsets, kv_offsets
        if "kv_lengths" in t:
            given["seqused_k"] = t["kv_lengths"]
        if "page_table" in t:
            given["block_table"] = t["page_table"]
        elif bounds[0] is not None:
            k, v = k.flatten(0, 1), v.flatten(0, 1)
        if bounds[0] is not None:
            q = q.flatten(0, 1)
        return operator(q, k, v, *bounds, shape.q_len, shape.kv_len, 0.0, shape.is_masked, False, **given)[0]

    return Peer(call)


def flex(torch, shape):
    """FlexAttention; a ragged batch is one sequence of documents, pages are blocks of its mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    keys = torch.tensor(shape.kv_lengths, device=DEVICE)
    queries = torch.tensor(shape.q_lengths, device=DEVICE)

    def sees(position, j, count):
        seen = j < count
        if shape.mask != "none":
            seen = seen & (j <= position)
        if shape.mask == "window":
            seen = seen & (j > position - shape.window)
        return seen

    def mask_mod(b, h, i, j):
        return sees(i + keys[b] - shape.q_len, j, keys[b])

    def blocks(function, batch, q_len, kv_len, **options):
        # Compiling the function takes seconds, and is needed only if it has very many values.
        return create_block_mask(function, batch, None, q_len, kv_len, device=DEVICE,
                                 _compile=(batch or 1) * q_len * kv_len > 1 << 28, **options)

    mask = None
    if shape.lengths == "ragged":
        refuse_where(shape.cache == "paged", "blocks are of pages or of documents")
        sequences = torch.arange(shape.batch, device=DEVICE)
        q_of, kv_of = sequences.repeat_interleave(queries), sequences.repeat_interleave(keys)
        q_first, kv_first = queries.cumsum(0) - queries, keys.cumsum(0) - keys

        def documents(b, h, i, j):
            number = q_of[i]
            position = i - q_first[number] + keys[number] - queries[number]
            return (number == kv_of[j]) & sees(position, j - kv_first[number], keys[number])

        mask = blocks(documents, None, len(q_of), len(kv_of))
    elif shape.cache == "paged":
        from torch.nn.attention.experimental._paged_attention import PagedAttention
        logical = blocks(mask_mod, shape.batch, shape.q_len, shape.kv_len, BLOCK_SIZE=(128, shape.page))
    elif shape.is_masked or shape.lengths == "kv":
        mask = blocks(mask_mod, shape.batch if shape.lengths == "kv" else None, shape.q_len, shape.kv_len)

    def attend(q, k, v, sinks, block_mask):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        gqa = shape.heads != shape.kv_heads
        if sinks is None:
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa).transpose(1, 2)
        o, lse = flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa, return_lse=True)
        share = torch.sigmoid(lse - sinks[:, None])
        return (o * share[..., None]).to(o.dtype).transpose(1, 2)

    compiled = torch.compile(attend, dynamic=False)

    def physical(t):
        pages = t["k"].shape[0]
        paged = PagedAttention(pages, shape.page, shape.batch, device=DEVICE)
        for number, count in enumerate(shape.kv_lengths):
            used = -(-count // shape.page)
            here = t["page_table"][number, :used].long()
            paged.page_table[number, :used] = here
            paged.physical_to_logical[number, here] = torch.arange(used, device=DEVICE)
        return paged.convert_logical_block_mask(logical)

    def prepare(t):
        nonlocal mask
        if shape.cache != "paged":
            return {**t, "block_mask": mask}
        mask = mask or physical(t)  # all sets have the same table
        return {**t, **{name: t[name].flatten(0, 1)[None] for name in "kv"}, "block_mask": mask}

    return Peer(lambda t: compiled(t["q"], t["k"], t["v"], t.get("sinks"), t["block_mask"]), prepare)


def window_of(shape, none):
    return (shape.window - 1, 0) if shape.mask == "window" else (none, none)


def flash_attention_3(torch, shape, form):
    import flash_attn_interface as flash
    refuse_where(shape.has_sink, "FlashAttention 3 has no sinks")
    options = {"causal": shape.is_masked, "window_size": window_of(shape, -1)}

    def call(t):
        if form == "cache":
            refuse_where(shape.lengths == "ragged", "a cache of equal numbers of queries")
            o = flash.flash_attn_with_kvcache(t["q"], t["k"], t["v"], cache_seqlens=t.get("kv_lengths"),
                                              page_table=t.get("page_table"), **options)
        elif shape.lengths == "ragged":
            refuse_where(shape.cache == "paged", "the other form has pages")
            o = flash.flash_attn_varlen_func(t["q"][0], t["k"][0], t["v"][0], t["q_offsets"],
                                             t["kv_offsets"], shape.q_len, shape.kv_len, **options)
        else:
            refuse_where(not shape.is_dense, "the other form has lengths")
            o = flash.flash_attn_func(t["q"], t["k"], t["v"], **options)
        return o[0] if isinstance(o, tuple) else o

    return Peer(call)


def flash_attention_4(torch, shape):
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func
    options = {"causal": shape.is_masked, "window_size": window_of(shape, None)}
    q_offsets = indices(torch, offsets(shape.q_lengths))

    def prepare(t):
        return {**t, "sinks": t["sinks"].to(torch.bfloat16)} if shape.has_sink else t

    def call(t):
        given = {**options, **({"learnable_sink": t["sinks"]} if shape.has_sink else {})}
        if shape.is_dense:
            o = flash_attn_func(t["q"], t["k"], t["v"], **given)
        else:
            k, v = (t[name] if shape.cache == "paged" or shape.lengths == "kv" else t[name][0] for name in "kv")
            o = flash_attn_varlen_func(
                t["q"].flatten(0, 1), k, v, cu_seqlens_q=q_offsets, cu_seqlens_k=t.get("kv_offsets"),
                seqused_k=t.get("kv_lengths"), page_table=t.get("page_table"), **given)
        return o[0] if isinstance(o, tuple) else o

    return Peer(call, prepare)


def flashinfer(torch, shape, form):
    """Ragged for prefill, and pages for all else: a contiguous cache is one of pages of 16 in order."""
    import flashinfer as library
    refuse_where(shape.has_sink, "the wrappers have no sinks")
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    dtype = rows.torch_dtype(torch, shape.wide_dtype)
    heads = shape.heads, shape.kv_heads, shape.head_dim
    options = {"window_left": shape.window - 1 if shape.mask == "window" else -1, "q_data_type": dtype,
               "kv_data_type": dtype}
    q_offsets = indices(torch, offsets(shape.q_lengths))
    if form == "ragged":
        refuse_where(shape.cache == "paged" or shape.lengths == "kv", "the other forms have lengths")
        wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(q_offsets, indices(torch, offsets(shape.kv_lengths)), *heads,
                     head_dim_vo=shape.head_dim_v, causal=shape.is_masked, **options)
        return Peer(lambda t: wrapper.run(*(t[name].flatten(0, 1) for name in "qkv")))
    page = shape.page if shape.cache == "paged" else 16
    refuse_where(shape.cache != "paged" and (shape.lengths == "ragged" or shape.kv_len % page != 0),
                 "the other form has these lengths")
    used = [-(-count // page) for count in shape.kv_lengths]
    pages = indices(torch, offsets(used))
    last = indices(torch, [count - (n - 1) * page if n else 0 for count, n in zip(shape.kv_lengths, used)])

    def planned(t):
        if shape.cache == "paged":
            table = torch.cat([t["page_table"][i, :n] for i, n in enumerate(used)])
            pools = {}
        else:
            columns = shape.kv_len // page
            table = torch.cat([torch.arange(n, device=DEVICE) + i * columns for i, n in enumerate(used)]).int()
            pools = {name: t[name].reshape(-1, page, shape.kv_heads, t[name].shape[-1]) for name in "kv"}
        if form == "decode":
            refuse_where(shape.q_len > 1, "one query a sequence")
            wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
            wrapper.plan(pages, table, last, *heads, page, **options)
        else:
            wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(q_offsets, pages, table, last, *heads, page, causal=shape.is_masked, **options)
        return {**t, **pools, "wrapper": wrapper}

    return Peer(lambda t: t["wrapper"].run(t["q"].flatten(0, 1), (t["k"], t["v"])), planned)


def cudnn_frontend(torch, shape):
    import cudnn
    refuse_where(shape.lengths == "ragged", "offsets of this graph are not written here")
    handle = cudnn.create_handle()
    narrow = shape.dtype == "fp8_e4m3"  # then o has 8 bits too, on Hopper
    types = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF,
             "fp8_e4m3": cudnn.data_type.FP8_E4M3}
    graph = cudnn.pygraph(io_data_type=types[shape.dtype], intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)

    def heads_first(batch, tokens, heads, size, label):
        return graph.tensor(name=label, dim=[batch, heads, tokens, size], data_type=types[shape.dtype],
                            stride=[tokens * heads * size, size, heads * size, 1])

    def small(label, dim, kind):
        stride = [math.prod(dim[i + 1:]) for i in range(4)]
        return graph.tensor(name=label, dim=dim, stride=stride, data_type=kind)

    columns = -(-shape.kv_len // shape.page)
    outer = (shape.batch * columns, shape.page) if shape.cache == "paged" else (shape.batch, shape.kv_len)
    nodes = {"q": heads_first(shape.batch, shape.q_len, shape.heads, shape.head_dim, "q"),
             "k": heads_first(*outer, shape.kv_heads, shape.head_dim, "k"),
             "v": heads_first(*outer, shape.kv_heads, shape.head_dim_v, "v")}
    options, integer = {}, cudnn.data_type.INT32
    if shape.lengths == "kv" or shape.cache == "paged":
        nodes["q_counts"] = small("q_counts", [shape.batch, 1, 1, 1], integer)
        nodes["kv_lengths"] = small("kv_lengths", [shape.batch, 1, 1, 1], integer)
        options.update(use_padding_mask=True, seq_len_q=nodes["q_counts"], seq_len_kv=nodes["kv_lengths"])
    if shape.cache == "paged":
        nodes["page_table"] = small("page_table", [shape.batch, 1, columns, 1], integer)
        options.update(paged_attention_k_table=nodes["page_table"], paged_attention_v_table=nodes["page_table"],
                       paged_attention_max_seq_len_kv=shape.kv_len)
    if shape.is_masked:
        options.update(diagonal_alignment=cudnn.diagonal_alignment.BOTTOM_RIGHT, diagonal_band_right_bound=0)
    if shape.mask == "window":
        options["diagonal_band_left_bound"] = shape.window
    if shape.has_sink:
        nodes["sinks"] = small("sinks", [1, shape.heads, 1, 1], cudnn.data_type.FLOAT)
        options["sink_token"] = nodes["sinks"]
    given = dict(name="sdpa", q=nodes["q"], k=nodes["k"], v=nodes["v"],
                 attn_scale=1 / math.sqrt(shape.head_dim))
    if narrow:
        refuse_where(options.keys() - {"diagonal_alignment", "diagonal_band_right_bound"},
                     "of fp8 only full and causal attention is written here")
        if shape.is_masked:
            square = shape.q_len == shape.kv_len
            given["use_causal_mask" if square else "use_causal_mask_bottom_right"] = True
        units = ["descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"]
        for label in units:
            nodes[label] = small(label, [1, 1, 1, 1], cudnn.data_type.FLOAT)
        o, _, *largest = graph.sdpa_fp8(**given, is_inference=True, **{label: nodes[label] for label in units})
        for x in largest:
            x.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(cudnn.data_type.FLOAT)
    else:
        (o, _), largest, units = graph.sdpa(**given, generate_stats=False, **options), [], []
    tokens = shape.heads * shape.head_dim_v
    o.set_output(True).set_dim([shape.batch, shape.heads, shape.q_len, shape.head_dim_v]).set_stride(
        [shape.q_len * tokens, shape.head_dim_v, tokens, 1])
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device=DEVICE)
    unit = torch.ones(1, 1, 1, 1, device=DEVICE)
    spare = {x: torch.empty(1, 1, 1, 1, device=DEVICE) for x in largest}
    counts = indices(torch, shape.q_lengths)
    keys = indices(torch, shape.kv_lengths)

    def call(t):
        result = torch.empty(shape.batch, shape.q_len, shape.heads, shape.head_dim_v, device=DEVICE,
                             dtype=rows.torch_dtype(torch, shape.dtype))
        given = {"q_counts": counts, "kv_lengths": keys, **dict.fromkeys(units, unit), **t}
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute({**{node: given[label] for label, node in nodes.items()}, **spare, o: result},
                      workspace, handle=handle)
        return result

    return Peer(call)


def makers(torch, shape):
    """Label -> what makes the peer. "sdpa_flash:direct" is a way of the peer sdpa_flash."""
    found = {}
    for backend in ("sdpa_cudnn", "sdpa_flash", "sdpa_efficient"):
        forms = ("nested", "padded") if shape.lengths == "ragged" else ("dense",)
        for form in forms:
            found[f"{backend}:{form}"] = lambda backend=backend, form=form: sdpa(torch, shape, backend, form)
    if shape.is_biased or shape.mask == "causal_first":
        return found  # the others are not called with tensors of their own, or from the first key on
    found["sdpa_flash:direct"] = lambda: sdpa_direct(torch, shape)
    found["flex:compiled"] = lambda: flex(torch, shape)
    for form in ("plain", "cache"):
        found[f"flash_attention_3:{form}"] = lambda form=form: flash_attention_3(torch, shape, form)
    found["flash_attention_4:cute"] = lambda: flash_attention_4(torch, shape)
    for form in ("ragged", "paged", "decode"):
        found[f"flashinfer:{form}"] = lambda form=form: flashinfer(torch, shape, form)
    found["cudnn_frontend:graph"] = lambda: cudnn_frontend(torch, shape)
    return found

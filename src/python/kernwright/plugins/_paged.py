"""Attention over an engine's paged cache. The tokens of all sequences of a step follow each other, as
[tokens, heads, head_dim], and may have gaps between them; the cache is [pages, page, kv_heads, head_dim],
one for keys and one for values. Lengths and tables stay on the GPU: nothing here waits for it."""

import dataclasses
import functools
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch

from .._arrays import dtype_text
from .._call import Form, Given, call, make_function
from .._service import default_service

#: Tokens of a step up to which kernels are made ready. All larger numbers are of the same families.
MOST_TOKENS = 8192
#: The least bound of a sequence's queries, if there are so many tokens.
LEAST_BOUND = 128
#: Sequences that may be longer than this are shared out among blocks by a work list, since a kernel without one
#: has parts of a length that suits the longest.
LONGEST_WITHOUT_LIST = 4096
#: Sequences of a step up to which kernels are made ready, unless the engine says how many there are at most.
MOST_SEQUENCES = 256
_prewarmed: Set[str] = set()  # problems with ranges


class Sequences(NamedTuple):
    """Sequences of one step. `tokens` are those of all. If `offsets`, [sequences + 1] in int32, is None,
    each has `q_len` of them, and those of a sequence without keys are padding; else `q_len` is a bound."""
    tokens: int
    q_len: int
    lengths: Any  # [sequences] in int32: keys, the new ones among them
    table: Any    # [sequences, columns] in int32, or with more rows than those of the step
    offsets: Any = None
    table_rows: Any = None  # [sequences] in int32: their rows of the table; None: in order

    def rows(self, x: Any) -> Any:
        """Returns their rows of [tokens, heads, head_dim], by sequences if all have equally many."""
        rows = x[:self.tokens]
        return rows if self.offsets is not None else rows.unflatten(0, (-1, self.q_len))

    @property
    def form(self) -> Tuple[str, Optional[int]]:
        """The value of the flag `lengths`, and the bound of the queries if rows do not tell it."""
        return ("kv", None) if self.offsets is None else ("ragged", self.q_len)


@dataclasses.dataclass
class Step:
    """The sequences of a step as layers see them that share a table, by parts, each with its first token. The
    work list of a window is kept with the layer that made it."""
    tokens: int
    parts: Tuple[Tuple[int, Sequences], ...]
    lists: Dict[Optional[int], Tuple[Any, Any]] = dataclasses.field(default_factory=dict)


def make_step(lengths: Any, table: Any, starts: Any, longest: int,
              runs: List[Tuple[int, int, Optional[int]]], table_rows: Any = None) -> Step:
    """Returns a step whose sequences follow each other in runs: how many they are, how many tokens they have,
    and how many each of them has, None if they differ. `starts`, [sequences + 1] in int32, are the first
    tokens, None if no run has None; the `longest` is the most that a sequence has there."""
    parts: List[Tuple[int, Sequences]] = []
    first = token = 0
    for count, tokens, q_len in runs:
        if count:
            own, offsets = slice(first, first + count), None
            if q_len is None:
                offsets, q_len = starts[first:first + count + 1], bound_of(longest, tokens, count)
                offsets = offsets - token if token else offsets
            parts.append((token, Sequences(
                tokens, q_len, lengths[own], table[own] if table_rows is None else table, offsets,
                None if table_rows is None else table_rows[own])))
            first, token = first + count, token + tokens
    return Step(token, tuple(parts))


def bound_of(longest: int, tokens: int, sequences: int) -> int:
    """Returns a bound of a sequence's queries that takes few values, so that few problems are bound: a power
    of two, or the number of tokens if this is less. The tokens of several sequences are fewer than as many
    times the bound, so problems tell their number."""
    bound = max(1 << max(longest - 1, 0).bit_length(), LEAST_BOUND)
    if bound * sequences == tokens:
        bound *= 2
    return min(bound, tokens)


def _settle(given: Given) -> None:
    """Contracts have heads before tokens."""
    for name, array in given.arrays.items():
        if len(array.shape) == 4:
            given.orders[name] = 0, 2, 1, 3
        elif len(array.shape) == 3:
            given.orders[name] = 1, 0, 2


_ATTENTION = Form(
    "attention", (("q", "q"), ("k", "the cache of keys"), ("v", "the cache of values"),
                  ("q_offsets", "q_offsets"), ("kv_lengths", "kv_lengths"), ("table_rows", "table_rows"),
                  ("page_table", "page_table"), ("sinks", "sinks"), ("slopes", "alibi_slopes"), ("work", "work")),
    (("o", "out"),), ("lengths", "q_len", "mask", "window"),
    fixed={"layout": "bshd", "cache": "paged"}, settle=_settle)
_APPEND = Form(
    "kv_append", (("k", "k"), ("v", "v"), ("places", "the places of the tokens")),
    (("k_cache", "the cache of keys"), ("v_cache", "the cache of values")), fixed={"layout": "bshd"},
    settle=_settle)


@dataclasses.dataclass
class PagedAttention:
    """One layer's attention: causal, over the last `window` keys if there is a window. Scales are those of
    an fp8 cache, None for another."""
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: Optional[int] = None
    softcap: Optional[float] = None
    sinks: Any = None   # [heads] in fp32
    slopes: Any = None  # [heads] in fp32
    scales: Optional[Tuple[float, float]] = None
    _ready: Set[Tuple[Any, ...]] = dataclasses.field(default_factory=set, repr=False)

    def run(self, q: Any, k: Any, v: Any, places: Any, caches: Tuple[Any, Any], out: Any, step: Step) -> None:
        """Writes k and v to their places in the caches, unless they are None, and the attention of q to `out`.
        Tokens behind the step are padding. Errors: Error."""
        if k is not None:
            self.append(*(x[:step.tokens] for x in (k, v, places)), caches)
        for first, of in step.parts:
            self.attend(q[first:], caches, out[first:], of, self._list(of, caches[0].shape[1], step))

    def _list(self, of: Sequences, page: int, step: Step) -> Any:
        """Returns the work list of sequences with equally many queries, which the first layer makes each time
        that it runs, in a captured graph too; None if all are short."""
        if of.offsets is not None or of.table.shape[1] * page <= LONGEST_WITHOUT_LIST:
            return None
        maker, found = step.lists.get(self.window, (self, None))
        if maker is self:
            found = self.schedule(of, slots_of(self.kv_heads), page)
            step.lists[self.window] = self, found
        return found

    def make_ready(self, q: Any, k: Any, v: Any, out: Any, page: int, columns: int, pages: int,
                   most_sequences: int, most_queries: int, table_sequences: Optional[int] = None) -> None:
        """Gets the kernels for all sizes of `problems` into memory, unless they are there. k and v may be
        None. `table_sequences` are the rows of a table that has those of other sequences too. Errors: Error."""
        pitches = (q.stride(0), *(x.stride(0) if x is not None else self.kv_heads * self.head_dim
                                  for x in (k, v)), out.stride(0))
        known = pitches, page, columns, pages, most_sequences, most_queries, table_sequences
        if known in self._ready:
            return
        self._ready.add(known)
        slots = slots_of(self.kv_heads) if columns * page > LONGEST_WITHOUT_LIST else None
        missing = [problem for problem in self.problems(dtype_text(q.dtype) or "", page, columns, pages, pitches,
                                                        most_sequences, most_queries, slots, table_sequences)
                   if problem not in _prewarmed]
        _prewarmed.update(missing)
        if missing:
            default_service().prewarm(missing)

    def append(self, k: Any, v: Any, places: Any, caches: Tuple[Any, Any]) -> None:
        """Writes new tokens to their places, [tokens] in int64: the page times its size, and the place in it. A
        token whose place is negative goes nowhere. Errors: Error."""
        names, scalars = (("k_scale", "v_scale"), self.scales) if self.scales else ((), ())
        call(_APPEND, ("paged_append",), (k, v, places),
             tuple(cache.view(-1, *cache.shape[2:]) for cache in caches), scalars, names)

    def attend(self, q: Any, caches: Tuple[Any, Any], out: Any, of: Sequences, work: Any = None) -> None:
        """Writes the attention of q to `out`, by a work list if there is one. Errors: Error."""
        names: Tuple[str, ...] = ("scale",)
        scalars: Tuple[float, ...] = (self.scale,)
        if self.softcap:
            names, scalars = (*names, "cap"), (*scalars, self.softcap)
        if self.scales:
            names, scalars = (*names, "k_scale", "v_scale"), (*scalars, *self.scales)
        call(_ATTENTION, ("paged_attention", *of.form, *self._mask),
             (of.rows(q), *caches, of.offsets, of.lengths, of.table_rows, of.table, self.sinks,
              self.slopes, work),
             (of.rows(out),), scalars, names)

    @property
    def _mask(self) -> Tuple[str, Optional[int]]:
        return ("window", self.window) if self.window else ("causal", None)

    def schedule(self, of: Sequences, slots: int, page: int) -> Any:
        """Returns the work list of sequences that have equally many queries, [slots, 8]; layers of one window
        share it."""
        mask, window = self._mask
        return make_function("attention_schedule")(
            kv_lengths=of.lengths, slots=slots, q_len=of.q_len, kv_len=of.table.shape[1] * page,
            lengths="kv", cache="paged", mask=mask, window=window)

    def problems(self, dtype: str, page: int, columns: int, pages: int, pitches: Tuple[int, int, int, int],
                 most_sequences: int, most_queries: int, slots: Optional[int] = None,
                 table_sequences: Optional[int] = None) -> List[str]:
        """Returns problems with ranges, by which a service makes all kernels ready: those of sequences that
        have 1 or `most_queries` queries each, with a work list of `slots` or without, and of any others. A
        table has `columns`, a pool `pages`, and tokens of q, k, v and the result are so many elements
        apart. `table_sequences` is as in `make_ready`."""
        kv = "fp8_e4m3" if self.scales else dtype
        heads = f"kv_heads={self.kv_heads} head_dim={self.head_dim} dtype={dtype} kv={kv}"
        mask, window = self._mask
        flags: Dict[str, Any] = {
            "heads": self.heads, "mask": mask, "window": window, "softcap": self.softcap and "tanh",
            "sink": None if self.sinks is None else "head", "bias": None if self.slopes is None else "alibi",
            "descale": self.scales and "tensor"}
        if table_sequences is not None:
            flags.update(table_rows="given", table_sequences=table_sequences)
        attention = " ".join((f"attention {heads} kv_len={columns * page} page={page} cache=paged",
                              *(f"{name}={value}" for name, value in flags.items() if value)))
        ldq, ldk, ldv, ldo = pitches
        listed, apart = f" schedule=given slots={slots}" if slots else "", f"ldq={ldq} ldo={ldo}"
        # The pitch of a single token is not told.
        append = f"kv_append batch=1 {heads} kv_len={pages * page} places=given"
        news, found = sorted({1, most_queries}), [f"{append} q_len=1",
                                                  f"{append} q_len=2..{MOST_TOKENS} ldk={ldk} ldv={ldv}"]
        for batch, pool in self._pools(pages, columns, page, most_sequences):
            whole = f"{attention} {pool} batch={batch}"
            one = batch == "1"
            found += [f"{whole} {'' if one and q_len == 1 else apart} lengths=kv q_len={q_len}{listed}"
                      for q_len in news]
            total = "" if one else f" q_total=2..{MOST_TOKENS}"
            found.append(f"{whole} {apart} lengths=ragged q_len=2..{MOST_TOKENS}{total}")
            if one:
                found.append(f"{whole} lengths=ragged q_len=1")
        if slots:
            seen = f"mask={mask}" + (f" window={window}" if window else "")
            found += [f"attention_schedule batch=1..{most_sequences} slots={slots} q_len={q_len} "
                      f"kv_len={columns * page} lengths=kv cache=paged {seen}"
                      for q_len in news]
        return found

    @staticmethod
    def _pools(pages: int, columns: int, page: int, most: int) -> List[Tuple[str, str]]:
        """Returns ranges of the number of sequences, with how problems tell the pool: it may have all keys of
        that many, or less."""
        full = min(pages // columns, most)
        found = [("1", f"pages={pages}")] if full else []
        if full > 1:
            found.append((f"2..{full}", f"pages={pages}"))
        if full < most:
            found.append((f"{full + 1}..{most}",
                          f"pages={pages} kv_total={max(pages, (pages - most) * page)}"))
        return found


@functools.lru_cache(maxsize=None)
def slots_of(kv_heads: int) -> int:
    """Returns as many slots of a work list as blocks run at once, two on a multiprocessor, for each head of k."""
    count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return max(2 * count // kv_heads, 1)

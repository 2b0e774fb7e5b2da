"""Calls of further sizes, whose plans follow from a pattern."""

import random
import threading

import pytest
from fakes import NO_GPU, TorchTensor

import kernwright as kw
from kernwright import _call, _kernwright
from kernwright._service import asking


def tensor(*shape, **named):
    return TorchTensor(*shape, **named)


def heads(batch, count, tokens, dim):
    """Heads as the transposed view of [batch, tokens, heads, dim]."""
    return tensor(batch, count, tokens, dim,
                  strides=(tokens * count * dim, dim, count * dim, 1))


WEIGHT = tensor(64, 128)
# Each takes a number of rows, and whether the result is given.
CALLS = {
    "linear": lambda rows, out: kw.linear(
        tensor(rows, 128), WEIGHT, tensor(64), out=out and tensor(rows, 64)),
    "linear of leading axes": lambda rows, out: kw.linear(
        tensor(2, rows, 128), WEIGHT, out=out and tensor(2, rows, 64)),
    "linear with gaps": lambda rows, out: kw.linear(
        tensor(rows, 128, strides=(256, 1)), WEIGHT, residual=tensor(rows, 64),
        out=out and tensor(rows, 64, strides=(96, 1))),
    "transposed weight": lambda rows, out: kw.matmul(
        tensor(rows, 128), tensor(128, 64), out=out and tensor(rows, 64)),
    "rms_norm": lambda rows, out: kw.rms_norm(
        tensor(rows, 256), tensor(256), out=out and tensor(rows, 256)),
    "silu_and_mul": lambda rows, out: kw.silu_and_mul(
        tensor(rows, 256), out=out and tensor(rows, 128)),
    "softmax": lambda rows, out: kw.softmax(
        tensor(rows, 256), out=out and tensor(rows, 256)),
    "softmax of another axis": lambda rows, out: kw.softmax(
        tensor(rows, 256, 4, strides=(1024, 1, 256)), dim=1,
        out=out and tensor(rows, 256, 4, strides=(1024, 1, 256))),
    "reduce": lambda rows, out: kw.reduce(tensor(rows, 256), out=out and tensor(rows)),
    "elementwise": lambda rows, out: kw.elementwise(
        "x+y", x=tensor(rows, 16), y=tensor(rows, 16), out=out and tensor(rows, 16)),
    "argmax": lambda rows, out: kw.argmax(
        tensor(rows, 256), out=out and tensor(rows, dtype="int32")),
    "attention": lambda rows, out: kw.attention(
        tensor(1, 4, rows, 64), tensor(1, 2, rows, 64), tensor(1, 2, rows, 64), causal=True,
        out=out and tensor(1, 4, rows, 64)),
    "attention of views": lambda rows, out: kw.attention(
        heads(1, 4, rows, 64), heads(1, 2, rows, 64), heads(1, 2, rows, 64),
        out=out and heads(1, 4, rows, 64)),
}


def error_of(service, call, *arguments):
    with asking(service), pytest.raises(kw.Error) as caught:
        call(*arguments)
    return str(caught.value)


def facts_of(plan):
    kernel, outputs = plan
    return kernel.summary, tuple(output and tuple(output) for output in outputs)


@pytest.fixture
def own(compiler):
    return kw.Service(sku="h200")


@pytest.fixture
def binds(monkeypatch):
    """Counts the calls that are bound."""
    calls = []
    bind = _call.Form.plan
    monkeypatch.setattr(_call.Form, "plan", lambda *given: calls.append(0) or bind(*given))
    return calls


@pytest.mark.parametrize("out", [True, None], ids=["into", "new"])
@pytest.mark.parametrize("name", CALLS)
def test_the_plan_of_a_pattern_is_the_one_of_binding(own, binds, name, out):
    call = CALLS[name]
    sizes = [24, 40, 33, 1, 2, 24]
    bound = {}
    for rows in sizes:
        own.patterns.clear()
        error = error_of(own, call, rows, out)
        bound[rows] = error, {key: facts_of(plan) for key, plan in own.plans.items()}
        own.plans.clear()
    error_of(own, call, 77, out)  # learns the pattern
    assert sum(map(len, own.patterns.values())) == 1
    binds.clear()
    for rows in sizes:
        own.plans.clear()
        assert error_of(own, call, rows, out) == bound[rows][0]
        assert {key: facts_of(plan) for key, plan in own.plans.items()} == bound[rows][1]
    assert len(binds) <= 1, "only a single row may have a pattern of its own"
    assert (NO_GPU if out else "the result") in bound[24][0]


def test_what_does_not_fit_is_refused_in_the_same_words(own):
    x, out = tensor(40, 128), tensor(40, 64)
    wrong = [
        lambda: kw.linear(tensor(40, 128, strides=(1, 40)), WEIGHT, out=out),
        lambda: kw.linear(tensor(40, 128, strides=(100, 1)), WEIGHT, out=out),
        lambda: kw.linear(tensor(40, 64), WEIGHT, out=out),
        lambda: kw.linear(x, WEIGHT, out=tensor(41, 64)),
        lambda: kw.linear(x, WEIGHT, out=tensor(40, 64, strides=(32, 1))),
        lambda: kw.linear(x, WEIGHT, out=tensor(40, 64, dtype="fp16")),
        lambda: kw.linear(x, WEIGHT, out=tensor(40, 64, device=1)),
        lambda: kw.linear(x, WEIGHT, out=x.like((40, 64), (128, 1), 64)),
        lambda: kw.linear(x, WEIGHT, out=tensor(40, 64, strides=(0, 1))),
        lambda: kw.linear(x, tensor(64, 128, strides=(1, 64)), out=out),
    ]
    words = []
    for call in wrong:
        own.plans.clear()
        own.patterns.clear()
        words.append(error_of(own, call))
    assert len(set(words)) > 6 and any("overlaps" in one for one in words)
    for rows in (24, 40):
        error_of(own, kw.linear, tensor(rows, 128), WEIGHT)
        error_of(own, CALLS["linear"], rows, True)
        error_of(own, lambda: kw.linear(tensor(rows, 128), WEIGHT, out=tensor(rows, 64)))
    for call, expected in zip(wrong, words):
        own.plans.clear()
        assert error_of(own, call) == expected


@pytest.fixture
def norms(compiler):
    """A service whose norms of 512 columns are in memory for any number of rows."""
    service = kw.Service(sku="h200")
    service.prewarm(["rmsnorm rows=3000 columns=512 dtype=bf16"])

    def call(rows):
        return error_of(service, lambda: kw.rms_norm(
            tensor(rows, 512), tensor(512), out=tensor(rows, 512)))

    assert NO_GPU in call(3000)
    return service, call


def test_no_size_of_a_family_is_bound_and_memory_stays(norms, binds):
    service, call = norms
    most = 3 * _kernwright.MOST_PLANS
    for rows in range(2000, 2000 + most):
        assert f"rows={rows} columns=512" in call(rows)
    assert not binds
    assert len(service.plans) <= _kernwright.MOST_PLANS
    assert sum(map(len, service.patterns.values())) == 1
    last = service.ran["rms_norm"]
    assert last.problem == kw.Problem("rmsnorm", rows=2000 + most - 1, columns=512, dtype="bf16")
    assert last.summary["arguments"][0]["extent"] == [2000 + most - 1, 512]


def test_watched_lookups_are_bound(norms, binds, tmp_path):
    service, call = norms
    with service.record_shapes(tmp_path / "shapes"):
        call(2000)
    assert binds and "rows=2000" in (tmp_path / "shapes").read_text()


def test_threads_find_sizes_at_the_same_time(norms):
    service, call = norms
    failed = []

    def work(seed):
        chooser = random.Random(seed)
        try:
            for _ in range(300):
                rows = chooser.randint(2000, 2060)
                assert f"rows={rows} columns=512" in call(rows)
                if chooser.random() < 0.05:
                    service._forget_plans()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_patterns_of_one_kind_are_few(own):
    chooser = random.Random(1)
    for _ in range(3 * _call._MOST_PATTERNS):
        shape = [chooser.choice([1, 2, 3]) for _ in range(4)]
        with own:
            try:
                kw.softmax(tensor(*shape, 256), out=tensor(*shape, 256))
            except kw.Error as error:
                assert NO_GPU in error.reason
    assert len(own.patterns) == 1
    assert len(next(iter(own.patterns.values()))) <= _call._MOST_PATTERNS

"""Services: how they are opened, which one a call uses, and what they refuse."""

import json
import logging
import os
import pathlib
import signal
import threading

import pytest

import kernwright as kw
from kernwright import _service


def test_without_a_gpu_and_a_sku_there_is_no_service():
    try:
        kw.Service(device=63)
    except kw.Error as error:
        assert error.problem == "" and error.reason
    else:
        pytest.fail("GPU 63 was opened")


@pytest.mark.parametrize("options, reason", [
    ({"sku": "h300"}, "h300"),
    ({"on_miss": "guess"}, "it must be predict"),
    ({"l2": "lukewarm"}, "it must be cold"),
    ({"min_match": "perfect"}, "it must be exact"),
    ({"templates": ["/nowhere"]}, "/nowhere"),
    ({"tune_seconds": -1}, "tune_seconds is -1; it must be 0 or more"),
    ({"background_seconds": float("nan")}, "background_seconds is nan"),
    ({"compile_threads": -2}, "compile_threads is -2"),
])
def test_options_are_checked(options, reason):
    with pytest.raises(kw.Error, match=reason):
        kw.Service(**{"sku": "h200", **options})


@pytest.mark.parametrize("given", [str, pathlib.Path, os.fsencode])
def test_one_path_is_given_as_it_is(tmp_path, given):
    """Not read as a sequence of its characters, the first of which is the root of all files."""
    for option in ("templates", "epilogues"):
        with pytest.raises(kw.Error, match=str(tmp_path / "none")):
            kw.Service(sku="h200", **{option: given(tmp_path / "none")})
    kw.Service(sku="h200", cache=given(tmp_path), read_only_caches=given(tmp_path))


@pytest.mark.parametrize("options", [{"cache": 3}, {"device": "first"}, {"templates": 3},
                                     {"tune_seconds": "long"}, {"epilogues": [None]},
                                     {"cache": "a\0b"}])
def test_options_of_other_types_are_errors_of_the_call(options):
    with pytest.raises((TypeError, ValueError)):
        kw.Service(**{"sku": "h200", **options})


@pytest.mark.parametrize("problem, reason", [
    ("", "."), ("matmul", "m"), ("nonsense n=1", "nonsense"),
    ("matmul m=1 n=8 k=8 dtype=int7", "int7"), ("vector_add n=-1 dtype=fp32", "n"),
    ("vector_add n=1024 dtype=fp32 flag=x", "flag"),
])
def test_problems_are_checked(service, problem, reason):
    with pytest.raises(kw.Error, match=reason) as caught:
        service.kernel(problem)
    assert caught.value.problem == problem


def test_a_service_without_compiling_says_what_is_missing():
    strict = kw.Service(sku="a100_80", min_match="recheck")
    with pytest.raises(kw.Error, match="recheck"):
        strict.kernel("vector_add n=1024 dtype=fp32")
    with pytest.raises(kw.Error) as caught:
        strict.prewarm(["vector_add n=1024 dtype=fp32", kw.Problem("vector_add", n=8, dtype="fp32")])
    assert "2 of 2 problems" in caught.value.reason
    assert "n=1024" in caught.value.reason and "n=8" in caught.value.reason
    with pytest.raises(kw.Error, match="1 of 1 problem cannot"):
        strict.prewarm(kw.Problem("vector_add", n=8, dtype="fp32"))


def test_lookups_are_counted(compiler):
    own = kw.Service(sku="h200")
    assert own.lookup_counts() == []
    own.prewarm(["vector_add n=1024 dtype=fp32"])
    assert sum(count.count for count in own.lookup_counts()) == 1
    assert own.lookup_counts()[0].match in ("predicted", "exact")


def test_without_a_gpu_nothing_is_tuned(compiler):
    with pytest.raises(kw.Error, match="tuning measures on a GPU"):
        compiler.tune("vector_add n=1024 dtype=fp32", seconds=1)


def test_the_innermost_service_is_used(service):
    other = kw.Service(sku="h100_sxm")
    outside = _service.active()
    with service:
        assert _service.active() is service
        with other, service:
            assert _service.active() is service
        assert _service.active() is service
        seen = []
        thread = threading.Thread(target=lambda: seen.append(_service.active()))
        thread.start()
        thread.join()
        assert seen == [outside]  # a thread has a context of its own
    assert _service.active() is outside


def test_the_default_is_set_and_taken_back(service):
    outside = _service.active()
    kw.set_default(service)
    try:
        assert _service.active() is service and kw.default_service() is service
    finally:
        kw.set_default(None)
    assert type(_service.active()) is type(outside)


def test_arrays_of_another_gpu_are_refused(service):
    class OnGpu(kw.Service):
        pass

    own = OnGpu(sku="h200")
    own._device = 1
    with pytest.raises(kw.Error, match="the arrays lie on GPU 0, and the service is for GPU 1"):
        own.kernel_on(0, "vector_add n=8 dtype=fp32")


def test_messages_go_to_logging(compiler, caplog, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder is expected")
    with caplog.at_level("INFO", logger="kernwright"):
        try:
            kw.Service(tmp_path / "cache", sku="h200").kernel("vector_add n=2048 dtype=fp32")
        except kw.Error:
            return
    assert any(record.name == "kernwright" for record in caplog.records)


def test_an_interrupt_arrives_while_something_compiles(compiler, tmp_path):
    own = kw.Service(tmp_path, sku="h200")
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        own.kernel("matmul m=512 n=512 k=512 dtype=fp16 bias=column activation=gelu_erf")
    timer.join()


def test_an_interrupt_ends_a_prewarming(compiler, tmp_path):
    own = kw.Service(tmp_path, sku="h200")
    own.seal("warning")  # of which the first problem tells the log

    class Interrupt(logging.Handler):
        def emit(self, record):
            logging.getLogger("kernwright").removeHandler(self)
            signal.raise_signal(signal.SIGINT)

    logging.getLogger("kernwright").addHandler(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        own.prewarm([f"matmul m={m} n=512 k=512 dtype=fp16" for m in range(1, 200)])
    assert sum(count.count for count in own.lookup_counts()) < 199


def test_problems_are_texts():
    problem = kw.Problem("matmul", m=16, n=64, k=128, dtype="bf16")
    assert str(problem) == "matmul m=16 n=64 k=128 dtype=bf16"
    assert repr(problem) == "Problem('matmul m=16 n=64 k=128 dtype=bf16')"
    assert problem != str(problem) and problem == kw.Problem(str(problem))


def test_errors_have_a_problem_and_a_reason(service):
    error = pytest.raises(kw.Error, service.kernel, "nonsense n=1").value
    assert isinstance(error, RuntimeError)
    assert str(error) == f"{error.problem}: {error.reason}"


@pytest.mark.parametrize("text", ["\x1b[31m", "\x9b2J", "\u202e", "\r", "\u2028", "\u200b",
                                  "\ufeff"])
def test_messages_show_what_a_terminal_obeys(service, text):
    for problem in (f"nonsense n=1 {text}=1", f"vector_add n=1 dtype={text}", text):
        error = pytest.raises(kw.Error, service.kernel, problem).value
        assert str(error).isprintable(), ascii(str(error))
    assert "é日本" in str(pytest.raises(kw.Error, service.kernel, "é日本 n=1").value)


def test_threads_share_a_service(compiler):
    """Lookups of several threads, each of which releases the GIL."""
    problems = [f"vector_add n={1024 * (1 + i % 3)} dtype=fp32" for i in range(12)]
    kernels = []
    threads = [threading.Thread(target=lambda p=p: kernels.append(compiler.kernel(p)))
               for p in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(kernel.problem) for kernel in kernels) == sorted(problems)
    assert json.dumps([kernel.summary for kernel in kernels])


def test_problems_take_dtypes_of_frameworks():
    class Dtype:
        def __init__(self, text):
            self.text = text

        def __str__(self):
            return self.text

    wanted = kw.Problem("vector_add n=8 dtype=bf16")
    assert kw.Problem("vector_add", n=8, dtype=Dtype("torch.bfloat16")) == wanted
    assert kw.Problem("vector_add", n=8, dtype=type("bfloat16", (), {})) == wanted
    assert kw.Problem("vector_add", dtype="bf16", n=8) == wanted != kw.Problem("vector_add n=8")
    assert hash(kw.Problem("vector_add", dtype="bf16", n=8)) == hash(wanted)


@pytest.mark.parametrize("value, reason", [
    (0, "m is 0, and at least 1 expected"), (-3, "m is -3"), (16.0, "m is 16.0, and a whole number"),
    (True, "m is True"), (None, "m is None")])
def test_values_that_no_problem_has_are_refused(value, reason):
    with pytest.raises(kw.Error, match=reason):
        kw.Problem("matmul", m=value)
    with pytest.raises(kw.Error, match="the operation is 3"):
        kw.Problem(3)


def test_it_says_what_it_is(tmp_path):
    service = kw.Service(tmp_path, sku="h200")
    assert service.sku == "h200" and service.cache == str(tmp_path) and service.device is None
    assert repr(service) == f"<kernwright.Service: sku h200, cache {tmp_path}>"
    assert kw.Service(sku="h200").cache == os.environ["KERNWRIGHT_CACHE"]


def test_a_tuning_without_seconds_takes_the_default_of_its_problem(tmp_path, monkeypatch):
    budgets = []

    def tune(handle, type, problem, seconds, *others):
        budgets.append(seconds)
        raise kw.Error("not here", problem)

    monkeypatch.setattr("kernwright._kernwright.tune", tune)
    service = kw.Service(tmp_path, sku="h200", tune_seconds=7)
    for problem in "vector_add n=8 dtype=fp32", "vector_add n=1..8 dtype=fp32":
        for seconds in None, 5:
            with pytest.raises(kw.Error, match="not here"):
                service.tune(problem, seconds)
    assert budgets == [0, 5, 0, 5]  # of which 0 is tune_seconds, or that of ranges


def test_arguments_of_other_types_are_named(service):
    with pytest.raises(kw.Error, match="seconds is '3', and a number expected"):
        service.tune("vector_add n=1024 dtype=fp32", "3")
    for trials in 0, -1, 2.0, "3":
        with pytest.raises(kw.Error, match=f"trials is {trials!r}, and None or an int"):
            service.tune("vector_add n=1024 dtype=fp32", trials=trials)
    with pytest.raises(kw.Error, match="strategy is 3, and a str expected"):
        service.tune("vector_add n=1024 dtype=fp32", strategy=3)
    with pytest.raises(kw.Error, match='no strategy "portfolo" .did you mean portfolio'):
        service.tune("vector_add n=1024 dtype=fp32", strategy="portfolo")
    with pytest.raises(kw.Error, match="seconds is -1, and a number above 0 expected"):
        service.tune("vector_add n=1024 dtype=fp32", -1)
    with pytest.raises(kw.Error, match="seconds is None, and a number expected"):
        service.autotune(None)
    with pytest.raises(kw.Error, match="service is 'x', and a Service or None expected"):
        kw.set_default("x")
    with pytest.raises(kw.Error) as caught:
        kw.Service(sku="h200", on_miss="guess")
    assert str(caught.value).startswith('on_miss is "guess"') and caught.value.is_refusal


def test_a_failure_is_no_refusal(compiler):
    kernel = compiler.kernel("vector_add n=1024 dtype=fp32")
    assert kernel.summary["measured_us"] is None and kernel.measured_us is None
    for call, is_refusal in ((lambda: compiler.kernel("vector_add n=1024 dtype=int7"), True),
                             (lambda: compiler.record("vector_add n=1000 dtype=fp32"), False),
                             (lambda: kernel(1, 2, 3), True)):
        with pytest.raises(kw.Error) as caught:
            call()
        assert caught.value.is_refusal is is_refusal, caught.value


def test_the_package_lists_what_is_its_own():
    assert dir(kw) == sorted([*kw.__all__, "__version__", "torch"])
    assert all(hasattr(kw, name) for name in dir(kw) if name != "torch")

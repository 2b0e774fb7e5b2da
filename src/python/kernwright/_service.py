"""A service, its kernels, and which service a call uses."""

import contextlib
import contextvars
import copy
import dataclasses
import json
import logging
import operator
import os
import threading
from typing import (Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional,
                    Sequence, Tuple, Union)

from . import _fallbacks, _kernwright
from ._arrays import Layout, dtype_text, make_error
from ._chain import BakedLaunch
from ._data import data_folders
from ._kernwright import Error, KernelHandle
from ._progress import AnyProgress, ProgressLine, TuneProgress
from ._record import Record
from ._toolkit import announce_toolkit

_log = logging.getLogger("kernwright")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING)


class Problem:
    """An operation at one shape: Problem("matmul", m=16, n=4096, k=4096, dtype="bf16"), or its text
    form, Problem("matmul m=16 n=4096 k=4096 dtype=bf16"). `kernwright operations` lists the
    operations with their dims, dtypes and flags. Dtypes may be those of torch and NumPy. Two
    problems are equal if their values are equal in any order. Errors: Error for a value that no
    problem has."""

    __slots__ = ("text",)
    text: str

    def __init__(self, operation: str, **values: Any) -> None:
        if not isinstance(operation, str):
            raise make_error(f"the operation is {operation!r}, and a text expected")
        self.text = " ".join([operation] + [f"{name}={_value_text(operation, name, value)}"
                                            for name, value in values.items()])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Problem({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> Tuple[str, FrozenSet[str]]:
        operation, *values = self.text.split() or [""]
        return operation, frozenset(values)


def _value_text(operation: str, name: str, value: Any) -> str:
    """A value of a problem as its text has it."""
    if isinstance(value, str):
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        size = operator.index(value)
        if size < 1:
            raise make_error(f"{name} is {size}, and at least 1 expected", operation)
        return str(size)
    if isinstance(value, (bool, int, float)) or value is None:
        raise make_error(f"{name} is {value!r}, and a whole number or a text expected", operation)
    return str(dtype_text(value))


def _expect_number(name: str, value: Any, problem: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise make_error(f"{name} is {value!r}, and a number expected", problem)


AnyProblem = Union[Problem, str]
AnyPath = Union[str, "os.PathLike[str]"]


def _paths(paths: Union[AnyPath, Sequence[AnyPath]]) -> List[AnyPath]:
    """Returns a list of one path, or of several."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        return [paths]
    return list(paths)


class Kernel(KernelHandle):
    """The best kernel for one problem. Call it with the tensors of its operation in the operation's
    order, outputs among them, then with scalars, which may be left out: kernel(a, b, d).

    It runs on `stream=`, which is a number or a stream of torch, CuPy or cuda.core, else on the
    current stream of the tensors' framework. It does not wait for the GPU. A launch that needs a
    workspace takes it from the framework's pool, or from the driver's if `stream` is given.

    Tensors are torch tensors, CuPy or JAX arrays, or anything else with DLPack or
    `__cuda_array_interface__`. Neighbouring dimensions that can be merged may be passed as several.

    Errors of a call: Error, which names the tensor and both values, if one is on another GPU or on
    none, or has another dtype, shape or strides than the problem says, and if an output overlaps
    another tensor."""

    __slots__ = ("_facts",)
    _facts: Dict[str, Any]

    @property
    def _summary(self) -> Dict[str, Any]:
        """All facts about it, which are read when they are asked for."""
        try:
            return self._facts
        except AttributeError:
            self._facts = facts = _described(self)
        for argument, (extent, strides, is_written) in zip(facts["arguments"], self._layouts):
            argument.update(extent=extent, strides=strides, output=is_written)
        return facts

    def bake(self, *tensors_and_scalars: Any) -> BakedLaunch:
        """Returns the kernel with these arguments as a CUDA graph, whose launches cost the host
        about a third. This takes up to a millisecond, and must not happen while a stream is in a
        capture. Errors: as for a call."""
        return _kernwright.bake(BakedLaunch, self, *tensors_and_scalars)

    @property
    def problem(self) -> Problem:
        """The problem that it computes."""
        return Problem(self._summary["problem"])

    @property
    def template(self) -> str:
        """The winner's template, "matmul/persistent_wave"."""
        return str(self._summary["template"])

    @property
    def configuration(self) -> str:
        """The winner's parameters, "BM=128 BN=256 ..."."""
        return str(self._summary["configuration"])

    @property
    def match(self) -> str:
        """How well the answer fits: exact, recheck, seed, bucket or predicted."""
        return str(self._summary["match"])

    @property
    def measured_us(self) -> Optional[float]:
        """The median that was measured when it was tuned; None if it was only predicted."""
        measured: Optional[float] = self._summary["measured_us"]
        return measured

    @property
    def summary(self) -> Dict[str, Any]:
        """All facts about it, its arguments among them."""
        return copy.deepcopy(self._summary)

    def __repr__(self) -> str:
        return f"<kernwright.Kernel {self.problem}: {self.template} {self.configuration}>"


def _described(kernel: Kernel) -> Dict[str, Any]:
    facts: Dict[str, Any] = json.loads(kernel._description)
    facts["measured_us"] = facts["measured_us"] or None
    return facts


@dataclasses.dataclass(frozen=True)
class LookupCount:
    """The number of problems that were answered with this match for this reason."""
    match: str
    reason: str
    count: int


def _told(watcher: Callable[[TuneProgress], None]) -> Callable[[int, int, float, float], None]:
    return lambda candidates, measured, best_us, seconds: watcher(
        TuneProgress(candidates, measured, best_us or None, seconds))


def _pass_on(level: int, message: str) -> None:
    _log.log(_LEVELS[level], message)


class Service:
    """Provides tuned kernels for one GPU, or with `sku` for a GPU that need not be there.

    cache: the cache directory; None: $KERNWRIGHT_CACHE, else ~/.cache/kernwright
    device: the GPU's number
    on_miss: the reaction if the cache has no record: "predict" serves the cost model's first
        choice at once, "tune_now" tunes first, "tune_in_background" does both, "fail" raises
    min_match: the worst match that is served, "exact", "recheck", "seed", "bucket" or "predicted";
        with any value nothing is ever compiled
    l2: the state of the L2 that kernels are tuned for, "cold", "warm" or "mixed"
    sku: the id of a GPU to work for without one, "h200"; its kernels cannot be launched
    read_only_caches: further cache directories to look in, one or several
    templates, epilogues: folders and files of your own, one or several
    tune_seconds: the budget of one tuning of a problem without ranges

    A service is thread-safe. In a `with` block it is the one that operations use. Errors: Error if
    there is neither the GPU nor a sku, or an option is not understood."""

    def __init__(self, cache: Optional[AnyPath] = None, *, device: int = 0,
                 on_miss: str = "predict", min_match: Optional[str] = None, l2: str = "cold",
                 sku: Optional[str] = None,
                 read_only_caches: Union[AnyPath, Sequence[AnyPath]] = (),
                 templates: Union[AnyPath, Sequence[AnyPath]] = (),
                 epilogues: Union[AnyPath, Sequence[AnyPath]] = (),
                 tune_seconds: float = 30, background_seconds: float = 600,
                 compile_threads: int = 0, check_launches: bool = False) -> None:
        announce_toolkit()
        try:
            self._handle = _kernwright.open_service(
                cache, sku, on_miss, device, tune_seconds, l2,
                None, min_match, _paths(read_only_caches), _paths(templates), _paths(epilogues),
                background_seconds, compile_threads, check_launches, _pass_on, data_folders())
        except Error as error:  # whose names are from the C interface
            error.reason = error.reason.replace("kw_options.", "")
            error.args = (error.reason,)
            raise
        self._cache, self._sku = cache, sku
        self._device = -1 if sku else device
        self._autotune_seconds = 0.0
        self._shapes_file: Optional[str] = None
        self._tune_seconds = tune_seconds
        self._tokens: List["contextvars.Token[Optional[AnyService]]"] = []
        self.plans: Dict[Any, Any] = {}  # of operations' calls, by signature
        self.patterns: Dict[Any, List[Any]] = {}  # by signature without sizes
        self.ran: Dict[str, Kernel] = {}  # the last kernel of each operation

    @property
    def device(self) -> Optional[int]:
        """The GPU's number, None with a sku."""
        return None if self._device < 0 else self._device

    @property
    def sku(self) -> Optional[str]:
        """The GPU that it works for without one, None with a GPU."""
        return self._sku

    @property
    def cache(self) -> str:
        """Its cache directory."""
        if self._cache is not None:
            return os.fsdecode(self._cache)
        root = os.environ.get("XDG_CACHE_HOME", "")
        return os.environ.get("KERNWRIGHT_CACHE") or os.path.join(
            root if os.path.isabs(root) else os.path.expanduser("~/.cache"), "kernwright")

    def __repr__(self) -> str:
        place = f"GPU {self._device}" if self._sku is None else f"sku {self._sku}"
        return f"<kernwright.Service: {place}, cache {self.cache}>"

    def _ready(self, kernel: Kernel, layouts: Mapping[str, Layout] = {},
               read_only: Sequence[str] = ()) -> Kernel:
        """Returns the kernel with its argument description attached."""
        summary = _described(kernel)
        for argument in summary["arguments"]:
            shape, strides = layouts.get(argument["name"], ((), ()))
            if shape:
                argument["extent"] = list(shape)
                argument["strides"] = [1 if size == 1 else stride
                                       for size, stride in zip(shape, strides)]
            if argument["name"] in read_only:
                argument["output"] = False
        kernel._facts = summary
        kernel._expect(summary["arguments"], self._device)
        return kernel

    def kernel(self, problem: AnyProblem) -> Kernel:
        """Returns the best kernel for the problem: from memory, from the cache, or by `on_miss`.
        Errors: Error if the operation does not accept the problem or nothing can run it."""
        return self._ready(_kernwright.best_kernel(self._handle, Kernel, str(problem)))

    def kernels(self, problem: AnyProblem, most: int = 8) -> List[Kernel]:
        """Returns the best kernel and, behind it, the kernels that may take its place in a chain,
        the most promising first: for ChainBuilder.add(). Errors: as for kernel()."""
        return [self._ready(kernel) for kernel in _kernwright.best_kernels(
            self._handle, Kernel, str(problem), most)]

    def kernel_on(self, device: int, problem: str,
                  layouts: Mapping[str, Layout] = {}, read_only: Sequence[str] = ()) -> Kernel:
        """Returns the result of kernel(), for arrays on the GPU `device`. Arguments that `layouts`
        names are passed with these shapes and strides, which bind() proved right. Arguments that
        `read_only` names are not written by this problem, though the operation has others that
        write them."""
        if self._device >= 0 and device != self._device:
            raise make_error(f"the arrays lie on GPU {device}, and the service is for GPU "
                             f"{self._device}", problem)
        found = _kernwright.best_kernel(self._handle, Kernel, problem, _stream.get())
        return self._ready(found, layouts, read_only)

    def bind(self, _: int, options: str, tensors: Tuple[Any, ...],
             scalars: Sequence[str]) -> Dict[str, Any]:
        """Returns the problem that follows from tensors, and the results that are not among them:
        kw_bind()'s object."""
        binding: Dict[str, Any] = json.loads(_kernwright.bind(self._handle, options, tensors,
                                                              scalars))
        return binding

    def pattern(self, _: int, options: str, tensors: Tuple[Any, ...],
                scalars: Sequence[str]) -> Any:
        """Returns the pattern of the same call of bind(), or None: kw_make_pattern()."""
        return _kernwright.make_pattern(self._handle, options, tensors, scalars)

    def tune(self, problem: AnyProblem, seconds: Optional[float] = None, *,
             trials: Optional[int] = None, strategy: str = "portfolio",
             progress: AnyProgress = "auto") -> Kernel:
        """Tunes the problem, keeps the record in the cache and returns the winner, which calls use
        from then on. Other threads run meanwhile. Ctrl-C ends it, with its worker process, and keeps
        nothing. The L2 that kernels are tuned for is an option of the Service.

        Of a problem with ranges, m=1..8192, all sizes are tuned together, a product in 60 to 90 seconds,
        and the kernel of the largest is returned. Of the options, seconds alone counts then.

        seconds: the budget; None for the service's tune_seconds, and for 90 if there are ranges
        trials: at most so many candidates are measured, 1 or more; None for as many as the budget
            allows
        strategy: "portfolio", "ranked", "local_search", "random" or "exhaustive"
        progress: "auto" for a line on standard error where that is a terminal or a notebook; None for
            none; or a function that is called with a TuneProgress from time to time, in this thread.
            What it raises ends the tuning

        Errors: Error without a GPU, for options out of range, and if no candidate passes."""
        budget = self._tune_seconds if seconds is None else seconds
        _expect_number("seconds", budget, str(problem))
        if not budget > 0:
            raise make_error(f"seconds is {budget!r}, and a number above 0 expected", str(problem))
        if progress not in ("auto", None) and not callable(progress):
            raise make_error(f"progress is {progress!r}, and 'auto', None or a function expected",
                             str(problem))
        if trials is not None and (not isinstance(trials, int) or trials < 1):
            raise make_error(f"trials is {trials!r}, and None or an int of 1 or more expected",
                             str(problem))
        if not isinstance(strategy, str):
            raise make_error(f"strategy is {strategy!r}, and a str expected", str(problem))
        line = ProgressLine(str(problem), budget)
        watcher = progress if callable(progress) else (
            line.update if progress == "auto" and line.is_seen() else None)
        try:
            kernel = self._ready(_kernwright.tune(self._handle, Kernel, str(problem),
                                                  0.0 if seconds is None else budget, trials or 0, strategy,
                                                  watcher and _told(watcher)))
        finally:
            line.close()
        self._forget_plans()
        return kernel

    def _forget_plans(self) -> None:
        """Lets every operation ask for its kernel again."""
        self.plans.clear()
        _everywhere.plans.clear()

    def record(self, problem: AnyProblem) -> Record:
        """Returns the record that answers the problem: the winner, by how much it won, how sure
        that is. A notebook shows it with a picture of the race. Nothing is tuned or compiled.
        Errors: Error if there is no record of this problem."""
        text = str(problem)
        return Record(json.loads(_kernwright.record(self._handle, text, "json")),
                      _kernwright.record(self._handle, text, "html"))

    def prewarm(self, problems: Union[AnyPath, Problem, Iterable[AnyProblem]]) -> None:
        """Gets the best kernel of every problem into memory. One with ranges, m=1..8192, brings
        the kernels of all its sizes. `problems` is a Problem, several as objects or texts, or
        the path of a worklist, also one that record_shapes() wrote. Errors: Error, which lists
        every problem that cannot be served, with its reason."""
        if isinstance(problems, Problem):
            problems = [problems]
        if isinstance(problems, (str, bytes, os.PathLike)):
            _kernwright.prewarm_worklist(self._handle, problems)
        else:
            _kernwright.prewarm(self._handle, [str(problem) for problem in problems])

    def record_shapes(self, file: AnyPath) -> "Watch":
        """Appends every problem that is asked for to `file`, from now until the end of the `with`
        block or close(): a worklist that prewarm() and `kernwright sweep` take, in lines of JSON.
        The count of a problem's lookups is appended at the end; operations ask once for each
        signature of their arrays. Blocks may be nested; the innermost records. Threads and
        processes may share a file. Errors: Error if the file exists and is something else."""
        before, inside = self._shapes_file, os.fsdecode(file)
        _kernwright.record_shapes(self._handle, inside)
        self._shapes_file = inside

        def end() -> None:
            self._shapes_file = before
            _kernwright.record_shapes(self._handle, before)

        return Watch(self, end)

    def autotune(self, seconds: float = 30.0) -> "Watch":
        """Tunes each problem that is asked for and was not tuned, for about `seconds` each, before
        its first launch, from now until the end of the `with` block or close(). Blocks may be
        nested; the innermost counts. During a stream capture nothing is tuned. Errors: Error; later
        as for tune()."""
        _expect_number("seconds", seconds)
        before = self._autotune_seconds
        _kernwright.autotune(self._handle, seconds)
        self._autotune_seconds = seconds

        def end() -> None:
            self._autotune_seconds = before
            _kernwright.autotune(self._handle, before)

        return Watch(self, end)

    def seal(self, mode: str = "error") -> None:
        """Declares that all is compiled that will be needed. Every request that needs a compile
        from now on raises Error, which names the problem and the remedy; with mode "warning" it is
        logged, and goes on. Kernels in memory, or in the cache with their bits, are served as
        before. Any thread may call it. Errors: Error for another mode."""
        _kernwright.seal(self._handle, mode)

    def metrics(self) -> str:
        """Returns the figures that operators watch, in Prometheus' text format: lookups by match
        and reason, compiles and their seconds, requests that needed a compile after seal(), loaded
        bytes, bundles, and kernwright_ready, which is 1 once the service is sealed; for the
        process, calls of patched modules that ran as before. Any thread may call it."""
        return _kernwright.metrics(self._handle) + _fallbacks.text()

    def lookup_counts(self) -> List[LookupCount]:
        """Returns how the problems that were asked for so far were answered."""
        return [LookupCount(**count)
                for count in json.loads(_kernwright.lookup_counts(self._handle))]

    def __enter__(self) -> "Service":
        self._tokens.append(_active.set(self))
        return self

    def __exit__(self, *_: Any) -> None:
        _active.reset(self._tokens.pop())


class Watch:
    """A setting of a service that holds until the end of a `with` block or close()."""

    def __init__(self, service: Service, end: Callable[[], None]) -> None:
        self._service = service
        self._end: Optional[Callable[[], None]] = end
        service._forget_plans()

    def close(self) -> None:
        """Ends it. The second call does nothing. Errors: Error if counts cannot be written."""
        end, self._end = self._end, None
        if end is not None:
            end()
            self._service._forget_plans()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _ServicePerDevice:
    """The services that are used if nobody named one: one for each GPU, opened when it is
    needed."""

    def __init__(self) -> None:
        self.plans: Dict[Any, Any] = {}
        self.patterns: Dict[Any, List[Any]] = {}
        self.ran: Dict[str, Kernel] = {}
        self._services: Dict[int, Service] = {}
        self._lock = threading.Lock()

    def kernel_on(self, device: int, problem: str,
                  layouts: Mapping[str, Layout] = {}, read_only: Sequence[str] = ()) -> Kernel:
        return self.on(device).kernel_on(device, problem, layouts, read_only)

    def bind(self, device: int, options: str, tensors: Tuple[Any, ...],
             scalars: Sequence[str]) -> Dict[str, Any]:
        return self.on(device).bind(device, options, tensors, scalars)

    def pattern(self, device: int, options: str, tensors: Tuple[Any, ...],
                scalars: Sequence[str]) -> Any:
        return self.on(device).pattern(device, options, tensors, scalars)

    def on(self, device: int) -> Service:
        with self._lock:
            if device not in self._services:
                self._services[device] = Service(device=device)
            return self._services[device]


# The stream of the launch that a kernel is looked for. While it is in a capture, a kernel that is
# not in memory is refused, so that the capture stays valid.
_stream: "contextvars.ContextVar[Optional[int]]" = contextvars.ContextVar(
    "kernwright_stream", default=None)


@contextlib.contextmanager
def launching_like(arrays: Iterable[Any]) -> Iterator[None]:
    """Looks for the kernels of the block to launch them on the current stream of the framework of
    the first of the arrays that is not None."""
    first = next((array for array in arrays if array is not None), None)
    token = _stream.set(None if first is None else _kernwright.current_stream(first))
    try:
        yield
    finally:
        _stream.reset(token)


@contextlib.contextmanager
def asking(stand_in: Any) -> Iterator[None]:
    """Calls of the block go to an object that stands in for a service."""
    token = _active.set(stand_in)
    try:
        yield
    finally:
        _active.reset(token)


AnyService = Union[Service, _ServicePerDevice]
_everywhere: AnyService = _ServicePerDevice()
_active: "contextvars.ContextVar[Optional[AnyService]]" = contextvars.ContextVar(
    "kernwright_service", default=None)


def set_default(service: Optional[Service]) -> None:
    """Makes `service` the one that operations use outside of `with` blocks; None: one for each GPU,
    with the default cache and prediction on a miss. Errors: Error for anything else."""
    global _everywhere
    if service is not None and not isinstance(service, Service):
        raise make_error(f"service is {service!r}, and a Service or None expected")
    _everywhere = _ServicePerDevice() if service is None else service


def active() -> AnyService:
    """Returns the service of the innermost `with` block, else the default."""
    return _active.get() or _everywhere


def last_kernel(operation: str) -> Optional[Kernel]:
    """Returns the kernel that the last call of an operation went to, on the active service, such as
    last_kernel("linear"). None if there was no call of it. Operators of kernwright.torch are calls
    of the operation that they are made of."""
    return active().ran.get(operation)


def default_service() -> Service:
    """Returns the active service as one object; if it is a default one, the one for the current
    GPU."""
    service = active()
    if isinstance(service, Service):
        return service
    return service.on(max(_kernwright.current_device(), 0))

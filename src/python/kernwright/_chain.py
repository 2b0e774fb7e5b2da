"""Kernels as CUDA graphs: one with its arguments, and several with the wiring between them."""

import dataclasses
import json
from typing import Any, Dict, List, NamedTuple, Sequence, Union

from . import _kernwright
from ._arrays import make_error
from ._kernwright import BakedHandle, ChainHandle, KernelHandle


class BakedLaunch(BakedHandle):
    """A kernel with its arguments as a CUDA graph, made by Kernel.bake(). Calling it launches the
    graph on `stream=`, else on the current stream of its arrays' framework, and costs the host about
    a third of a call of the kernel. A stream in a capture takes add_to_capture() instead.

    It keeps its arrays, and has a workspace of its own. One thread uses it at a time, and its
    launches follow each other. Keep it until the last of them has finished. Errors: Error."""

    __slots__ = ()


class ChainSlot(NamedTuple):
    """A pointer of a chain: a parameter, which the caller passes, or a buffer of the chain's
    own."""
    is_buffer: bool
    index: int
    offset_bytes: int = 0

    def at(self, offset_bytes: int) -> "ChainSlot":
        """Returns the same pointer, moved on by so many bytes."""
        return self._replace(offset_bytes=self.offset_bytes + offset_bytes)


@dataclasses.dataclass(frozen=True)
class ChainTime:
    """The times of one way to launch a chain: `host_us` of the calling thread, and `period_us` of
    launches back to back, medians."""
    path: str
    host_us: float
    period_us: float


class Chain(ChainHandle):
    """Kernels that follow each other, with the wiring of their arguments, as one object, made by
    ChainBuilder.build(). Calling it launches all of them on `stream=`, else on the current stream of
    its arrays' framework, along its path. A stream in a capture takes add_to_capture() instead.

    It keeps its arrays and owns its buffers and workspaces. One thread uses it at a time, and its
    launches follow each other. Keep it until the last of them has finished. Errors: Error."""

    __slots__ = ()

    def tune(self, stream: Any = None) -> List[ChainTime]:
        """If steps have several kernels, finds the ones that make the chain fastest, in at most 8
        s, together with the kernels that gain by an early start. Then times every path, and stays
        with the fastest. The chain's results are overwritten. Kernels of one problem may differ in
        the last bits of their results; all paths of a chain run the same. Errors: Error."""
        self._tune(stream)
        return [ChainTime(**row) for row in self._described()["paths"]]

    @property
    def paths(self) -> List[str]:
        """The ways to launch it that differ, out of "stream", "graph", "programmatic_stream" and
        "programmatic_graph": each kernel by itself or all as one graph, and on a programmatic path
        kernels that wait for their predecessor themselves may start early."""
        return [row["path"] for row in self._described()["paths"]]

    @property
    def path(self) -> str:
        """The present one; a new chain is launched as a "graph"."""
        return str(self._described()["path"])

    @property
    def kernels(self) -> int:
        """The number of its kernels."""
        return int(self._described()["kernels"])

    @property
    def chosen(self) -> List[Dict[str, str]]:
        """Template and configuration of every kernel, in order."""
        return list(self._described()["chosen"])

    @property
    def early_kernels(self) -> List[int]:
        """The places of the kernels that start early on programmatic paths."""
        return list(self._described()["early_kernels"])

    @property
    def memory_bytes(self) -> int:
        """Device bytes of all buffers and workspaces, including kernels that were not chosen."""
        return int(self._described()["memory_bytes"])

    def _described(self) -> Dict[str, Any]:
        described: Dict[str, Any] = json.loads(self._description)
        return described

    def __repr__(self) -> str:
        return f"<kernwright.Chain: {self.kernels} kernels, {self.path}>"


class ChainBuilder:
    """Puts a chain together:

        builder = kw.ChainBuilder()
        x, normal = builder.parameter(x), builder.buffer(rows * columns * 2)
        builder.add(rmsnorm, x, weight, normal)
        builder.add(matmul, normal, b, y)
        chain = builder.build()

    An argument is an array that stays, a number for a scalar, or a slot: a parameter, which
    Chain.rebind() sets to other arrays, or a buffer, for what passes between the kernels."""

    def __init__(self) -> None:
        self._parameters: List[Any] = []
        self._buffers: List[int] = []
        self._steps: List[Any] = []

    def __repr__(self) -> str:
        return (f"<kernwright.ChainBuilder: {len(self._steps)} kernels, {len(self._parameters)} "
                f"parameters, {len(self._buffers)} buffers>")

    def parameter(self, array: Any) -> ChainSlot:
        """Adds a parameter: `array` to begin with, by Chain.rebind() others of its dtype, shape and
        strides. As it is, it is a tensor of a kernel; moved on with `at`, it is memory that must
        contain one."""
        self._parameters.append(array)
        return ChainSlot(False, len(self._parameters) - 1)

    def buffer(self, size_bytes: int) -> ChainSlot:
        """Adds so many bytes of the chain's own, aligned to 256 and not initialised."""
        if not isinstance(size_bytes, int) or size_bytes < 1:
            raise make_error(f"a buffer of {size_bytes!r} bytes, and at least 1 expected")
        self._buffers.append(size_bytes)
        return ChainSlot(True, len(self._buffers) - 1)

    def add(self, kernels: Union[KernelHandle, Sequence[KernelHandle]], *arguments: Any) -> None:
        """Adds the next kernel, with its arguments in the order of a call. With several of one
        problem, such as Service.kernels() returns, the chain begins with the first, and
        Chain.tune() chooses."""
        several = [kernels] if isinstance(kernels, KernelHandle) else list(kernels)
        self._steps.append((several, arguments))

    def build(self) -> Chain:
        """Makes the chain, bound to the GPU of its kernels. Errors: Error for an argument that does
        not fit, which it names, for a slot of another builder, a buffer that is too small, outputs
        that overlap, kernels of several problems for one step, and if there is no GPU."""
        return _kernwright.build_chain(Chain, self._parameters, self._buffers, self._steps)

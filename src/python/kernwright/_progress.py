"""The progress of a tuning, for whoever waits for it."""

import dataclasses
import shutil
import sys
from typing import Callable, Optional, Union


@dataclasses.dataclass(frozen=True)
class TuneProgress:
    """The progress of a tuning's search: the number of candidates and how many were measured, the
    time of the best so far in microseconds, and the seconds since the search began."""
    candidates: int
    measured: int
    best_us: Optional[float]
    seconds: float


AnyProgress = Union[None, str, Callable[[TuneProgress], None]]


class ProgressLine:
    """One line on standard error that is written anew, if that is a terminal or a notebook."""

    def __init__(self, problem: str, seconds: float) -> None:
        self._operation, self._seconds, self._is_written = problem.partition(" ")[0], seconds, False

    @staticmethod
    def is_seen() -> bool:
        return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())

    def text(self, at: TuneProgress) -> str:
        best = "" if at.best_us is None else f", best {at.best_us:.4g} us"
        left = self._seconds - at.seconds
        rest = f"{left:.0f} s left" if left >= 1 else "finishing"
        return f"{self._operation}: {at.measured} of {at.candidates} candidates{best}, {rest}"

    def update(self, at: TuneProgress) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._write(self.text(at)[:width].ljust(width))

    def close(self) -> None:
        if self._is_written:
            self._write(" " * (shutil.get_terminal_size().columns - 1) + "\r")

    def _write(self, text: str) -> None:
        self._is_written = True
        sys.stderr.write("\r" + text)
        sys.stderr.flush()

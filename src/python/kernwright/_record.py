"""The findings of tuning about one problem."""

import copy
import math
from typing import Any, Dict, Optional, Tuple


class Record:
    """The record of a problem: the winner, by how much it won, how sure that is, and what was
    measured. A notebook shows it as a card, with the race as a picture; `kernwright show --html
    FILE` makes a page of all of it."""

    __slots__ = ("_data", "_html")

    def __init__(self, data: Dict[str, Any], html: str) -> None:
        self._data = data
        self._html = html

    @property
    def problem(self) -> str:
        """The problem's text, as its key has it."""
        return str(self._data["problem"])

    @property
    def grade(self) -> str:
        """"measured" or "predicted"."""
        return str(self._data["grade"])

    @property
    def template(self) -> str:
        """The winner's template, "matmul/persistent_wave"."""
        return str(self._data["finalists"][0]["template"])

    @property
    def configuration(self) -> Dict[str, int]:
        """The winner's parameters by name."""
        return dict(self._data["finalists"][0]["configuration"])

    @property
    def us(self) -> float:
        """The winner's time in microseconds: the median of the finals, or the prediction."""
        return float(self._data["us"])

    @property
    def verdict(self) -> str:
        """How sure the choice is: win, tie or unresolved."""
        return str(self._data["verdict"])

    @property
    def trust(self) -> str:
        """How far the environment of the measurement can be trusted: A, B or C."""
        return str(self._data["trust"])

    @property
    def support(self) -> str:
        """The claim that it allows about the winner: supported, measured, default_kept or
        caveated."""
        return str(self._data["support"])

    @property
    def speedup(self) -> Optional[Tuple[float, float, float]]:
        """How many times the winner's time the default takes, and the ends of its interval; None if
        the default won or was not measured."""
        ratio = self._data.get("default")
        return None if ratio is None else (math.exp(ratio[0]), math.exp(ratio[1]),
                                           math.exp(ratio[2]))

    @property
    def data(self) -> Dict[str, Any]:
        """All of it, as the data of a report has it: finalists, samples, checks, audit, trials.
        Times are in microseconds, slowdowns [estimate, low, high] of the logarithm of a ratio."""
        return copy.deepcopy(self._data)

    def __str__(self) -> str:
        return " ".join(self._data["words"])

    def __repr__(self) -> str:
        sure = self.grade if self.grade == "predicted" else f"{self.verdict} {self.trust}"
        return f"<kernwright.Record {self.problem}: {self.us} us, {sure}, {self.template}>"

    def _repr_html_(self) -> str:
        return self._html

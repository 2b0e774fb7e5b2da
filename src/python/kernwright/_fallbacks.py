"""How often a fused forward was left for a module's own, and an operator to PyTorch, for
`kernwright.metrics`."""

import collections
from typing import Counter

#: Calls by cause.
counts: Counter[str] = collections.Counter()


def text() -> str:
    """Returns the counts in Prometheus' text format, empty if there were no fallbacks."""
    if not counts:
        return ""
    name = "kernwright_fallbacks_total"
    lines = [f"# HELP {name} Calls that PyTorch computed, by cause.",
             f"# TYPE {name} counter"]
    lines += [f'{name}{{cause="{cause}"}} {count}' for cause, count in sorted(counts.items())]
    return "\n".join(lines) + "\n"

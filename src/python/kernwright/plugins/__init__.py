"""Plug-ins of serving engines. Each is off unless KERNWRIGHT_PLUGINS names it, or its `register()` is
called, and leaves to the engine what no kernel takes, with one line in the log for each reason.

| engine | module | entry point |
| --- | --- | --- |
| vLLM | `kernwright.plugins.vllm` | `vllm.general_plugins` |
| SGLang | `kernwright.plugins.sglang` | `sglang.srt.plugins` |"""

import os
from typing import Any

VARIABLE = "KERNWRIGHT_PLUGINS"


def is_wanted(engine: str) -> bool:
    """Returns true if the variable names the engine: KERNWRIGHT_PLUGINS=vllm, or =vllm,sglang."""
    return engine in os.environ.get(VARIABLE, "").replace(" ", "").split(",")


def fuse_graph(graph: Any) -> None:
    """The pass over the graphs of compiled models, which fuses our operators; vLLM takes it by name."""
    from ..torch import _passes
    _passes.fuse(graph)

"""Which layers of the installed engines are ours, for `kernwright doctor`. An engine is looked at in a process of its
own, `python -m kernwright.plugins._layers ENGINE`: to import it takes long, and it changes what a process does."""

import importlib
import importlib.metadata
import json
import logging
import subprocess
import sys
import textwrap
from typing import Any, Dict, List

from . import VARIABLE, is_wanted

_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
_WIDTH, _COLUMN = 80, 12  # of the tool's text


def look(engine: str) -> Dict[str, List[str]]:
    """Registers the layers of ours in this process. Returns their names and the reasons why others are left."""
    left: List[str] = []

    class Reasons(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            left.append(record.getMessage())

    log, reasons = logging.getLogger("kernwright"), Reasons()
    log.addHandler(reasons)
    try:
        names = importlib.import_module(f"{__package__}.{engine}").register()
    finally:
        log.removeHandler(reasons)
    # SGLang's are names of methods: package.Class.method.
    return {"ours": list(dict.fromkeys(name.split(".")[-2] if "." in name else name for name in names)), "left": left}


def _look_elsewhere(engine: str) -> List[str]:
    done: Any = subprocess.run([sys.executable, "-m", "kernwright.plugins._layers", engine], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, check=False, text=True)
    lines = done.stdout.splitlines()
    try:
        found = json.loads(lines[-1] if lines else "")
    except ValueError:
        why = done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"]
        return [f"its layers cannot be looked at: {why[-1]}"]
    ours = [f"ours: {', '.join(found['ours'])}"] if found["ours"] else ["no layer is ours"]
    return ours + [f"left: {reason}" for reason in found["left"]]


def describe() -> str:
    """Returns lines for each engine that is installed."""
    text = ""
    for engine, name in _ENGINES.items():
        try:
            version = importlib.metadata.version(engine)
        except importlib.metadata.PackageNotFoundError:
            continue
        found = _look_elsewhere(engine) if is_wanted(engine) else [f"off: {VARIABLE} does not name {engine}"]
        label = f"  {name}".ljust(_COLUMN)
        for line in (version, *found):
            text += textwrap.fill(line, _WIDTH, initial_indent=label, subsequent_indent=" " * (_COLUMN + 2),
                                  break_long_words=False, break_on_hyphens=False) + "\n"
            label = " " * _COLUMN
    return text


if __name__ == "__main__":
    print("\n" + json.dumps(look(sys.argv[1])))

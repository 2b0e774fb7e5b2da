"""The reference of operations, from templates/*/operation.json and the manifests beside them, and the
list of GPUs, from src/model/profiles."""

import json

from documents import ROOT

_TEMPLATES = ROOT / "templates"


def _operations():
    return [json.loads(path.read_text()) for path in sorted(_TEMPLATES.glob("*/operation.json"))]


def _manifests(operation):
    """Returns the operation's templates by name. A manifest adds to the fields of its fragment."""
    found = {}
    for path in sorted((_TEMPLATES / operation).glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        while "extends" in manifest:
            below = json.loads((_TEMPLATES / "include" / manifest.pop("extends")).read_text())
            for field, value in below.items():
                if isinstance(value, dict):
                    manifest[field] = value | manifest.get(field, {})
                else:
                    manifest.setdefault(field, value)
        found[path.parent.name] = manifest
    return found


def names():
    """Returns every operation with its templates."""
    return [(each["operation"], list(_manifests(each["operation"]))) for each in _operations()]


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
                     for line in lines) + "\n"


def _code(text):
    return f"`{text}`"


def _dim(dim):
    distance = dim.get("distance", 1)
    if dim["bind"] == "exact" or distance == 1:
        answered = "this size alone"
    else:
        answered = f"tuned sizes up to {distance} times as large or small"
        if "edges" in dim:
            answered += ", not across " + ", ".join(map(str, dim["edges"]))
    size = "a range" if dim["bind"] == "bucket" else "one size"
    return size, answered, _code(dim["default"]) if "default" in dim else "must be given"


def _words(operation):
    """Returns the dtypes and flags: name, values, default."""
    for name, each in operation.get("dtypes", {}).items():
        values = each["values"] if isinstance(each, dict) else each
        default = each.get("default") if isinstance(each, dict) else None
        yield name, " ".join(map(_code, values)), _code(default) if default else "must be given"
    for name, each in operation.get("flags", {}).items():
        if "formula" in each:
            yield name, "a formula over " + " ".join(map(_code, each["formula"])), "must be given"
        elif "function" in each:
            yield name, "a function of yours: " + _code(each["function"]), _code("none")
        else:
            default = _code(each["default"]) if "default" in each else "must be given"
            yield name, " ".join(map(_code, each["values"])), default


def _problem(operation):
    return " ".join([operation["operation"], *(f"{k}={v}" for k, v in operation["example"].items())])


def _section(operation):
    name = operation["operation"]
    tensors = [(_code(each["name"]), {"in": "read", "out": "written", "inout": "read and written"}[each["role"]],
                _code(each["dtype"]), _code("[" + ", ".join(each["extent"]) + "]"),
                _code(each["when"]) if "when" in each else "always")
               for each in operation["tensors"]]
    tensors += [(_code(each["name"]), "scalar", _code(each["dtype"]), f"{_code(each['default'])} unless given",
                 _code(each["when"]) if "when" in each else "always")
                for each in operation.get("scalars", [])]
    templates = [(f"[{each}](../operations/{name}/{each}.md)", f"sm_{manifest['arch']['min']}",
                  " ".join(map(_code, manifest["parameters"])), manifest.get("description", ""))
                 for each, manifest in _manifests(name).items()]
    return "\n".join([
        f"## {name}\n", operation["description"] + f". [Explained in full](../operations/{name}.md).\n",
        f"```text\n{_problem(operation)}\n```\n",
        _table(["dim", "may be", "may be answered by", "default"],
               [(_code(dim), *_dim(each)) for dim, each in operation["dims"].items()]),
        _table(["dtype or flag", "values", "default"], [(_code(a), b, c) for a, b, c in _words(operation)])
        if operation.get("dtypes") or operation.get("flags") else "",
        _table(["argument of a launch, in order", "", "dtype", "shape", "when"], tensors),
        _table(["template", "from", "parameters", "what it is"], templates),
    ])


def reference():
    operations = _operations()
    return "\n".join([
        _table(["operation", "dtypes", "computes"],
               [(f"[{each['operation']}](#{each['operation']})",
                 " ".join(map(_code, (lambda d: d["values"] if isinstance(d, dict) else d)(
                     next(iter(each["dtypes"].values()))))) if each.get("dtypes") else "none",
                 each["description"]) for each in operations]),
        *map(_section, operations)])


def gpus():
    rows = []
    for path in sorted((ROOT / "src" / "model" / "profiles").glob("*.json")):
        profile = json.loads(path.read_text())
        value = {field: each["value"] for field, each in profile.items() if isinstance(each, dict) and "value" in each}
        rows.append((_code(profile["id"]), profile["name"], f"sm_{value['sm_arch']}", value["sm_count"],
                     f"{value['memory_bytes'] / 2**30:.0f} GiB", f"{value['dram_gbps'] / 1e3:.1f} TB/s"))
    return _table(["SKU", "GPU", "architecture", "multiprocessors", "memory", "bandwidth"], rows)

"""Calls of operations. The problem and the results of a call follow from its arrays, by the
contract of the operation. Plans are kept by the signature of the arrays. Patterns are kept without
their sizes, and make the plans of further sizes."""

import functools
import json
import re
import textwrap
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _kernwright
from ._arrays import Array, Layout, contiguous, dtype_text, make_error, read
from ._service import Kernel, active, launching_like

_MOST_PATTERNS = 8  # of one tag, dtypes and numbers of dimensions; each costs a call of a new size
_Names = Tuple[Tuple[str, str], ...]


class Output(NamedTuple):
    """A result as it is made: contiguous, and then with these two axes swapped."""
    shape: Tuple[int, ...]
    dtype: str
    swap: Optional[Tuple[int, int]] = None

    def layout(self) -> Layout:
        """Returns its shape and strides as the caller gets it."""
        shape, strides = list(self.shape), list(contiguous(self.shape))
        if self.swap is not None:
            for axes in shape, strides:
                first, second = self.swap
                axes[first], axes[second] = axes[second], axes[first]
        return tuple(shape), tuple(strides)


class Plan(NamedTuple):
    """The plan for calls of one signature: the kernel that is launched, and the results that are
    made if the caller passes none; None for a result that the problem does not have. Without a
    kernel there is nothing to compute."""
    kernel: Optional[Kernel]
    outputs: Tuple[Optional[Output], ...]


class Given:
    """The arrays of a call by the operation's names, and its options, as they are bound. The last
    axes of `turned` arrays have been exchanged by the caller."""

    def __init__(self, arrays: Dict[str, Array], options: Dict[str, Any],
                 turned: Sequence[str]) -> None:
        self.arrays = dict(arrays)
        self.options = options
        self.orders = {name: moved_last(array, -2) for name, array in arrays.items()
                       if name in turned}
        self.results: Dict[str, Tuple[int, ...]] = {}  # shapes in place of the operation's
        self.swaps: Dict[str, Tuple[int, int]] = {}  # as in Output

    def tensors(self) -> Tuple[Any, ...]:
        return tuple((name, array.name, array.dtype, array.shape, array.strides,
                      self.orders.get(name)) for name, array in self.arrays.items())


class Form(NamedTuple):
    """How a function calls an operation. Tensors are pairs of the operation's name and the
    argument's, in the operation's order."""
    operation: str
    inputs: _Names
    outs: _Names
    options: Tuple[str, ...] = ()  # the names of a tag's items behind the first
    scalars: Tuple[str, ...] = ()
    fixed: Mapping[str, str] = {}  # options of every call
    turned: Tuple[str, ...] = ()   # tensors whose last two axes the caller has exchanged
    # Changes what is bound. It takes the options whose names begin with _ away. If it leaves arrays
    # and results as they are, all that it does follows from dtypes, numbers of dimensions and rows
    # of members alone, but for calls that binding refuses too.
    settle: Optional[Callable[[Given], None]] = None

    def plan(self, inputs: Tuple[Any, ...], outs: Tuple[Any, ...], options: Sequence[Any],
             scalars: Tuple[str, ...], stacks: bool) -> Tuple[Plan, Optional[Callable[[], Any]]]:
        """Makes a plan from the arrays as they were passed. Also returns the function that makes
        its pattern, None if it cannot have one."""
        service = active()
        reader = getattr(service, "read", read)
        arrays = {tensor: reader(argument, array, stacks)
                  for names, given in ((self.inputs, inputs), (self.outs, outs))
                  for (tensor, argument), array in zip(names, given) if array is not None}
        given = Given(arrays, {**self.fixed, **{
            name: value for name, value in zip(self.options, options)
            if name and value is not None}}, self.turned)
        if self.settle is not None:
            self.settle(given)
        device = next(iter(arrays.values())).device if arrays else 0
        bound = device, " ".join([self.operation, *(
            f"{name}={_word(name, value)}" for name, value in given.options.items())]), (
                given.tensors()), scalars
        binding = service.bind(*bound)
        if binding["refusal"]:
            raise make_error(binding["refusal"], binding["problem"] or "")
        made = {one["name"]: Output(
            given.results.get(one["name"], tuple(one["extent"])), one["dtype"],
            given.swaps.get(one["name"], one["swapped"] and tuple(one["swapped"])))
                for one in binding["made"]}
        # A function may have added the results that it writes to.
        made.update((name, Output(given.results.get(name, array.shape), str(array.dtype)))
                    for name, array in given.arrays.items() if name not in arrays)
        outputs = tuple(made.get(tensor) for (tensor, _), _ in zip(self.outs, outs))
        if binding["problem"] is None:
            return Plan(None, outputs), None
        present = tuple(binding["scalars"][:len(scalars)])
        if present != scalars:
            missing = next(name for name in present if name not in scalars)
            raise make_error(f"{missing} is missing, which {scalars[-1]} stands behind",
                             binding["problem"])
        layouts = {name: (array.shape, array.strides or ()) for name, array in arrays.items()}
        layouts.update((name, output.layout()) for name, output in made.items())
        plan = Plan(service.kernel_on(device, binding["problem"], layouts, binding["unwritten"]),
                    outputs)
        is_plain = (given.arrays == arrays and not given.results
                    and all(array.strides is not None for array in arrays.values())
                    and [*made] == [name for (name, _), output in zip(self.outs, outputs) if output])
        return plan, functools.partial(service.pattern, *bound) if is_plain else None


def moved_last(array: Array, axis: int) -> Tuple[int, ...]:
    """Returns the order of an array's axes in which `axis` is the last. Errors: Error if it has no
    such axis."""
    count = len(array.shape)
    if not -count <= axis < count:
        raise make_error(f"{array.name} has {count} dimensions, and at least "
                         f"{axis + 1 if axis >= 0 else -axis} expected")
    order = list(range(count))
    order.append(order.pop(axis))
    return tuple(order)


def _word(name: str, value: Any) -> str:
    """Returns a value as the text of a problem has it."""
    word = value if isinstance(value, str) else str(
        value if isinstance(value, int) else dtype_text(value))
    if len(word.split()) != 1:
        raise make_error(f"{name} is {word!r}, and one word expected")
    return word


def call(form: Form, tag: Tuple[Any, ...], inputs: Tuple[Any, ...], outs: Tuple[Any, ...],
         scalars: Tuple[float, ...] = (), names: Optional[Tuple[str, ...]] = None,
         stacks: bool = False) -> Any:
    """Returns the results of an operation on its inputs, some of which may be None. Results are
    made for the `outs` that are None. `tag` is the function's name and its options. `names` are
    those of the scalars; None for the form's first ones. With `stacks` an input may be a tuple of
    arrays that are read as one; if they are apart, NotImplemented is returned."""
    service = active()
    results = _kernwright.run(service.plans, service.ran, tag, inputs, outs, scalars, stacks,
                              service.patterns)
    if results is not None and results is not False:
        return results
    given = form.scalars[:len(scalars)] if names is None else names
    with launching_like(inputs):
        plan, make_pattern = form.plan(inputs, outs, tag[1:], given, stacks)
    if results is None and make_pattern is not None:
        _learn(service.patterns, (tag, _kernwright.kinds(*inputs, *outs)), make_pattern, plan)
    key = tag, _kernwright.signature(*inputs, *outs)
    _kernwright.make_room(service.plans)
    service.plans[key] = plan
    # Not by `plans`, which another thread may empty at any time.
    results = _kernwright.run({key: plan}, service.ran, tag, inputs, outs, scalars, stacks)
    if results is None:
        raise make_error("an array says something else each time that it is read")
    return results


def _learn(patterns: Dict[Any, List[Any]], key: Any, make: Callable[[], Any], plan: Plan) -> None:
    """Keeps the pattern of a plan, if it has one."""
    _kernwright.make_room(patterns)
    alike = patterns.setdefault(key, [])
    pattern = make() if len(alike) < _MOST_PATTERNS else None
    if pattern is not None:
        alike.append((pattern, *plan))


def size_of(name: str, array: Any, axis: int) -> int:
    """Returns the size of an axis counted from the last, at least 1."""
    try:
        return max(int(array.shape[axis]), 1)
    except Exception:
        raise make_error(f"{name} is no array of as many dimensions: at least {-axis} expected"
                         ) from None


def results_of(out: Any, count: int) -> Tuple[Any, ...]:
    """Returns the results that a caller gave as `out`: an array, or several in order."""
    given = out if isinstance(out, (tuple, list)) else (out,)
    if len(given) > count:
        raise make_error(f"out has {len(given)} arrays, and at most {count} expected")
    return (*given, *(None,) * (count - len(given)))


def scalars_of(given: Mapping[str, Any]) -> Tuple[Tuple[str, ...], Tuple[float, ...]]:
    """Returns the names and the values of the scalars that a caller gave."""
    there = {name: value for name, value in given.items() if value is not None}
    return tuple(there), tuple(there.values())


@functools.lru_cache(None)
def make_function(operation: str) -> Callable[..., Any]:
    """Makes the function of a built-in operation from its contract: its tensors in order, those
    that not every problem has by keyword, then options, scalars and `out`."""
    facts = json.loads(_kernwright.describe_operation(operation))
    names = facts["call"]["names"]
    tensors = [(tensor, names.get(tensor["name"], tensor["name"])) for tensor in facts["tensors"]]
    first = next((i for i, (tensor, _) in enumerate(tensors) if tensor["role"] == "out"),
                 len(tensors))
    is_result = [tensor["role"] == "out" or tensor["name"] in facts["call"]["made"]
                 for tensor, _ in tensors]
    arguments = [pair for pair, made in zip(tensors, is_result) if not made]
    required = [name for tensor, name in arguments if tensor["when"] is None]
    optional = [name for tensor, name in arguments if tensor["when"] is not None]
    options = _options_of(facts, required + optional)
    scalars = {scalar["name"]: names.get(scalar["name"], scalar["name"])
               for scalar in facts["scalars"]}
    count = sum(is_result)
    keywords = optional + list(options) + list(scalars.values()) + (["out"] if count else [])
    outs, place = [], 0
    for (tensor, name), made in list(zip(tensors, is_result))[first:]:
        outs.append(f"results[{place}]" if made else name)
        place += made
    form = Form(operation, tuple((tensor["name"], name) for tensor, name in tensors[:first]),
                tuple((tensor["name"], _result_name(i, count) if made else name)
                      for i, ((tensor, name), made) in enumerate(zip(tensors[first:],
                                                                     is_result[first:]))),
                ("", *options.values()))
    source = f"""
def {operation}({", ".join([*required, "*", *(f"{name}=None" for name in keywords)])}):
    results = results_of({"out" if count else "()"}, {count})
    names, numbers = scalars_of({{{", ".join(f"{key!r}: {name}" for key, name in scalars.items())}}})
    return call(form, ({operation!r}, names, {"".join(f"{name}, " for name in options)}),
                ({"".join(f"{name}, " for _, name in tensors[:first])}),
                ({"".join(f"{out}, " for out in outs)}), numbers, names)
"""
    scope: Dict[str, Any] = {"call": call, "form": form, "results_of": results_of,
                             "scalars_of": scalars_of}
    exec(source, scope)
    function: Callable[..., Any] = scope[operation]
    function.__module__ = __package__
    function.__doc__ = _docstring(facts, tensors, is_result, options, scalars)
    return function


def _result_name(place: int, count: int) -> str:
    return "out" if count == 1 else f"out[{place}]"


def _options_of(facts: Dict[str, Any], taken: Sequence[str]) -> Dict[str, str]:
    """Returns the operation's names of a function's options, by their names in Python."""
    call_facts = facts["call"]
    options = {name: name for name in call_facts["options"]}
    for flag in facts["flags"]:
        name = call_facts["flags"].get(flag["name"], flag["name"])
        if name not in taken or flag["name"] in call_facts["flags"]:
            options[name] = flag["name"]
    of_inputs = {tensor["dtype"] for tensor in facts["tensors"] if tensor["role"] != "out"}
    for dtype in facts["dtypes"]:
        if dtype["name"] not in of_inputs:
            options["out_dtype" if dtype["name"] == "out" else f"{dtype['name']}_dtype"] = (
                dtype["name"])
    return options


def _readable(expression: str) -> str:
    """An expression of a contract in a problem's words: bias=column for bias == bias_column."""
    expression = re.sub(r"\b(\w+) == \1_(\w+)", r"\1=\2", expression)
    return re.sub(r"\b(\w+) != \1_(\w+)", r"\1!=\2", expression).replace("&&", "and").replace(
        "||", "or")


def _docstring(facts: Dict[str, Any], tensors: Sequence[Tuple[Dict[str, Any], str]],
               is_result: Sequence[bool], options: Mapping[str, str],
               scalars: Mapping[str, str]) -> str:
    dtypes = {one["name"]: " or ".join(one["values"]) for one in facts["dtypes"]}
    swapped = facts["call"]["swapped"] or {"when": "", "tensors": []}

    def shape(tensor: Dict[str, Any]) -> str:
        sizes: List[str] = list(tensor["extent"])
        if tensor["name"] in swapped["tensors"]:
            sizes = [size.replace(f"{swapped['when']} ? ", "").rpartition(" : ")[2]
                     for size in sizes]
        if sizes[0] == facts["call"]["leading"]:
            sizes[0] = "..."
        return f"[{', '.join(_readable(size) for size in sizes)}]"

    lines = [facts["description"], ""]
    for (tensor, name), made in zip(tensors, is_result):
        text = f"{'Result ' if made else ''}{name}: {shape(tensor)}, " + (
            tensor["dtype"] if tensor["dtype"] not in dtypes else
            f"of one dtype, {dtypes[tensor['dtype']]}" if tensor["dtype"] == "dtype" else
            dtypes[tensor["dtype"]])
        if tensor["name"] in swapped["tensors"]:
            text += "; contiguous, or the transposed view of one with axes 1 and 2 exchanged"
        if tensor["role"] == "inout" and not made:
            text += "; written in place"
        lines.append(text + (f"; with {_readable(tensor['when'])}" if tensor["when"] else ""))
    flags = {flag["name"]: flag for flag in facts["flags"]}
    for name, own in options.items():
        if own in flags:
            values = ", ".join(flags[own]["values"]) or "a formula"
            lines.append(f"{name}: {values}; by default as the arrays say, else "
                         f"{flags[own].get('default')}")
        elif own in dtypes:
            lines.append(f"{name}: the dtype of a new result, {dtypes[own]}")
        else:
            lines.append(f"{name}: an int, if the arrays do not say it")
    for scalar in facts["scalars"]:
        lines.append(f"{scalars[scalar['name']]}: a number, by default {scalar['default']}" + (
            f"; with {_readable(scalar['when'])}" if scalar["when"] else ""))
    lines.append(f"Source: the operation {facts['operation']}.")
    return "\n".join(line for text in lines for line in (
        textwrap.wrap(text, 96, subsequent_indent="    ") or [""]))

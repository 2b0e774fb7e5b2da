"""The calls of a paged attention without a GPU: bound to the contracts of their operations, and computed by
PyTorch."""

import json
import types

import pytest
import torch

from kernwright import _kernwright
from kernwright._arrays import Array, dtype_text
from kernwright._service import asking
from kernwright.plugins import _paged
from paged_reference import attended


class Contracts:
    """Stands in for a service, and keeps the problems of the calls that it binds."""

    def __init__(self):
        self.plans, self.patterns, self.ran, self.problems, self.ready = {}, {}, {}, [], []

    def read(self, name, array, _):
        return Array(name, dtype_text(array.dtype), tuple(array.shape), array.stride())

    def bind(self, _, options, tensors, scalars):
        binding = json.loads(_kernwright.bind(None, options, tensors, scalars))
        assert not binding["refusal"], binding["refusal"]
        self.problems.append(binding["problem"])
        raise StopIteration


def compute_calls(monkeypatch):
    """Binds calls of operations to their contracts, and computes them by PyTorch. Returns the contracts."""
    contracts, call = Contracts(), _paged.call

    def compute(form, tag, inputs, outs, scalars, names):
        with asking(contracts), pytest.raises(StopIteration):
            call(form, tag, inputs, outs, scalars, names)
        given = dict(zip((name for name, _ in form.inputs), inputs))
        numbers = dict(zip(names, scalars))
        if form.operation == "kv_append":
            there = given["places"] >= 0
            for cache, x, scale in zip(outs, "kv", ("k_scale", "v_scale")):
                wanted = (given[x][there].float() / numbers.get(scale, 1)).to(cache.dtype)
                cache.view(torch.uint8)[given["places"][there]] = wanted.view(torch.uint8)
            return
        starts = given["q_offsets"]
        if starts is None:
            starts = torch.arange(len(given["kv_lengths"]) + 1) * given["q"].shape[1]
        flat = {name: x.flatten(0, -3) for name, x in (("q", given["q"]), ("o", outs[0]))}
        caches, table = (given["k"], given["v"]), given["page_table"]
        if given["table_rows"] is not None:
            table = table[given["table_rows"].long()]
        page = caches[0].shape[1]
        for i, keys in enumerate(given["kv_lengths"].tolist()):
            own = slice(int(starts[i]), int(starts[i + 1]))
            at = torch.arange(keys)
            places = table[i].long()[at // page] * page + at % page
            new = own.stop - own.start
            if keys == 0:
                flat["o"][own] = 0
            else:
                of = types.SimpleNamespace(
                    heads=given["q"].shape[-2], kv_heads=given["k"].shape[-2], scale=numbers["scale"],
                    softcap=numbers.get("cap"), window=tag[4], sinks=given["sinks"], slopes=given["slopes"],
                    scales=(numbers["k_scale"], numbers["v_scale"]) if "k_scale" in numbers else None)
                seen = places[max(keys - new - of.window + 1, 0) if of.window else 0:]
                flat["o"][own] = attended(of, flat["q"][own], *(
                    cache.flatten(0, 1).view(torch.uint8)[seen].view(cache.dtype) for cache in caches)).to(
                        flat["o"].dtype)

    monkeypatch.setattr(_paged, "call", compute)
    service = types.SimpleNamespace(prewarm=contracts.ready.extend)
    monkeypatch.setattr(_paged, "default_service", lambda: service)
    monkeypatch.setattr(_paged, "_prewarmed", set())
    return contracts


def covers(ranges, problem):
    """True if a service that made a problem with ranges ready has the kernels of the other: all that follows from
    other sizes is named in both or in neither, and flags and sizes that are compiled in are equal."""
    (operation, *given), (own, *sizes) = ranges.split(), problem.split()
    given, sizes = (dict(word.split("=") for word in words) for words in (given, sizes))
    free, usual = {"pages", "kv_total", "q_total"}, {"ldq", "ldk", "ldv", "ldo", "page", "kv", "window"}
    if operation != own or given.keys() & free != sizes.keys() & free or sizes.keys() - given.keys():
        return False
    for name, value in given.items():
        first, _, last = value.partition("..")
        if name not in sizes:
            if name not in usual:
                return False
        elif last:
            if not int(first) <= int(sizes[name]) <= int(last):
                return False
        elif name not in free and value != sizes[name]:
            return False
    return True


def check_ready(contracts):
    """Fails if a call was bound whose kernel had not been made ready."""
    missing = [problem for problem in contracts.problems
               if not any(covers(ranges, problem) for ranges in contracts.ready)]
    assert not missing, missing

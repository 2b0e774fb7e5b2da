"""Guards of the extension: which changes they see."""

import copy
import gc
import weakref

import pytest
from kernwright import _kernwright


class Thing:
    pass


def guard(root, dicts=(), lists=(), types=(), attributes=()):
    return _kernwright.make_guard(root, list(dicts), list(lists), list(types), list(attributes))


@pytest.mark.parametrize("change, holds", [
    (lambda d: None, True),
    (lambda d: d.update(same=d["same"], kind=7, free=8), True),
    (lambda d: d.update(same=[]), False),
    (lambda d: d.update(kind="text"), False),
    (lambda d: d.update(more=1), False),
    (lambda d: d.pop("free"), False),
    (lambda d: (d.pop("free"), d.update(more=1)), False),
    (lambda d: d.pop("same"), False),
    (lambda d: d.clear(), False),
    (lambda d: (d.update(more=1), d.pop("more")), True),
])
def test_dicts(change, holds):
    watched, root = {"free": 1, "same": [], "kind": 2}, {}
    made = guard(root, [(watched, {"same"}, {"kind"}, True)])
    assert made.holds(root)
    change(watched)
    assert made.holds(root) is holds


def test_a_key_that_takes_the_place_of_the_last():
    thing, root = Thing(), {}
    thing.same, thing.free = [], 1
    made = guard(root, [(vars(thing), {"same"}, set(), True)])
    assert made.holds(root)
    del thing.free
    thing.more = 1
    assert not made.holds(root)


def test_keys_may_come_where_the_dict_is_not_watched_as_a_whole():
    watched, root = {"same": []}, {}
    made = guard(root, [(watched, {"same"}, set(), False)])
    watched["more"] = 1
    assert made.holds(root)
    watched["same"] = []
    assert not made.holds(root)


def test_lists_types_attributes_and_the_root():
    items, thing, root = [1, "two"], Thing(), {"own": []}
    Thing.value = value = []
    made = guard(root, [(root, {"own"}, set(), True)], [items], [(thing, Thing)],
                 [(Thing, "value", value)])
    assert made.holds(root) and not made.holds({"own": root["own"]})
    items.append(3)
    assert not made.holds(root)
    items.pop()
    assert made.holds(root)
    items[1] = 3
    assert not made.holds(root)
    items[1] = "two"
    thing.__class__ = type("Other", (Thing,), {})
    assert not made.holds(root)
    thing.__class__ = Thing
    assert made.holds(root)
    Thing.value = []
    assert not made.holds(root)
    del Thing.value
    assert not made.holds(root)


def test_another_dict_of_an_object():
    thing, root = Thing(), {}
    thing.same = []
    before = vars(thing)
    made = guard(root, [(before, {"same"}, set(), True)], types=[(thing, Thing)])
    assert made.holds(root)
    thing.__dict__ = dict(before)
    assert not made.holds(root)
    thing.__dict__ = before
    assert made.holds(root)
    del thing.__dict__
    assert not made.holds(root)


def test_a_guard_keeps_no_root_and_no_cycle_alive():
    thing, other = Thing(), Thing()
    vars(thing)["guard"] = guard(vars(thing), [(vars(thing), set(), set(), False),
                                               (vars(other), set(), set(), False)])
    gone = weakref.ref(thing)
    gc.disable()
    try:
        del thing
        assert gone() is None  # at once, without a collection
    finally:
        gc.enable()
    vars(other)["guard"] = guard({}, [(vars(other), set(), set(), False)])
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


def test_a_copy_looks_again():
    assert copy.deepcopy(guard({})) is None and copy.copy(guard({})) is None


@pytest.mark.parametrize("arguments", [
    (), ({}, [], [], []), ([], [], [], [], []), ({}, [1], [], [], []), ({}, [({}, 1)], [], [], []),
    ({}, [({"a": 1}, 1, 2, True)], [], [], []), ({}, [], [{}], [], []), ({}, [], [], [1], []),
    ({}, [], [], [], [(1, 2, 3)])])
def test_what_is_no_guard_is_refused(arguments):
    with pytest.raises((TypeError, SystemError)):
        _kernwright.make_guard(*arguments)

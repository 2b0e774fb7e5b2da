"""Guards of the extension: which changes they see."""

import collections
import copy
import ctypes
import gc
import random
import subprocess
import sys
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


def test_another_root_at_the_address_of_one_that_died():
    """Which is seen to change as the first was."""
    for _ in range(1000):
        root = {"own": Thing}
        made, address = guard(root, [(root, {"own"}, set(), True)]), id(root)
        assert made.holds(root)
        del root
        root = {"own": Thing}
        if id(root) == address:
            break
    assert id(root) == address and made.holds(root) and made.holds(root)
    root["own"] = 1
    assert not made.holds(root)


def set_often(thing, value):
    """The interpreter specialises the store."""
    for _ in range(200):
        thing.same = value
        thing.free = value


def delete_often(thing, value):
    for _ in range(200):
        thing.free = value
        del thing.free


def in_the_root(world, value):
    world.root["own"] = value


def in_a_list(world, value):
    world.items[world.random.randrange(2)] = value


def of_a_class(world, value):
    world.random.choice(world.things).__class__.value = value


def other_class(world, value):
    thing = world.random.choice(world.things)
    thing.__class__ = type("Other", (type(thing),), {})


def other_dict(world, value):
    thing = world.random.choice(world.things)
    thing.__dict__ = world.random.choice((dict, collections.OrderedDict))(vars(thing))


def class_and_back(world, value):
    """Moves the values of the object, on some versions of Python."""
    thing = world.random.choice(world.things)
    kind = type(thing)
    thing.__class__ = type("Other", (kind,), {})
    thing.__class__ = kind


def of_an_object(change):
    return lambda world, value: change(world.random.choice(world.things), value)


def of_a_dict(change):
    return lambda world, value: change(world.random.choice(world.dicts()), value)


def to_the_end(entries, value):
    if isinstance(entries, collections.OrderedDict) and entries:
        entries.move_to_end(next(iter(entries)))


WAYS = [
    in_the_root, in_a_list, of_a_class, other_class, other_dict, class_and_back,
    *map(of_an_object, (
        set_often, delete_often,
        lambda thing, value: setattr(thing, "same", value),
        lambda thing, value: setattr(thing, "kind", value),
        lambda thing, value: setattr(thing, "free", value),
        lambda thing, value: setattr(thing, "new", value),
        lambda thing, value: vars(thing).pop("new", None),
        lambda thing, value: setattr(thing, "same", thing.same),
        lambda thing, value: delattr(thing, "same"),
        lambda thing, value: object.__setattr__(thing, "same", value),
        lambda thing, value: object.__delattr__(thing, "kind"),
        lambda thing, value: thing.__init__(value))),
    *map(of_a_dict, (
        to_the_end,
        lambda entries, value: entries.update(same=value),
        lambda entries, value: entries.update(free=value),
        lambda entries, value: entries.update({1: value}),
        lambda entries, value: entries.update([("kind", value)], more=value),
        lambda entries, value: entries.__ior__({"same": value}),
        lambda entries, value: entries.setdefault("more", value),
        lambda entries, value: entries.setdefault("same", value),
        lambda entries, value: entries.pop("free", None),
        lambda entries, value: entries.pop("same", None),
        lambda entries, value: entries.popitem() if entries else None,
        lambda entries, value: entries.clear(),
        lambda entries, value: (entries.clear(), entries.update(same=value, kind=1)),
        lambda entries, value: (entries.update(more=value), entries.pop("more")),
        lambda entries, value: dict.__setitem__(entries, "same", value),
        lambda entries, value: exec("same = 1", entries),
        lambda entries, value: [entries.update({f"key {i}": i}) for i in range(40)],
        lambda entries, value: [entries.pop(f"key {i}", None) for i in range(40)]))]


class Small:
    def __init__(self, value):
        self.free, self.same, self.kind = value, value, 1


class Large:
    """Has more attributes than instances share keys for."""

    def __init__(self, value):
        vars(self).update({f"attribute {i}": i for i in range(50)})
        self.same, self.kind, self.free = value, 1, value


class World:
    """What guards rest on, and what it was when they were made."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.things = [type(kind.__name__, (kind,), {"value": 1})([])
                       for kind in (Small, Large, Small)]
        self.plain = [{"same": [], "free": 1, "kind": 2}, {},
                      collections.OrderedDict(same=[], kind=1, free=2)]
        self.root, self.items = {"own": []}, [1, []]

    def dicts(self):
        return [vars(thing) for thing in self.things] + self.plain

    def recorded(self):
        """Makes guards, and says whether all is the same. Asks dicts past the methods of an
        OrderedDict, which loses its order where others write to it as to a dict."""
        dicts = [(entries, {"same"} & dict.keys(entries), {"kind"} & dict.keys(entries),
                  self.random.random() < 0.7) for entries in self.dicts()]
        types = [(thing, type(thing)) for thing in self.things]
        attributes = [(kind, "value", kind.value) for _, kind in types]
        own, items = self.root["own"], list(self.items)
        before = [(dict(dict.items(entries)), *rest) for entries, *rest in dicts]
        dicts_of = [vars(thing) for thing in self.things]

        def same():
            for (entries, *_), (known, keys, kinds, whole) in zip(dicts, before):
                now = dict.keys(entries)
                if not (keys | kinds <= now and (not whole or now == dict.keys(known))
                        and all(entries[key] is known[key] for key in keys)
                        and all(type(entries[key]) is type(known[key]) for key in kinds)):
                    return False
            return (self.root["own"] is own and len(self.items) == len(items)
                    and all(map(lambda now, then: now is then, self.items, items))
                    and all(type(thing) is kind for thing, kind in types)
                    and all(vars(thing) is known for thing, known in zip(self.things, dicts_of))
                    and all(getattr(kind, "value", None) is value
                            for kind, _, value in attributes))

        given = [(self.root, {"own"}, set(), True), *dicts], [self.items], types, attributes
        return lambda: guard(self.root, *given), same

    def change(self):
        try:
            self.random.choice(WAYS)(self, self.random.choice((1, [], "text", None)))
        except (AttributeError, KeyError, RuntimeError, TypeError):  # there is none, or no order
            pass


@pytest.mark.parametrize("seed", range(16))
def test_a_guard_that_lives_sees_what_one_that_looks_first_sees(seed):
    world, living, held, broken = World(seed), [], 0, 0
    for _ in range(60):
        make, same = world.recorded()
        living = [(make(), [make() for _ in range(24)], same), *living[:3]]
        for _ in range(world.random.randrange(1, 6)):
            for kept, unused, same in living:
                holds = kept.holds(world.root)
                assert holds is unused.pop().holds(world.root)
                assert not holds or same()
                held, broken = held + holds, broken + (not holds)
            world.change()
    assert held > 60 and broken > 60


def has_watchers():
    """Returns true if Python tells that an attribute is set, which 3.13.0 does not always."""
    if not hasattr(ctypes.pythonapi, "PyDict_AddWatcher"):
        return False
    seen, thing = [], Thing()
    thing.value = 1
    called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)(
        lambda *event: seen.append(event) or 0)
    watcher = ctypes.pythonapi.PyDict_AddWatcher(called)
    ctypes.pythonapi.PyDict_Watch(watcher, ctypes.py_object(vars(thing)))
    thing.value = 2
    ctypes.pythonapi.PyDict_Unwatch(watcher, ctypes.py_object(vars(thing)))
    ctypes.pythonapi.PyDict_ClearWatcher(watcher)
    return bool(seen)


watchers = pytest.mark.skipif(not has_watchers(),
                              reason="this Python does not tell that dicts change")


@watchers
def test_a_dict_that_is_watched_is_not_walked_again():
    """Found out by taking all its watchers away, so that a change goes unseen."""
    watched, root = {"same": []}, {}
    made = guard(root, [(watched, {"same"}, set(), True)])
    assert made.holds(root)
    for place in range(8):
        try:
            ctypes.pythonapi.PyDict_Unwatch(place, ctypes.py_object(watched))
        except ValueError:  # has no watcher
            pass
    watched["same"] = 1
    assert made.holds(root)
    root["own"] = 1
    assert not made.holds(root)


NO_WATCHER_LEFT = """
import ctypes
called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *_: 0)
try:
    while True:
        ctypes.pythonapi.PyDict_AddWatcher(called)
except RuntimeError:
    pass
from kernwright import _kernwright
watched, root = {"same": []}, {}
guard = _kernwright.make_guard(root, [(watched, {"same"}, set(), True)], [], [], [])
assert guard.holds(root) and guard.holds(root)
watched["same"] = []
assert not guard.holds(root)
"""


@watchers
def test_dicts_are_walked_where_others_have_all_watchers():
    subprocess.run([sys.executable, "-c", NO_WATCHER_LEFT], check=True, timeout=120)


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

"""help() has an answer for everything that is public."""

import inspect

import pytest

import kernwright as kw


def public_things():
    for name in kw.__all__:
        thing = getattr(kw, name)
        yield name, thing
        if not isinstance(thing, type):
            continue
        for member in dir(thing):
            value = getattr(thing, member)
            # Members of NamedTuple and RuntimeError are not ours.
            ours = not member.startswith("_") and not hasattr(tuple, member) and not hasattr(RuntimeError, member)
            if ours and (callable(value) or isinstance(value, property)
                         or inspect.isgetsetdescriptor(value)):
                yield f"{name}.{member}", value


@pytest.mark.parametrize("name, thing", list(public_things()),
                         ids=lambda value: value if isinstance(value, str) else "")
def test_it_is_documented_in_lines_that_a_terminal_shows(name, thing):
    text = inspect.getdoc(thing)
    assert text and text[0] != "<", name
    assert max(map(len, text.splitlines())) <= 100, text
    if callable(thing) and not isinstance(thing, type):
        assert inspect.signature(thing)

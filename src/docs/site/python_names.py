"""Checks that the reference of the Python package has every name that the package offers."""

import ast

import documents

_PACKAGE = documents.ROOT / "src/python/kernwright"


def offered(source):
    """Returns the names in the __all__ of a module's source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError("the module has no __all__")


def missing(page):
    """Returns the names for which the reference's page, as HTML, has no entry."""
    modules = {"kernwright": "__init__.py", "kernwright.torch": "torch/__init__.py"}
    return [f"{module}.{name}" for module, file in modules.items()
            for name in offered((_PACKAGE / file).read_text()) if f'id="{module}.{name}"' not in page]

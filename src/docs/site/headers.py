"""The reference of the C++ and the C interface, from the comments of src/kernwright/*.h."""

import re
import subprocess

from clang.cindex import AccessSpecifier, CursorKind, Index

from documents import ROOT

_FOLDER = ROOT / "src" / "kernwright"
# Top down, as a reader meets them. A header that is missing here ends the build.
_CPP = ["service.h", "problem.h", "kernel.h", "baked_launch.h", "chain.h", "match.h", "result.h",
        "dtype.h", "l2_state.h", "kernel_path.h", "model.h", "tensor_binding.h", "visible.h"]
_NOT_LISTED = {"c.h", "export.h", "kernwright.h", "version.h"}
_TYPES = {CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE,
          CursorKind.ENUM_DECL}
_FIELDS = {CursorKind.FIELD_DECL, CursorKind.ENUM_CONSTANT_DECL}


def _parse(name):
    """Returns the declarations of a header that are in its namespace."""
    language = ["-xc", "-std=c99", "-fparse-all-comments"] if name == "c.h" else ["-xc++", "-std=c++20"]
    builtin = subprocess.run(["cc", "-print-file-name=include"], check=True, capture_output=True,
                             text=True).stdout.strip()
    path = str(_FOLDER / name)
    unit = Index.create().parse(path, [*language, f"-I{ROOT}/src", "-isystem", builtin])
    wrong = [d for d in unit.diagnostics if d.severity >= 3]
    if wrong:
        raise RuntimeError(f"{name} does not parse: {wrong[0]}")

    def inside(cursor):
        for each in cursor.get_children():
            if each.location.file and each.location.file.name == path:
                if each.kind == CursorKind.NAMESPACE:
                    yield from inside(each)
                else:
                    yield each

    return list(inside(unit.cursor))


def _comment(cursor):
    """Returns a declaration's comment as Markdown."""
    text = cursor.raw_comment or ""
    if text.startswith("/*"):
        text = re.sub(r"(?m)^\s*\* ?", "", text[2:-2]).strip()
    else:
        text = re.sub(r"(?m)^\s*///<? ?", "", text)
    # Comments of C have names as they are; Markdown would read some as emphasis.
    return re.sub(r"(?<![\w`])((?:kw|KW)_\w+(?:\.\w+|\(\))?)", r"`\1`", text) if "`" not in text else text


def _source(cursor):
    """Returns the declaration as it is written, without the body and without the export macro."""
    extent = cursor.extent
    text = (_FOLDER / cursor.location.file.name).read_bytes()[extent.start.offset:extent.end.offset]
    text = text.decode()
    for child in cursor.get_children():
        if child.kind == CursorKind.COMPOUND_STMT:  # of a function that is defined in the header
            text = text[:child.extent.start.offset - extent.start.offset]
    text = re.sub(r"(?s)\s: \w+_\(.*", "", text)  # the initialisers of members
    text = text.replace("KERNWRIGHT_API ", "").rstrip()
    # Moves later lines as far to the left as the first one.
    indent = extent.start.column - 1
    return re.sub(rf"\n {{0,{indent}}}", "\n", text) + ";"


def _members(cursor):
    return [each for each in cursor.get_children()
            if each.access_specifier in (AccessSpecifier.PUBLIC, AccessSpecifier.INVALID)
            and not each.kind.is_attribute()
            and each.kind not in (CursorKind.FRIEND_DECL, CursorKind.CXX_ACCESS_SPEC_DECL,
                                  CursorKind.TEMPLATE_TYPE_PARAMETER, CursorKind.CXX_BASE_SPECIFIER)
            and not (each.kind in _TYPES and not each.is_definition())]


def _groups(cursors):
    """Groups declarations under the comment above the first of them."""
    groups = []
    for each in cursors:
        comment = _comment(each)
        last = groups[-1][0][-1] if groups else None
        follows = (last and each.extent.start.line - last.extent.end.line == 1
                   and (each.kind in _TYPES) == (last.kind in _TYPES))
        if not comment and follows:
            groups[-1][0].append(each)
        else:
            groups.append(([each], comment))
    return groups


def _cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def _fields(cursor):
    fields = [each for each in _members(cursor) if each.kind in _FIELDS]
    if fields and not any(_comment(each) for each in fields):
        return ", ".join(f"`{_cell(_source(each)[:-1])}`" for each in fields) + "\n"
    rows = ["| field | what it is |" if cursor.kind != CursorKind.ENUM_DECL else "| value | what it is |",
            "| --- | --- |"]
    rows += [f"| `{_cell(_source(each)[:-1])}` | {_cell(_comment(each))} |" for each in fields]
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _code(cursors, language):
    return f"```{language}\n" + "\n".join(_source(each) for each in cursors) + "\n```\n"


def _kind(cursor):
    return {CursorKind.ENUM_DECL: "enum", CursorKind.STRUCT_DECL: "struct"}.get(cursor.kind, "class")


def _type(cursor, language):
    parts = [f"### {_kind(cursor)} `{cursor.displayname}`\n", _comment(cursor) + "\n", _fields(cursor)]
    rest = [each for each in _members(cursor) if each.kind not in _FIELDS]
    for declarations, comment in _groups(rest):
        parts += [_code(declarations, language), comment + "\n"]
    return parts


def _header(name, language):
    parts = []
    shown = [each for each in _parse(name)
             if not (each.kind in _TYPES and not each.is_definition())]
    # In C every type is named by a typedef of its own, which says nothing more.
    types = {each.spelling for each in shown if each.kind in _TYPES}
    shown = [each for each in shown
             if not (language == "c" and each.kind == CursorKind.TYPEDEF_DECL and each.spelling in types)]
    title = "".join(part.capitalize() for part in name[:-2].split("_"))

    def order(group):
        """The type that a header is named after, classes, functions, structs, and then enums."""
        first = group[0][0]
        ranks = [CursorKind.CLASS_DECL, CursorKind.CLASS_TEMPLATE, CursorKind.FUNCTION_DECL,
                 CursorKind.STRUCT_DECL]
        return (first.spelling != title,
                ranks.index(first.kind) if first.kind in ranks else len(ranks))

    groups = _groups(shown)
    for declarations, comment in sorted(groups, key=order) if language == "cpp" else groups:
        first = declarations[0]
        if first.kind in _TYPES:
            for each in declarations:
                parts += _type(each, language)
        else:
            names = dict.fromkeys(each.spelling for each in declarations)
            title = ", ".join(f"`{each}`" for each in names)
            parts += [f"### {title}\n", _code(declarations, language), comment + "\n"]
    return parts


def reference(language):
    if language == "c":
        return "\n".join(_header("c.h", "c"))
    listed = {path.name for path in _FOLDER.glob("*.h")} - _NOT_LISTED
    if listed != set(_CPP):
        raise RuntimeError(f"headers.py lists {sorted(_CPP)}, and there are {sorted(listed)}")
    parts = []
    for name in _CPP:
        parts += [f"## `<kernwright/{name}>`\n", *_header(name, "cpp")]
    return "\n".join(parts)

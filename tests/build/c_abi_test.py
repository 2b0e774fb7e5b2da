#!/usr/bin/env python3
"""c_abi_test.py COMPILER HEADER KEPT LIBRARY: the C interface of HEADER is the one that KEPT has,
and LIBRARY exports all of it: the functions as they are declared, the numbers of the enumerators,
and the places of the fields of structs. With --update in place of LIBRARY, writes KEPT anew."""

import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ENUM = re.compile(r"typedef enum (\w+) \{([^}]*)\}")
STRUCT = re.compile(r"typedef struct (\w+) \{([^}]*)\}")
FUNCTION = re.compile(r"\w[\w* ]* \**kw_\w+\([^;{}]*\);")
# The name of a field, which a pointer to a function has in front of its parameters.
FIELD = re.compile(r"\(\*(\w+)\)|(\w+)$")


def output_of(command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def plain(header):
    """The text without comments, directives and line breaks."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    return " ".join(re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.M).split())


def rows_of(text):
    """What is kept, in the order of the text, each as its name and what a program prints of it."""
    rows = [(function, None) for function in FUNCTION.findall(text)]
    for name, body in ENUM.findall(text):
        for entry in body.split(","):
            constant = entry.split("=")[0].strip()
            rows.append((f"{name} {constant} =", constant))
    for name, body in STRUCT.findall(text):
        fields = [field.strip() for field in body.split(";") if field.strip()]
        for field in fields:
            member = next(filter(None, FIELD.search(field).groups()))
            rows.append((f"{name} {{ {field}; }} at", f"offsetof({name}, {member})"))
        if "struct_size" not in fields[0]:
            rows.append((f"{name} has the size", f"sizeof({name})"))
    return rows


def described(compiler, header, rows):
    """The lines to keep."""
    prints = "".join(f'  printf("%zu\\n", (size_t)({value}));\n' for _, value in rows if value)
    program = f'#include <stdio.h>\n#include "{header}"\nint main() {{\n{prints}}}\n'
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder, "abi.cpp"), pathlib.Path(folder, "abi")
        source.write_text(program)
        include = pathlib.Path(header).resolve().parents[1]
        subprocess.run([compiler, f"-I{include}", str(source), "-o", str(made)], check=True)
        numbers = iter(output_of([made]).split())
    return [f"{name} {next(numbers)}" if value else name for name, value in rows]


def main():
    compiler, header, kept_file, library = sys.argv[1:]
    header, kept_file = os.path.abspath(header), pathlib.Path(kept_file)
    rows = rows_of(plain(pathlib.Path(header).read_text()))
    lines = described(compiler, header, rows)
    if library == "--update":
        kept_file.write_text("\n".join(lines) + "\n")
        return 0
    kept = kept_file.read_text().splitlines()
    failures = []
    broken = [line for line in kept if line not in lines]
    new = [line for line in lines if line not in kept]
    if broken:
        failures.append("the C interface is not the kept one. Programs that were built with it "
                        "break, so this needs the next SOVERSION and a line in CHANGELOG.md. Only "
                        f"then write {kept_file} anew (make golden):")
        failures += difflib.unified_diff(kept, lines, str(kept_file), header, lineterm="", n=0)
    elif new:
        failures.append(f"the C interface has what {kept_file} lacks; keep it from now on "
                        "(make golden):")
        failures += [f"+{line}" for line in new]
    declared = {re.search(r"kw_\w+(?=\()", row)[0] for row, value in rows if not value}
    exported = set(re.findall(r" T (kw_\w+)@@KERNWRIGHT_C_\d+$", output_of(["nm", "-D", "--defined-only", library]),
                              flags=re.M))
    failures += [f"declared, but not exported: {name}" for name in sorted(declared - exported)]
    failures += [f"exported, but not declared: {name}" for name in sorted(exported - declared)]
    print("\n".join(failures) or f"{len(lines)} lines of the C interface, as they are kept")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

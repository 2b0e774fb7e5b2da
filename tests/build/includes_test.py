#!/usr/bin/env python3
"""includes_test.py SOURCE: what a file names of the standard library comes from a header that the file,
or the header that it implements, asks for; the types of which interfaces are made may also come from
any header of ours. Which headers come along with others differs from compiler to compiler: GCC 12's
<functional> brings <algorithm>, and GCC 14's does not. What a file names of ours comes from a header
that it, or one of its headers, asks for; and the names that a source makes for itself it uses. In a
build that compiles many files as one nothing else shows these."""

import collections
import functools
import pathlib
import re
import sys

NAMES = {
    "algorithm": """adjacent_find all_of any_of binary_search clamp copy copy_if copy_n count count_if equal
        equal_range fill fill_n find find_end find_first_of find_if find_if_not for_each generate includes
        inplace_merge is_sorted lexicographical_compare lower_bound max max_element merge min min_element minmax
        minmax_element mismatch move_backward next_permutation none_of nth_element partial_sort partition
        partition_point remove remove_copy_if remove_if replace replace_if reverse rotate search
        set_difference set_intersection set_union shuffle sort stable_partition stable_sort transform unique
        upper_bound""",
    "array": "array to_array",
    "atomic": "atomic atomic_bool atomic_int memory_order_relaxed",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "abs ceil exp expm1 floor fmod isfinite isinf isnan ldexp log log10 log1p log2 lround nearbyint pow "
             "round sqrt",
    "condition_variable": "condition_variable condition_variable_any",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t",
    "cstdlib": "abort atexit exit getenv strtod strtol",
    "cstring": "memchr memcmp memcpy memmove memset strcmp strerror strlen",
    "deque": "deque",
    "exception": "current_exception exception_ptr rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "bind function greater hash invoke less not_fn plus reference_wrapper",
    "future": "async future promise",
    "iostream": "cerr cin cout",
    "iterator": "back_inserter inserter istreambuf_iterator make_move_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag scoped_lock unique_lock",
    "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota lcm midpoint partial_sum reduce",
    "optional": "nullopt optional",
    "random": "mt19937 mt19937_64 normal_distribution uniform_int_distribution uniform_real_distribution",
    "ranges": "views",
    "regex": "regex regex_match regex_replace regex_search smatch sregex_iterator",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "span",
    "sstream": "istringstream ostringstream stringstream",
    "string": "getline stod stoi stol string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread thread",
    "tuple": "forward_as_tuple make_tuple tie tuple",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange pair",
    "variant": "holds_alternative variant visit",
    "vector": "vector",
}
# Interfaces are made from these.
OF_INTERFACES = {"cstdint", "filesystem", "memory", "optional", "span", "string", "string_view", "utility",
                 "vector"}
HEADER = {name: header for header, names in NAMES.items() for name in names.split()}
STANDARD = re.compile(r"\bstd::(?:ranges::)?(\w+)")
INCLUDE = re.compile(r"^#include [<\"]([^>\"]+)[>\"]", re.MULTILINE)
# Names that headers declare for others: types and constants, and functions of several words. They begin a
# line, since namespaces do not indent.
DECLARED = re.compile(r"""^(?:template\s*<[^\n]*>\s*)?(?:
        (?:class|struct|enum|enum\ class|using|concept)\s+(?:KERNWRIGHT_API\s+|\[\[\w+\]\]\s+)?(\w+)\b(?=[^;\n]*(?:[{=:]|$))
        |(?:inline\ |extern\ )?const(?:expr)?\b[^=;({]*?\b(k[A-Z]\w*)
        |(?!(?:return|using|class|struct|enum|else|namespace|typedef)\b)(?:[\w:<>,*&\[\]]+\ )+[*&]*(\w+)\(
        |\#define\ (\w+))""",
                      re.MULTILINE | re.VERBOSE)
OURS = re.compile(r"(?<![\w.>:])(?<!_P\()(?:kernwright::|kw::)?(?:(k?[A-Z]\w*)\b|([a-z]\w+)\()")
# Names that a source makes for itself alone: constants, inline functions, and short names for others'.
FOR_ITSELF = re.compile(r"""^(?:const(?:expr)?\b[^=;(]*?\b(\w+)(?:\[\w*\])*\s*[={]|inline\b[^=;(]*?\b(\w+)\()
                        |^\s*(?:using\s+[\w:]*::(\w+);|namespace\s+(\w+)\s*=)""", re.MULTILINE | re.VERBOSE)
BY_ARGUMENT = {"describe"}  # found by the type of what it is given
FOLDERS = ("src", "tuner", "cache", "bench", "tests")


@functools.cache
def read(file):
    """The code of a file without includes, comments and texts."""
    code = re.sub(r'R"(\w*)\(.*?\)\1"', '""', file.read_text(), flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|^#include[^\n]*', " ", code,
                  flags=re.DOTALL | re.MULTILINE)


@functools.cache
def words(file):
    return collections.Counter(re.findall(r"\w+", read(file)))


def names(pattern, file):
    return {next(filter(None, groups)) for groups in pattern.findall(read(file))}


@functools.cache
def includes(root, file):
    """Returns the headers that a file asks for: the names of others, and the paths of ours."""
    others, ours = set(), set()
    for name in INCLUDE.findall(file.read_text()):
        found = [folder / name for folder in (root, root / "src", file.parent) if (folder / name).is_file()]
        ours.update(found[:1])
        others.update([] if found else [name])
    return others, ours


@functools.cache
def headers_of(root, file):
    """Our headers that a file asks for, itself or by others of them."""
    found, todo = set(), [file]
    while todo:
        more = includes(root, todo.pop())[1] - found
        found |= more
        todo += more
    return found


def missing(root, file):
    """The headers of the standard library that a file uses and nobody asked for, with a name of each."""
    own = [file] + [header for header in includes(root, file)[1] if header.stem == file.stem.removesuffix("_test")]
    own_headers = set().union(*(includes(root, one)[0] for one in own))
    asked = set().union(*(includes(root, one)[0] for one in headers_of(root, file) | {file}))
    found = {}
    for name in STANDARD.findall(read(file)):
        header = HEADER.get(name)
        if header and header not in (asked if header in OF_INTERFACES else own_headers):
            found.setdefault(header, name)
    return found


def unknown(root, file, declared):
    """The names of ours that a file uses, and no header that it asks for. Headers are looked at too."""
    for name in sorted(names(OURS, file) & declared.keys() - BY_ARGUMENT):
        if not any(name in words(header) for header in headers_of(root, file) - {file}):
            own = rf"\b(?:class|struct|enum|using|typename)\s+(?:\[\[\w+\]\]\s+)?{name}\b|[\w>&*]\s+[*&]*{name}\b"
            if not re.search(own, read(file)):
                yield name


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*"))
             if file.suffix in (".h", ".cpp")]
    if len(files) < 100:
        sys.exit(f"only {len(files)} files under {root}")
    declared = {name: file for file in files if file.suffix == ".h" for name in names(DECLARED, file)}
    defects = []
    for file in files:
        place = file.relative_to(root)
        defects += [f"{place} uses std::{name} without <{header}>" for header, name in missing(root, file).items()]
        defects += [f"{place} uses {name} without {declared[name].relative_to(root)}"
                    for name in unknown(root, file, declared)]
        if file.suffix == ".cpp":
            defects += [f"{place} has no use for its {name}" for name in sorted(names(FOR_ITSELF, file))
                        if words(file)[name] == 1 and not any(name in words(header) for header in includes(root, file)[1])]
    print("\n".join(defects), end="\n" if defects else "")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()

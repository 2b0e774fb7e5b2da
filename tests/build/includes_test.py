#!/usr/bin/env python3
"""includes_test.py SOURCE: what a file names of the standard library comes from a header that the file,
or the header that it implements, asks for; the types of which interfaces are made may also come from
any header of ours. Which headers come along with others differs from compiler to compiler: GCC 12's
<functional> brings <algorithm>, and GCC 14's does not. In a build that compiles many files as one
nothing else shows it."""

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
USE = re.compile(r"\bstd::(?:ranges::)?(\w+)")
INCLUDE = re.compile(r"^#include ([<\"])([^>\"]+)[>\"]", re.MULTILINE)
FOLDERS = ("src", "tuner", "cache", "bench", "tests")


@functools.cache
def read(file):
    """The code of a file without comments and texts, and its includes."""
    text = file.read_text()
    includes = INCLUDE.findall(text)
    code = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', " ", code, flags=re.DOTALL)
    return code, includes


def own(root, name):
    """Our file that an include names, or None."""
    for folder in (root, root / "src"):
        if (folder / name).is_file():
            return folder / name
    return None


def asked_for(root, file, seen=None):
    """The headers of the standard library that a file asks for, itself or by headers of ours."""
    seen = set() if seen is None else seen
    headers = set()
    for kind, name in read(file)[1]:
        other = own(root, name)
        if other is None:
            headers.add(name)
        elif other not in seen:
            seen.add(other)
            headers |= asked_for(root, other, seen)
    return headers


def missing(root, file):
    """The headers that a file uses and nobody asked for, with a name of each."""
    own_headers = {name for _, name in read(file)[1]}
    for _, name in read(file)[1]:
        other = own(root, name)
        if other and other.stem == file.stem.removesuffix("_test"):
            own_headers |= {name for _, name in read(other)[1]}
    asked = asked_for(root, file)
    found = {}
    for name in USE.findall(read(file)[0]):
        header = HEADER.get(name)
        if header and header not in (asked if header in OF_INTERFACES else own_headers):
            found.setdefault(header, name)
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    count = 0
    failed = False
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp"):
                continue
            count += 1
            for header, name in missing(root, file).items():
                failed = True
                print(f"{file.relative_to(root)} uses std::{name} without <{header}>")
    if count < 100:
        sys.exit(f"only {count} files under {root}")
    sys.exit(failed)


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# lint.sh BUILD [FOLDER...]: clang-format 19 and prose.py over all our sources and clang-tidy 23 over
# those in the folders, all unless said, as BUILD compiles them; fails if one finds anything.
# lint.sh --fix-format: rewrites the sources in place instead.
set -euo pipefail
build=$(realpath -m "$1")
folders=("${@:2}")
[[ ${#folders[@]} -gt 0 ]] || folders=(src tuner cache tests bench)
cd "$(dirname "$0")/../.."
mapfile -t sources < <(find src tuner cache tests bench templates \
  -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
if [[ $1 == --fix-format ]]; then
  exec clang-format-19 -i "${sources[@]}"
fi
clang-format-19 --dry-run -Werror "${sources[@]}"
python3 -B src/cmake/prose.py
# Only what the compile database knows, and nothing generated but unity files: sources together take a
# quarter of the time that they take one by one. The database may be GCC's, whose libstdc++ 12 has
# deprecated parts inside std::stable_sort. __COUNTER__, which every compiler has, is an extension to
# clang-tidy.
tidy=build/clang-tidy/clang_tidy/data/bin
within=$(IFS='|'; echo "(${folders[*]})")
python3 "$tidy/run-clang-tidy.py" -clang-tidy-binary "$PWD/$tidy/clang-tidy" -quiet -hide-progress \
  -p "$build" -j "$(nproc)" \
  -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-deprecated-declarations \
  -extra-arg=-Wno-c2y-extensions -extra-arg=-Wthread-safety \
  "^($PWD/$within/.*\.cpp|$build/$within/.*/unity_[0-9]+_cxx\.cxx)$"

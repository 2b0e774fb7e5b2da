#!/usr/bin/env bash
# patch_test.sh BUILD VERSIONS [ARGUMENT OF run.py]...: compares patched models with what they were
# (tests/python/patch/run.py), with releases of transformers from PyPI. VERSIONS is "all", for 5.17 and
# each from 5.20 on, "newest", or a list; of 5.20 its last release is taken. Each is kept for the next
# run beside PyTorch (torch_python.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/$1 asked=$2
shift 2
. src/cmake/torch_python.sh

# Without PyPI, those that were unpacked before.
published=$("$python" -m pip index versions transformers 2> /dev/null |
  sed -n 's/^Available versions: //p' | tr -d , | tr ' ' '\n') ||
  published=$(ls "$folder" | sed -n 's/^transformers-//p')
[[ -n $published ]] || fail "PyPI cannot be reached, and $folder has no transformers-RELEASE"
published=$(sort -V <<< "$published")
newest=$(tail -n 1 <<< "$published")
asked=${asked/newest/$newest}
[[ $asked != all ]] || asked="5.17 $(grep -oE '^(5\.[2-9][0-9]|[6-9]\.[0-9]+)' <<< "$published" | uniq)"
failed=0
for version in $asked; do
  release=$(grep -E "^${version//./\\.}(\.|$)" <<< "$published" | tail -n 1) || true
  [[ -n $release ]] || fail "there is no transformers $version among ${published//$'\n'/ }"
  target=$folder/transformers-$release
  if [[ ! -d $target ]]; then
    rm -rf "$target.part"
    "$python" -m pip install --quiet --no-deps --target "$target.part" "transformers==$release" ||
      fail "transformers $release could not be had from PyPI, and $folder has it not yet"
    mv "$target.part" "$target"
  fi
  fused=()
  [[ $release != 5.17.* && $release != "$newest" ]] || fused=(--fused)
  PYTHONPATH=$target:$build/python "$python" tests/python/patch/run.py "${fused[@]}" "$@" {lock}>&- || failed=1
done
exit $failed

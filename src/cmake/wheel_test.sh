#!/usr/bin/env bash
# wheel_test.sh: installs the wheel of dist/ in fresh environments and runs tests/python in each: with
# the oldest and the newest Python from 3.10 on that are found, and once with PyTorch, where a Python
# has it. PyPI's PyTorch is too large to be fetched for this.
set -euo pipefail
cd "$(dirname "$0")/../.."
shopt -s nullglob
wheel=(dist/kernwright-*.whl)
folder=build/wheel-test
rm -rf "$folder"
mkdir -p "$folder"
# What one environment compiled is there for the next.
export KERNWRIGHT_TEST_CACHE=$PWD/$folder/cache PIP_DISABLE_PIP_VERSION_CHECK=1

version_of() {
  "$1" -c 'import sys; assert sys.version_info >= (3, 10); print("%d.%02d" % sys.version_info[:2])' \
    2> /dev/null
}

# test_in NAME PYTHON [FOLDER OF PACKAGES THAT ARE SEEN TOO]
test_in() {
  local environment=$folder/$1
  echo "$1: $("$2" --version)"
  "$2" -m venv "$environment"
  [[ -z ${3:-} ]] || echo "$3" > "$(echo "$environment"/lib/python3.*/site-packages)/seen_too.pth"
  # What is seen too may have a kernwright of its own, which would pass for this one.
  "$environment/bin/pip" install --quiet --force-reinstall --no-deps "${wheel[0]}"
  "$environment/bin/pip" install --quiet "${wheel[0]}" pytest mypy expecttest
  "$environment/bin/python" -m pytest -q -p no:cacheprovider -r fs tests/python
  # The stubs say what the extension has.
  (cd "$folder" && "../../$environment/bin/stubtest" kernwright._kernwright)
}

pythons=()
with_torch=${KERNWRIGHT_TORCH_PYTHON:-}
for python in $(type -aP python3 python3.{10..20}) "$HOME"/.pyenv/versions/3.*/bin/python3; do
  version=$(version_of "$python") || continue
  pythons+=("$version $python")
  if [[ -z $with_torch ]] && "$python" -c 'import torch' 2> /dev/null; then
    with_torch=$python
  fi
done
mapfile -t pythons < <(printf '%s\n' "${pythons[@]}" | sort -s -u -k 1,1)
oldest=${pythons[0]#* }
newest=${pythons[-1]#* }
test_in oldest "$oldest"
[[ $newest == "$oldest" ]] || test_in newest "$newest"
if [[ -n $with_torch ]]; then
  test_in torch "$with_torch" "$("$with_torch" -c \
    'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')"
else
  echo "no Python here has PyTorch: its tests were skipped"
fi

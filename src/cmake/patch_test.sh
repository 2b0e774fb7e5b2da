#!/usr/bin/env bash
# patch_test.sh BUILD VERSIONS [ARGUMENT OF run.py]...: compares patched models with what they were
# (tests/python/patch/run.py), with releases of transformers from PyPI. VERSIONS is "all", for 5.17 and
# each from 5.20 on, "newest", or a list; of 5.20 its last release is taken. PyTorch, about 3 GB, and
# each transformers are kept for the next run in KERNWRIGHT_PATCH_TEST_FOLDER. A Python that has torch,
# peft, accelerate and pytest may be named in KERNWRIGHT_TORCH_PYTHON.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/$1 asked=$2
shift 2
folder=${KERNWRIGHT_PATCH_TEST_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/kernwright-test/patch}
wheels=('torch==2.11.*' 'peft==0.21.*' 'accelerate==1.15.*' 'pytest>=9')
mkdir -p "$folder"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
exec {lock}> "$folder/lock"
flock "$lock"
python=${KERNWRIGHT_TORCH_PYTHON:-$folder/torch/bin/python}
fail() { echo "patch_test.sh: $*" >&2; exit 2; }
if [[ -z ${KERNWRIGHT_TORCH_PYTHON:-} && $(cat "$folder/torch/wheels" 2> /dev/null) != "${wheels[*]}" ]]; then
  echo "patch_test.sh: PyTorch goes to $folder/torch" >&2
  python3 -m venv --clear "$folder/torch"
  "$python" -m pip install --quiet "${wheels[@]}" ||
    fail "${wheels[*]} could not be had from PyPI, and $folder/torch has them not yet"
  echo "${wheels[*]}" > "$folder/torch/wheels"
fi

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

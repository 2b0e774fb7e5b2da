# torch_python.sh: sourced by tests that run in an environment with PyTorch from PyPI, about 3 GB, which
# is kept for the next run in KERNWRIGHT_PATCH_TEST_FOLDER. A Python that has torch, peft, accelerate and
# pytest may be named in KERNWRIGHT_TORCH_PYTHON. Sets `folder` and `python`, and holds the lock of the
# folder, whose descriptor is in `lock`.
folder=${KERNWRIGHT_PATCH_TEST_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/kernwright-test/patch}
wheels=('torch==2.11.*' 'peft==0.21.*' 'accelerate==1.15.*' 'pytest>=9')
mkdir -p "$folder"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
exec {lock}> "$folder/lock"
flock "$lock"
python=${KERNWRIGHT_TORCH_PYTHON:-$folder/torch/bin/python}
fail() { echo "${0##*/}: $*" >&2; exit 2; }
if [[ -z ${KERNWRIGHT_TORCH_PYTHON:-} && $(cat "$folder/torch/wheels" 2> /dev/null) != "${wheels[*]}" ]]; then
  echo "${0##*/}: PyTorch goes to $folder/torch" >&2
  python3 -m venv --clear "$folder/torch"
  "$python" -m pip install --quiet "${wheels[@]}" ||
    fail "${wheels[*]} could not be had from PyPI, and $folder/torch has them not yet"
  echo "${wheels[*]}" > "$folder/torch/wheels"
fi

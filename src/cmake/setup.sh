#!/usr/bin/env bash
# Installs what the build needs and is missing: Debian 12, 13 and Ubuntu 24.04 packages, and, where no CUDA
# Toolkit is found, NVRTC, nvJitLink and the headers from NVIDIA's wheels into build/cuda; for --lint
# clang-tidy's wheel into build/clang-tidy, as Debian's is three times slower.
# Asks nothing; does nothing, quickly, when all is there.
#   setup.sh [--lint] [--sanitize] [--wheel] [--docs] [--promtool] [--browser] [--fleet] [--fresh] [--aarch64]
# Also what make lint, make fuzz and make sanitize, make wheel, make docs (an environment in
# build/docs-tools), make fleet-test, make fresh-test or make aarch64 need, Prometheus' promtool in
# build/promtool, without the daemon that its package starts, and the browser that reports are looked at
# in, which Playwright of build/browser-tools drives.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(cmake ninja-build g++ git llvm-19-dev libzstd-dev libedit-dev
  zlib1g-dev libxml2-dev libarchive-dev libsodium-dev libtbb-dev nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev
  python3)
clang_tidy_wheel=
docs_tools=
promtool_folder=
kubernetes_wheel=
browser_tools=
for option in "$@"; do
  case $option in
    --lint)
      packages+=(clang-format-19)
      clang_tidy_wheel=build/clang-tidy
      ;;
    --sanitize) packages+=(clang-19 libclang-rt-19-dev) ;;
    --docs)
      packages+=(python3-venv python3-pip ca-certificates)
      docs_tools=build/docs-tools
      ;;
    --browser)
      packages+=(chromium fonts-dejavu-core python3-pip ca-certificates)
      browser_tools=build/browser-tools
      ;;
    --fleet)
      packages+=(slurmctld slurmd slurm-client munge python3-pip ca-certificates)
      kubernetes_wheel=build/kubernetes-validate
      ;;
    --aarch64) packages+=(g++-aarch64-linux-gnu) ;;
    --fresh) packages+=(debootstrap) ;;
    --promtool) promtool_folder=build/promtool ;;
    --wheel) packages+=(python3-dev python3-venv python3-pip ca-certificates) ;;
    *) echo "setup.sh: unknown option $option" >&2; exit 2 ;;
  esac
done

cuda_wheels=build/cuda
toolkit_found() {
  local folder
  for folder in "${KERNWRIGHT_CUDA_PATH:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda \
      "$cuda_wheels/nvidia/cu13"; do
    if [[ -n $folder && -f $folder/include/cuda.h && -f $folder/include/nvJitLink.h ]] &&
        compgen -G "$folder/lib*/libnvrtc.so.1[23]" > /dev/null; then
      return 0
    fi
  done
  return 1
}
clang_tidy_missing() {
  [[ -n $clang_tidy_wheel ]] && ! compgen -G "$clang_tidy_wheel/clang_tidy-23.1.*" > /dev/null
}
if ! toolkit_found || clang_tidy_missing; then
  packages+=(python3-pip ca-certificates)
fi

as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo -n "$@"
  else
    echo "setup.sh: needs root or sudo to run: $*" >&2
    return 1
  fi
}

install_packages() {
  if ! command -v dpkg-query > /dev/null; then
    echo "setup.sh: not a Debian or Ubuntu system; the build needs: ${packages[*]}" >&2
    return 0
  fi
  local missing=() package
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2> /dev/null || true)
  for package in "${packages[@]}"; do
    grep -q "^ii  *$package\$" <<< "$installed" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  echo "setup.sh: installing ${missing[*]}; services that they bring stay off" >&2
  as_root apt-get -qq update
  without_services as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 install "${missing[@]}" > /dev/null
}

# The services that the next boot starts; none where there is no systemd.
enabled_services() {
  [[ -d ${DPKG_ROOT:-}/etc/systemd/system ]] || return 0
  find "${DPKG_ROOT:-}/etc/systemd/system" -path '*.wants/*' -name '*.service' -printf '%f\n' |
    LC_ALL=C sort -u
}

# without_services COMMAND...: runs what installs packages, and has none of their services started or
# enabled, which Debian's packages do by themselves. Services of before stay as they are.
without_services() {
  local policy="${DPKG_ROOT:-}/usr/sbin/policy-rc.d" own= status=0 before service
  before=$(enabled_services)
  if [[ ! -e $policy ]]; then
    own=1
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" > /dev/null
    as_root chmod 755 "$policy"
  fi
  "$@" || status=$?
  [[ -z $own ]] || as_root rm -f "$policy"
  for service in $(LC_ALL=C comm -13 <(echo "$before") <(enabled_services)); do
    echo "setup.sh: disabling $service" >&2
    # It refuses to run outside of a package's own scripts.
    as_root env DPKG_ROOT="${DPKG_ROOT:-}" DPKG_MAINTSCRIPT_PACKAGE="${service%.service}" \
      deb-systemd-helper disable "$service" > /dev/null || status=$?
    if [[ -e ${DPKG_ROOT:-}/etc/init.d/${service%.service} ]]; then
      as_root env DPKG_ROOT="${DPKG_ROOT:-}" update-rc.d "${service%.service}" disable || status=$?
    fi
  done
  return "$status"
}

# install_wheels FOLDER WHEEL...: --target leaves the system's Python alone, which PEP 668 asks for.
install_wheels() {
  python3 -m pip install --quiet --no-deps --upgrade --disable-pip-version-check \
    --root-user-action=ignore --target "$@"
}

# The package's program alone. Lists of packages may be missing or too old.
get_promtool() {
  mkdir -p "$promtool_folder" && cd "$promtool_folder" || return
  apt-get -qq download prometheus ||
    { as_root apt-get -qq update && apt-get -qq download prometheus; } || return
  dpkg-deb -x prometheus_*.deb . && mv usr/bin/promtool . || return
  rm -rf usr etc lib var prometheus_*.deb
}

install_packages
if ! toolkit_found; then
  echo "setup.sh: no CUDA Toolkit found; NVRTC, nvJitLink, CUPTI and headers go to $cuda_wheels" >&2
  install_wheels "$cuda_wheels" 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-nvjitlink==13.0.*' \
    'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cupti==13.0.*'
fi
if clang_tidy_missing; then
  echo "setup.sh: clang-tidy 23 goes to $clang_tidy_wheel" >&2
  install_wheels "$clang_tidy_wheel" 'clang-tidy==23.1.*'
fi
docs_wheels=('mkdocs-material==9.8.2' 'mkdocstrings-python==2.0.11' 'libclang==18.1.1')
if [[ -n $docs_tools ]] && [[ $(cat "$docs_tools/wheels" 2> /dev/null) != "${docs_wheels[*]}" ]]; then
  echo "setup.sh: the tools of make docs go to $docs_tools" >&2
  python3 -m venv --clear "$docs_tools"
  "$docs_tools/bin/pip" install --quiet --disable-pip-version-check "${docs_wheels[@]}"
  echo "${docs_wheels[*]}" > "$docs_tools/wheels"
fi
if [[ -n $kubernetes_wheel && ! -d $kubernetes_wheel/kubernetes_validate ]]; then
  echo "setup.sh: kubernetes-validate goes to $kubernetes_wheel" >&2
  # With what it needs: it has no other dependencies to clash with there.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target "$kubernetes_wheel" 'kubernetes-validate>=1.37'
fi
browser_wheels=('playwright==1.65.*' 'pillow==13.*')
if [[ -n $browser_tools && $(cat "$browser_tools/wheels" 2> /dev/null) != "${browser_wheels[*]}" ]]; then
  echo "setup.sh: Playwright and Pillow go to $browser_tools" >&2
  rm -rf "$browser_tools"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target "$browser_tools" "${browser_wheels[@]}"
  echo "${browser_wheels[*]}" > "$browser_tools/wheels"
fi
if [[ -n $promtool_folder && ! -x $promtool_folder/promtool ]]; then
  echo "setup.sh: promtool goes to $promtool_folder" >&2
  (get_promtool) || echo "setup.sh: promtool was not to be had, and the test that asks it skips" >&2
fi

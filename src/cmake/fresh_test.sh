#!/usr/bin/env bash
# fresh_test.sh SUITE...: in an empty Debian of each suite (bookworm, trixie), runs both commands of the
# README on a clean clone of HEAD, and makes and tests the wheel: a package, an include or a step that
# only this machine has fails it. debootstrap makes the system, which needs root and about 10 GB in
# TMPDIR. The commands see this machine's proxies and certificates, and no other variable.
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ $EUID -eq 0 ]] || { echo "fresh_test.sh: debootstrap and chroot need root" >&2; exit 2; }

# commands ROOT: runs them there. The mounts end with the namespace of processes and mounts.
commands() {
  unshare --mount --pid --fork --kill-child bash -s "$1" << 'END'
set -e
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
certificates=/usr/share/kernwright-certificates.crt
given=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in http_proxy https_proxy no_proxy; do
  [[ -z ${!name:-} ]] || given+=("$name=${!name}")
done
if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
  cp /etc/ssl/certs/ca-certificates.crt "$1$certificates"
  given+=(PIP_CERT=$certificates SSL_CERT_FILE=$certificates)
fi
for target in tune test wheel-test; do
  echo "== make $target"
  # A login's shell, which begins with no variable of this one.
  env -i "${given[@]}" chroot "$1" bash -c "cd /kernwright && time make $target"
done
END
}

for suite in "$@"; do
  root=$(mktemp -d)
  chmod 755 "$root"  # tests drop to a user who is not root
  echo "== $suite in $root, which stays if a command fails"
  debootstrap --variant=minbase --include=make,git "$suite" "$root" > "$root.log" ||
    { tail "$root.log" >&2; exit 1; }
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  git clone --quiet . "$root/kernwright"
  commands "$root"
  rm -rf "$root" "$root.log"
done

#!/usr/bin/env python3
"""src/cmake/setup.sh on a system that stands in for Debian's: what it installs is named before, and no
service that comes along is started or stays enabled."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# All but munge and slurmd is installed. Installing asks the policy whether services may start, as
# invoke-rc.d does, and enables munge and slurmd, as their packages do.
PROGRAMS = {
    "dpkg-query": """shift 2
for package in "$@"; do
  case $package in munge|slurmd) ;; *) echo "ii  $package" ;; esac
done
""",
    "apt-get": """case "$*" in *install*) ;; *) exit 0 ;; esac
echo "apt-get installs" >&2
"$DPKG_ROOT/usr/sbin/policy-rc.d" munge start; echo "policy $?" >&2
for name in munge slurmd; do
  printf '[Install]\\nWantedBy=multi-user.target\\n' > "$DPKG_ROOT/lib/systemd/system/$name.service"
  DPKG_MAINTSCRIPT_PACKAGE=$name deb-systemd-helper enable $name.service > /dev/null
done
""",
    "sudo": """[ "$1" != -n ] || shift
exec "$@"
""",
    "python3": "exit 0\n",
}


@unittest.skipUnless(shutil.which("deb-systemd-helper"), "not a Debian system")
class SetupTest(unittest.TestCase):
    def setUp(self):
        scope = tempfile.TemporaryDirectory(prefix="kernwright-setup-")
        self.addCleanup(scope.cleanup)
        self.root = pathlib.Path(scope.name) / "root"
        programs = pathlib.Path(scope.name) / "bin"
        toolkit = pathlib.Path(scope.name) / "cuda"
        self.wants = self.root / "etc/systemd/system/multi-user.target.wants"
        for folder in (programs, self.wants, self.root / "lib/systemd/system", self.root / "usr/sbin",
                       self.root / "var/lib/systemd", toolkit / "include", toolkit / "lib"):
            folder.mkdir(parents=True)
        for file in ("include/cuda.h", "include/nvJitLink.h", "lib/libnvrtc.so.13"):
            (toolkit / file).touch()
        (self.wants / "cron.service").symlink_to("/lib/systemd/system/cron.service")
        for name, text in PROGRAMS.items():
            (programs / name).write_text("#!/bin/sh\n" + text)
            (programs / name).chmod(0o755)
        source = pathlib.Path(scope.name) / "source"
        (source / "src/cmake").mkdir(parents=True)
        shutil.copy(ROOT / "src/cmake/setup.sh", source / "src/cmake")
        self.ran = subprocess.run(
            [source / "src/cmake/setup.sh", "--fleet"], text=True, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=600,
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "DPKG_ROOT": str(self.root),
                              "KERNWRIGHT_CUDA_PATH": str(toolkit)})

    def test_what_is_installed_is_named_before_and_stays_off(self):
        self.assertEqual(self.ran.returncode, 0, self.ran.stdout)
        named, installs = self.ran.stdout.index("munge"), self.ran.stdout.index("apt-get installs")
        self.assertLess(named, installs)
        self.assertIn("services that they bring stay off", self.ran.stdout[:installs])
        self.assertIn("policy 101", self.ran.stdout)
        self.assertEqual([link.name for link in self.wants.iterdir()], ["cron.service"])
        self.assertFalse((self.root / "usr/sbin/policy-rc.d").exists())


if __name__ == "__main__":
    unittest.main()

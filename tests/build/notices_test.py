#!/usr/bin/env python3
"""notices_test.py BUILD: the notices have the licenses of all that tool and library contain."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src/cmake"))
import notices  # noqa: E402

JSON = "/usr/include/nlohmann/json.hpp"
# Their headers declare, and their code is in the system's libraries.
SYSTEM = {"libc6-dev", "linux-libc-dev"}


class NoticesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lists = [BUILD / "notices/carried" / f"{name}.link.d"
                 for name in ("kernwright", "kernwright_cli")]
        cls.linked = [file for path in lists for file in notices.files_of(str(path))]
        cls.packages = notices.packages_of([*cls.linked, JSON])
        cls.text = notices.notices(cls.packages)

    def test_what_is_linked_is_named_with_its_license(self):
        for name in ("libarchive-dev", "libsodium-dev", "libzstd-dev", "llvm-19-dev",
                     "nlohmann-json3-dev"):
            self.assertIn(name, self.packages)
        self.assertTrue(any(name.startswith("libtbb") for name in self.packages))
        for part in ("Tim Kientzle", "Frank Denis", "LLVM Exceptions", "Niels Lohmann",
                     "common-licenses/Apache-2.0\n" + "=" * 80 + "\n\n"):
            self.assertIn(part, self.text)

    @unittest.skipUnless(shutil.which("ninja"), "only Ninja says which headers were read")
    def test_every_header_of_others_has_its_license_there(self):
        told = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True,
                              check=True)
        headers, ours = set(), False
        for line in told.stdout.splitlines():
            if not line.startswith(" "):
                ours = re.match(r"(src/(?!examples)|cache/|tuner/)", line) is not None
            elif ours and re.match(r"/usr/(include|lib/llvm)", line.strip()):
                headers.add(line.strip())
        self.assertIn(JSON, headers)
        for package in set(notices.packages_of(headers)) - SYSTEM:
            text = (notices.DOC / package / "copyright").read_text(errors="replace").strip()
            self.assertIn(text, self.text, package)

    def test_a_file_of_no_package_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "/usr/none/lib.a belongs to no package"):
            notices.packages_of(["/usr/none/lib.a"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1])
    if not shutil.which("dpkg-query"):
        print("no Debian here: notices come from its packages")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])

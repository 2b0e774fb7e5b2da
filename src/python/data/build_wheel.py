#!/usr/bin/env python3
"""Builds the wheel kernwright-NAME: the records and kernels of a signed bundle as pure data, which
`import kernwright` finds. `make data-wheel SKU=h100` calls it.

The bundle is installed by the tool first, which checks its signature and every file."""

import argparse
import base64
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# A fixed date, so that a bundle always makes the same wheel, byte by byte.
DATE = (1980, 1, 1, 0, 0, 0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of the GPU, as in kernwright-NAME: h100")
    parser.add_argument("--bundle", required=True, type=pathlib.Path)
    parser.add_argument("--tool", default="build/bin/kernwright", help="the program kernwright")
    parser.add_argument("--trusted-keys", help="public keys; without them the bundle is trusted as it is")
    parser.add_argument("--out", default="dist", type=pathlib.Path, help="folder of the wheel")
    parser.add_argument("--json", type=pathlib.Path,
                        help="also write what the records say, a row for each problem")
    return parser.parse_args()


def run(command):
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(ran.returncode)
    return ran.stdout


def install(arguments, root):
    """Returns the folder of the installed bundle below `root`, and its manifest."""
    keys = ["--trusted-keys", arguments.trusted_keys] if arguments.trusted_keys else \
        ["--allow-unsigned"]
    installed = json.loads(run([arguments.tool, "cache", "install", str(arguments.bundle), "--cache",
                                root, "--json", *keys]))
    folder = pathlib.Path(root, "bundles", installed["digest"])
    manifest = json.loads((folder / "manifest.json").read_text())
    others = [sku for sku in manifest["skus"] if sku.split("_")[0] != arguments.name]
    if others or not manifest["skus"]:
        sys.exit(f"{arguments.bundle}: the bundle is of {', '.join(manifest['skus']) or 'no SKU'}, "
                 f"and one of {arguments.name} alone expected")
    return folder, manifest


def what_was_measured(manifest):
    """Counts the problems of each operation, and tells when they were tuned and on which GPUs. A
    record's file is v1/records/ARCHITECTURE/SKU/OPERATION/PROBLEM/TIME-NUMBER.kwr, or .kwf of a
    range of sizes."""
    records = [pathlib.PurePosixPath(file["name"]).parts for file in manifest["files"]
               if file["name"].startswith("v1/records/")
               and file["name"].endswith((".kwr", ".kwf"))]
    ranges = len({parts[5] for parts in records if parts[6].endswith(".kwf")})
    problems = collections.Counter(operation for operation, _ in {parts[4:6] for parts in records})
    listed = ", ".join(f"{count} of {name}" for name, count in sorted(problems.items()))
    dates = sorted(f"{parts[6][:4]}-{parts[6][4:6]}-{parts[6][6:8]}" for parts in records)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    count = sum(problems.values())
    of_ranges = f", {ranges} of them ranges of sizes" if ranges else ""
    return (f"{count} problem{'' if count == 1 else 's'} ({listed}){of_ranges}, {when}, on "
            f"{', '.join(manifest['skus'])}: {', '.join(manifest['devices']) or 'predicted'}")


def files_of(arguments, folder, manifest):
    """Returns the files of the wheel by name, except the list of them."""
    package = f"kernwright_{arguments.name}"
    version = f"{manifest['kernwright'].split('+')[0]}.{manifest['serial']}"
    information = f"{package}-{version}.dist-info"
    measured = what_was_measured(manifest)
    texts = {
        f"{package}/__init__.py":
            f'"""Tuned kernels of kernwright for the {arguments.name}: {measured}."""\n\n'
            "import os\n\n"
            "#: A read-only layer of kernwright's cache, an unpacked bundle.\n"
            f'folder = os.path.join(os.path.dirname(__file__), "{folder.name}")\n',
        f"{information}/METADATA":
            f"Metadata-Version: 2.1\nName: kernwright-{arguments.name}\nVersion: {version}\n"
            f"Summary: Tuned kernels of kernwright for the {arguments.name}: {measured}\n"
            "License: Apache-2.0\nRequires-Python: >=3.10\nRequires-Dist: kernwright\n"
            f"Description-Content-Type: text/markdown\n\n{measured}.\n",
        f"{information}/WHEEL":
            "Wheel-Version: 1.0\nGenerator: kernwright\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        f"{information}/entry_points.txt":
            f"[kernwright.data]\n{arguments.name} = {package}:folder\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            place = f"{package}/{folder.name}/{path.relative_to(folder).as_posix()}"
            files[place] = path.read_bytes()
    return f"{package}-{version}-py3-none-any.whl", f"{information}/RECORD", files


def candidate(ranked):
    configuration = " ".join(f"{name}={value}" for name, value in ranked["configuration"].items())
    return f"{ranked['template']} {configuration}"


def time_of(ranked):
    """Returns microseconds; None if they were not measured."""
    us = (ranked or {}).get("median_us")
    return None if us is None else round(us, 3)


def write_results(arguments, folder, manifest):
    """Returns a file in the form of bench/results."""
    listed = json.loads(run([arguments.tool, "cache", "list", "--json", "--cache", str(folder)]))
    rows = []
    for record in sorted(listed["records"], key=lambda record: record["created"]):
        rows.append({
            "problem": record["problem"], "winner": candidate(record["winner"]),
            "us": time_of(record["winner"]), "default_us": time_of(record.get("baseline")),
            "roofline_share": round(record["roofline_share"], 3),
            "verdict": record.get("verdict"), "trust": record.get("trust"),
            "measured": record["measured"], "candidates": record["candidates"],
            "seconds": round(record["wall_seconds"], 2), "created": record["created"]})
    for family in sorted(listed["families"], key=lambda family: family["created"]):
        regret = family["regret"]
        rows.append({"problem": family["key"]["problem"], "kernels": len(family["kernels"]),
                     "sizes": regret["sizes"], "median_regret": round(regret["median"], 4),
                     "bound": round(regret["p95"], 4), "worst_regret": round(regret["worst"], 4),
                     "trust": family["trust"], "created": family["created"]})
    first = listed["records"][0]
    head = {"bench": "sweep_models",
            "command": f"kernwright sweep models.json, in parts; build_wheel.py "
                       f"--name {arguments.name} --bundle FILE --json FILE",
            "date": max(row["created"] for row in rows)[:10],
            "device": {"name": first["device"], "uuids": manifest["devices"],
                       "driver": first["environment"]["driver"]},
            "compiler": " ".join(first["environment"]["compiler"].split()[:2]),
            "kernwright": manifest["kernwright"]}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    arguments.json.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n')


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as root:
        folder, manifest = install(arguments, root)
        wheel, record, files = files_of(arguments, folder, manifest)
        if arguments.json:
            write_results(arguments, folder, manifest)
    listed = "".join(record_line(name, data) for name, data in files.items()) + f"{record},,\n"
    files[record] = listed.encode()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(arguments.out / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(arguments.out / wheel)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The files of src/examples/deployment: shells and YAML parse, and every option they give the tool is one it has.

    deployment_test.py KERNWRIGHT FOLDER
"""

import pathlib
import re
import shutil
import subprocess
import sys

tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
wrong = []

for script in [*folder.glob("*.sh"), *folder.glob("*.sbatch")]:
    lint = ["shellcheck", str(script)] if shutil.which("shellcheck") else ["bash", "-n", str(script)]
    ran = subprocess.run(lint, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        wrong.append(f"{script.name}: {ran.stdout}{ran.stderr}")

try:
    import yaml
    for manifest in folder.glob("*.yaml"):
        for document in yaml.safe_load_all(manifest.read_text()):
            if not {"apiVersion", "kind", "metadata", "spec"} <= document.keys():
                wrong.append(f"{manifest.name}: no Kubernetes object")
            spec = document["spec"]
            job = spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec
            pod = job["template"]["spec"] if "template" in job else job
            volumes = {volume["name"] for volume in pod["volumes"]}
            if not pod["securityContext"].get("runAsNonRoot"):
                wrong.append(f"{manifest.name}: it may run as root")
            for container in pod.get("initContainers", []) + pod["containers"]:
                if not container.get("resources", {}).get("limits"):
                    wrong.append(f"{manifest.name}: {container['name']} has no limits")
                for mount in container.get("volumeMounts", []):
                    if mount["name"] not in volumes:
                        wrong.append(f"{manifest.name}: no volume {mount['name']}")
                shards = re.findall(r"--shard \S*/(\d+)", " ".join(container.get("args", [])))
                completions = job.get("completions")
                if any(int(count) != completions for count in shards):
                    wrong.append(f"{manifest.name}: {shards} shards, {completions} completions")
except ImportError:
    print("no YAML parser for Python: manifests are not parsed")

instructions = {"ARG", "FROM", "RUN", "COPY", "ENV"}
text = re.sub(r"\\\n", " ", (folder / "Containerfile").read_text())
for line in text.splitlines():
    if line and not line.startswith("#") and line.split()[0] not in instructions:
        wrong.append(f"Containerfile: {line}")

# Words of a command line: "kernwright sweep ... --shard", in shells, YAML lists and prose alike.
options = {}
for file in folder.iterdir():
    joined = re.sub(r"\\\n", " ", file.read_text())
    for command, rest in re.findall(r"kernwright[, ]+(cache|sweep|prewarm|worklist)\b([^\n&`]*)", joined):
        if command not in options:
            shown = subprocess.run([tool, command, "--help"], capture_output=True, text=True, check=False).stdout
            options[command] = set(re.findall(r"--[a-z][a-z0-9-]*", shown))
        for option in re.findall(r"--[a-z][a-z0-9-]*", rest.split("#")[0]):
            if option not in options[command]:
                wrong.append(f"{file.name}: {command} has no {option}")
if not options:
    wrong.append("no command of kernwright was found")

print("\n".join(wrong) or f"{len(options)} commands checked")
sys.exit(1 if wrong else 0)

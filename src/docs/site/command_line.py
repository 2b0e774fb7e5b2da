"""The reference of the command line, from the tool's own help."""

import os
import re
import subprocess


def _help(*words):
    tool = os.environ["KERNWRIGHT"]  # the program
    ran = subprocess.run([tool, *words, "--help"], check=True, capture_output=True, text=True)
    return ran.stdout.replace(tool, "kernwright").strip("\n")


def _section(title, text):
    return f"## {title}\n\n```text\n{text}\n```\n"


def reference():
    whole = _help()
    listed = re.search(r"SUBCOMMANDS:\n\n(.*?)\n\n", whole, re.DOTALL).group(1)
    commands = re.findall(r"(?m)^  (\S+) +- ", listed)
    own = {name: _help(name).partition("Generic Options:")[0].rstrip() for name in commands}
    return "\n".join([_section("kernwright", whole),
                      *(_section(f"kernwright {name}", text) for name, text in own.items())])

#!/usr/bin/env python3
"""install_test.py BUILD SOURCE: installs the build, then uses it as others do: the installed examples
against the CMake package, a program of every language by what pkg-config says, with warnings as
errors, and the source within another project."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

build, source = (pathlib.Path(path) for path in sys.argv[1:])

# A first program, in either standard: the headers must not cause a warning.
CPP = r"""
#include <kernwright/kernwright.h>
#if KERNWRIGHT_VERSION < 100
#error "older than 0.1.0"
#endif
namespace kw = kernwright;
kw::Result<void> scale(const kw::Kernel& kernel, const void* x, void* y) {
  return kernel.launch(nullptr, {x, y, 3});
}
int main() {
#if __cplusplus >= 202002L
  const auto service = kw::Service::open({.cache = "cache", .sku = "h9000"});
#else
  kw::ServiceOptions options;
  options.cache = "cache";
  options.sku = "h9000";
  const auto service = kw::Service::open(options);
#endif
  return !service && service.error().message.find("h9000") != std::string::npos ? 0 : 1;
}
"""
C = r"""
#include <kernwright/c.h>
#include <string.h>
int main(void) {
  kw_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.sku = "h9000";
  kw_service* service = NULL;
  return kw_open(&options, &service) == -1 && strstr(kw_last_error(), "h9000") &&
                 strcmp(kw_version(), KERNWRIGHT_VERSION_STRING) == 0
             ? 0
             : 1;
}
"""

# Another project, which says nothing of a build type or of folders, and looks at what it got.
OUTER = """
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES C CXX)
add_subdirectory({source} kernwright)
file(WRITE main.cpp "int main() {{}}")
add_executable(outer main.cpp)
target_link_libraries(outer PRIVATE kernwright::kernwright)
if(CMAKE_BUILD_TYPE)
  message(FATAL_ERROR "the build type became ${{CMAKE_BUILD_TYPE}}")
endif()
if(CMAKE_RUNTIME_OUTPUT_DIRECTORY OR CMAKE_LIBRARY_OUTPUT_DIRECTORY OR CMAKE_CXX_COMPILER_LAUNCHER)
  message(FATAL_ERROR "output folders or ccache leaked")
endif()
foreach(target kernwright_service_test get_best_kernel dist)
  if(TARGET ${{target}})
    message(FATAL_ERROR "${{target}} is built in another's project")
  endif()
endforeach()
foreach(target kernwright kernwright_cli outer)
  get_target_property(launcher ${{target}} CXX_COMPILER_LAUNCHER)
  if(launcher)
    message(FATAL_ERROR "${{target}} is compiled by ${{launcher}}")
  endif()
endforeach()
get_target_property(tool kernwright_cli RUNTIME_OUTPUT_DIRECTORY)
get_target_property(library kernwright LIBRARY_OUTPUT_DIRECTORY)
file(RELATIVE_PATH way ${{library}} ${{tool}})
if(NOT way STREQUAL "../bin" AND NOT way STREQUAL "")
  message(FATAL_ERROR "the library does not find its tool: ${{library}}, ${{tool}}")
endif()
"""


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def pkg_config(prefix):
    """Returns the words of pkg-config, here or by the file's own plain rules if it is missing."""
    folder = prefix / "lib" / "pkgconfig"
    if shutil.which("pkg-config"):
        printed = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "kernwright"], check=True, text=True,
            stdout=subprocess.PIPE, env=os.environ | {"PKG_CONFIG_PATH": str(folder)}).stdout
        return shlex.split(printed)
    text = (folder / "kernwright.pc").read_text()
    values = {"pcfiledir": str(folder)}
    for name, value in re.findall(r"^(\w+)[=:] ?(.*)$", text, re.MULTILINE):
        values[name] = re.sub(r"\$\{(\w+)\}", lambda match: values[match.group(1)], value)
    return shlex.split(values["Cflags"] + " " + values["Libs"])


def check_share(share):
    for name in ("README.md", "ARCHITECTURE.md", "templates/README.md", "tuner/README.md",
                 "src/docs/pages/install.md", "src/cli/README.md", "src/examples/README.md", "templates/matmul/operation.json",
                 "src/examples/get_best_kernel.cpp"):
        if not (share / name).is_file():
            sys.exit(f"share/kernwright/{name} is not installed")


def check_quickstart(prefix, folder):
    """The program of the quickstart starts after its own command, wherever kernwright is installed."""
    page = (source / "src/docs/pages/quickstart.md").read_text()
    program = re.search(r"`quickstart.cpp`\n\n```cpp\n(.*?)```", page, re.DOTALL).group(1)
    command = re.search(r"^\$ (c\+\+ .*quickstart.cpp .*)$", page, re.MULTILINE).group(1)
    (folder / "quickstart.cpp").write_text(program)
    words = shlex.split(command.replace("$(pkg-config --cflags --libs kernwright)", "@"))
    at = words.index("@")
    run(*words[:at], *pkg_config(prefix), *words[at + 1:], cwd=folder)
    ran = subprocess.run([folder / "quickstart"], text=True, check=False, capture_output=True, cwd=folder,
                         env=os.environ | {"LD_LIBRARY_PATH": "", "KERNWRIGHT_CACHE": str(folder / "cache")})
    # Without NVRTC it starts, and says that it misses that.
    if ran.returncode != 0 and "NVRTC" not in ran.stderr and "nvrtc" not in ran.stderr:
        sys.exit(f"the quickstart ends with {ran.returncode}: {ran.stderr}")
    if "shared libraries" in ran.stderr or ran.returncode not in (0, 1):
        sys.exit(f"the quickstart does not start: {ran.stderr}")


def check_version(program, starts):
    """A program that was built for another C++ interface does not start; one in C needs none."""
    program.write_bytes(program.read_bytes().replace(b"KERNWRIGHT_CXX", b"KERNWRIGHT_XXC"))
    ran = subprocess.run([program], text=True, check=False, capture_output=True, cwd=program.parent,
                         env=os.environ | {"LD_LIBRARY_PATH": ""})
    if (ran.returncode == 0) != starts or ("KERNWRIGHT_XXC" in ran.stderr) == starts:
        sys.exit(f"with another C++ interface {program} ends with {ran.returncode}: {ran.stderr}")


def headings(text):
    """The anchors of a document's headings."""
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def check_links(share):
    """A file that a document links to is installed with it, and has the heading that the link names."""
    links = 0
    for document in share.rglob("*.md"):
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link:
                continue
            links += 1
            place, _, anchor = link.partition("#")
            target = document.parent / place if place else document
            if not target.exists():
                sys.exit(f"{document.relative_to(share)} links to {link}, which is not installed")
            if anchor and anchor not in headings(target.read_text()):
                sys.exit(f"{document.relative_to(share)} links to {link}, which has no such heading")
    if links == 0:
        sys.exit("no document has a link")


def check_packages():
    """The page on installing names what setup.sh installs for a build."""
    setup = (source / "src" / "cmake" / "setup.sh").read_text()
    page = (source / "src/docs/pages/install.md").read_text().split()
    named = {word.strip("`.,") for word in page}
    for package in re.search(r"packages=\(([^)]*)\)", setup).group(1).split():
        if package not in named:
            sys.exit(f"install.md does not name the package {package}")


check_packages()
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    prefix = folder / "installed"
    run("cmake", "--install", build, "--prefix", prefix, stdout=subprocess.DEVNULL)
    share = prefix / "share" / "kernwright"
    check_share(share)
    check_links(share)
    run("cmake", "-S", share / "src" / "examples", "-B", folder / "examples",
        "-D", f"CMAKE_PREFIX_PATH={prefix}", "-D", "CMAKE_CXX_STANDARD=17",
        "-D", "CMAKE_BUILD_TYPE=Release", stdout=subprocess.DEVNULL)
    run("cmake", "--build", folder / "examples")
    run(prefix / "bin" / "kernwright", "--version", env=os.environ | {"LD_LIBRARY_PATH": ""})

    (folder / "use.cpp").write_text(CPP)
    (folder / "use.c").write_text(C)
    compilers = [("c++", "use.cpp", "-std=c++17"), ("c++", "use.cpp", "-std=c++20"),
                 ("cc", "use.c", "-std=c99")]
    for clang in ("clang++-19", "clang++"):
        if shutil.which(clang):
            compilers.append((clang, "use.cpp", "-std=c++20"))
            break
    for compiler, file, standard in compilers:
        run(compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", file, "-o", "use",
            *pkg_config(prefix), cwd=folder)
        run(folder / "use", env=os.environ | {"LD_LIBRARY_PATH": ""}, cwd=folder)
        check_version(folder / "use", starts=file == "use.c")
    check_quickstart(prefix, folder)

    (folder / "CMakeLists.txt").write_text(OUTER.format(source=source))
    cuda = re.search(r"KERNWRIGHT_CUDA_INCLUDE:PATH=(.*)",
                     (build / "CMakeCache.txt").read_text()).group(1)
    run("cmake", "-S", folder, "-B", folder / "outer", "-D", f"KERNWRIGHT_CUDA_INCLUDE={cuda}",
        stdout=subprocess.DEVNULL)

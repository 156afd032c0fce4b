# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in of CANN with which the real torch_npu runs on a machine without an NPU.

    python build.py FOLDER

compiles runtime.cpp and operators.cpp against the torch of this interpreter, adds a function that
answers 0 for every other name of CANN that torch_npu links, and puts the library into FOLDER under
the names of CANN's own. LD_LIBRARY_PATH=FOLDER is all that a program needs then.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("runtime", "operators")
# Of the names that torch_npu has in it, those of CANN that it links or looks up; operators it can do without.
OF_CANN = re.compile(
    rb"\0((?:acl(?!nn)|Hccl|Msprof|rt|InitHugeMem|UnInitHugeMem|ReleaseHugeMem)\w*)(?=[\0@])"
)
STUB = '__attribute__((weak, visibility("default"))) long {}(void) {{ return 0; }}\n'
NAMES = ("ascendcl", "hccl", "acl_op_compiler", "opapi", "ge_runner", "graph", "acl_tdt_channel")


def folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is not installed for this interpreter")
    return Path(found.origin).parent


def asked_for(library: Path) -> list[str]:
    """Names of CANN in a library that takes functions from it."""
    return sorted({name.decode() for name in OF_CANN.findall(library.read_bytes())})


def compiled(name: str, folder: Path, torch: Path) -> Path:
    made = folder / f"{name}.o"
    include = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
    options = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-w"]
    subprocess.run(["g++", *options, *include, "-c", HERE / f"{name}.cpp", "-o", made], check=True)
    return made


def build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch = folder_of("torch")
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda name: compiled(name, folder, torch), SOURCES))
    stubs = folder / "stubs.c"
    names = asked_for(folder_of("torch_npu") / "lib" / "libtorch_npu.so")
    stubs.write_text("".join(STUB.format(name) for name in names))
    library = folder / "libcann.so"
    linking = ["-L" + str(torch / "lib"), "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch}/lib"]
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-o", library, *objects, "-xc", stubs, "-xnone", *linking],
        check=True,
    )
    for name in NAMES:  # one file under every name: loaded once
        link = folder / f"lib{name}.so"
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    build(parser.parse_args().folder)


if __name__ == "__main__":
    main()

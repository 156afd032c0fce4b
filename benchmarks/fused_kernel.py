# SPDX-License-Identifier: Apache-2.0
"""The fused statistics kernel compiled for GPUs that are not here: registers, spills and code.

    python benchmarks/fused_kernel.py [--types float32,bfloat16]

needs triton. Bytes read are counted in the code: a whole block of 4096 bytes is loaded by its
widest vectors, in all threads; other loads read a last block that is not whole.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opscope.kernels.device import fused
from opscope.narrow import numpy_type

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
HEAD = (
    *("target", "type", "registers", "spilled", "shared memory"),
    *("bytes read of an element", "barriers"),
)
NVIDIA = re.compile(r"ld\.global(?:\.[a-z_0-9:]+)*?(?:\.v(\d))?\.b(\d+)")
AMD = re.compile(r"\b(?:global|buffer)_load_dwordx(\d)")


def compiled(name: str, target: tuple[Any, ...]) -> Any:
    """The kernel for one contiguous, aligned tensor of a type."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from opscope.kernels.device import fused_kernel

    kernel = fused_kernel.statistics
    fixed = {**fused.constants(name), "RANK": 0, "ALIGNED": True}
    integers = [each for each in kernel.arg_names if each not in {*fixed, "rows", "table"}]
    signature = dict.fromkeys(integers, "i64") | {"rows": "*i64", "table": "*i64"}
    signature |= {"tensors": "i32"} | dict.fromkeys(fixed, "constexpr")
    source = ASTSource(
        fn=kernel,
        signature={each: signature[each] for each in kernel.arg_names},
        constexprs=fixed,
        attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    return triton.compile(source, target=GPUTarget(*target), options=fused.options(name))


def of_nvidia(made: Any, name: str, capability: int) -> list[str]:
    """Facts that NVIDIA's assembler tells."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(made.asm["ptx"])
        architecture = f"sm_{capability}{'a' if capability >= 90 else ''}"
        told = subprocess.run(
            [
                get_ptxas(capability).path,
                "-v",
                f"-arch={architecture}",
                path,
                "-o",
                f"{folder}/out",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", told)
    spilled = re.search(r"(\d+) bytes spill stores", told)
    assert registers is not None
    assert spilled is not None
    loads = [int(lanes) * int(width) for lanes, width in NVIDIA.findall(made.asm["ptx"]) if lanes]
    barriers = len(re.findall(r"\bbar\.sync|\bbarrier\.sync", made.asm["ptx"]))
    return [
        registers[1],
        spilled[1],
        str(made.metadata.shared),
        of_element(name, loads, 32),
        str(barriers),
    ]


def of_amd(made: Any, name: str) -> list[str]:
    """Facts that stand in the metadata of AMD's code."""
    text = made.asm["amdgcn"]
    registers = re.search(r"\.vgpr_count:\s+(\d+)", text)
    spilled = re.search(r"\.vgpr_spill_count:\s+(\d+)", text)
    assert registers is not None
    assert spilled is not None
    loads = [32 * int(lanes) for lanes in AMD.findall(text)]
    barriers = len(re.findall(r"\bs_barrier\b", text))
    return [
        registers[1],
        spilled[1],
        str(made.metadata.shared),
        of_element(name, loads, 64),
        str(barriers),
    ]


def of_element(name: str, loads: Sequence[int], lanes: int) -> str:
    """Bytes that a whole block's loads, the widest, read for each of its elements."""
    threads = lanes * fused.options(name)["num_warps"]
    read = loads.count(max(loads)) * max(loads) // 8 * threads
    return f"{read * numpy_type(name).itemsize / fused.BLOCK_BYTES:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--types", default=",".join(fused.NAMES))
    asked = parser.parse_args()
    if importlib.util.find_spec("triton") is None:
        print("triton is not installed: nothing is compiled")
        return
    print("| " + " | ".join(HEAD) + " |\n|---|---" + "|--:" * (len(HEAD) - 2) + "|")
    for architecture, target in TARGETS.items():
        for name in asked.types.split(","):
            made = compiled(name, target)
            facts = of_nvidia(made, name, target[1]) if target[0] == "cuda" else of_amd(made, name)
            print("| " + " | ".join([architecture, name, *facts]) + " |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

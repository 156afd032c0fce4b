# SPDX-License-Identifier: Apache-2.0
"""A small collection around one L2Loss error: log, graph, kernel json, exception dump, each as a
device would write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from opscope.formats.cann import dtypes, dumpfile
from opscope.formats.cann.message import DumpData, Shape, TensorEntry

from .aicore_logs import arguments, classic, described, failed, head, info

KERNEL = "te_l2loss_" + "c0c615ce" * 8 + "_d5135fe39437a0d0_0"
INPUT, OUTPUT = 0x124080040000, 0x124080050000
BASE = 0x1240C0340000


def log(
    *,
    at: int = INPUT,
    size: int = 65536,
    before: str = "",
    after: str = "",
    code: str = "0x800000",
    shape: str = "[62,62]",
) -> str:
    """The process log of the error; at is the address of the input, size that of its allocation,
    before and after more lines.
    """
    memory = "".join(
        info(second, f"DevMalloc: Succ, size={size}, type=2, moduleId=45, ptr={address}")
        for second, address in ((0.1, INPUT), (0.2, OUTPUT))
    )
    described_lines = (
        f"input:0;shape:{shape};format:ND;dtype:DT_FLOAT;addr:{at:#x}",
        f"output:0;shape:[];format:ND;dtype:DT_FLOAT;addr:{OUTPUT:#x}",
        "block_dim:1",
        "workspace_bytes:[]",
        f"dev_func:{KERNEL}__kernel0",
        "tvm_magic:RT_DEV_BINARY_MAGIC_ELF",
        "tiling_key:0",
    )
    return (
        memory
        + before
        + classic(1.0, code=code, para_base=f"{BASE:#x}")
        + failed(1.1, "0_11_L2Loss", stream=5, task=3)
        + arguments(1.15, [at, OUTPUT])
        + described(1.2, described_lines, node="L2Loss", op="L2Loss", stream=5, task=3)
        + after
    )


GRAPH = """name: "online"
graph {{
  name: "ge_default_1"
  op {{
    name: "conv1/weights/read"
    type: "TransData"
    attr {{
      key: "_datadump_original_op_names"
      value {{
        list {{
          s: "conv1/weights"
        }}
      }}
    }}
  }}
  op {{
    name: "L2Loss"
    type: "L2Loss"
    input: "conv1/weights/read:0"
    input: "control:-1"
    attr {{
      key: "L2Loss_kernelname"
      value {{
        s: "{kernel}__kernel0"
      }}
    }}
    attr {{
      key: "_datadump_original_op_names"
      value {{
        list {{
          s: "loss/L2Loss_1"
          s: "loss/L2Loss_2"
        }}
      }}
    }}
    id: 4
    input_desc {{
      dtype: DT_FLOAT
      shape {{
        dim: 62
        dim: 62
      }}
      layout: "ND"
      attr {{
        key: "origin_format"
        value {{
          s: "NHWC"
        }}
      }}
      attr {{
        key: "origin_shape"
        value {{
          list {{
            i: 62
            i: 62
          }}
        }}
      }}
    }}
    output_desc {{
      dtype: DT_FLOAT
      layout: "ND"
    }}
  }}
}}
"""


def entry(values: np.ndarray[Any, Any], **more: Any) -> tuple[TensorEntry, bytes]:
    """A dump's entry of these values, with their type."""
    shape = Shape(dim=values.shape)
    proto = dtypes.BY_NAME[values.dtype.name].proto
    return TensorEntry(
        data_type=proto, format=2, shape=shape, original_shape=shape, size=values.nbytes, **more
    ), values.tobytes()


def write_dump(
    path: Path,
    inputs: list[tuple[TensorEntry, bytes]],
    outputs: list[tuple[TensorEntry, bytes]],
    **header: Any,
) -> Path:
    """An exception dump of these entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = DumpData(
        version="2.0",
        input=tuple(one for one, _ in inputs),
        output=tuple(one for one, _ in outputs),
        **header,
    )
    dumpfile.write(path, data, [payload for _, payload in (*inputs, *outputs)])
    return path


def kernel_json(**more: Any) -> dict[str, Any]:
    """The kernel's description."""
    return {
        "binFileName": KERNEL,
        "binFileSuffix": ".o",
        "blockDim": 1,
        "coreType": "AiCore",
        "kernelName": f"{KERNEL}__kernel0",
        "magic": "RT_DEV_BINARY_MAGIC_ELF",
        "parameters": [None, None],
        "sha256": "00",
        **more,
    }


def collection(
    folder: Path,
    *,
    values: np.ndarray[Any, Any] | None = None,
    text: str | None = None,
    **more: Any,
) -> Path:
    """The whole collection in a folder; values is the dumped input, none for no dump."""
    for name in ("log", "graph", "kernel_meta"):
        (folder / name).mkdir(parents=True)
    (folder / "log" / "plog-4711_1.log").write_text(text if text is not None else log())
    (folder / "graph" / "ge_proto_00000001_graph_1_Build.txt").write_text(
        GRAPH.format(kernel=KERNEL)
    )
    (folder / "kernel_meta" / f"{KERNEL}.json").write_text(json.dumps(kernel_json(**more)))
    if values is not None:
        loss = np.float32(np.sum(values.astype(np.float64) ** 2) / 2)
        write_dump(
            folder / "dump" / "L2Loss.L2Loss.3.1638329841577837",
            [entry(values)],
            [entry(np.array(loss))],
            op_name="L2Loss",
        )
    return folder


def sound() -> np.ndarray[Any, Any]:
    """Values with nothing wrong."""
    return np.random.default_rng(3).standard_normal((62, 62)).astype(np.float32)


__all__ = [
    "BASE",
    "GRAPH",
    "INPUT",
    "KERNEL",
    "OUTPUT",
    "collection",
    "entry",
    "head",
    "kernel_json",
    "log",
    "sound",
    "write_dump",
]

# SPDX-License-Identifier: Apache-2.0
"""Dumps for the tests of MindSpore's format: the real ones of data/, and small ones made by
hand.
"""

from __future__ import annotations

import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from opscope.run.protocol import Run
from opscope.run.schema import Call, Tensor

DATA = Path(__file__).parent / "data"
_HOME = tempfile.TemporaryDirectory(prefix="opscope-ms-")


@lru_cache(maxsize=8)
def real(name: str) -> Path:
    """A dump of data/, unpacked once."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(_HOME.name)
    return Path(_HOME.name) / name


def put(folder: Path, name: str, values: Any) -> Path:
    """One .npy of a dump."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, values)
    return folder / name


def sync(root: Path, *, rank: int = 0, graph: int = 0, step: int = 0, net: str = "Net") -> Path:
    """Folder of one iteration."""
    return root / f"rank_{rank}" / net / str(graph) / str(step)


def calls(run: Run) -> list[Call]:
    """Records of table calls."""
    return list(run.rows("calls"))  # type: ignore[attr-defined]


def named(run: Run, name: str, *, step: int | None = None) -> Call:
    """The one call whose name ends so."""
    (found,) = (
        call for call in calls(run) if call.name.endswith(name) and step in {None, call.step}
    )
    return found


def rows(run: Run, call: Call) -> dict[tuple[str, str], Tensor]:
    """Tensor rows of a call by side and slot."""
    return {(row.io, row.slot): row for row in run.tensors_of(call.process, call.index)}  # type: ignore[attr-defined]


IR = """\
# IR entry: @kernel_graph0
# Params:
%para1_w: <Ref[Tensor[Float32]], (3), ref_key=w, is_parameter, is_inplace>  :  has_default  :  <UnknownxDefaultFormat[const vector]{3}>  :  IsWeight: true
%para2_inputs0: <Tensor[Float32], (2, 3)> : [2, 3]  :  <Float32xDefaultFormat[const vector]{2, 3}>  :  IsWeight: false

subgraph @kernel_graph0() {
  %0(a) = Load(%para1_w, UMonad[U])
      : (<Ref[Tensor[Float32]], (3), ref_key=w, is_parameter, is_inplace>, <UMonad, NoShape>) -> (<Tensor[Float32], (3)>)
      # Fullname with scope: (Default/Load-op0)
  %1(b) = PrimFunc_Mul(%para2_inputs0, %0) primitive_attrs: {visited: Bool(1)} cnode_primal_attrs: {unique_id: "7"}
      : (<Tensor[Float32], (2, 3)>, <Tensor[Float32], (3)>) -> (<Tensor[Float32], (2, 3)>)
      : (<Float32xDefaultFormat[const vector]{2, 3}>, <Float32xDefaultFormat[const vector]{3}>) -> (<Float32xDefaultFormat[const vector]{2, 3}>)
      # Fullname with scope: (Default/net-Net/fc-Dense/Mul-op4)
      # In file /env/lib/python3.11/site-packages/mindspore/nn/cell.py:10~20, 4~19/    def construct(self, x):/
      # In file /home/me/net.py:30~34, 4~48/    def construct(self, x):/
      # In file /home/me/net.py:31, 12~20/        h = self.fc(x) / 2/
      # In file /env/lib/python3.11/site-packages/mindspore/nn/layer/basic.py:803, 24~25/    x = self.mul(x, w)/
  %2(c) = Split(%1, I64(1)) primitive_attrs: {output_num: I64(2)}
      : (<Tensor[Float32], (2, 3)>, <Int64, NoShape>) -> (<Tuple[Tensor[Float32]*2], TupleShape((2, 1), (2, 2))>)
      # Fullname with scope: (Default/net-Net/Split-op0)
  %3(d) = TupleGetItem(%2, I64(1))
      : (<Tuple[Tensor[Float32]*2], TupleShape((2, 1), (2, 2))>, <Int64, NoShape>) -> (<Tensor[Float32], (2, 2)>)
      # Fullname with scope: (Default/TupleGetItem-op0)
  %4(e) = MakeTuple(%3, %3)
      : (<Tensor[Float32], (2, 2)>, <Tensor[Float32], (2, 2)>) -> (<Tuple[Tensor[Float32]*2], TupleShape((2, 2), (2, 2))>)
      # Fullname with scope: (Default/MakeTuple-op0)
  %5(f) = Concat(%4) primitive_attrs: {axis: I64(0)}
      : (<Tuple[Tensor[Float32]*2], TupleShape((2, 2), (2, 2))>) -> (<Tensor[Float32], (4, 2)>)
      # Fullname with scope: (Default/net-Net/Concat-op0)
  %6(g) = Print("loss", %5)
      : (<String, NoShape>, <Tensor[Float32], (4, 2)>) -> (<Tensor[Int32], (1)>)
      # Fullname with scope: (Default/Print-op0)
  %7(h) = MulGrad(%5, %0) primitive_attrs: {} cnode_primal_attrs: {forward_node_name: "Mul_7", forward_unique_id: "7"}
      : (<Tensor[Float32], (4, 2)>, <Tensor[Float32], (3)>) -> (<Tensor[Float32], (3)>)
      # Fullname with scope: (Gradients/Default/net-Net/fc-Dense/Grad_Mul/MulGrad-op0)
      # Corresponding forward node candidate:
      # In file /home/me/net.py(31)/ h = self.fc(x)/
  %8(i) = ApplyMomentum(%para1_w, %7) primitive_attrs: {side_effect_mem: Bool(1)}
      : (<Ref[Tensor[Float32]], (3), ref_key=w, is_parameter, is_inplace>, <Tensor[Float32], (3)>) -> (<Tensor[Float32], (3)>)
      # Fullname with scope: (Default/optimizer-Momentum/ApplyMomentum-op0)
  Return(%8)
      : (<Tensor[Float32], (3)>)
}
"""


def write_graph(
    root: Path, text: str = IR, *, rank: int = 0, graph: int = 0, order: list[str] | None = None
) -> None:
    """A graph beside a dump."""
    base = root / f"rank_{rank}"
    (base / "graphs").mkdir(parents=True, exist_ok=True)
    (base / "graphs" / f"ms_output_trace_code_graph_{graph}.ir").write_text(text)
    if order is not None:
        (base / "execution_order").mkdir(exist_ok=True)
        lines = ["NodeExecutionOrder-FullNameWithScope", *order]
        (base / "execution_order" / f"ms_execution_order_graph_{graph}.csv").write_text(
            "\n".join(lines) + "\n"
        )

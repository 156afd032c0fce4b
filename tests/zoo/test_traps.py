# SPDX-License-Identifier: Apache-2.0
"""What users of older tools ran into, each as a few lines of a real program that must behave the
same under `opscope run`.

The programs run one after the other in one process, once alone and once watched: starting torch
costs more than all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import opscope
from opscope.run.database import sql

pytestmark = pytest.mark.zoo

SOURCE = Path(__file__).parents[2] / "src"

# Each prints what it saw; the lines must not change when opscope watches.
PROGRAMS = {
    "identity_of_functions": """
        import inspect, torch, torch.nn.functional as F
        before = (F.gelu, torch.relu, torch.Tensor.__getitem__, torch.Tensor.add)
        class Config:
            activation_func = F.gelu
        assert Config.activation_func is F.gelu, "activation_func must be F.gelu"
        print(F.gelu.__module__, inspect.isbuiltin(F.gelu), F.gelu is torch._C._nn.gelu)
        F.gelu(torch.randn(3)); torch.relu(torch.randn(3))
        print([a is b for a, b in zip(before, (F.gelu, torch.relu, torch.Tensor.__getitem__, torch.Tensor.add))])
    """,
    "pickling_of_models": """
        import copy, io, pickle, torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
        model.activation = torch.nn.functional.gelu
        model(torch.ones(2, 3))
        text = pickle.dumps(model); again = pickle.loads(text)
        buffer = io.BytesIO(); torch.save(model, buffer); buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        print(again.activation is torch.nn.functional.gelu, type(loaded).__name__, type(copy.deepcopy(model)).__name__)
    """,
    "indexing": """
        import torch
        x = torch.arange(24.).reshape(2, 3, 4)
        print(x[0, 1, 2].item(), x[..., -1].tolist(), x[:, None].shape, x[x > 20].tolist(), x[[0, 1], :, [1, 2]].shape)
        scalar = torch.tensor(3.)
        print(scalar[...].item(), scalar[None].shape)
        for action in (lambda: len(scalar), lambda: scalar[0], lambda: x[0, 0, 0, 0]):
            try:
                action()
            except (TypeError, IndexError) as error:
                print(type(error).__name__, error)
        x[0, 1] = 5; x[1][2] += 1
        print(x.sum().item())
    """,
    "views_are_what_they_were": """
        import torch
        x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
        for y in (x.transpose(0, 2), x.permute(2, 0, 1), x[0].t(), x.as_strided((2, 2), (1, 4)), x.expand(5, 2, 3, 4)):
            print(y.stride(), y.storage_offset(), y.is_contiguous(), y.data_ptr() == x.data_ptr(), y._base is x)
    """,
    "names_bound_early": """
        from torch import relu, randn
        from torch.nn.functional import gelu, softmax
        import torch
        torch.manual_seed(0)
        print([t.item().hex() for t in softmax(gelu(relu(randn(4))), 0)])
    """,
    "named_tuples": """
        import torch
        from typing import NamedTuple
        class Output(NamedTuple):
            hidden: torch.Tensor
            scores: tuple
        class Net(torch.nn.Module):
            def forward(self, x):
                return Output(x * 2, (x + 1, {"k": x}))
        out = Net()(torch.ones(2, requires_grad=True))
        print(type(out).__name__, type(torch.max(out.hidden.reshape(1, 2), 1)).__name__, type(out.scores).__name__, out.scores[1].keys())
    """,
    "gradient_norm": """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(inplace=True), torch.nn.Linear(7, 1))
        seen = []
        net[0].weight.register_hook(lambda grad: seen.append(grad.sum().item().hex()))
        net.register_full_backward_hook(lambda module, grad_in, grad_out: seen.append(grad_out[0].sum().item().hex()))
        (net(torch.randn(6, 5)) ** 2).mean().backward()
        print(seen, torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).item().hex())
    """,
    "hooks_of_the_user": """
        import torch
        torch.manual_seed(0); net = torch.nn.Linear(2, 2); calls = []
        net.register_forward_pre_hook(lambda m, args: calls.append("pre"))
        net.register_forward_hook(lambda m, args, out: out * 0)
        net.register_backward_hook(lambda m, gi, go: calls.append("backward"))
        y = net(torch.ones(1, 2)); y.sum().backward()
        print(calls, y.tolist(), list(net._forward_hooks).__len__(), list(net._forward_pre_hooks).__len__())
    """,
    "several_models": """
        import torch
        torch.manual_seed(0)
        a, b = torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.Linear(3, 1))
        (a(torch.ones(1, 3)).sum() + b(torch.ones(1, 3)).sum()).backward()
        print(a.weight.grad.sum().item().hex(), b[0].weight.grad.sum().item().hex())
    """,
    "exceptions_of_the_user": """
        import torch
        try:
            torch.ones(2, 3) @ torch.ones(2, 3)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        class Net(torch.nn.Module):
            def forward(self, x):
                raise KeyError("mine")
        try:
            Net()(torch.ones(1))
        except KeyError as error:
            print(error)
        print(torch.ones(2).sum().item())
    """,
}
SEEN = {
    "names_bound_early": {"aten::gelu.default", "aten::relu.default", "aten::_softmax.default"},
    "several_models": {"aten::addmm.default"},
    "indexing": {"aten::index.Tensor", "aten::select.int"},
    "exceptions_of_the_user": {"aten::mm.default", "aten::sum.default"},
}


# Runs each program as its own main module; what one of them cannot do does not stop the others.
RUNNER = """
import runpy, sys, traceback
for path in sys.argv[1:]:
    print("== " + path, flush=True)
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
"""


@dataclass(frozen=True)
class Watched:
    """What each program printed without and with opscope, and the run."""

    alone: dict[str, str]
    watched: dict[str, str]
    run: Path

    def rows(self, name: str, columns: str, where: str = "true") -> list[dict[str, str]]:
        """Operator rows of one program."""
        query = (
            f"SELECT DISTINCT {columns} FROM calls WHERE level = 'operator' AND source LIKE ? "
            f"AND {where}"
        )
        return list(sql(opscope.open_run(self.run), query, [f"%/{name}.py:%"]))


def execute(words: list[str], place: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    environment.update(PYTHONPATH=path, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    done = subprocess.run(
        words, cwd=place, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    pieces = (piece.partition("\n") for piece in done.stdout.split("== ")[1:])
    return {Path(path).stem: said for path, _, said in pieces}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    place = tmp_path_factory.mktemp("traps")
    (place / "runner").write_text(RUNNER, encoding="utf-8")
    for name, text in PROGRAMS.items():
        (place / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    words = [sys.executable, "runner", *(str(place / f"{name}.py") for name in PROGRAMS)]
    run = place / "run"
    return Watched(
        execute(words, place),
        execute([sys.executable, "-m", "opscope", "run", "-o", str(run), "--", *words], place),
        run,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_does_not_notice(both: Watched, name: str) -> None:
    assert both.alone[name]
    assert "Traceback" not in both.alone[name]
    assert both.watched[name] == both.alone[name]
    assert {row["op"] for row in both.rows(name, "op")} >= SEEN.get(name, set())


def test_models_keep_their_own_module_paths(both: Watched) -> None:
    names = {
        row["name"].partition("#")[0]
        for row in both.rows("several_models", "name", "op LIKE 'aten::addmm%'")
    }
    assert len(names) == 2
    own = r"<root>:addmm|Linear(@\d+)?:addmm|(Sequential(@\d+)?\.)?0:addmm"
    assert all(re.fullmatch(own, name) for name in names), "models of other programs may live yet"


@pytest.mark.sample
def test_no_status_register_of_a_vendor_is_touched() -> None:
    """EI0006 and 107002 came from clearing and reading device status; opscope judges tensors and
    calls none of that.
    """
    recorder = "".join(
        path.read_text(encoding="utf-8") for path in (SOURCE / "opscope" / "record").rglob("*.py")
    )
    assert "import" in recorder
    assert "overflow_npu" not in recorder
    assert "get_npu_overflow_flag" not in recorder

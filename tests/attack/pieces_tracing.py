# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: scripts, traces, graphs, exports, packages, compiled functions and the
profiler.
"""

from __future__ import annotations

import copy
import io
import random
import re
from typing import Any

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.attack import limits


class Block(nn.Module):
    """A small model with a buffer, a branch and a submodule."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x)).relu()
        y = y * self.scale
        return y + x[:, :1]


def scripted(r: random.Random) -> Any:
    model = torch.jit.script(Block())
    x = torch.randn(r.randint(1, 3), 3)
    buffer = io.BytesIO()
    torch.jit.save(model, buffer)
    buffer.seek(0)
    back = torch.jit.load(buffer)
    frozen = torch.jit.freeze(model.eval())
    return (
        model(x),
        back(x),
        frozen(x),
        model.code,
        str(model.graph),
        torch.jit.optimize_for_inference(frozen)(x),
    )


def scripted_function(r: random.Random) -> Any:
    source = (
        "def act(x):\n    # type: (Tensor) -> Tensor\n    y = x\n    for i in range(3):\n    "
        "    y = y * 2 + i\n    return y.sum()\n"
    )
    unit = torch.jit.CompilationUnit(source)
    x = torch.randn(r.randint(1, 3), requires_grad=True)
    found = [unit.act(x) for _ in range(4)]
    found[-1].backward()
    return found, x.grad, str(unit.act.graph)


def traced(r: random.Random) -> Any:
    x = torch.randn(r.randint(1, 3), 3)
    model = torch.jit.trace(Block(), (x,))
    function = torch.jit.trace(lambda a: a.mul(2).add_(1) + torch.ones(3), (x,))
    return (
        model(x),
        str(model.graph),
        model.code,
        function(x),
        str(function.graph),
        str(function.inlined_graph),
        torch.jit.trace_module(Block(), {"forward": x})(x),
    )


def traced_with_writes(r: random.Random) -> Any:
    def act(x: torch.Tensor) -> torch.Tensor:
        y = torch.full((3,), 1e38)
        y.mul_(x).add_(1)
        y[0] = 3
        return y.exp() + (x == 2) * 1.5

    made = torch.jit.trace(act, (torch.ones(3),), check_trace=r.random() < 0.5)
    return str(made.graph), made(torch.ones(3))


def tracing_fails(r: random.Random) -> Any:
    found = []
    for attempt in (
        lambda: torch.jit.trace(lambda x: 1 / 0, (torch.ones(1),)),
        lambda: torch.jit.script(lambda x: x),
        lambda: torch.jit.trace(lambda x: "a", (torch.ones(1),)),
        lambda: torch.jit.trace(lambda x: x if x.sum() > 0 else -x, (torch.ones(1),)).code,
        lambda: fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x),
        lambda: torch.export.export(Block(), (torch.ones(2, 4),)),
        lambda: make_fx(lambda x: x.item())(torch.ones(2)),
    ):
        try:
            found.append(str(attempt()))
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error))[:300]))
    r.shuffle(found)
    return found


def symbolic(r: random.Random) -> Any:
    made = fx.symbolic_trace(Block())
    for node in made.graph.nodes:
        if node.target == "relu":
            node.target = "tanh"
    made.recompile()
    x = torch.randn(r.randint(1, 3), 3)
    interpreted = fx.Interpreter(made).run(x)
    return (
        made(x),
        interpreted,
        made.code,
        [str(n) for n in made.graph.nodes],
        copy.deepcopy(made)(x),
        fx.passes.shape_prop.ShapeProp(made).propagate(x),
    )


def made_into_graphs(r: random.Random) -> Any:
    x = torch.randn(r.randint(1, 3), 3)
    mode = r.choice(("real", "symbolic", "fake"))
    model = Block()

    def step(given: torch.Tensor, weight: torch.Tensor) -> Any:
        y = given @ weight
        y.add_(1)
        return y, torch.autograd.grad(y.relu().sum(), weight)[0]

    made = make_fx(step, tracing_mode=mode)(x, torch.randn(3, 3, requires_grad=True))
    decomposed = make_fx(
        lambda a: torch.nn.functional.silu(a) * 2,
        decomposition_table=torch._decomp.core_aten_decompositions(),
        tracing_mode="real",
    )(x)
    found = [made.code, decomposed.code, decomposed(x)]
    for each in ("real", "fake", "symbolic"):
        try:
            found.append(make_fx(model, tracing_mode=each)(x).code)
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:300]))
    return found, torch.ones(2, dtype=torch.float16) * 60000 * 2


def functional_graphs(r: random.Random) -> Any:
    from torch.func import functionalize, grad, vmap

    def act(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.add_(1)
        y[0].mul_(2)
        return y.sum()

    x = torch.randn(3)
    return (
        make_fx(functionalize(act, remove="mutations_and_views"))(x).code,
        make_fx(grad(act))(x).code,
        make_fx(vmap(lambda a: a.exp() + torch.zeros(1)))(x).code,
        r.random(),
    )


def ahead_of_time(r: random.Random) -> Any:
    from torch._functorch.aot_autograd import aot_function, aot_module
    from torch._functorch.compilers import nop

    codes: list[str] = []

    def keep(graph: Any, inputs: Any) -> Any:
        codes.append(graph.code)
        return nop(graph, inputs)

    x = torch.randn(2, 3, requires_grad=True)
    aot_function(lambda a: (a * r.choice((2, 2))).sin(), fw_compiler=keep, bw_compiler=keep)(
        x
    ).sum().backward()
    model = Block()
    aot_module(model, fw_compiler=keep, bw_compiler=keep)(torch.ones(2, 3)).sum().backward()
    return codes, x.grad, model.linear.weight.grad


def exported(r: random.Random) -> Any:
    x = torch.randn(2, 3)
    made = torch.export.export(
        Block().eval(),
        (x,),
        dynamic_shapes={"x": {0: torch.export.Dim("b", min=2, max=8)}}
        if r.random() < 0.5
        else None,
    )
    buffer = io.BytesIO()
    torch.export.save(made, buffer)
    buffer.seek(0)
    return (
        made.module()(x),
        str(made.graph),
        str(made.graph_signature),
        torch.export.load(buffer).module()(x),
        made.run_decompositions().graph_module.code,
    )


def packaged(r: random.Random) -> Any:
    from torch.package import PackageExporter, PackageImporter

    buffer = io.BytesIO()
    with PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_source_string(
            "mine", f"import torch\ndef act(x):\n    return x * {r.randint(1, 3)}\n"
        )
        exporter.save_pickle("model", "model.pkl", nn.Linear(2, 2))
    buffer.seek(0)
    importer = PackageImporter(buffer)
    module = importer.import_module("mine")
    return (
        module.act(torch.ones(2)),
        importer.load_pickle("model", "model.pkl")(torch.ones(1, 2)),
        importer.file_structure().has_file("mine.py"),
    )


def compiled(r: random.Random) -> Any:
    seen: list[Any] = []

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        seen.append((limits.operators(graph.code), len(graph.graph.nodes), len(inputs)))
        return graph.forward

    model = Block()
    torch._dynamo.reset()
    made = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = made(torch.ones(2, 3)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    explained = torch._dynamo.explain(lambda x: x.sin() + 1)(torch.ones(r.randint(1, 3)))
    return losses, seen, explained.graph_count, explained.graph_break_count


def compiled_with_breaks(r: random.Random) -> Any:
    torch._dynamo.reset()
    count = torch._dynamo.testing.CompileCounter()

    def act(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        if y.sum() > r.choice((0, 0)):
            y = y + 1
        return y.relu()

    made = torch.compile(act, backend=count)
    found = [made(torch.ones(3)), made(-torch.ones(3)), made(torch.ones(4))]
    return found, count.frame_count, count.op_count, dict(torch._dynamo.utils.counters["frames"])


def compiled_by_aot(r: random.Random) -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func

    torch._dynamo.reset()
    codes: list[list[str]] = []

    def keep(graph: Any, inputs: Any) -> Any:
        codes.append(limits.operators(graph.code))
        return make_boxed_func(graph.forward)

    model = Block()
    made = torch.compile(model, backend=aot_autograd(fw_compiler=keep))
    made(torch.ones(r.randint(2, 3), 3)).sum().backward()
    return codes, model.linear.weight.grad


def profiled(r: random.Random) -> Any:
    from torch.profiler import ProfilerActivity, profile, record_function

    model = Block()
    with (
        profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof,
        record_function("mine"),
    ):
        y = model(torch.randn(r.randint(1, 3), 3))
        y.add_(1).mul_(1e38)
        y.sum().backward()
    return y, sorted(
        event.key for event in prof.key_averages() if event.key.startswith(("aten::", "mine"))
    )


def profiled_by_autograd(r: random.Random) -> Any:
    with torch.autograd.profiler.profile() as prof:
        (torch.randn(r.randint(1, 3), requires_grad=True) * 2).sum().backward()
    return sorted({event.name for event in prof.function_events if event.name.startswith("aten::")})


def fused(r: random.Random) -> Any:
    from torch.fx.experimental import optimization

    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU()).eval()
    x = torch.randn(1, 1, r.randint(1, 3), 3)
    found = optimization.fuse(model)(x)
    return found, model(x), torch.nn.utils.fuse_conv_bn_eval(model[0], model[1])(x)

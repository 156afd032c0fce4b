# SPDX-License-Identifier: Apache-2.0
"""Executes an exported program on given inputs and records that, as a process of its own:

python -m opscope.record.exported_program MODEL FOLDER RUN

FOLDER holds a file of tensors for each call, in the order of names; the path of the recording comes
on stdout, what went wrong in one line on stderr. Loading executes what MODEL says
(torch.export.load unpickles); whoever starts this trusts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opscope.formats.archives import keys_of, read_safetensors
from opscope.narrow import name_of
from opscope.record.active import active
from opscope.record.as_child import answer, check_count
from opscope.record.join import record
from opscope.run.schema import EXPORTED


def arranged(program: Any, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """Positional and named arguments of a program of these tensors, which come in their order; what
    else it takes was fixed when it was exported.

    Raises ValueError where it takes others.
    """
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
    from torch.utils import _pytree as pytree

    wanted = [
        each.arg
        for each in program.graph_signature.input_specs
        if each.kind == InputKind.USER_INPUT
    ]
    names = [arg.name for arg in wanted if isinstance(arg, TensorArgument)]
    unknown = [arg for arg in wanted if not isinstance(arg, (TensorArgument, ConstantArgument))]
    if unknown:
        raise ValueError(f"it takes a number that is not fixed ({unknown[0].name})")
    check_count(names, tensors)
    waiting = iter(tensors)
    leaves = [next(waiting) if isinstance(arg, TensorArgument) else arg.value for arg in wanted]
    given, named = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return tuple(given), named


def execute(model: str, folder: str, run: str) -> Path:
    """Execute the program once for each file; the path of the recording."""
    import torch

    program = torch.export.load(model)
    calls = [
        arranged(program, _tensors(file)) for file in sorted(Path(folder).glob("*.safetensors"))
    ]
    with record(run, values="full", keep="all") as recording, torch.no_grad():
        module, session = program.module(), active.session
        if session is not None and session.recorder is not None:
            session.state(EXPORTED, {"file": Path(model).name})
            module = interpreted(module, session.recorder.book)
        for given, named in calls:
            module(*given, **named)
    return recording.path or Path(run)


def _tensors(path: Path) -> list[Any]:
    """The tensors of a file, in the order of their keys."""
    from opscope.substitute.arguments import bytes_of, dtype_named

    arrays = [read_safetensors(path, key) for key in sorted(keys_of(path))]
    return [
        bytes_of(array).view(dtype_named(name_of(array.dtype))).reshape(array.shape)
        for array in arrays
    ]


def interpreted(module: Any, book: Any) -> Any:
    """The module of an exported program, which runs node by node from now on, for a bookkeeper: in
    the modules and at the lines that its nodes were exported from, and without the guards that only
    raise.
    """
    from torch.utils import _pytree as pytree

    from opscope.record.torch.interpreted import Repeated

    for node in [each for each in module.graph.nodes if each.op == "call_module"]:
        if not node.users:
            module.graph.erase_node(node)

    def forward(*given: Any, **named: Any) -> Any:
        leaves = pytree.arg_tree_leaves(*given, **named)
        made = Repeated(module, module.graph, book).run(*leaves, enable_io_processing=False)
        return module.graph.process_outputs(made)

    module.forward = forward
    kind = type(module)  # which torch makes for this one, by a name that tells nothing
    kind.__module__, kind.__qualname__ = "torch.export", "ExportedProgram"
    return module


if __name__ == "__main__":
    answer(execute)

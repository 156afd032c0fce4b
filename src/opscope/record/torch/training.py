# SPDX-License-Identifier: Apache-2.0
"""Facts of a training that no operator shows: what optimizers hold, which modules train, which
parameters are one.

They are asked at the 1st, 2nd, 4th, 8th … step of an optimizer, and when a module is called with
another mode than the last time; process.json holds them (docs/store.md).
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from opscope.record.torch.modules import Modules, held, joined, tree
from opscope.record.torch.optimizers import parameters

MOST_MODES = 4096  # that are kept, of all modules
MOST_NAMES = 4096  # parameters of an optimizer that are named

Place = tuple[weakref.ref[torch.nn.Module], str, str]  # module, its own name of it, the whole name


class Training:
    """What process.json says of a training; modules tells the names of parameters."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._modes: dict[str, list[tuple[int, bool]]] = {}
        self._noted = 0
        self._ties: list[list[Place]] = []
        self._parted: list[dict[str, Any]] = []

    def facts(self) -> dict[str, Any]:
        """Everything that is known, as JSON holds it; empty where there is no training."""
        known = {
            "optimizers": list(self._optimizers.values()),
            "modes": {
                path: modes
                for path, modes in self._modes.items()
                if not all(mode for _, mode in modes)
            },
            "parted": self._parted,
        }
        return {name: each for name, each in known.items() if each}

    def optimizer_steps(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """An optimizer is about to step."""
        kind = type(optimizer).__name__
        known = self._optimizers.setdefault(id(optimizer), {"kind": kind, "steps": 0})
        known["steps"] += 1
        if known["steps"] & (known["steps"] - 1):
            return
        names = [self._modules.label(each)[1] for each in parameters(optimizer)]
        known["parameters"] = [name for name in names if name is not None][:MOST_NAMES]
        known["unnamed"] = names.count(None)
        self._look_at_ties(step)

    def module_enters(self, module: torch.nn.Module, path: str, index: int) -> None:
        """A module is called."""
        mode = module.__dict__.get("training")
        known = self._modes.get(path)
        if type(mode) is not bool or (known and known[-1][1] is mode):
            return
        if self._noted < MOST_MODES:
            self._noted += 1
            self._modes.setdefault(path, []).append((index, mode))

    def model_learnt(self, root: torch.nn.Module) -> None:
        """A model is met: which of its parameters are one."""
        places: dict[int, list[Place]] = {}
        for path, module in tree(root):
            for name, parameter in held(module, "_parameters"):
                owner = (weakref.ref(module), name, joined(path, name))
                places.setdefault(id(parameter), []).append(owner)
        self._ties += [group for group in places.values() if len(group) > 1]

    def _look_at_ties(self, step: int) -> None:
        whole = []
        for group in self._ties:
            owners = [(reference(), name) for reference, name, _ in group]
            identities = {
                id(owner.__dict__.get("_parameters", {}).get(name))
                for owner, name in owners
                if owner is not None
            }
            if len(identities) > 1:
                self._parted.append({"step": step, "parameters": [name for _, _, name in group]})
            else:
                whole.append(group)
        self._ties = whole

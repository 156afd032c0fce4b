# SPDX-License-Identifier: Apache-2.0
"""Updates that are not made: an optimizer of torch that is to step by gradients of which some are
not finite finds none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from opscope.record.torch.aside import aside
from opscope.run.contain import contain, reason, tell


def skip_unsound_steps() -> RemovableHandle:
    """Have every optimizer of torch leave its parameters as they are where a gradient is not
    finite, on any rank of the program's process group, until the handle is removed.
    """
    return register_optimizer_step_pre_hook(_before_step)


def _before_step(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Hook of torch's optimizers: args are the optimizer itself and what its step is given. A
    closure, as Lightning's, makes the gradients within the step.
    """
    named = "closure" in kwargs
    makes: Any = kwargs["closure"] if named else next(iter(args[1:]), None)
    if makes is None:
        contain(_not_looked_at, _drop_unsound, optimizer)
        return None

    def closure() -> Any:
        loss = makes()
        contain(_not_looked_at, _drop_unsound, optimizer)
        return loss

    return (
        (args, {**kwargs, "closure": closure}) if named else ((args[0], closure, *args[2:]), kwargs)
    )


def _not_looked_at(error: BaseException) -> None:
    tell(f"gradients were not looked at, the step is made: {reason(error)}")


def _drop_unsound(optimizer: torch.optim.Optimizer) -> None:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    with aside(), torch.no_grad():
        if _unsound([each.grad for each in parameters if each.grad is not None]):
            for each in parameters:
                each.grad = None


def _unsound(gradients: list[torch.Tensor]) -> bool:
    flags = [torch.isfinite(each).all().logical_not() for each in map(_numbers, gradients)]
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not flags and not several:
        return False
    device = flags[0].device if flags else torch.device("cpu")
    unsound = torch.zeros((), dtype=torch.int32, device=device)
    for each in flags:
        unsound += each.to(device)
    if several and torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(unsound)
    return bool(unsound)


def _numbers(gradient: torch.Tensor) -> torch.Tensor:
    """What a gradient holds itself: of a shard this rank's part, of a sparse one its values."""
    own: Any = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    held: torch.Tensor = own._values() if own.is_sparse else own
    return held

# SPDX-License-Identifier: Apache-2.0
"""Which rank this process is: torch.distributed when initialised, else what the launcher's
variables say.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

RANK_VARIABLES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "RANK_ID",
)  # the last one is msrun's and HCCL's
LOCAL_VARIABLES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "DEVICE_ID",
)
WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "RANK_SIZE")


def exchanging() -> bool:
    """Whether this process has a process group of torch.distributed."""
    distributed = sys.modules.get("torch.distributed")
    return (
        distributed is not None
        and distributed.is_available()
        and bool(distributed.is_initialized())
    )


def known_rank(environ: Mapping[str, str]) -> int | None:
    """Rank of this process, None while nothing tells it."""
    if exchanging():
        return int(sys.modules["torch.distributed"].get_rank())
    return first_number(environ, RANK_VARIABLES)


def known_world(environ: Mapping[str, str]) -> int | None:
    """Number of ranks, None while nothing tells it."""
    if exchanging():
        return int(sys.modules["torch.distributed"].get_world_size())
    return first_number(environ, WORLD_VARIABLES)


def first_number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of these variables that holds a number."""
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), None)

# SPDX-License-Identifier: Apache-2.0
"""Witness `plain`: one thread, and PyTorch's own kernels in place of oneDNN's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import Bound, perform


class Plain:
    """Libraries and the split of work over threads are no part of the mathematics."""

    words = "on one thread without oneDNN"

    def element(
        self,
        bound: Bound,
        slot: str,
        place: tuple[int, ...],
        shape: tuple[int, ...],  # noqa: ARG002
    ) -> torch.Tensor | None:
        if torch.get_num_threads() == 1 and not torch._C._get_mkldnn_enabled():
            return None
        with plainly():
            return perform(bound, Conditions(device="cpu")).outputs[slot][place]


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """One thread and no oneDNN, put back afterwards."""
    threads, library = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)  # noqa: FBT003
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch._C._set_mkldnn_enabled(library)

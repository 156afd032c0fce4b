# SPDX-License-Identifier: Apache-2.0
"""The bookkeeper that serves here: the compiled one, else its reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from opscope.kernels import compiled
from opscope.kernels.bookkeeping import Recorder
from opscope.record.config import RecordConfig
from opscope.record.torch.binding import TorchBinding
from opscope.run.schema import CALL_TYPES, TENSOR_TYPES


def make_book(binding: TorchBinding, config: RecordConfig) -> Any:
    """A recorder as kernels.bookkeeping.Recorder defines it."""
    native = compiled.load_recorder()
    values = (
        "anomaly" if config.values == "overflow" else config.values
    )  # which tensors of such a call are kept is the sentinel's word
    if native is None:
        return Recorder(
            binding,
            values=values,
            sample=config.sample,
            io=config.selection.io,
            selective=binding.selective,
        )
    book = native.Recorder(
        binding,
        values,
        config.sample,
        config.selection.io,
        list(CALL_TYPES.items()),
        list(TENSOR_TYPES.items()),
    )
    book.use_threads(torch.get_num_threads(), openmp_library())
    return book


def openmp_library() -> str:
    """The OpenMP library torch computes with, so that its threads serve the statistics too; "" when
    it is not GNU's.
    """
    libraries = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*")) + sorted(
        Path(torch.__file__).parent.parent.glob("torch.libs/libgomp*.so*")
    )
    return str(libraries[0]) if libraries else ""

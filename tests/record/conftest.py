# SPDX-License-Identifier: Apache-2.0
"""One checking process for all tests of a module: pytest.mark.usefixtures("one_process")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from opscope.record.torch import checker, substitution
from opscope.substitute.apart import Apart


class Reused(Apart):
    def close(self) -> None:
        """Leave it for the next test."""


@pytest.fixture(scope="module")
def reused() -> Iterator[Reused]:
    apart = Reused()
    yield apart
    Apart.close(apart)


@pytest.fixture
def one_process(reused: Reused, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(checker, "Apart", lambda _: reused)
    monkeypatch.setattr(substitution, "Apart", lambda: reused)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

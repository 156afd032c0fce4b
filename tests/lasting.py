# SPDX-License-Identifier: Apache-2.0
"""One checking process for all tests of a module: pytest.mark.usefixtures("one_process"), where a
conftest.py has these fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from opscope.record.torch import checker, substitution
from opscope.substitute.apart import Apart


class Lasting(Apart):
    """A process that outlives its recordings: starting one takes longer than most trainings of the
    tests.
    """

    def close(self) -> None:
        """Leave it for the next test."""


@pytest.fixture(scope="module")
def lasting() -> Iterator[Lasting]:
    shared = Lasting()
    yield shared
    Apart.close(shared)


@pytest.fixture
def one_process(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(checker, "Apart", lambda _: lasting)
    monkeypatch.setattr(substitution, "Apart", lambda: lasting)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    yield
    torch.set_num_threads(threads)

# SPDX-License-Identifier: Apache-2.0
"""Seeds for every generator a program may draw from."""

from __future__ import annotations

import os
import random
import sys


def seed_all(seed: int = 1234, *, deterministic: bool = False) -> None:
    """Seed python, NumPy, and torch and MindSpore where they are imported; deterministic asks them
    for such algorithms.

    seed is below 2**32, NumPy's limit. Hash randomisation of child processes is seeded too.
    """
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(mode=True, warn_only=True)
    mindspore = sys.modules.get("mindspore")
    if mindspore is not None:
        mindspore.set_seed(seed)
        if deterministic:
            mindspore.set_context(deterministic="ON")

# SPDX-License-Identifier: Apache-2.0
"""The line of a library below the user's own; warnings that differ in numbers alone."""

from __future__ import annotations

from opscope.questions.libraries import library_line
from opscope.scan.near_limit import once_each

SITE = "/venv/lib/python3.11/site-packages"
STACK = (
    f"{SITE}/torch/nn/functional.py:10 in linear",
    f"{SITE}/transformers/pytorch_utils.py:118 in forward",
    f"{SITE}/transformers/models/gpt2/modeling_gpt2.py:200 in forward",
    "/home/me/train.py:9 in main",
    "/usr/lib/python3.11/runpy.py:88 in _run_code",
)


def test_the_innermost_line_of_a_library_is_shown() -> None:
    assert library_line(STACK, "/home/me/train.py:9") == f"{SITE}/transformers/pytorch_utils.py:118"


def test_torch_and_what_calls_the_user_are_no_library() -> None:
    assert library_line((STACK[0], *STACK[3:]), "/home/me/train.py:9") is None
    assert (
        library_line(("/home/me/model.py:3 in forward", *STACK[1:]), "/home/me/model.py:3") is None
    )


def test_warnings_of_every_layer_are_told_once() -> None:
    told = once_each(
        [f"rank 0: layers.{i}:mul#1 reaches {6e4 + i} in step 3" for i in range(3)]
        + ["gradients grow"]
    )
    assert told == [
        "rank 0: layers.0:mul#1 reaches 60000.0 in step 3 (and 2 more like it)",
        "gradients grow",
    ]

# SPDX-License-Identifier: Apache-2.0
"""The catalogue beside the installed torch: what tags, alias annotations and probes tell is not
told otherwise there.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import torch

from opscope.operators.catalogue import sheet, traits_of
from opscope.record.torch.operator_facts import (
    argument_sheet,
    derived_sheet,
    draws,
    is_pointwise,
    overloads,
)

ARGUMENTS = {
    "self": lambda: torch.ones(2, 2),
    "size": lambda: [3, 3],
    "stride": lambda: [3, 1],
    "physical_layout": lambda: [0, 1],
}
COALESCED = {
    "aten::coalesce"
}  # gives itself back where it is coalesced already, and else adds up duplicates


@pytest.fixture
def memory_filled_with_nan() -> Iterator[None]:
    """Memory that nobody wrote holds NaN."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


def words_of(overload: Any) -> str:
    return str(overload._schema.name)


def factories() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Overloads that can be called with a size, and a tensor at most, with such arguments."""
    for overload in overloads("aten"):
        required = [
            each.name for each in overload._schema.arguments if not each.has_default_value()
        ]
        if "size" in required and set(required) <= set(ARGUMENTS):
            yield overload, {name: ARGUMENTS[name]() for name in required}


def test_the_derived_sheet_is_that_of_this_torch() -> None:
    shipped = [word for word, row in sheet("torch").rows.items() if row == {"pointwise": True}]
    assert len(shipped) == len(sheet("torch").rows)
    if f"torch {'.'.join(torch.__version__.split('.')[:2])} tells" in derived_sheet():
        made = [
            line.split()[0] for line in derived_sheet().splitlines() if not line.startswith("#")
        ]
        missing = sorted(set(made) ^ set(shipped))
        tagged = {
            words_of(each).partition("::")[2] for each in overloads("aten") if is_pointwise(each)
        }
        assert not [word for word in missing if word in tagged], (
            "python scripts/derive_operators.py writes it anew"
        )


def may_view(overload: Any) -> bool:
    """Whether a result may share memory with an argument that is not written; `to` and `contiguous`
    say so as well, and often copy.
    """
    return any(
        each.alias_info is not None and not each.alias_info.is_write
        for each in overload._schema.returns
    )


def test_what_may_be_a_view_is_no_computation() -> None:
    views = [each for each in overloads("aten") if may_view(each)]
    assert len(views) > 80
    wrong = sorted(
        {words_of(each) for each in views if not traits_of(words_of(each)).moves} - COALESCED
    )
    assert not wrong


def test_what_draws_is_random() -> None:
    drawing = [each for each in overloads("aten") if draws(each)]
    assert len(drawing) > 40
    assert not sorted(
        {words_of(each) for each in drawing if not traits_of(words_of(each)).random}
        - {"aten::_nested_tensor_softmax_with_shape"}
    )


def test_who_leaves_memory_unwritten_allocates(memory_filled_with_nan: None) -> None:
    unwritten, written = set(), set()
    for overload, arguments in factories():
        try:
            made = overload(**arguments)
        except (RuntimeError, TypeError):
            continue
        if (
            isinstance(made, torch.Tensor)
            and made.is_floating_point()
            and made.layout == torch.strided
            and made.numel()
        ):
            (unwritten if bool(made.isnan().all()) else written).add(words_of(overload))
    assert {"aten::empty", "aten::new_empty", "aten::empty_strided"} <= unwritten
    assert not sorted(name for name in unwritten if not traits_of(name).allocates)
    kept = {"aten::resize", "aten::resize_"}  # what was there stays, what is new is not written
    assert not sorted(
        name for name in written - kept if traits_of(name).allocates and "zerotensor" not in name
    )


def test_the_names_of_arguments_are_those_of_this_torch() -> None:
    made = argument_sheet().splitlines()
    shipped = {line.split()[0]: line.split()[1:] for line in names_file().splitlines()[2:]}
    assert len(shipped) > 1000
    if made[1] == names_file().splitlines()[1]:
        assert shipped == {line.split()[0]: line.split()[1:] for line in made[2:]}, (
            "python scripts/derive_operators.py --arguments writes it anew"
        )


def names_file() -> str:
    return files("opscope.operators").joinpath("data", "arguments", "aten.txt").read_text("utf-8")

# SPDX-License-Identifier: Apache-2.0
"""The table of references, how one is entered, and attributes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Reference = Callable[[Sequence[Any], "Attributes"], Any]
TABLE: dict[str, Reference] = {}


class Inapplicable(Exception):  # noqa: N818 - says what it is: the reference does not apply to these inputs
    """An input or attribute that the reference needs is missing or of the wrong kind."""


class Attributes:
    """Attributes by name, with the default of the prototype."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __call__(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; the default where the graph does not give it."""
        value = self._values.get(name)
        return default if value is None else value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """An attribute that is true or false."""
        return bool(self(name, default))

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """An attribute that is a list of integers, or one integer."""
        value = self(name, default)
        return (int(value),) if isinstance(value, int | float) else tuple(int(one) for one in value)


def reference(*names: str) -> Callable[[Reference], Reference]:
    """Enters a function under these types."""

    def enter(function: Reference) -> Reference:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def one(function: Callable[..., Any], inputs: int = 1) -> Reference:
    """A reference out of a NumPy function of so many inputs."""
    return lambda x, _: function(*x[:inputs])


def axes_of(x: Sequence[Any], a: Attributes) -> tuple[int, ...]:
    """Axes given as an input (ReduceSum) or as an attribute (ReduceSumD); all of them where neither
    is given or the list is empty.
    """
    if len(x) > 1 and x[1] is not None:
        axes = tuple(int(axis) for axis in x[1].reshape(-1))
    else:
        axes = next(
            (a.integers(name) for name in ("axes", "axis", "dimension") if a(name) is not None),
            (),
        )
    if not axes and a.flag("noop_with_empty_axes") and len(x) > 1:
        return ()
    return axes or tuple(range(x[0].ndim))

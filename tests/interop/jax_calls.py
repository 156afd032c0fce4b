# SPDX-License-Identifier: Apache-2.0
"""A watched function is the function that it was: python jax_calls.py FOLDER"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opscope
from opscope.record.jax.interpreted import Interpreter
from opscope.run.query import calls


class Told(NamedTuple):
    total: Any
    rest: dict[str, Any]


@partial(jax.jit, static_argnames=("kind", "times"), donate_argnums=(0,))
def several(x: Any, y: Any = None, *, kind: str = "sum", times: int = 2, rate: Any = 0.5) -> Told:
    jax.debug.callback(lambda: CALLED.append(kind))
    found = x.sum() if kind == "sum" else x.mean()
    rest = {"none": y, "weak": jnp.asarray(rate) * times, "whole": (x > 0, x.astype(jnp.bfloat16))}
    return Told(found * rate, {**rest, "key": jax.random.key(times), "given": x})


CALLED: list[str] = []


def plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert str(a.aval) == str(b.aval)
        np.testing.assert_array_equal(plain(a), plain(b))


class Model:
    """Whose method is watched."""

    @partial(opscope.watch_jax, run=Path(sys.argv[1], "method"))
    @partial(jax.jit, static_argnums=0)
    def double(self, x: Any) -> Any:
        """Twice as much."""
        return 2 * x


def main(folder: Path) -> None:
    watched = opscope.watch_jax(several, folder / "several")
    x = jnp.arange(6, dtype=jnp.float32)
    for given in ({}, {"kind": "mean", "times": 3, "rate": jnp.float32(2)}, {"y": np.ones(2)}):
        CALLED.clear()
        answer = watched(x, **given)
        jax.effects_barrier()
        assert len(CALLED) == 1
        same(answer, several(x.copy(), **given))
    assert not x.is_deleted()
    assert watched.lower(x).as_text() == several.lower(x).as_text()
    assert Model().double(x)[1] == 2
    assert Model.double.__doc__ == "Twice as much."
    cube = opscope.watch_jax(jax.jit(lambda x: x**3), folder / "cube")
    assert jax.grad(cube)(2.0) == 12
    assert jax.vmap(cube)(x)[2] == 8

    def broken(self: Any, *_: Any) -> Any:
        raise RuntimeError("ours")

    execute, Interpreter.execute = Interpreter.execute, broken  # type: ignore[method-assign]
    assert cube(jnp.float32(3)) == 27
    Interpreter.execute = execute  # type: ignore[method-assign]
    assert cube(jnp.float32(4)) == 64
    cube.recording.close()
    assert cube(jnp.float32(5)) == 125
    called = [call.op for call in calls(opscope.open_run(folder / "cube"))]
    assert called == ["<lambda>", "jax::integer_pow"]
    with pytest.raises(opscope.UsageError, match=r"no function of jax\.jit"):
        opscope.watch_jax(lambda x: x, folder / "none")
    assert not (folder / "none").exists()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

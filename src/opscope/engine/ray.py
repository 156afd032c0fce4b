# SPDX-License-Identifier: Apache-2.0
"""Ray as a concurrent.futures.Executor: each submitted function is one task of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class RayExecutor(Executor):
    """Submits to a cluster, or to one of this machine where no address is given."""

    def __init__(self, address: str | None = None) -> None:
        import ray

        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """A future of fn(*args, **kwargs), which Ray runs, and runs again when a worker dies."""
        future: Future[Result] = self._ray.remote(fn).remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - Executor's
        """Leave the cluster where it was joined here."""
        if self._ours:
            self._ray.shutdown()

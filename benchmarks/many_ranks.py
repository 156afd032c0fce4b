# SPDX-License-Identifier: Apache-2.0
"""Scanning jobs of many ranks by two workers: seconds, time a row, peak memory of every process.

    PYTHONPATH=. python benchmarks/many_ranks.py [--ranks 32,320,1000] [--compare]
        [--engine processes:2,dask,ray] [--faults none,together,nan_forward,…]

Every rank is a run folder of its own, written by the product's writer (tests/scale/job.py): 3,120
rows of tensors, no two alike. A fault that stays on its rank is planted by writing that rank anew,
one that spreads by writing the job again; "together" is one job with nine kinds. Says of each
whether the planted place was named, and nothing else.
--compare holds each job against the healthy one instead. Dask and Ray are taken from the
environment that runs this; of Dask a local cluster of two worker processes is started.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.scale.job import FAULTS, Plan, planned, planned_together, told_alone, write_rank

from opscope.compare.distributed import compare_by
from opscope.engine.executors import executor_of
from opscope.formats.registry import open_run
from opscope.run.finding import Document
from opscope.run.store.layout import PROCESSES, create_run, seal_run
from opscope.scan.api import scan

STAYS = frozenset(
    {"other_epsilon", "other_result", "weights_part", "gradients_part", "no_exchange"}
)


def written(run: Path, plan: Plan, ranks: Sequence[int]) -> int:
    """Writes these ranks of a job with two processes; their rows of tensors."""
    with ProcessPoolExecutor(2) as pool:
        given = [run] * len(ranks), [plan] * len(ranks), ranks
        return sum(pool.map(write_rank, *given, chunksize=8))


def job(folder: Path, plan: Plan) -> int:
    run = create_run(folder, command=["torchrun", "train.py"])
    rows = written(run, plan, range(plan.ranks))
    seal_run(run)
    return rows


@contextmanager
def engine(name: str) -> Iterator[Executor]:
    if name != "dask":
        with executor_of(name) as pool:
            assert pool is not None
            yield pool
        return
    from distributed import LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, executor_of(cluster.scheduler_address.replace("tcp:", "dask:")) as pool:
        assert pool is not None
        yield pool


def peaks() -> list[int]:
    """Peak MiB of this process and of all below it, the largest first."""
    parents, most = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines = (entry / "status").read_text().splitlines()
            except OSError:
                continue
            facts = dict(line.split(":", 1) for line in lines)
            parents[int(entry.name)] = int(facts["PPid"])
            most[int(entry.name)] = int(facts.get("VmHWM", "0 kB").split()[0]) >> 10
    ours = {os.getpid()}
    while more := {pid for pid, above in parents.items() if above in ours} - ours:
        ours |= more
    return sorted((most[pid] for pid in ours if pid in most), reverse=True)


def tell(name: str, plan: Plan, rows: int, seconds: float, document: Document) -> None:
    right = document.complete and told_alone(document, plan)
    memory = ", ".join(f"{each}" for each in peaks()[:3])
    print(
        f"{plan.ranks:6} ranks {rows:9} rows  {name:30}"
        f" {'right' if right else 'WRONG'} {seconds:7.1f} s"
        f" {seconds / rows * 1e6:6.2f} us a row  peaks {memory} MiB",
        flush=True,
    )


def asked(options: argparse.Namespace, folder: Path, pool: Executor) -> Document:
    if not options.compare:
        return scan(folder, executor=pool)
    return compare_by(pool, open_run(folder), open_run(folder.with_name("golden")))


def measured(options: argparse.Namespace, ranks: int, folder: Path) -> None:
    golden, run = folder / "golden", folder / "run"
    size = {"ranks": ranks, "steps": options.steps, "layers": 8, "seed": options.seed}
    begun = time.perf_counter()
    rows = job(golden, planned(None, **size))
    print(f"{ranks:6} ranks written in {time.perf_counter() - begun:.1f} s", flush=True)
    for name in options.faults.split(","):
        plan = (
            planned_together(**size)
            if name == "together"
            else planned(None if name == "none" else name, **size)
        )
        if name == "none" or name in STAYS:
            shutil.copytree(golden, run, copy_function=os.link)
        else:
            job(run, plan)
        for fault in plan.faults if name in STAYS else ():
            (old,) = (run / PROCESSES).glob(f"p-*-{1000 + fault.rank}-*")
            shutil.rmtree(old)
            written(run, plan, [fault.rank])
        for each in options.engine.split(","):
            begun = time.perf_counter()
            with engine(each) as pool:
                document = asked(options, run, pool)
                tell(f"{name} by {each}", plan, rows, time.perf_counter() - begun, document)
        shutil.rmtree(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="32,320,1000")
    parser.add_argument("--engine", default="processes:2")
    parser.add_argument("--faults", default=",".join(("none", *FAULTS)))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            measured(options, ranks, Path(folder))


if __name__ == "__main__":
    main()

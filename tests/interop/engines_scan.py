# SPDX-License-Identifier: Apache-2.0
"""Scans runs by a named engine of this machine and in one process: python engines_scan.py dask|ray
RUN… prints for each whether the documents are the same, and the verdict.
"""

import sys
from contextlib import nullcontext

import msgspec

from opscope.engine.executors import executor_of
from opscope.report.json import json_text
from opscope.scan.api import scan


def cluster():
    from distributed import LocalCluster

    return LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)


def main():
    engine, *runs = sys.argv[1:]
    with cluster() if engine == "dask" else nullcontext() as opened:
        name = "ray" if opened is None else opened.scheduler_address.replace("tcp:", "dask:")
        with executor_of(name) as executor:
            for run in runs:
                found = scan(run, executor=executor)
                equal = msgspec.json.decode(json_text(found)) == msgspec.json.decode(
                    json_text(scan(run))
                )
                print("same" if equal else "other", found.verdict)


if __name__ == "__main__":
    main()

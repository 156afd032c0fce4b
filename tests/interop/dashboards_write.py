# SPDX-License-Identifier: Apache-2.0
"""Records a cell of a real IPython, hands its run to every dashboard, and reads from each what
it kept. Prints the operator of the finding, then a line for each.
"""

import os
import sys
import time
from pathlib import Path

CELL = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4))
(net(torch.full((2, 4), 1e30)) ** 2).sum().backward()
1 / 0
"""
place = Path(sys.argv[1])
os.environ.update(IPYTHONDIR=str(place / "ipython"), MLFLOW_ALLOW_FILE_STORE="true")


def cell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "opscope")
    document = shell.run_cell_magic("opscope", f"-o '{place / 'run'}'", CELL)
    print(document.findings[0].op)
    shown, _ = shell.display_formatter.format(document)
    print("html", "overflow-origin" in shown["text/html"])


def tensorboard():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    from opscope.integrations.dashboards import to_tensorboard

    with SummaryWriter(place / "board") as writer:
        to_tensorboard(place / "run", writer)
    kept = EventAccumulator(str(place / "board"))
    kept.Reload()
    (scalar,) = kept.Scalars("opscope/largest/forward/0")
    (text,) = kept.Tensors("opscope/finding/0/text_summary")
    print(
        "tensorboard",
        scalar.step,
        1e29 < scalar.value < 1e31,
        b"pow" in text.tensor_proto.string_val[0],
    )


def mlflow():
    import mlflow

    from opscope.integrations.dashboards import to_mlflow

    mlflow.set_tracking_uri((place / "ml").as_uri())
    with mlflow.start_run() as active:
        to_mlflow(place / "run", mlflow)
    client = mlflow.MlflowClient()
    (metric,) = client.get_metric_history(active.info.run_id, "opscope/largest/forward/0")
    text = mlflow.artifacts.load_text(f"runs:/{active.info.run_id}/opscope/verdict.txt")
    print("mlflow", metric.step, 1e29 < metric.value < 1e31, "pow" in text)


def weights_and_biases():
    import wandb

    from opscope.integrations.dashboards import to_logs

    with wandb.init(project="x", mode="offline", dir=place, settings={"silent": True}) as run:
        to_logs(place / "run", run)
    wanted, kept = (b"opscope/largest/forward/0", b"aten::pow"), b""
    for _ in range(100):  # a process of its own writes the file
        kept = b"".join(path.read_bytes() for path in place.glob("wandb/offline-run-*/*.wandb"))
        if all(each in kept for each in wanted):
            break
        time.sleep(0.1)
    print("wandb", *(each in kept for each in wanted))


def swan():
    import swanlab

    from opscope.integrations.dashboards import to_logs

    swanlab.init(project="x", mode="offline", logdir=str(place / "swan"))
    to_logs(place / "run", swanlab, text=swanlab.Text)
    swanlab.finish()
    kept = b"".join(path.read_bytes() for path in place.glob("swan/**/*") if path.is_file())
    print("swanlab", b"opscope/largest/forward/0" in kept, b"aten::pow" in kept)


def opentelemetry():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from opscope.integrations.dashboards import to_opentelemetry

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    to_opentelemetry(place / "run", provider.get_tracer("test"))
    (span,) = exporter.get_finished_spans()
    (event,) = span.events
    print("opentelemetry", event.name, event.attributes["opscope.op"])


cell()
weights_and_biases()
swan()
opentelemetry()
tensorboard()
mlflow()

# SPDX-License-Identifier: Apache-2.0
"""Records a cell of a real IPython, hands its run to TensorBoard and MLflow, and reads from both what
they kept. Prints the operator of the finding, then a line for each.
"""

import os
import sys
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


cell()
tensorboard()
mlflow()

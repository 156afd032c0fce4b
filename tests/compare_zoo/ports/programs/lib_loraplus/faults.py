# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers", "peft"]
FAULTS = {
    "rslora": [("ALPHA / RANK**0.5", "ALPHA / RANK")],
    "rates": [
        ("[model.head.weight], [model.head.bias]", "[model.head.weight, model.head.bias], []"),
    ],
    "blocks": [("owner[:, None] == owner[None, :]", "(owner >= 0).expand(len(owner), -1)")],
    "head": [("classifier.modules_to_save.default", "classifier.original_module")],
    "eps": [("nn.LayerNorm(WIDTH, eps=1e-12)", "nn.LayerNorm(WIDTH)")],
}

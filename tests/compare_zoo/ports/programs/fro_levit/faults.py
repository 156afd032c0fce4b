# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "fold_eps": [("torch.sqrt(var + 1e-5)", "torch.sqrt(var + 1e-3)")],
    "offsets": [("table[:, down * side + right]", "table[:, right * side + down]")],
    "hardswish": [
        (
            'F.hardswish(F.linear(x, *parts["linear_up"]))',
            'F.silu(F.linear(x, *parts["linear_up"]))',
        )
    ],
    "teacher": [("[torch.stack(both).mean(0) for both in zip(*heads)]", "heads[0]")],
    "resize": [(', mode="bilinear", antialias=True)', ', mode="bilinear")')],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "rotary": [("weight.unflatten(0, (N_HEAD, -1, 2)).transpose(1, 2).flatten(0, 2)", "weight")],
    "frequencies": [("torch.arange(0, SIZE, 2).float()", "torch.arange(SIZE // 2).float()")],
    "gate": [
        (
            '[take["feed_forward.w1"], take["feed_forward.w3"]]',
            '[take["feed_forward.w3"], take["feed_forward.w1"]]',
        )
    ],
    "boundary": [
        (
            "labels = torch.cat([row[1:n] for row, n in zip(rows, sizes)])",
            "labels = packed.roll(-1)",
        )
    ],
    "unscale": [
        (
            "torch.stack([g.square().sum() for g in grads])",
            "torch.stack([g.square().sum() for g in scaled])",
        )
    ],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "positions": [("weight[2 : 2 + words.size(1)]", "weight[: words.size(1)]")],
    "landmarks": [
        (
            "F.avg_pool1d(flat, LENGTH // MARKS)",
            "flat.unflatten(-1, (LENGTH // MARKS, MARKS)).mean(-2)",
        )
    ],
    "inverse": [("a.sum(-2).amax()", "a.sum(-2).amax(-1)[..., None, None]")],
    "mask": [(".masked_fill(padding[:, None, None], -math.inf)", "")],
    "accumulator": [("torch.full_like(p, 0.1)", "torch.full_like(p, 1e-3)")],
}

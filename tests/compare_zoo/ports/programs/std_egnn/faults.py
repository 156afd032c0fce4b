# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "attention": [
        (
            'm * dense(self.p + "att_mlp.0", m).sigmoid()',
            'm * dense(self.p + "att_mlp.0", m).softmax(2)',
        )
    ],
    "radial": [("dist2 = rel.square().sum(-1)", "dist2 = (rel.square().sum(-1) + 1e-8).sqrt()")],
    "mean": [("degree = pair.sum(2).clamp(min=1)", "degree = torch.full_like(pair.sum(2), 4)")],
    "readout": [('silu(dense("node_dec", h)) * alive[..., None]', 'silu(dense("node_dec", h))')],
    "schedule": [("math.pi * (step - 1) / 6", "math.pi * step / 6")],
}

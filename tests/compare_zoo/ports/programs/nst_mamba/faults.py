# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of mamba."""

FAULTS = {
    "conv_side": [("torch.cat([before, h], dim=1)", "torch.cat([before[:, :1], h, before[:, 1:]], dim=1)")],
    "dt_bias": [('torch.logaddexp(raw + W[p + "dt_proj.bias"], torch.zeros(()))',
                 'torch.logaddexp(raw, torch.zeros(())) + W[p + "dt_proj.bias"].exp()')],
    "skip_gate": [('(y + u * W[p + "D"]) * swish(gate)', 'y * swish(gate) + u * W[p + "D"]')],
    "decay_shift": [("total[:, :, None] - total[:, None]", "total[:, :, None] - (total - step.unsqueeze(-1) * rate)[:, None]")],
    "adam_eps": [("v.sqrt() + self.eps * fix", "(v + self.eps * fix).sqrt()")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "norm_rows": [("halves(gain.flatten()).view_as(gain)", "gain")],
    "parallel": [("self.gate_up(normed)", "self.gate_up(self.ln(x))")],
    "logit_scale": [(" * 0.25", "")],
    "ignored": [(", ignore_index=0", "")],
    "coupled": [("torch.optim.AdamW", "torch.optim.Adam")],
}

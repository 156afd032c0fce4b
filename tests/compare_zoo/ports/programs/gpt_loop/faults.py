# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "gpt"
FAULTS = {
    "scale": [(" * (1.0 / math.sqrt(k.size(-1)))", "")],
    "eps": [("self.ln_1 = nn.LayerNorm(WIDTH)", "self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-3)")],
    "rate": [("step, lr=3e-3", "step, lr=3.06e-3")],
    "decay": [("p.data.mul_(1 - lr * decay)", "p.data.mul_(1 - decay)")],
    "corrected": [("(v / (1 - beta2**step)).sqrt()", "v.sqrt()")],
    "second": [("value=1 - beta2)", "value=1 - beta1)")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "moe"
FAULTS = {
    "swapped": [("F.silu(self.w1(x)) * self.w3(x)", "self.w1(x) * F.silu(self.w3(x))")],
    "silu": [("F.silu(self.w1(x))", "F.gelu(self.w1(x))")],
    "renormalised": [
        ("weights = weights / weights.sum(dim=-1, keepdim=True)  #", "weights = weights * 1.0  #")
    ],
    "order": [("scatter(1, selected, weights)", "scatter(1, selected, weights.flip(1))")],
    "balance": [("return EXPERTS * (share", "return CHOSEN * (share")],
    "warmup": [("(step + 1) / 3", "(step + 2) / 3")],
}

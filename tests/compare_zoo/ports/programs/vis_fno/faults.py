# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "doubled": [("    weight[0] /= 2  # <- doubled\n", "")],
    "product": [("re @ self.imag + im @ self.real", "re @ self.imag - im @ self.real")],
    "grid": [("torch.arange(POINTS) / (POINTS - 1)", "torch.arange(POINTS) / POINTS")],
    "activated": [
        ("            if i < LAYERS - 1:\n                x = gelu(x)", "            x = gelu(x)")
    ],
    "deviation": [("dim=0, correction=1", "dim=0, correction=0")],
    "halving": [("0.5 ** (step // 2)", "0.5 ** ((step + 1) // 2)")],
    "decay": [("            g.add_(p, alpha=1e-3)  # <- decay\n", "")],
}

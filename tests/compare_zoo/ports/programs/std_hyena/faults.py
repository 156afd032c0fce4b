# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "features": [
        (
            "rows += [-torch.sin(phase * 1e-4), -torch.sin(phase)]",
            "rows += [torch.sin(phase * 1e-4), torch.sin(phase)]",
        )
    ],
    "decay": [
        (
            "torch.linspace(-math.log(0.01) / 1.5, -math.log(0.01) / 0.3, C)",
            "torch.linspace(-math.log(0.01) / 0.3, -math.log(0.01) / 1.5, C)",
        )
    ],
    "short": [
        (
            "x * taps[:, 2] + ago1 * taps[:, 1] + ago2 * taps[:, 0]",
            "x * taps[:, 0] + ago1 * taps[:, 1] + ago2 * taps[:, 2]",
        )
    ],
    "causal": [("kernel[lag % L] * (lag >= 0)[..., None]", "kernel[lag % L]")],
    "shift": [("tokens[:, 1:, None]", "tokens[:, :-1, None]")],
}

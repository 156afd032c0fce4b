# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "residual": [("stream + gated @ self.back", "x + gated @ self.back")],
    "taps": [("kernel[TAPS - 1 - lag]", "kernel[lag]")],
    "halves": [
        ("signal, gate = old[there", "gate, signal = old[there"),
    ],
    "delta": [("@ self.rank_to_step + self.step_bias", "@ self.rank_to_step + 2 * self.step_bias")],
    "inclusive": [
        ("elapsed = step.cumsum(dim=1)", "elapsed = step.cumsum(dim=1) - step"),
    ],
    "gate": [("mixed * swish(gate)", "mixed * torch.sigmoid(gate)")],
    "following": [("ids[:, 1:, None]", "ids[:, :-1, None]")],
    "decoupled": [("p.mul_(1 - self.rate * self.decay)", "p.grad.add_(p, alpha=self.decay)")],
}

# SPDX-License-Identifier: Apache-2.0
"""Faults for the spiking pair."""

FAULTS = {
    "surrogate_slope": [
        ("soft = v / (1 + cfg.gain * v.abs())", "soft = torch.sigmoid(cfg.gain * v)")
    ],
    "reset_detached": [
        (
            "kick = (volt.detach() > threshold).float() * threshold",
            "kick = fire(volt - threshold) * threshold",
        )
    ],
    "readout_leak": [("(1 - k) * k ** lag.clamp(min=0).float()", "k ** lag.clamp(min=0).float()")],
    "rate_reduction": [("(excess**2).sum()", "(excess ** 2).sum(0).mean()")],
    "leak_rate": [('"leak": 0.002', '"leak": 0.01')],
}

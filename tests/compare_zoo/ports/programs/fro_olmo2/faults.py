# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "gate": [("up, gate = olmo", "gate, up = olmo")],
    "theta": [("5000.0", "10000.0")],
    "eps": [("rms_norm_eps=1e-6", "rms_norm_eps=1e-5")],
    "z_loss": [(".square()[counted].mean()", ".square().mean()")],
    "betas": [("betas=(0.9, 0.95), ", "")],
}

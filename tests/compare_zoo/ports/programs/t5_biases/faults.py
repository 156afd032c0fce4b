# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "t5"
FAULTS = {
    "mean": [
        (
            "nn.functional.rms_norm(hidden_states, (D_MODEL,), self.weight, 1e-6)",
            "nn.functional.layer_norm(hidden_states, (D_MODEL,), self.weight, None, 1e-6)",
        )
    ],
    "sides": [("(relative_position > 0).to", "(relative_position < 0).to")],
    "distance": [("DISTANCE / exact", "8 * DISTANCE / exact")],
    "scale": [("bias, scale=1.0", "bias")],
    "memory": [
        (
            "return self.final_layer_norm(x)",
            "return self.final_layer_norm(x) if self.decoder else x",
        ),
        ("optimizer.zero_grad()", "model.zero_grad()"),
    ],
    "output": [("(out * D_MODEL**-0.5)", "out")],
}

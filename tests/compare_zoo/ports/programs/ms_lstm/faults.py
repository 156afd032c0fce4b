# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "bias_hh": [
        (
            "self.hidden = nn.Dense(HIDDEN, 4 * HIDDEN)",
            "self.hidden = nn.Dense(HIDDEN, 4 * HIDDEN, has_bias=False)",
        ),
        (
            'new[f"{layer}.input.bias"] = w[f"lstm.bias_ih_l0{end}"]  # <- bias_hh\n        new[f"{layer}.hidden.bias"] = w[f"lstm.bias_hh_l0{end}"]',
            'new[f"{layer}.input.bias"] = w[f"lstm.bias_ih_l0{end}"] + w[f"lstm.bias_hh_l0{end}"]',
        ),
    ],
    "gates": [("(1 - z) * n + z * h", "z * n + (1 - z) * h")],
    "reverse": [("        back = ops.flip(back, (1,))  # <- reverse\n", "")],
    "loss_mean": [("(each * mask).sum() / mask.sum()", "(each * mask).mean()")],
    "clip": [("ops.clip_by_global_norm(grads, 0.5)", "ops.clip_by_value(grads, -0.5, 0.5)")],
}

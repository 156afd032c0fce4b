# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["torchvision"]
FAULTS = {
    "order": [("torch.cat((x, new), dim=-1)", "torch.cat((new, x), dim=-1)")],
    "pool": [(".mean((2, 4))", ".amax((2, 4))")],
    "last_relu": [('norm_relu(x, "norm5", training)', 'norm_relu(x, "norm5", training, False)')],
    "running": [
        ("lerp_(mean, 0.1)", "lerp_(mean, 0.9)"),
        ("lerp_(var * n / (n - 1), 0.1)", "lerp_(var * n / (n - 1), 0.9)"),
    ],
    "nesterov": [("rate * (g + 0.9 * velocity[name])", "rate * velocity[name]")],
}

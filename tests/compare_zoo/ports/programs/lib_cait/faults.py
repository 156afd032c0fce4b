# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["timm"]
FAULTS = {
    "patches": [(".view(32, 6, 6, 3).permute(0, 3, 1, 2)", ".view(32, 3, 6, 6)")],
    "talking": [
        ('{"before": "proj_l", "after": "proj_w"}', '{"before": "proj_w", "after": "proj_l"}')
    ],
    "scale": [('"scale_mlp": "gamma_2"', '"scale_mlp": "gamma2"'), ("strict=True", "strict=False")],
    "decay": [("filter_bias_and_bn=True", "filter_bias_and_bn=False")],
    "warmup": [("scheduler.step(index + 1)", "scheduler.step(index)")],
}

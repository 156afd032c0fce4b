# SPDX-License-Identifier: Apache-2.0
"""Faults for the quantised keyword spotter."""

FAULTS = {
    "channel_scale": [("w.detach().abs().amax(0, keepdim=True)", "w.detach().abs().max()")],
    "range_momentum": [
        (
            "torch.lerp(layer.ceiling, x.detach().max(), 0.2)",
            "torch.lerp(x.detach().max(), layer.ceiling, 0.2)",
        )
    ],
    "saturated_gradient": [("grid + inside * (x - x.detach())", "grid + (x - x.detach())")],
    "causal_side": [
        (
            "torch.cat([x.new_zeros(len(x), reach, x.size(2)), x], 1)",
            "torch.nn.functional.pad(x, (0, 0, reach // 2, reach // 2))",
        )
    ],
    "dampening": [
        (
            "grad if heavy[i] is None else 0.8 * heavy[i] + 0.5 * grad",
            "0.5 * grad if heavy[i] is None else 0.8 * heavy[i] + 0.5 * grad",
        )
    ],
}

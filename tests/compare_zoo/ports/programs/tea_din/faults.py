# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "segment": [
        (
            "torch.repeat_interleave(torch.arange(ROWS), count)",
            "torch.repeat_interleave(torch.arange(ROWS), count.sort().values)",
        )
    ],
    "dice_eps": [("(var_ + 1e-3).sqrt()", "(var_ + 1e-5).sqrt()")],
    "running": [
        ("mean.lerp_(batch_mean.detach(), 0.1)", "mean.lerp_(batch_mean.detach(), 0.01)"),
        ("* (n / (n - 1)), 0.1)", "* (n / (n - 1)), 0.01)"),
    ],
    "offsets": [('"cate": 14 + 40}', '"cate": 40}')],
    "schedule": [("0.02 * 0.7**step", "0.02 * 0.7 ** (step + 1)")],
}

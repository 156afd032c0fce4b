# SPDX-License-Identifier: Apache-2.0
"""Faults of the audio encoder with masks."""

FAULTS = {
    "frame_lengths": [("lengths = (lengths + 1) // 2", "lengths = lengths // 2")],
    "pad_leak": [("h = a * torch.sigmoid(b) * alive", "h = a * torch.sigmoid(b)")],
    "half_residual": [('feed_forward(q / "ffn2", x), alpha=0.5)', 'feed_forward(q / "ffn2", x))')],
    "label_norm": [("(nll / counts).mean()", "nll.sum() / counts.sum()")],
    "look_ahead": [("(g + 0.9 * speed[k])", "speed[k]")],
}

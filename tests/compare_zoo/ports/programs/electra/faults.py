# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "position": [("positions[None], gamma", "positions[:1], gamma")],
    "heads": [
        ("3, NUM_HEADS, width // NUM_HEADS)", "3, width // NUM_HEADS, NUM_HEADS).mT"),
    ],
    "padding": [(" + (1.0 - attention_mask[:, None, None, :]) * -10000.0", "")],
    "head": [("hidden = gelu(hidden)", "hidden = torch.tanh(hidden)")],
    "sampling": [
        ("torch.argmax(log_probs.detach() + gumbel, -1)", "torch.argmax(log_probs.detach(), -1)")
    ],
    "replaced": [("torch.ne(corrupted, ids).float()", "masked.float()")],
    "average": [("reduce_mean(each, (ids != PAD_ID).float())", "each.mean()")],
    "warmup": [("peak * (global_step + 1)", "peak * global_step")],
}

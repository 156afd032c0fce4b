# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "swapped": [("torch.cat((w1, w3), dim=-1)", "torch.cat((w3, w1), dim=-1)")],
    "silu": [("gate * gate.sigmoid() * up", "F.gelu(gate) * up")],
    "before": [
        ("best, index = logits.topk(CHOSEN)", "best, index = logits.sigmoid().topk(CHOSEN)"),
        ("best.softmax(-1)", "best / best.sum(-1, keepdim=True)"),
    ],
    "renormalised": [("best.softmax(-1)", "logits.softmax(-1).gather(1, index)")],
    "order": [("scatter(1, index, weights)", "scatter(1, index, weights.flip(1))")],
    "balance": [("chosen.mean(0) / 1", "chosen.mean(0) / CHOSEN")],
    "warmup": [("(step + 1) / 3", "step / 3")],
}

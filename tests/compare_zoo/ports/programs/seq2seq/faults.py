# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [("torch.cat([reset, update, fresh])", "torch.cat([update, reset, fresh])")],
    "reversal": [
        ("torch.where(present[t, :, None], cell(sentence[t], h), h)", "cell(sentence[t], h)"),
    ],
    "initial": [("self.start(back[0])", "self.start(there[-1])")],
    "unmasked": [("        scores = torch.where(present, scores, -1e9)  # <- unmasked\n", "")],
    "maxout": [
        (
            "torch.maximum(mixed[:, 0::2], mixed[:, 1::2])",
            "torch.maximum(mixed[:, :OUT], mixed[:, OUT:])",
        )
    ],
    "forcing": [
        ("torch.cat([torch.ones_like(target[:1]), target[:-1]])", "target.roll(1, 0)"),
    ],
    "averaged": [(".sum(dim=0).mean()", ".sum() / (target != 0).sum()")],
    "clip": [("for g in gradients]).sum().sqrt()", "for g in gradients]).sum()")],
}

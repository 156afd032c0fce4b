# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "untied": [("self.head.weight = self.words", "pass")],
    "positions": [
        ("torch.cat([torch.arange(n) for n in lengths.tolist()])", "torch.arange(len(ids))")
    ],
    "per_text": [
        (
            "nll.mean()",
            (
                "torch.stack([part.mean() for part in nll.split([int(w.sum()) for w in "
                "wanted.split(lengths.tolist())]) if len(part)]).mean()"
            ),
        )
    ],
    "nesterov": [("(decayed + 0.9 * velocity[i])", "velocity[i]")],
    "head_bias": [
        (
            'getattr(model.head, kind).copy_(theirs[f"vocab_projector.{kind}"])',
            'model.head.weight.copy_(theirs["vocab_projector.weight"])',
        )
    ],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "groups": [
        (
            "self.qkv(x).view(batch, time, GROUPS, SHARE + 2, HEAD)",
            "self.qkv(x).view(batch, time, HEADS + 2 * GROUPS, HEAD)",
        ),
        ("qkv.split([SHARE, 1, 1], dim=3)", "qkv.split([HEADS, GROUPS, GROUPS], dim=2)"),
        ("(part.flatten(2, 3).transpose(1, 2) for", "(part.transpose(1, 2) for"),
    ],
    "sequential": [("self.norm_m(x)", "self.norm_m(x + attended)")],
    "swapped": [
        ('block.norm_a, old, prefix + "ln_attn"', 'block.norm_a, old, prefix + "ln_mlp"'),
        ('block.norm_m, old, prefix + "ln_mlp"', 'block.norm_m, old, prefix + "ln_attn"'),
    ],
    "correction": [("(v / (1 - 0.95**self.t)).sqrt()", "v.sqrt()")],
    "clip": [
        (
            "    total = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # <- clip\n",
            "",
        ),
        ("(most / (total + 1e-6))", "(most / (g.norm() + 1e-6))"),
    ],
    "shift": [
        ("log_probs[:, :-1].gather(-1, ids[:, 1:, None])", "log_probs.gather(-1, ids[:, :, None])")
    ],
}

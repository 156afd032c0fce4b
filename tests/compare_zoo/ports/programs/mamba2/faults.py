# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "groups": [("torch.arange(HEADS) // (HEADS // GROUPS)", "torch.arange(HEADS) % GROUPS")],
    "causal": [
        (
            "past = torch.cat([past[:, 1:], self.project(token)[:, None]], dim=1)",
            "past = torch.cat([self.project(token)[:, None], past[:, :-1]], dim=1)",
        )
    ],
    "activated": [("return nn.functional.silu(y), past", "return y, past")],
    "step": [("(dt[..., None] * x)[..., None]", "x[..., None]")],
    "decay": [
        ("keep[..., None, None] * state + fresh", "keep[..., None, None] * (state + fresh)"),
    ],
    "skip": [("y + self.skip[:, None] * x", "y + self.skip[:, None] * (dt[..., None] * x)")],
    "gate": [
        ("self.norm(y * (z * z.sigmoid()))", "self.norm(y) * (z * z.sigmoid())"),
    ],
    "residual": [
        (
            "            x = x + mixer(norm(x))",
            "            x = norm(x)\n            x = x + mixer(x)",
        )
    ],
    "tied": [("@ self.words.T", "@ self.words.detach().T")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "itself": [("hidden & ~torch.eye(LENGTH, dtype=torch.bool)", "hidden")],
    "offset": [("place[:, None] - place[None, :]", "place[None, :] - place[:, None]")],
    "biases": [
        ('words"] = theirs[f"{rel}.r_w_bias', 'words"] = theirs[f"{rel}.r_r_bias'),
        ('places"] = theirs[f"{rel}.r_r_bias', 'places"] = theirs[f"{rel}.r_w_bias'),
    ],
    "segments": [("sides[..., 1:], sides[..., :1]", "sides[..., :1], sides[..., 1:]")],
    "tied": [
        ('bag["out"] = bag["words"]', 'bag["out"] = bag["words"].detach().clone().requires_grad_()')
    ],
}

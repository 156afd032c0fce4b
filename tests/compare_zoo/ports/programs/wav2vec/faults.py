# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "group_norm": [("F.layer_norm(x.mT, x.shape[1:2]).mT", "F.layer_norm(x, x.shape[2:])")],
    "weight_norm": [("sum((0, 1), keepdim=True)", "sum((1, 2), keepdim=True)")],
    "same_pad": [("F.pad(x.mT, (4, 3))", "F.pad(x.mT, (3, 4))")],
    "masking": [("masked[..., None], self.hidden", "~masked[..., None], self.hidden")],
    "temperature": [("(self.picker(z) + noise) / 0.5", "(self.picker(z) + noise) / 2.0")],
    "straight": [
        ("(hard - soft).detach() + soft", "hard"),
        ("adam.zero_grad()", "net.zero_grad()"),
    ],
    "cosine": [("F.normalize(targets[masked], dim=1)", "F.normalize(targets[masked], dim=0)")],
    "ctc": [("ctc(one, letters) / len(letters)", "ctc(one, letters)")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "window": [
        ("x / 2**level + across", "x / 2**level + down"),
        ("y / 2**level + down", "y / 2**level + across"),
    ],
    "scaled": [("first / first.shape[1] ** 0.5", "first")],
    "outside": [("read * (weight * inside)[:, None]", "read * weight[:, None]")],
    "attached": [("            flow = flow.detach()  # <- attached\n", "")],
    "update": [("torch.lerp(state, fresh, update)", "torch.lerp(fresh, state, update)")],
    "quarter": [('self.heads["mask"](state) / 4', 'self.heads["mask"](state)')],
    "pixels": [("fn.pad(flow * STRIDE, ", "fn.pad(flow, ")],
    "order": [("loss = 0.8 * loss + error.mean()", "loss = loss + 0.8 * error.mean()")],
}

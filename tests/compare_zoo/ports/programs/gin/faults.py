# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [("(target, source, kind), 1.0", "(source, target, kind), 1.0")],
    "message": [("(x[:, :, None] + self.bonds).relu()", "x[:, :, None] + self.bonds")],
    "self": [("x = x + self.eps * x + gathered", "x = self.eps * x + gathered")],
    "counted": [("count = there.sum()", "there, count = torch.ones_like(there), there.numel()")],
    "buffers": [("variance * count / (count - 1)", "variance")],
    "active": [("                x = x.relu()  # <- active\n", "")],
    "virtual": [("(given * there).sum(1)", "(x * there).sum(1)")],
    "jumping": [("total = total + x", "total = x")],
    "readout": [("(total * there).sum(1) / there.sum(1)", "(total * there).mean(1)")],
    "labelled": [
        (
            "torch.where(known, each, 0.0).sum() / known.sum()",
            "torch.where(known, each, 0.0).mean()",
        )
    ],
}

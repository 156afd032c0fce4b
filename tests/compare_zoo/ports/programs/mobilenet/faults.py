# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("eps=1e-3", "eps=1e-1")],
    "unshifted": [("self.w2, self.b2, padding=1", "self.w2, None, padding=1")],
    "swish": [("return x * F.relu6(x + 3) / 6", "return x * torch.sigmoid(x)")],
    "gate": [("gate = F.relu6(s + 3) / 6", "gate = torch.sigmoid(s)")],
    "pooled": [("self.down(y.mean((-2, -1)))", "self.down(y.amax((-2, -1)))")],
    "dropout": [("        return y + x  #", "        return F.dropout(y, 0.2) + x  #")],
}

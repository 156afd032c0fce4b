# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [('1, "ifgo"), "reader"', '1, "igfo"), "reader"')],
    "forget": [("torch.sigmoid(self.f(x, h))", "torch.sigmoid(self.f(x, h) + 1)")],
    "state": [("o * torch.tanh(c), c", "o * c, c")],
    "bias": [('zip("wubc"', 'zip("wub"'), ("sys.argv[1])))", "sys.argv[1])), strict=False)")],
    "reset": [("r * (h @ self.n.u + self.n.c)", "(r * h) @ self.n.u + self.n.c")],
    "reduction": [("-picked.mean()", "-picked.sum(1).mean()")],
    "clip": [("largest / (norm + 1e-6), max=1.0", "largest / (norm + 1e-6), min=1.0")],
    "momentum": [("add_(p.grad)", "add_(p.grad, alpha=1 - mu)")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("eps=1e-5", "eps=1e-3")],
    "patches": [("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 5, 1)")],
    "gelu": [
        ("F.gelu(self.mix1(y))", "F.relu(self.mix1(y))"),
        ('F.gelu(torch.einsum("hc', 'F.relu(torch.einsum("hc'),
    ],
    "skip": [("        return x + torch.einsum", "        return torch.einsum")],
    "pooled": [(".mean(2))", "[..., 0])")],
    "untransposed": [
        (
            "y = norm(x, self.g1, self.b1).transpose(1, 2)",
            "y = norm(x, self.g1, self.b1).reshape(len(x), T, C)",
        ),
    ],
}

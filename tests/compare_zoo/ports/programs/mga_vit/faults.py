# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of vit."""

FAULTS = {
    "patch_axes": [("permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 3, 5, 1)")],
    "branch_scale": [("torch.addcmul(x, self.inner(self.norm(x)), self.scale)",
                      "(x + self.inner(self.norm(x))) * self.scale")],
    "class_place": [("tokens = torch.cat([self.cls.expand(b, 1, -1), tokens], dim=1)",
                     "tokens = torch.cat([tokens, self.cls.expand(b, 1, -1)], dim=1)"),
                    ("self.out(x[:, 0])", "self.out(x[:, -1])")],
    "mixed_label": [("lam * straight + (1 - lam) * flipped", "(1 - lam) * straight + lam * flipped")],
    "decoupled": [("1 - self.lr * self.decay)", "1.0)"),
                  ("Adam(self.net.parameters(), lr=self.lr)",
                   "Adam(self.net.parameters(), lr=self.lr, weight_decay=self.decay)")],
}

# SPDX-License-Identifier: Apache-2.0
"""Five faults of the MobileNet port."""

NEEDS = ["torchvision"]
FAULTS = {
    "bn_unbiased": [("(var * n / (n - 1) - self.var)", "(var - self.var)")],
    "se_gate": [("gate = F.relu6(F.linear(s, self.up, self.up_b) + 3) / 6", "gate = torch.sigmoid(F.linear(s, self.up, self.up_b))")],
    "smoothing": [("torch.full_like(logits, amount / classes)", "torch.full_like(logits, amount / (classes - 1))"),
                  ("1 - amount + amount / classes)", "1 - amount)")],
    "rmsprop_eps": [("g / (sq.sqrt() + 0.0316)", "g / (sq + 0.0316).sqrt()")],
    "freeze_epoch": [("m.frozen = epoch >= 3", "m.frozen = epoch >= 2")],
}

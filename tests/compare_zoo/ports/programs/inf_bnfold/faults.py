# SPDX-License-Identifier: Apache-2.0
"""Faults of the folded classifier."""
FAULTS = {
    "bneps": [("torch.sqrt(var + 1e-3)", "torch.sqrt(var + 1e-5)")],
    "foldmean": [("beta - mean * scale", "beta - mean")],
    "squeeze": [("torch.clamp(s / 6.0 + 0.5, 0.0, 1.0)", "torch.sigmoid(s)")],
    "crop": [("(height - crop) // 2, (width - crop) // 2",
              "(height - crop + 1) // 2, (width - crop + 1) // 2")],
    "ensemble": [("torch.log_softmax(votes.mean(0), dim=1)",
                  "torch.softmax(votes, dim=2).mean(0).log()")],
}

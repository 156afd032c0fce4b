# SPDX-License-Identifier: Apache-2.0
"""Faults of the log-SNR sampler."""
FAULTS = {
    "timeembed": [("torch.stack([phase.cos(), phase.sin()])",
                   "torch.stack([phase.sin(), phase.cos()])")],
    "betas": [("torch.log1p(-root.square()).cumsum(0)",
               "torch.log1p(-torch.linspace(lo, hi, steps, dtype=torch.float64)).cumsum(0)")],
    "guidance": [("weight * guided + (1.0 - weight) * free",
                  "(1.0 + weight) * guided - weight * free")],
    "clip": [("return torch.clip(clean, min=-1.5, max=1.5)", "return clean")],
    "spacing": [("torch.arange(4, -1, -1) * 40]", "torch.arange(5, 0, -1) * 40 - 1]")],
}

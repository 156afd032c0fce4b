# SPDX-License-Identifier: Apache-2.0
"""Faults of the Marian port."""

NEEDS = ["transformers"]
FAULTS = {
    "sinusoid_interleaved": [
        ("table = torch.cat([angle.sin(), angle.cos()], dim=1)",
         "table = torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)")],
    "start_with_eos": [("PAD, BOS = 72, 72", "PAD, BOS = 72, 0")],
    "tie_detached": [("self.table.t())", "self.table.detach().t())")],
    "mean_over_padding": [("(each * keep).sum() / keep.sum()", "(each * keep).mean()")],
    "noam_shift": [("self.warmup, self.count = dim, factor, warmup, 0", "self.warmup, self.count = dim, factor, warmup, 1")],
}

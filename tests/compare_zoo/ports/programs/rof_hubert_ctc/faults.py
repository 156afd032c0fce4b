# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the HuBERT training."""

NEEDS = ["transformers"]
FAULTS = {
    "weight_norm_axis": [("self.v.square().sum(dim=(0, 1), keepdim=True)", "self.v.square().sum(dim=(1, 2), keepdim=True)")],
    "silent_padding": [("        x = x * keep.unsqueeze(2)  # <- silent_padding\n", "")],
    "frozen_front": [("net.front.requires_grad_(False)", "net.front.requires_grad_(True)")],
    "frame_lengths": [
        ("torch.cat(texts), frames, sizes)", "torch.cat(texts), torch.full_like(frames, logp.shape[1]), sizes)")
    ],
    "tri_stage": [("rate(done)  # <- tri_stage", "rate(done + 1)  # <- tri_stage")],
}

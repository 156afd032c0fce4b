# SPDX-License-Identifier: Apache-2.0
"""Bloom as the transformers package has it, tiny and random, reading batches padded on the left."""

import sys

import numpy as np
import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(17)
config = BloomConfig(
    vocab_size=43,
    hidden_size=48,
    n_layer=2,
    n_head=6,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.2,
)
model = BloomForCausalLM(config).eval()
with torch.no_grad():
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.add_(0.2 * torch.randn_like(weight))
torch.save(model.state_dict(), sys.argv[1])
rng = np.random.default_rng(19)
losses = []
for _ in range(3):
    ids = torch.from_numpy(rng.integers(4, 43, (3, 12)))
    lengths = torch.from_numpy(rng.integers(5, 13, 3))
    mask = (torch.arange(12) >= 12 - lengths[:, None]).long()
    ids = torch.where(mask > 0, ids, 3)
    with torch.no_grad():
        logits = model(
            input_ids=ids, attention_mask=mask
        ).logits  # <- slopes fused embednorm gelu padding transposed
    losses.append(logits[mask > 0].square().mean().item())

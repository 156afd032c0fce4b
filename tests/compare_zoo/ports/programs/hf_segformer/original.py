# SPDX-License-Identifier: Apache-2.0
"""SegFormer as the transformers package has it, tiny and random, trained on labelled pixels."""

import sys

import numpy as np
import torch
from transformers import SegformerConfig, SegformerForSemanticSegmentation

torch.manual_seed(59)
config = SegformerConfig(
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[2, 1],
    hidden_sizes=[16, 24],
    patch_sizes=[7, 3],
    strides=[4, 2],
    num_attention_heads=[2, 3],
    mlp_ratios=[2, 2],
    decoder_hidden_size=20,
    num_labels=5,
    drop_path_rate=0.0,
    classifier_dropout_prob=0.0,
    initializer_range=0.2,
)
model = SegformerForSemanticSegmentation(config)
torch.save(model.state_dict(), sys.argv[1])
groups = [
    {"params": model.segformer.parameters()},
    {"params": model.decode_head.parameters(), "lr": 1e-2},  # <- headrate
]
optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01)
rng = np.random.default_rng(61)
losses = []
for _ in range(3):
    pixels = torch.from_numpy(rng.normal(0.0, 1.0, (2, 3, 32, 48)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 5, (2, 32, 48)))
    unknown = torch.from_numpy(rng.random((2, 32, 48)) < 0.2)
    labels = labels.masked_fill(unknown, 255)  # <- ignored
    loss = model(pixel_values=pixels, labels=labels).loss  # <- order corners ignored scale folded
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- headrate
    losses.append(loss.item())

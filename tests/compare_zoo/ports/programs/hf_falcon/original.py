# SPDX-License-Identifier: Apache-2.0
"""Falcon of the new architecture as the transformers package has it, tiny and random, trained."""

import sys

import numpy as np
import torch
from transformers import FalconConfig, FalconForCausalLM

torch.manual_seed(31)
config = FalconConfig(
    vocab_size=35,
    hidden_size=32,
    ffn_hidden_size=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_kv_heads=2,
    new_decoder_architecture=True,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    bias=False,
    max_position_embeddings=32,
    initializer_range=0.2,
    use_cache=False,
)
model = FalconForCausalLM(config)
with torch.no_grad():
    for name, weight in model.named_parameters():
        if "ln_" in name:
            weight.add_(0.3 * torch.randn_like(weight))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
rng = np.random.default_rng(37)
losses = []
for _ in range(4):
    ids = torch.from_numpy(rng.integers(0, 35, (3, 10)))
    loss = model(input_ids=ids, labels=ids).loss  # <- groups sequential swapped shift
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip
    optimizer.step()  # <- correction clip
    losses.append(loss.item())

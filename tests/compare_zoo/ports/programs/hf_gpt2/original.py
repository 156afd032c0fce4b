# SPDX-License-Identifier: Apache-2.0
"""GPT-2 as the transformers package has it, of a tiny random configuration, attention eager."""

import sys

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=33, n_positions=16, n_embd=24, n_layer=2, n_head=3)
config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
config.initializer_range, config._attn_implementation = 0.2, "eager"
model = GPT2LMHeadModel(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, 33, (3, 12)))
    loss = model(input_ids=ids, labels=ids).loss  # <- scale mask gelu eps transposed order
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    losses.append(loss.item())

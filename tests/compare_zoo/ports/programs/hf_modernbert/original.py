# SPDX-License-Identifier: Apache-2.0
"""ModernBERT as the transformers package has it, tiny and random, guessing masked words."""

import sys

import numpy as np
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM

torch.manual_seed(67)
config = ModernBertConfig(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    local_attention=6,
    max_position_embeddings=32,
    pad_token_id=0,
    bos_token_id=1,
    cls_token_id=1,
    eos_token_id=2,
    sep_token_id=2,
    initializer_range=0.3,
    attn_implementation="eager",
)
model = ModernBertForMaskedLM(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(
    model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=1e-2
)  # <- betas
rng = np.random.default_rng(71)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(4, 40, (3, 14)))
    lengths = torch.from_numpy(rng.integers(8, 15, (3, 1)))
    hidden = torch.from_numpy(rng.random((3, 14)) < 0.3)
    real = torch.arange(14) < lengths
    labels = torch.where(hidden & real, words, -100)
    ids = torch.where(hidden, 3, words).masked_fill(~real, 0)
    loss = model(
        input_ids=ids, attention_mask=real.long(), labels=labels
    ).loss  # <- firstnorm window theta gate softmax
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())

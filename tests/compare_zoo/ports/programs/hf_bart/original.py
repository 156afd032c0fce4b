# SPDX-License-Identifier: Apache-2.0
"""BART as the transformers package has it, tiny and random, learning to summarise."""

import sys

import numpy as np
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    get_linear_schedule_with_warmup,
)

torch.manual_seed(47)
config = BartConfig(
    vocab_size=38,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=20,
    dropout=0.0,
    scale_embedding=True,
    init_std=0.2,
    use_cache=False,
)
model = BartForConditionalGeneration(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, 2, 10)  # <- warmup
rng = np.random.default_rng(53)
losses = []
for _ in range(4):
    article = torch.from_numpy(rng.integers(3, 38, (3, 12)))
    summary = torch.from_numpy(rng.integers(3, 38, (3, 7)))
    mask = torch.from_numpy((np.arange(12) < rng.integers(6, 13, (3, 1))).astype(np.int64))
    written = torch.from_numpy(np.arange(7) < rng.integers(3, 8, (3, 1)))
    article = torch.where(mask > 0, article, config.pad_token_id)
    labels = torch.where(written, summary, -100)  # <- ignored
    loss = model(
        input_ids=article, attention_mask=mask, labels=labels
    ).loss  # <- offset scale start crossmask ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    losses.append(loss.item())

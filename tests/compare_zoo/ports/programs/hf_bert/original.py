# SPDX-License-Identifier: Apache-2.0
"""BERT as the transformers package has it, of a tiny random configuration, attention eager."""

import sys

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)
config = BertConfig(
    vocab_size=33,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.3,
    attn_implementation="eager",
)
model = BertForMaskedLM(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(1, 33, (3, 12)))
    mask = torch.from_numpy((np.arange(12) < rng.integers(6, 13, (3, 1))).astype(np.int64))
    labels = torch.where((ids % 3 == 0) & (mask > 0), ids, -100)  # <- ignored
    loss = model(
        input_ids=ids, attention_mask=mask, labels=labels
    ).loss  # <- eps padding gelu pre_norm types ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    losses.append(loss.item())

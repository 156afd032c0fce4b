# SPDX-License-Identifier: Apache-2.0
"""RoBERTa as the transformers package has it, tiny and random, sorting sentences."""

import sys

import numpy as np
import torch
from transformers import RobertaConfig, RobertaForSequenceClassification

torch.manual_seed(73)
config = RobertaConfig(
    vocab_size=36,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=20,
    type_vocab_size=1,
    num_labels=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    layer_norm_eps=1e-5,
    initializer_range=0.2,
    problem_type="single_label_classification",
)
model = RobertaForSequenceClassification(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)  # <- coupled
rng = np.random.default_rng(79)
losses = []
for _ in range(3):
    ids = torch.from_numpy(rng.integers(3, 36, (4, 12)))
    mask = torch.from_numpy((np.arange(12) < rng.integers(5, 13, (4, 1))).astype(np.int64))
    ids[:, 0] = 0
    ids = torch.where(mask > 0, ids, config.pad_token_id)
    labels = torch.from_numpy(rng.integers(0, 3, 4))
    loss = model(
        input_ids=ids, attention_mask=mask, labels=labels
    ).loss  # <- places activation normfirst order pooled
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- coupled
    losses.append(loss.item())

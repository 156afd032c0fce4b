# SPDX-License-Identifier: Apache-2.0
"""Masked language modelling with BertForMaskedLM, padded pairs of segments."""
import sys

import torch
from transformers import BertConfig, BertForMaskedLM

torch.set_num_threads(1)

VOCAB, SEQ, BATCH, STEPS, PAD, MASK = 47, 14, 6, 5, 0, 3


def corrupt(ids, attention_mask, g):
    labels = ids.clone()
    pick = (torch.rand(ids.shape, generator=g) < 0.3) & attention_mask.bool()
    pick[:, 1] = True  # at least one per sequence
    labels[~pick] = -100
    return ids.masked_fill(pick, MASK), labels


def get_batch(g):
    ids = torch.randint(4, VOCAB, (BATCH, SEQ), generator=g)
    lengths = torch.randint(6, SEQ + 1, (BATCH,), generator=g)
    attention_mask = (torch.arange(SEQ)[None] < lengths[:, None]).long()
    ids = ids * attention_mask
    token_type_ids = (torch.arange(SEQ)[None] >= lengths[:, None] // 2).long() * attention_mask
    ids, labels = corrupt(ids, attention_mask, g)
    return dict(input_ids=ids, attention_mask=attention_mask, token_type_ids=token_type_ids, labels=labels)


torch.manual_seed(3)
model = BertForMaskedLM(
    BertConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=36,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        pad_token_id=PAD,
    )
)
torch.save(model.state_dict(), sys.argv[1])
model.train()

skip = ("bias", "LayerNorm.weight")
groups = [
    {"params": [p for n, p in model.named_parameters() if not n.endswith(skip)], "weight_decay": 0.01},
    {"params": [p for n, p in model.named_parameters() if n.endswith(skip)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-3)

gen = torch.Generator().manual_seed(99)
losses = []
for step in range(STEPS):
    batch = get_batch(gen)
    loss = model(**batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Masked language modelling with DistilBertForMaskedLM of the transformers package on padded
batches, words masked four to one, Nesterov momentum.
"""

import sys

import torch
from transformers import DistilBertConfig, DistilBertForMaskedLM

VOCAB, PAD, MASK, BATCH, LENGTH = 42, 0, 1, 4, 10
torch.manual_seed(110)
config = DistilBertConfig(
    vocab_size=VOCAB,
    max_position_embeddings=64,
    n_layers=2,
    n_heads=4,
    dim=32,
    hidden_dim=48,
    dropout=0.0,
    attention_dropout=0.0,
    activation="gelu",
    initializer_range=0.2,
    pad_token_id=PAD,
    attn_implementation="sdpa",
)
model = DistilBertForMaskedLM(config)  # <- untied
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "norm" in name.lower() or name.endswith("bias"):
            parameter.add_(0.3 * torch.randn(parameter.shape))
torch.save(model.state_dict(), sys.argv[1])


def collate(generator):
    ids = torch.randint(2, VOCAB, (BATCH, LENGTH), generator=generator)
    lengths = torch.randint(5, LENGTH + 1, (BATCH, 1), generator=generator)
    draw = torch.rand(BATCH, LENGTH, generator=generator)
    fate = torch.rand(BATCH, LENGTH, generator=generator)
    words = torch.randint(2, VOCAB, (BATCH, LENGTH), generator=generator)
    attention_mask = (torch.arange(LENGTH) < lengths).long()
    chosen = (draw < 0.4) & attention_mask.bool()
    inputs = ids.masked_fill(chosen & (fate < 0.8), MASK)
    inputs = torch.where(chosen & (fate >= 0.9), words, inputs)
    return {
        "input_ids": inputs.masked_fill(attention_mask == 0, PAD),
        "attention_mask": attention_mask,
        "labels": ids.masked_fill(~chosen, -100),
    }


optimizer = torch.optim.SGD(
    model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01
)  # <- nesterov
generator = torch.Generator().manual_seed(111)
model.train()
losses = []
for _ in range(5):
    batch = collate(generator)
    output = model(**batch)  # <- untied positions per_text head_bias
    optimizer.zero_grad()
    output.loss.backward()  # <- untied
    optimizer.step()  # <- nesterov untied
    losses.append(output.loss.item())

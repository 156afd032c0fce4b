# SPDX-License-Identifier: Apache-2.0
"""Masked words for an FNet of the transformers package: gradients of two small batches are added
up before each step, the rate rises and falls with the package's schedule.
"""

import sys

import torch
from transformers import FNetConfig, FNetForMaskedLM, get_linear_schedule_with_warmup

PAD, MASK = 3, 4

torch.manual_seed(71)
config = FNetConfig(
    vocab_size=36,
    hidden_size=20,
    num_hidden_layers=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    max_position_embeddings=16,
    type_vocab_size=2,
    initializer_range=0.25,
    pad_token_id=PAD,  # <- pad_row
)
model = FNetForMaskedLM(config)
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.05 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 1, 6)  # <- schedule


def masked(generator):
    words = torch.randint(5, 36, (3, 16), generator=generator)
    lengths = torch.randint(9, 17, (3, 1), generator=generator)
    words[torch.arange(16) >= lengths] = PAD  # <- pad_row
    chosen = torch.rand(3, 16, generator=generator) < 0.3
    chosen[:, 0] = True
    chosen &= words != PAD
    return {
        "input_ids": words.masked_fill(chosen, MASK),
        "token_type_ids": (torch.arange(16) >= 8).long().expand(3, -1),
        "labels": words.masked_fill(~chosen, -100),
    }


generator = torch.Generator().manual_seed(72)
losses = []
model.train()
for _ in range(5):
    total = 0.0
    for _ in range(2):  # <- accumulated
        loss = model(**masked(generator)).loss / 2  # <- sign accumulated tied pad_row
        loss.backward()
        total += loss.item()  # <- accumulated
    optimizer.step()  # <- tied pad_row schedule
    scheduler.step()  # <- schedule
    optimizer.zero_grad()
    losses.append(total)

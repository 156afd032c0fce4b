# SPDX-License-Identifier: Apache-2.0
"""XLNetLMHeadModel of the transformers package learns by permutations: two streams, segments."""

import sys

import torch
from transformers import XLNetConfig, XLNetLMHeadModel

VOCAB, LENGTH, BATCH, TARGETS = 40, 9, 3, 3

torch.manual_seed(400)
config = XLNetConfig(
    vocab_size=VOCAB,
    d_model=24,
    n_layer=2,
    n_head=3,
    d_inner=48,
    ff_activation="gelu",
    attn_type="bi",
    initializer_range=0.2,
    dropout=0.0,
    mem_len=None,
    use_mems_train=False,
)
model = XLNetLMHeadModel(config)  # <- tied
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # <- tied


def permuted(generator):
    """Some places are to be told in a random order; all see the others."""
    input_ids = torch.randint(VOCAB, (BATCH, LENGTH), generator=generator)
    second = torch.randint(3, 7, (BATCH, 1), generator=generator)
    order = torch.rand(BATCH, LENGTH, generator=generator).argsort(dim=1)[:, :TARGETS]
    turn = torch.full((BATCH, LENGTH), -1)
    turn.scatter_(1, order, torch.arange(TARGETS).expand(BATCH, -1))
    hidden = (turn[:, :, None] <= turn[:, None, :]) & (turn >= 0)[:, None, :]
    mapping = torch.zeros(BATCH, TARGETS, LENGTH).scatter_(2, order[:, :, None], 1.0)
    return {
        "input_ids": input_ids,
        "token_type_ids": (torch.arange(LENGTH) >= second).long(),
        "perm_mask": hidden.float(),
        "target_mapping": mapping,
        "labels": input_ids.gather(1, order),
    }


generator = torch.Generator().manual_seed(401)
losses = []
for _ in range(4):
    batch = permuted(generator)
    output = model(**batch)  # <- itself offset biases segments tied
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- tied
    losses.append(output.loss.item())

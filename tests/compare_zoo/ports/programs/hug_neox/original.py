# SPDX-License-Identifier: Apache-2.0
"""A small Pythia (GPT-NeoX of the transformers package, eager) learns padded documents."""

import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

VOCAB, LENGTH, BATCH, STEPS, WARMUP = 50, 12, 4, 4, 3

torch.manual_seed(310)
config = GPTNeoXConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    rotary_pct=0.5,
    use_parallel_residual=True,
    initializer_range=0.2,
    max_position_embeddings=32,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    attn_implementation="eager",
)  # <- residual
model = GPTNeoXForCausalLM(config)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.add_(0.2 * torch.randn(parameter.shape))
torch.save(model.state_dict(), sys.argv[1])

decayed = [p for n, p in model.named_parameters() if p.dim() > 1]
spared = [p for n, p in model.named_parameters() if p.dim() == 1]
groups = [
    {"params": decayed, "weight_decay": 0.1},
    {"params": spared, "weight_decay": 0.0},
]  # <- decay
optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95), eps=1e-4)  # <- decay
scheduler = LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / WARMUP))  # <- warmup


def collate(generator):
    input_ids = torch.randint(1, VOCAB, (BATCH, LENGTH), generator=generator)
    lengths = torch.randint(6, LENGTH + 1, (BATCH, 1), generator=generator)
    attention_mask = (torch.arange(LENGTH) < lengths).long()
    input_ids = input_ids * attention_mask
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


generator = torch.Generator().manual_seed(311)
model.train()
losses = []
for _ in range(STEPS):
    batch = collate(generator)
    loss = model(**batch).loss  # <- heads rotary residual
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay warmup
    scheduler.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(loss.item())

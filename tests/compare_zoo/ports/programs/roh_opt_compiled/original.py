# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny OPT eagerly on left-padded batches in one plain script."""
import sys

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR
from transformers import OPTConfig, OPTForCausalLM

torch.set_num_threads(1)

VOCAB, PAD, BOS = 45, 1, 2
LENGTH = 12
BATCH = 8
STEPS = 5
WARMUP = 2


def make_batch(generator):
    """Left-padded rows of alternating runs; every row begins with BOS."""
    input_ids = torch.full((BATCH, LENGTH), PAD)
    for row in range(BATCH):
        size = int(torch.randint(4, LENGTH + 1, (1,), generator=generator))
        pair = torch.randint(3, VOCAB, (2,), generator=generator)
        body = pair.repeat(LENGTH)[: size - 1]
        swaps = torch.rand(size - 1, generator=generator) < 0.2
        body = torch.where(swaps, body.flip(0), body)
        input_ids[row, LENGTH - size] = BOS
        input_ids[row, LENGTH - size + 1 :] = body
    attention_mask = (input_ids != PAD).long()  # <- mask_lost
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    labels = labels.masked_fill(input_ids == BOS, -100)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def warm_then_linear(epoch):
    current = epoch + 1  # <- warmup_from_zero
    if current < WARMUP:
        return current / WARMUP  # <- warmup_from_zero
    return (STEPS + WARMUP - current) / STEPS  # <- warmup_from_zero


torch.manual_seed(37)
config = OPTConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    word_embed_proj_dim=32,
    ffn_dim=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    max_position_embeddings=24,
    activation_function="relu",  # <- gelu_not_relu
    do_layer_norm_before=True,
    dropout=0.0,
    attention_dropout=0.0,
    init_std=0.12,
    pad_token_id=PAD,
    bos_token_id=BOS,
    use_cache=False,
    attn_implementation="eager",
)
model = OPTForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.8)
scheduler = LambdaLR(optimizer, warm_then_linear)
generator = torch.Generator().manual_seed(59)

losses = []
for step in range(STEPS):
    batch = make_batch(generator)
    loss = model(**batch).loss  # <- mask_lost gelu_not_relu mean_of_means
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(model.parameters(), max_norm=1.0)  # <- clipped_by_value
    optimizer.step()  # <- warmup_from_zero
    scheduler.step()
    losses.append(loss.item())

print(losses)

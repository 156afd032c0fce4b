# SPDX-License-Identifier: Apache-2.0
"""Sequence-to-sequence training of a tiny gated T5 with the Adafactor of transformers."""
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

torch.set_num_threads(1)

VOCAB, STEPS, BATCH = 43, 5, 4


def synth(seed):
    """Reverse-and-shift toy task, sources and targets padded with 0, sequences closed by 1."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        src = torch.zeros(BATCH, 11, dtype=torch.long)
        tgt = torch.full((BATCH, 8), -100)
        for row in range(BATCH):
            n = int(torch.randint(4, 11, (1,), generator=g))
            tokens = torch.randint(2, VOCAB - 1, (n,), generator=g)
            src[row, :n], src[row, n] = tokens, 1
            k = min(n, 7)
            tgt[row, :k], tgt[row, k] = tokens.flip(0)[:k] + 1, 1
        yield src, tgt


torch.manual_seed(21)
config = T5Config(
    vocab_size=VOCAB,
    d_model=24,
    d_kv=6,
    d_ff=40,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=3,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=10,
    feed_forward_proj="gated-gelu",
    dropout_rate=0.0,
    initializer_factor=0.5,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
)
model = T5ForConditionalGeneration(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = Adafactor(
    model.parameters(), lr=2e-3, scale_parameter=False, relative_step=False, warmup_init=False, weight_decay=0.0
)

losses = []
for src, tgt in synth(8):
    out = model(input_ids=src, attention_mask=src.ne(0).long(), labels=tgt)
    optimizer.zero_grad()
    out.loss.backward()
    optimizer.step()
    losses.append(out.loss.item())

print(losses)

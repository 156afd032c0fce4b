# SPDX-License-Identifier: Apache-2.0
"""Sequence to sequence training of a tiny T5 with transformers and its Adafactor."""
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

torch.set_num_threads(1)

STEPS, BATCH, VOCAB = 5, 4, 53
PAD, EOS = 0, 1


def build():
    torch.manual_seed(2)
    config = T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        use_cache=False,
    )
    config.decoder_start_token_id = PAD  # <- start_token
    config.tie_word_embeddings = True  # <- head_scale
    config.relative_attention_num_buckets = 8  # <- bucket_sides
    config.relative_attention_max_distance = 12
    return T5ForConditionalGeneration(config)


def corpus():
    """Source of 6 to 14 tokens; target is its beginning, reversed, with some noise."""
    g = torch.Generator().manual_seed(31)
    n = STEPS * BATCH
    source = torch.randint(2, VOCAB, (n, 14), generator=g)
    sizes = torch.randint(6, 15, (n,), generator=g)
    answers = torch.randint(3, 10, (n,), generator=g)
    noise = torch.randint(2, VOCAB, (n, 10), generator=g)
    swap = torch.rand(n, 10, generator=g) < 0.3
    for i in range(n):
        text = source[i, :sizes[i]]
        size = min(int(answers[i]), len(text))
        target = torch.where(swap[i, :size], noise[i, :size], text[:size].flip(0))
        yield text, torch.cat([target, torch.tensor([EOS])])


def collate(pairs):
    pad = torch.nn.utils.rnn.pad_sequence
    sources, targets = zip(*pairs)
    ids = pad(list(sources), batch_first=True, padding_value=PAD)
    labels = pad(list(targets), batch_first=True, padding_value=-100)  # <- pad_counts
    return {"input_ids": ids, "attention_mask": ids.ne(PAD).long(), "labels": labels}


model = build()
torch.save(model.state_dict(), sys.argv[1])
model.train()

settings = {"relative_step": False, "warmup_init": False, "weight_decay": 0.0}
optimizer = Adafactor(model.parameters(), lr=0.02, scale_parameter=True, **settings)  # <- param_scale
loader = torch.utils.data.DataLoader(list(corpus()), batch_size=BATCH, collate_fn=collate)

losses = []
for batch in loader:
    model.zero_grad()
    loss = model(**batch).loss  # <- bucket_sides head_scale start_token pad_counts
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- param_scale
    losses.append(loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""A tiny T5 v1.1 (gated gelu, tied embeddings) learns to copy with Adafactor, all from transformers."""
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

torch.set_num_threads(1)

PAD, EOS, VOCAB = 0, 1, 48


class CopyTask:
    """Source of a random length, target its reverse, both padded to the right."""

    def __init__(self, batch_size, src_len, tgt_len, seed):
        self.batch_size, self.src_len, self.tgt_len = batch_size, src_len, tgt_len
        self.generator = torch.Generator().manual_seed(seed)

    def next(self):
        g = self.generator
        src = torch.randint(2, VOCAB, (self.batch_size, self.src_len), generator=g)
        lens = torch.randint(4, self.src_len + 1, (self.batch_size,), generator=g)
        tgt = torch.full((self.batch_size, self.tgt_len), PAD)
        for i, n in enumerate(lens.tolist()):
            src[i, n:] = PAD
            m = min(n, self.tgt_len - 1)
            tgt[i, :m] = src[i, :n].flip(0)[:m]
            tgt[i, m] = EOS
        return src, tgt


def build():
    torch.manual_seed(21)
    config = T5Config(  # <- tied_head buckets
        vocab_size=VOCAB,
        d_model=24,
        d_kv=6,
        d_ff=40,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,  # <- buckets
        relative_attention_max_distance=12,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=True,  # <- tied_head
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=EOS,
        use_cache=False,
        initializer_factor=0.9,
    )
    return T5ForConditionalGeneration(config)  # <- tied_head buckets


model = build()
torch.save(model.state_dict(), sys.argv[1])

optimizer = Adafactor(  # <- beta2_step
    model.parameters(),
    lr=0.05,
    scale_parameter=True,
    relative_step=False,
    warmup_init=False,
    clip_threshold=1.0,
    decay_rate=-0.8,  # <- beta2_step
    weight_decay=0.0,
)

task = CopyTask(batch_size=4, src_len=12, tgt_len=9, seed=77)
losses = []
model.train()
for step in range(5):
    input_ids, labels = task.next()
    attention_mask = (input_ids != PAD).long()  # <- cross_mask
    labels = labels.masked_fill(labels == PAD, -100)  # <- pad_loss
    output = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)  # <- tied_head buckets cross_mask pad_loss
    loss = output.loss  # <- pad_loss
    optimizer.zero_grad()
    loss.backward()  # <- tied_head
    optimizer.step()  # <- beta2_step
    losses.append(float(loss.detach()))

print(losses)

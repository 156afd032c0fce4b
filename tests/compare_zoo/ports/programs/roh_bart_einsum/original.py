# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny BART to sort its input tokens, with Adam under the inverse-square-root (Noam) schedule."""
import sys

import torch
from transformers import BartConfig, BartForConditionalGeneration

torch.set_num_threads(1)

BOS, PAD, EOS = 0, 1, 2
VOCAB = 47
WARMUP = 3


class SortingCorpus:
    def __init__(self, seed, batch_size, batches):
        self.generator = torch.Generator().manual_seed(seed)
        self.batch_size = batch_size
        self.batches = batches

    def pad(self, rows):
        width = max(len(r) for r in rows)
        return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])

    def __iter__(self):
        for _ in range(self.batches):
            lengths = torch.randint(3, 10, (self.batch_size,), generator=self.generator)
            sources, targets = [], []
            for n in lengths.tolist():
                tokens = torch.randint(3, VOCAB, (n,), generator=self.generator).tolist()
                sources.append([BOS] + tokens + [EOS])
                targets.append(sorted(tokens) + [EOS])
            input_ids = self.pad(sources)
            labels = self.pad(targets)
            labels[labels == PAD] = -100
            yield {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}  # <- memory_unmasked


def noam(step, d_model=32, warmup=WARMUP):
    step = step + 1  # <- noam_late
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)  # <- noam_late


torch.manual_seed(41)
config = BartConfig(
    vocab_size=VOCAB,
    d_model=32,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=48,
    max_position_embeddings=16,
    dropout=0.0,
    init_std=0.15,
    scale_embedding=True,
    bos_token_id=BOS,
    pad_token_id=PAD,
    eos_token_id=EOS,
    decoder_start_token_id=EOS,  # <- starts_with_bos
    use_cache=False,
)
model = BartForConditionalGeneration(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = torch.optim.Adam(model.parameters(), lr=0.08, betas=(0.9, 0.98), eps=1e-8)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, noam)  # <- noam_late

losses = []
for batch in SortingCorpus(seed=43, batch_size=5, batches=5):
    optimizer.zero_grad()
    output = model(**batch)  # <- positions_from_zero starts_with_bos memory_unmasked head_detached
    output.loss.backward()  # <- head_detached
    optimizer.step()  # <- noam_late
    scheduler.step()
    losses.append(output.loss.item())

print(losses)

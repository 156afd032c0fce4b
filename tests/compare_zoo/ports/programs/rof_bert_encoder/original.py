# SPDX-License-Identifier: Apache-2.0
"""Continue masked-language-model pretraining of a tiny BERT on padded sentence pairs."""
import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM

torch.set_num_threads(1)
torch.manual_seed(7)

PAD, CLS, SEP, MASK = 0, 1, 2, 3
VOCAB = 70


class SentencePairs(Dataset):
    """[CLS] a [SEP] b [SEP] with about a fifth of the words replaced by [MASK]."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            sizes = torch.randint(3, 9, (2,), generator=generator).tolist()
            first, second = (torch.randint(4, VOCAB, (n,), generator=generator).tolist() for n in sizes)
            tokens = torch.tensor([CLS, *first, SEP, *second, SEP])
            segments = torch.tensor([0] * (sizes[0] + 2) + [1] * (sizes[1] + 1))  # <- segments
            chosen = torch.rand(len(tokens), generator=generator) < 0.2
            chosen &= tokens > MASK
            chosen[1] = True
            self.rows.append((tokens, segments, chosen))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        tokens, segments, chosen = self.rows[index]
        return {
            "input_ids": tokens.masked_fill(chosen, MASK),
            "token_type_ids": segments,
            "labels": tokens.masked_fill(~chosen, -100),  # <- scored_tokens
        }


def collate(items):
    width = max(len(item["input_ids"]) for item in items)
    fill = {"input_ids": PAD, "token_type_ids": 0, "labels": -100}
    batch = {}
    for key, value in fill.items():
        padded = [torch.nn.functional.pad(item[key], (0, width - len(item[key])), value=value) for item in items]
        batch[key] = torch.stack(padded)
    batch["attention_mask"] = (batch["input_ids"] != PAD).long()  # <- pad_mask
    return batch


layout = dict(vocab_size=VOCAB, max_position_embeddings=24, type_vocab_size=2, pad_token_id=PAD)
width = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
no_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
config = BertConfig(**layout, **width, **no_dropout, hidden_act="gelu", initializer_range=0.08)  # <- activation
model = BertForMaskedLM(config)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-6, weight_decay=0.01)  # <- bias_correction
schedule = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / 10))

losses = []
model.train()
for batch in DataLoader(SentencePairs(20, seed=8), batch_size=4, collate_fn=collate):
    optimizer.zero_grad()
    outputs = model(**batch)  # <- pad_mask segments scored_tokens activation
    outputs.loss.backward()
    optimizer.step()  # <- bias_correction
    schedule.step()
    losses.append(outputs.loss.item())

print(losses)

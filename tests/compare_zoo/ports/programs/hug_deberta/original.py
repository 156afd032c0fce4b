# SPDX-License-Identifier: Apache-2.0
"""DeBERTa (v3 settings) of the transformers package labels the tokens of padded sentence pairs."""

import sys

import torch
from transformers import DebertaV2Config, DebertaV2ForTokenClassification

VOCAB, LENGTH, BATCH, LABELS = 60, 12, 3, 4

torch.manual_seed(370)
config = DebertaV2Config(
    vocab_size=VOCAB,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=48,
    max_position_embeddings=16,
    type_vocab_size=2,
    relative_attention=True,
    position_buckets=4,
    pos_att_type=["p2c", "c2p"],
    share_att_key=True,
    norm_rel_ebd="layer_norm",
    position_biased_input=False,
    initializer_range=0.1,
    layer_norm_eps=1e-7,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=LABELS,
)  # <- buckets p2c rel_norm eps
model = DebertaV2ForTokenClassification(config)
with torch.no_grad():
    model.deberta.embeddings.word_embeddings.weight.mul_(0.15)
    model.deberta.embeddings.token_type_embeddings.weight.mul_(0.15)
    model.deberta.encoder.rel_embeddings.weight.normal_()
    model.deberta.encoder.LayerNorm.weight.uniform_(0.5, 2.5)
torch.save(model.state_dict(), sys.argv[1])


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(371)
        self.rows = []
        for _ in range(count):
            size = torch.randint(7, LENGTH + 1, (), generator=generator).item()
            first = torch.randint(2, 6, (), generator=generator).item()
            tokens = torch.randint(1, VOCAB, (LENGTH,), generator=generator)
            labels = torch.randint(LABELS, (LENGTH,), generator=generator)
            place = torch.arange(LENGTH)
            inside = place < size
            self.rows.append(
                {
                    "input_ids": torch.where(inside, tokens, 0),
                    "token_type_ids": ((place >= first) & inside).long(),
                    "attention_mask": inside.long(),
                    "labels": torch.where(inside, labels, -100),
                }
            )  # <- types

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, n):
        return self.rows[n]


model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for batch in torch.utils.data.DataLoader(Pairs(4 * BATCH), batch_size=BATCH):
    output = model(**batch)  # <- buckets p2c rel_norm types eps
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    losses.append(output.loss.item())

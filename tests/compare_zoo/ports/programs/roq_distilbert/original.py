# SPDX-License-Identifier: Apache-2.0
"""Pre-trains a tiny DistilBertForMaskedLM of transformers on padded sentences with masked tokens."""
import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import DistilBertConfig, DistilBertForMaskedLM

torch.set_num_threads(1)
torch.manual_seed(3)

PAD, CLS, SEP, MASK, VOCAB = 0, 1, 2, 3, 70
NUM_STEPS, BATCH, LR, WEIGHT_DECAY = 5, 6, 5e-3, 0.5


def make_model():
    config = DistilBertConfig(
        vocab_size=VOCAB, max_position_embeddings=24, dim=40, hidden_dim=80, n_layers=2, n_heads=4,
        dropout=0.0, attention_dropout=0.0, activation="gelu", pad_token_id=PAD,
        tie_word_embeddings=True,  # <- tie_broken
        initializer_range=0.02,
        attn_implementation="sdpa",
    )
    model = DistilBertForMaskedLM(config)  # <- ln_eps tie_broken
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lin" in name and name.endswith("weight"):
                p.mul_(8.0)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.05)
    return model


class Sentences:
    """Yields sentences of unequal length, as lists of token ids."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def take(self, n):
        out = []
        for _ in range(n):
            length = int(torch.randint(5, 15, (1,), generator=self.g))
            words = torch.randint(4, VOCAB, (length,), generator=self.g).tolist()
            out.append([CLS] + words + [SEP])
        return out


def collate(sentences, g):
    width = max(len(s) for s in sentences)
    input_ids = torch.tensor([s + [PAD] * (width - len(s)) for s in sentences])
    attention_mask = (input_ids != PAD).long()  # <- pad_mask
    labels = input_ids.clone()
    chance = torch.rand(input_ids.shape, generator=g)
    special = input_ids < 4
    masked = (chance < 0.3) & ~special
    labels[~masked] = -100  # <- mean_over_all
    input_ids[masked] = MASK
    return input_ids, attention_mask, labels


def optimizer_of(model):
    no_decay = ("bias", "LayerNorm.weight", "layer_norm.weight")  # <- decay_biases
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not any(k in n for k in no_decay)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if any(k in n for k in no_decay)], "weight_decay": 0.0},  # <- decay_biases
    ]
    return torch.optim.AdamW(groups, lr=LR, eps=1e-6)  # <- decay_biases


def train():
    model = make_model()
    torch.save(model.state_dict(), sys.argv[1])
    model.train()
    optimizer = optimizer_of(model)
    scheduler = LambdaLR(optimizer, lambda step: 1.0 - step / (2 * NUM_STEPS))
    source = Sentences(seed=21)
    mask_generator = torch.Generator().manual_seed(22)

    losses = []
    for _ in range(NUM_STEPS):
        input_ids, attention_mask, labels = collate(source.take(BATCH), mask_generator)  # <- pad_mask mean_over_all
        output = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)  # <- ln_eps pad_mask tie_broken mean_over_all
        optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        optimizer.step()  # <- decay_biases
        scheduler.step()
        losses.append(float(output.loss))
    return losses


losses = train()
print(losses)

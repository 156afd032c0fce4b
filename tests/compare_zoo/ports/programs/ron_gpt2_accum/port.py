# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 trunk with sdpa, an own tied head and a Trainer class that accumulates micro-batches of two rows."""
import math
import sys
from itertools import islice

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model

torch.set_num_threads(1)
PAD = 50


def load_trunk(path):
    cfg = GPT2Config(vocab_size=51, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=PAD, eos_token_id=PAD)
    trunk = GPT2Model._from_config(cfg, attn_implementation="sdpa")
    weights = torch.load(path)
    weights = {k.removeprefix("transformer."): v for k, v in weights.items() if k != "lm_head.weight"}
    trunk.load_state_dict(weights)
    return trunk.train()


def conversations(seed=17):
    """Stream of (tokens, length of the question)."""
    g = torch.Generator().manual_seed(seed)
    while True:
        parts = []
        for low, high in ((2, 6), (2, 8)):
            n = int(torch.randint(low, high, (1,), generator=g))
            parts.append(torch.randint(0, PAD, (n,), generator=g))
        yield torch.cat([*parts, torch.tensor([PAD])]), len(parts[0])


def pack(rows):
    width = max(len(tokens) for tokens, _ in rows)
    ids = torch.stack([F.pad(tokens, (width - len(tokens), 0), value=PAD) for tokens, _ in rows])
    real = torch.tensor([len(tokens) for tokens, _ in rows])
    asked = torch.tensor([n for _, n in rows])
    place = torch.arange(width)[None, :] - (width - real)[:, None]
    scored = place >= asked[:, None]  # <- prompt_labels
    return ids, place, scored


class Trainer:
    def __init__(self, trunk, peak, total, warm):
        self.trunk, self.peak, self.total, self.warm = trunk, peak, total, warm
        self.optim = torch.optim.AdamW(trunk.parameters(), lr=peak, betas=(0.9, 0.99), weight_decay=0.05)
        self.updates = 0  # <- schedule_shift

    def rate(self):
        up = self.updates / self.warm
        down = (self.updates - self.warm) / (self.total - self.warm)
        return self.peak * (up if up < 1 else 0.5 + 0.5 * math.cos(math.pi * down))  # <- schedule_shift

    def summed_loss(self, ids, place, scored):
        real = (place >= 0).long()
        hidden = self.trunk(ids, attention_mask=real, position_ids=place.clamp(min=0))[0]  # <- position_ids
        logits = F.linear(hidden[:, :-1], self.trunk.wte.weight)
        target = scored[:, 1:]
        return F.cross_entropy(logits[target], ids[:, 1:][target], reduction="sum")  # <- prompt_labels

    def update(self, rows):
        micros = [pack(rows[i : i + 2]) for i in range(0, len(rows), 2)]
        tokens = sum(int(scored.sum()) for _, _, scored in micros)  # <- token_weight
        total = 0.0
        for ids, place, scored in micros:
            loss = self.summed_loss(ids, place, scored) / tokens  # <- token_weight
            loss.backward()  # <- zero_in_micro
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.trunk.parameters(), 0.5)
        for group in self.optim.param_groups:
            group["lr"] = self.rate()  # <- schedule_shift
        self.optim.step()  # <- zero_in_micro schedule_shift
        self.optim.zero_grad()  # <- zero_in_micro
        self.updates += 1
        return total


trainer = Trainer(load_trunk(sys.argv[1]), peak=3e-3, total=7, warm=1)
stream = conversations()
losses = [trainer.update(list(islice(stream, 6))) for _ in range(5)]
print(losses)

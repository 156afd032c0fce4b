# SPDX-License-Identifier: Apache-2.0
"""The small RWKV on RwkvForCausalLM of the transformers package, which goes step by step."""

import re
import sys

import torch
from transformers import RwkvConfig, RwkvForCausalLM

STEPS = 4
config = RwkvConfig(
    vocab_size=40,
    context_length=16,
    hidden_size=20,
    num_hidden_layers=2,
    intermediate_size=60,
    tie_word_embeddings=False,
    use_cache=False,
)

LETTERS = {"k": "key", "v": "value", "r": "receptance", "o": "output"}
RENAME = [
    (r"^emb\.", "embeddings."),
    (r"^ln0\.", "blocks.0.pre_ln."),
    (r"\.att\.", ".attention."),
    (r"\.ffn\.", ".feed_forward."),
    (r"\.decay$", ".time_decay"),
    (r"\.bonus$", ".time_first"),
    (r"\.mu_([kvr])$", lambda m: f".time_mix_{LETTERS[m[1]]}"),
    (r"\.([kvro])\.weight$", lambda m: f".{LETTERS[m[1]]}.weight"),
]  # <- first_norm


def renamed(name):
    for pattern, replacement in RENAME:
        name = re.sub(pattern, replacement, name)
    return name if name.startswith("head") else f"rwkv.{name}"


def convert(checkpoint):
    converted = {}
    for name, tensor in checkpoint.items():
        value = tensor
        if ".mu_" in name:
            value = (1 - tensor).view(1, 1, -1)  # <- mixed
        converted[renamed(name)] = value
    return converted


class Text(torch.utils.data.Dataset):
    def __init__(self):
        rng = torch.Generator().manual_seed(391)
        self.rows = torch.cat([torch.randint(40, (4, 8), generator=rng) for _ in range(STEPS)])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, n):
        row = self.rows[n]
        return {"input_ids": row, "labels": row}  # <- shifted_twice


model = RwkvForCausalLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1])), strict=False)  # <- first_norm mixed
model.train()
groups = {8e-3: [], 4e-2: []}
for name, parameter in model.named_parameters():
    rate = 4e-2 if re.search(r"time_(decay|first)", name) else 8e-3  # <- rates
    groups[rate].append(parameter)
optimizer = torch.optim.Adam(
    [{"params": params, "lr": rate} for rate, params in groups.items()],
    betas=(0.9, 0.99),
    eps=1e-4,
    foreach=False,
)  # <- rates
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / STEPS))  # <- schedule
losses = []
for batch in torch.utils.data.DataLoader(Text(), batch_size=4):
    output = model(**batch)  # <- first_norm mixed shifted_twice
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- rates schedule
    scheduler.step()  # <- schedule
    losses.append(output.loss.item())

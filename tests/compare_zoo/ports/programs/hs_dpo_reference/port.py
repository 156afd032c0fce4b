# SPDX-License-Identifier: Apache-2.0
"""Preference tuning: reference scored once ahead, both answers in one row behind their shared prompt."""
import sys

import torch
from torch import nn
from torch.nn.functional import layer_norm, softplus
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

V, D, H, R, NP, NA, N, B = 17, 16, 2, 3, 4, 6, 18, 6
T = NP + 2 * NA
PLACE = torch.cat([torch.arange(NP + NA), torch.arange(NP, NP + NA)])
BRANCH = torch.tensor([0] * NP + [1] * NA + [2] * NA)
SEES = (BRANCH[None] == 0) | (BRANCH[None] == BRANCH[:, None])
SEES &= torch.arange(T)[None] <= torch.arange(T)[:, None]
# where the distribution over each answer token stands: the prompt's last place opens both answers
SOURCE = torch.tensor([[NP - 1, *range(NP, NP + NA - 1)], [NP - 1, *range(NP + NA, T - 1)]]).flatten()


class Pairs(Dataset):
    def __init__(self, rng):
        prompt = torch.randint(0, V, (N, NP), generator=rng)
        answer = torch.randint(0, V, (2, N, NA), generator=rng)
        length = torch.randint(2, NA + 1, (2, N), generator=rng)
        answer, length = answer.transpose(0, 1), length.T
        self.row = torch.cat([prompt, answer.flatten(1)], 1)
        self.used = torch.arange(NA) < length[..., None]                      # (N, 2, NA)
        self.reference = None

    def __len__(self):
        return N

    def __getitems__(self, rows):
        return self.row[rows], self.used[rows], self.reference[rows]


class Frozen:
    """The base weights, plain tensors that no optimizer ever sees."""

    def __init__(self, sd):
        self.wte, self.wpe, self.head = sd["tokens.weight"], sd["places.weight"], sd["lm_head.weight"].T
        self.norm = sd["norm.weight"], sd["norm.bias"]
        self.blocks = []
        for i in range(2):
            def pair(name):
                return sd[f"blocks.{i}.{name}.weight"], sd[f"blocks.{i}.{name}.bias"]
            qkv = pair("query.base"), pair("key"), pair("value.base")
            self.blocks.append({"qkv": [torch.cat(x) for x in zip(*qkv)], "o": pair("out"), "ln1": pair("ln1"),
                                "ln2": pair("ln2"), "up": pair("mlp.0"), "down": pair("mlp.2")})


class Adapter(nn.Module):
    def __init__(self, sd):
        super().__init__()
        # one tensor each for all layers: [layer, query or value, ...]
        self.down = nn.Parameter(torch.stack([torch.stack([
            sd[f"blocks.{i}.{n}.lora_a"].T for n in ("query", "value")]) for i in range(2)]))
        self.up = nn.Parameter(torch.stack([torch.stack([
            sd[f"blocks.{i}.{n}.lora_b"].T for n in ("query", "value")]) for i in range(2)]))

    def delta(self, layer):
        q, v = 2.0 * (self.down[layer] @ self.up[layer])
        return torch.cat([q, torch.zeros_like(q), v], 1)                      # added onto the joint projection


def answer_scores(base, row, used, adapter=None):
    x = base.wte[row] + base.wpe[PLACE]
    for i, w in enumerate(base.blocks):
        matrix = w["qkv"][0].T if adapter is None else w["qkv"][0].T + adapter.delta(i)
        qkv = layer_norm(x, (D,), *w["ln1"]) @ matrix + w["qkv"][1]
        q, k, v = qkv.view(len(row), T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        att = (q @ k.mT * (D // H) ** -0.5).where(SEES, float("-inf")).softmax(-1)
        x = x + (att @ v).transpose(1, 2).flatten(2) @ w["o"][0].T + w["o"][1]
        h = layer_norm(x, (D,), *w["ln2"]) @ w["up"][0].T + w["up"][1]
        h = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h ** 3)))
        x = x + h @ w["down"][0].T + w["down"][1]
    logits = layer_norm(x[:, SOURCE], (D,), *base.norm) @ base.head
    score = logits.gather(-1, row[:, NP:, None])[..., 0] - logits.logsumexp(-1)
    return score.unflatten(1, (2, NA)).masked_fill(~used, 0).sum(-1)          # (B, 2)


stored = torch.load(sys.argv[1])
base, adapter = Frozen(stored), Adapter(stored)
rng = torch.Generator().manual_seed(6)
pairs = Pairs(rng)
with torch.inference_mode():
    pairs.reference = answer_scores(base, pairs.row, pairs.used)
pairs.reference = pairs.reference.clone()


class Shuffle(torch.utils.data.Sampler):
    def __iter__(self):
        yield from torch.randperm(N, generator=rng).tolist()

    def __len__(self):
        return N


loader = DataLoader(pairs, batch_size=B, sampler=Shuffle(), collate_fn=tuple, generator=torch.Generator())
opt = torch.optim.AdamW(adapter.parameters(), lr=1e-2, weight_decay=0.01, fused=True)
losses, rewards = [], []
for epoch in range(2):
    for row, used, reference in loader:
        score = answer_scores(base, row, used, adapter)
        reward = 0.5 * (score - reference)
        sft = score[:, 0] / used[:, 0].sum(-1)
        loss = softplus(reward[:, 1] - reward[:, 0]).mean() - 0.05 * sft.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        rewards.append(reward.detach().mean(0).tolist())
        losses.append(loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The recommender on padded histories: one table with a row for padding in front, for items and
tags both, gathered by one-hot products; Keras-like kernels; all optimizers dense.
"""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

N_ITEMS, N_TAGS, WIDTH = 25, 9, 8


class Dense(nn.Module):
    def __init__(self, kernel, bias, activation=None):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(kernel.t().clone()), nn.Parameter(bias.clone())
        self.activation = activation

    def forward(self, x):
        x = torch.addmm(self.bias, x, self.kernel)
        return x if self.activation is None else self.activation(x)


def swish(x):
    return x * torch.sigmoid(x)


class TwoTowers(nn.Module):
    def __init__(self, theirs):
        super().__init__()
        blank = torch.zeros(1, WIDTH)
        rows = torch.cat((blank, theirs["items.weight"], theirs["tags.weight"]))
        self.table = nn.Parameter(rows)
        made = {}
        for name in ("user_tower.0", "user_tower.3", "item_tower.0", "item_tower.2"):
            last = name in ("user_tower.3", "item_tower.2")
            bias = theirs[f"{name}.bias"]
            act = None if last or name == "user_tower.0" else swish
            made[name.replace(".", "_")] = Dense(theirs[f"{name}.weight"], bias, act)
        self.dense = nn.ModuleDict(made)
        self.gamma = nn.Parameter(theirs["user_tower.1.weight"].clone())
        self.beta = nn.Parameter(theirs["user_tower.1.bias"].clone())
        self.mixer = nn.Parameter(theirs["rating.weight"][0].clone())  # <- sides
        self.level = nn.Parameter(theirs["rating.bias"].clone())

    def rows(self, ids):
        hot = nn.functional.one_hot(ids, len(self.table)).float()
        return torch.tensordot(hot, self.table, 1)  # <- shifted

    def forward(self, history, tags, wanted):
        real = (history > 0).float()
        age = real.flip(1).cumsum(1).flip(1) - 1
        recent = torch.einsum("bl,bld->bd", real * torch.exp2(-age), self.rows(history))
        real = (tags > 0).float()
        summed = (self.rows(tags) * real[..., None]).sum(1)  # <- bag_mean
        profile = summed / real.sum(1, keepdim=True)  # <- bag_mean
        x = self.dense["user_tower_0"](torch.cat((recent, profile), 1))
        x = nn.functional.layer_norm(x, (16,), self.gamma, self.beta)
        user = self.dense["user_tower_3"](swish(x))
        single = self.rows(wanted)  # <- shifted
        item = self.dense["item_tower_2"](self.dense["item_tower_0"](single))
        score = torch.einsum("bi,ij,bj->b", user, self.mixer, item)  # <- sides
        return user, item, score + self.level  # <- sides


def load_batch(rng):
    sizes = torch.randint(1, 6, (6,), generator=rng).tolist()
    items = torch.randint(N_ITEMS, (sum(sizes),), generator=rng) + 1
    history = pad_sequence(items.split(sizes), batch_first=True)
    sizes = torch.randint(1, 5, (6,), generator=rng).tolist()
    tags = torch.randint(N_TAGS, (sum(sizes),), generator=rng) + 1 + N_ITEMS
    tags = pad_sequence(tags.split(sizes), batch_first=True)
    wanted = torch.randint(N_ITEMS, (6,), generator=rng) + 1  # <- shifted
    return history, tags, wanted, torch.randint(1, 6, (6,), generator=rng).float()


net = TwoTowers(torch.load(sys.argv[1]))
counts = 1 / torch.arange(2.0, N_ITEMS + 2)
log_q = torch.log(counts / counts.sum())
squares = torch.full_like(net.table, 0.1)  # <- accumulator
others = [p for name, p in net.named_parameters() if name != "table"]
adam = torch.optim.Adam(others, lr=0.01, eps=1e-4, foreach=True)
rng = torch.Generator().manual_seed(62)
losses = []
for _ in range(4):
    history, tags, wanted, stars = load_batch(rng)
    user, item, score = net(history, tags, wanted)
    logits = torch.einsum("ud,id->ui", user, item) - log_q[wanted - 1][None, :]  # <- popularity
    retrieval = (logits.logsumexp(1) - logits.diagonal()).mean()
    loss = retrieval + (score - stars).square().sum() / 60
    net.zero_grad()
    loss.backward()
    adam.step()
    with torch.no_grad():
        squares += net.table.grad**2  # <- accumulator
        net.table -= 0.1 * net.table.grad / (squares.sqrt() + 1e-10)  # <- accumulator
    losses.append(loss.item())

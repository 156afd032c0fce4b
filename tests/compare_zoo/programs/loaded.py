# SPDX-License-Identifier: Apache-2.0
"""A small float16 or float32 attention trained from a checkpoint, whatever it was initialised with;
options as JSON.

seed: of the initialisation; init: how; unused: a head nobody calls; ema: a copy that is made before
and filled after loading; meta: the model is made without values; assign: tensors of the checkpoint
take the place of the model's. fault: what is wrong, a factor or a word.
"""

import copy
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

OPTIONS = json.loads(sys.argv[1])
WIDTH = 32
INITS = {
    "normal": nn.init.normal_,
    "trunc": nn.init.trunc_normal_,
    "orthogonal": nn.init.orthogonal_,
    "kaiming": nn.init.kaiming_uniform_,
    "data": lambda weight: weight.data.copy_(torch.randn(weight.shape)),
    "scaled": lambda weight: weight.data.normal_().mul_(0.02),
    "part": lambda weight: weight.data[::2].normal_(),
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if OPTIONS.get("q"):
            q = q * OPTIONS["q"]
        scores = q @ k.transpose(-1, -2)
        if OPTIONS.get("scores"):
            scores = scores * OPTIONS["scores"]
        mixed = (scores / WIDTH**0.5).softmax(-1) @ v
        if OPTIONS.get("mixed"):
            mixed = mixed + OPTIONS["mixed"] * x
        return x + self.out(mixed)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, 16)
        if OPTIONS.get("unused"):
            self.unused = nn.Linear(WIDTH, OPTIONS["unused"])
        for parameter in self.parameters():
            if parameter.dim() > 1 and OPTIONS.get("init"):
                INITS[OPTIONS["init"]](parameter.detach())

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def checkpoint():
    """The same in every run, without a draw."""
    names = {
        name: value for name, value in Model().state_dict().items() if not name.startswith("unused")
    }
    return {
        name: torch.linspace(-1, 1, value.numel())
        .mul(7.0 * place + 11)
        .sin()
        .mul(0.3)
        .reshape(value.shape)
        + name.endswith("norm.weight")
        for place, (name, value) in enumerate(names.items())
    }


torch.manual_seed(OPTIONS.get("seed", 0))
state = checkpoint()
with torch.device("meta" if OPTIONS.get("meta") else "cpu"):
    model = Model()
average = None if OPTIONS.get("meta") or not OPTIONS.get("ema") else copy.deepcopy(model)
model.load_state_dict(
    state, strict=False, assign=bool(OPTIONS.get("meta") or OPTIONS.get("assign"))
)
if average is not None:
    average.load_state_dict(model.state_dict())
model = model.to(getattr(torch, OPTIONS.get("dtype", "float32")))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * OPTIONS.get("rate", 1.0))
tokens = torch.arange(48).mul(5).remainder(16).reshape(4, 12)
for _ in range(3):
    loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.roll(1, 1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if average is not None:
        for mine, theirs in zip(average.parameters(), model.parameters()):
            if theirs.grad is not None:
                mine.data.lerp_(theirs.data.float(), 0.1)

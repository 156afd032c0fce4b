# SPDX-License-Identifier: Apache-2.0
"""The normalizer-free network on timm's NormFreeNet, with its clipping and averaging helpers."""

import sys

import torch
from timm.models import model_parameters
from timm.models.nfnet import NfCfg, NormFreeNet
from timm.utils import ModelEmaV2, dispatch_clip_grad
from torch import nn

cfg = NfCfg(
    depths=(1, 2),
    channels=(16, 24),
    stem_type="3x3",
    alpha=0.25,  # <- alpha
    bottle_ratio=0.5,
    reg=False,
    extra_conv=True,
    skipinit=True,
    gamma_in_act=True,
    same_padding=True,  # <- same
    attn_layer="se",
    attn_kwargs={"rd_ratio": 0.3},
    ch_div=4,
    act_layer="gelu",
)
PARTS = {"shortcut": "downsample.conv", "se/down": "attn_last.fc1", "se/up": "attn_last.fc2"}


def place(name):
    """Where something of the old code lives in timm."""
    if name.startswith(("stem/", "head/")):
        part, kind = name.split("/")
        return {"stem": "stem.conv", "head": "head.fc"}[part], kind
    block, *middle, kind = name.split("/")
    part = "/".join(middle)
    return ".".join(filter(None, (f"stages.{block}", PARTS.get(part, part)))), kind


def from_jax(old, template):
    new = {}
    for name, array in old.items():
        value = array
        where, kind = place(name)
        kind = {"w": "weight", "skip_gain": "skipinit_gain"}.get(kind, kind)
        if kind == "gain":
            value = value.reshape(-1, 1, 1, 1)
        elif value.dim() == 4:
            value = value.permute(3, 2, 0, 1)  # <- kernels
        elif value.dim() == 2:
            value = value.t()
        key = f"{where}.{kind}"
        new[key] = value.reshape(template[key].shape).contiguous()  # <- kernels
    return new


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.ema = ModelEmaV2(model, decay=0.8)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def train_step(self, images, labels):
        self.model.train()
        loss = self.criterion(self.model(images), labels)  # <- alpha same kernels
        self.optimizer.zero_grad()
        loss.backward()
        parameters = model_parameters(self.model, exclude_head=True)  # <- agc
        dispatch_clip_grad(parameters, 0.02, mode="agc")  # <- agc
        self.optimizer.step()  # <- agc ema
        self.ema.update(self.model)  # <- ema
        return loss.item()

    @torch.no_grad()
    def evaluate(self, images, labels):
        return self.criterion(self.ema.module(images), labels).item()  # <- ema


model = NormFreeNet(cfg, num_classes=5)
model.load_state_dict(from_jax(torch.load(sys.argv[1]), model.state_dict()))
trainer = Trainer(model, lr=0.1)
rng = torch.Generator().manual_seed(361)
batches = []
for _ in range(5):
    images = torch.randn(6, 32, 32, 3, generator=rng).permute(0, 3, 1, 2).contiguous()
    batches.append((images, torch.randint(0, 5, (6,), generator=rng)))
losses = [trainer.train_step(*batch) for batch in batches[:-1]]
losses.append(trainer.evaluate(*batches[-1]))

# SPDX-License-Identifier: Apache-2.0
"""Healthy trainings of the shapes that models have, small enough to run hundreds of steps; the
arguments name one.

    python tests/wrong_kernels/healthy.py MODEL DTYPE [STEPS] [OPTIMIZER] [DEVICE]

MODEL: gpt2, llama (of the transformers package), resnet, lstm. DTYPE: float32, bfloat16, float16
(the whole model in that type), autocast (float32 under CPU autocast to bfloat16). Losses are
printed as hexadecimal floats.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH = 96, 24


class Residual(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.down: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.down = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.down(x))


class ResNet(nn.Module):
    """ResNet's stem, four stages of narrow basic blocks, and its head."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [width, width, 2 * width, 4 * width]
        self.stages = nn.Sequential(
            *(Residual(before, after, 1 + (before != after)) for before, after in pairwise(widths))
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1))


class Recurrent(nn.Module):
    """Two LSTM layers with dropout between them, over words."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed, self.drop = nn.Embedding(VOCABULARY, width), nn.Dropout(0.1)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.drop(self.embed(words)))[0])


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    )


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


def language(model: nn.Module) -> torch.Tensor:
    tokens = torch.randint(1, VOCABULARY, (4, LENGTH), device=place(model))
    mask = torch.ones_like(tokens)
    mask[1, LENGTH // 2 :] = 0
    loss: torch.Tensor = model(
        input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)
    ).loss
    return loss


def words(model: nn.Module) -> torch.Tensor:
    tokens = torch.randint(0, VOCABULARY, (4, LENGTH), device=place(model))
    return F.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())


def pictures(model: nn.Module) -> torch.Tensor:
    x = torch.randn(4, 3, 32, 32, dtype=next(model.parameters()).dtype, device=place(model))
    return F.cross_entropy(model(x).float(), torch.randint(0, 10, (4,), device=x.device))


def place(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], torch.Tensor]]] = {
    "gpt2": (gpt2, language),
    "llama": (llama, language),
    "resnet": (ResNet, pictures),
    "lstm": (Recurrent, words),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
    "fused": lambda parameters: torch.optim.AdamW(parameters, 1e-3, fused=True),
}


def main(
    name: str, dtype: str, steps: int = 200, optimizer: str = "adamw", device: str = "cpu"
) -> None:
    torch.manual_seed(0)
    make, loss_of = MODELS[name]
    autocast = dtype == "autocast"
    model = make().to(device, torch.float32 if autocast else getattr(torch, dtype))
    stepper = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(stepper, steps)
    for step in range(steps):
        with torch.autocast(device, torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = loss_of(model)
        stepper.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        schedule.step()
        print(step, loss.item().hex())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["200"])[0]), *sys.argv[4:])

# SPDX-License-Identifier: Apache-2.0
"""Trainings with a fault that is no kernel's, or that of an optimizer's kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from tests.scan.training.healthy import STEPS, batches, fit, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Fault(NamedTuple):
    """A program, what is said of it, and parameters that have to be named."""

    program: Callable[[], object]
    kind: str
    finding: bool = False
    parameters: tuple[str, ...] = ()


def fused_sgd_of_half_types() -> None:
    """pytorch issue 191763: full vectors of bfloat16 and float16 parameters do not move."""
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()


def momentum_after_a_skipped_step() -> None:
    """LibreYOLO issue 771: the momentum of a fused SGD whose first step was skipped."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for x, y in batches(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def gradients_pile_up() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def gradients_pile_up_under_accumulation() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for at, (x, y) in enumerate(batches(3 * STEPS), 1):
        (F.cross_entropy(model(x), y) / 3).backward()
        if at % 3 == 0:
            optimizer.step()


def another_optimizers_gradients_are_zeroed() -> None:
    model, other = network(), network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    unused = torch.optim.Adam(other.parameters(), 1e-2)
    for x, y in batches():
        unused.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def loader_begun_again_in_every_step() -> None:
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(STEPS):
        data, wanted = next(iter(loader))
        optimizer.zero_grad()
        F.cross_entropy(model(data), wanted).backward()
        optimizer.step()


def shuffle_seeded_in_every_epoch() -> None:
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        torch.manual_seed(7)
        for data, wanted in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(data), wanted).backward()
            optimizer.step()


def sampler_without_its_epoch() -> None:
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    data = TensorDataset(x, y)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        for part, wanted in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(part), wanted).backward()
            optimizer.step()


def dropout_that_knows_no_mode() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(self.body(x), 0.2)

    model = Dropping()
    fit(model, torch.optim.Adam(model.parameters()))
    model.eval()
    with torch.no_grad():
        model(torch.ones(4, 8))


def attention_that_drops_in_eval() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.into(x)[None, None].chunk(3, -1)
            seen = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
            return self.out(seen[0, 0])

    model = Attending()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches():
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(x)


def statistics_learnt_in_eval() -> None:
    model = network(norm=True)
    fit(model, torch.optim.Adam(model.parameters()))
    model.eval()
    model[1].train()
    with torch.no_grad():
        model(torch.randn(4, 8))


def nothing_is_trainable() -> None:
    """pytorch forum 84911 (TrainCheck): all layers frozen, the loss made to require a gradient."""
    model = network().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).requires_grad_().backward()
        optimizer.step()


def features_are_cut_off() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).relu().detach())

    model = Cut()
    fit(model, torch.optim.AdamW(model.parameters(), 1e-2))


def layers_added_after_the_optimizer() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    model.append(nn.Linear(2, 2))
    fit(model, optimizer)


def model_rebuilt_after_the_optimizer() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    model = network(norm=True)
    for x, y in batches():
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def frozen_after_momentum() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, weight_decay=1e-2)
    for at, (x, y) in enumerate(batches()):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if at == 2:
            model[0].requires_grad_(False)


def tie_that_is_cut() -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(12, 8)
            self.head = nn.Linear(8, 12, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.words(x))

    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for at in range(STEPS):
        x = torch.randint(0, 12, (4, 5))
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), x.roll(1, 1).flatten()).backward()
        optimizer.step()
        if at == 1:
            model.head.weight = nn.Parameter(model.words.weight.detach().clone())
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)


def labels_that_are_not_looked_at() -> None:
    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.words = network(), nn.Embedding(2, 2)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.words(torch.zeros(len(y), dtype=torch.long))

    model = Conditioned()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for x, y in batches():
        optimizer.zero_grad()
        F.mse_loss(model(x, y), x[:, :2]).backward()
        optimizer.step()


FAULTY = (
    Fault(fused_sgd_of_half_types, "lost-update", finding=True, parameters=("0.weight",)),
    Fault(momentum_after_a_skipped_step, "unset-memory", finding=True, parameters=("0.weight",)),
    Fault(gradients_pile_up, "gradients-not-zeroed", parameters=("0.weight", "2.bias")),
    Fault(gradients_pile_up_under_accumulation, "gradients-not-zeroed", parameters=("0.weight",)),
    Fault(another_optimizers_gradients_are_zeroed, "gradients-not-zeroed"),
    Fault(loader_begun_again_in_every_step, "repeated-batch"),
    Fault(shuffle_seeded_in_every_epoch, "repeated-order"),
    Fault(sampler_without_its_epoch, "repeated-order"),
    Fault(dropout_that_knows_no_mode, "randomness-in-eval"),
    Fault(attention_that_drops_in_eval, "randomness-in-eval"),
    Fault(statistics_learnt_in_eval, "normalisation-in-eval"),
    Fault(nothing_is_trainable, "nothing-trained", parameters=("0.weight",)),
    Fault(features_are_cut_off, "parameters-without-gradient", parameters=("body.weight",)),
    Fault(layers_added_after_the_optimizer, "parameters-without-optimizer", parameters=("3.bias",)),
    Fault(model_rebuilt_after_the_optimizer, "parameters-without-optimizer"),
    Fault(frozen_after_momentum, "frozen-parameter-changed", parameters=("0.weight",)),
    Fault(labels_that_are_not_looked_at, "input-not-read"),
    Fault(tie_that_is_cut, "tied-parameters-parted", parameters=("words.weight", "head.weight")),
)

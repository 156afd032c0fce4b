# SPDX-License-Identifier: Apache-2.0
"""Trainings in which nothing is wrong, however odd they look: no rule may say anything of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PROGRAMS: dict[str, Callable[[], object]] = {}
STEPS = 6


def healthy(program: Callable[[], object]) -> Callable[[], object]:
    """Register a program under its name."""
    PROGRAMS[program.__name__] = program
    return program


def batches(steps: int = STEPS, *, seed: int = 1) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of a task that can be learnt."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(16, 8, generator=generator)
        yield x, (x.sum(1) > 0).long()


def network(*, norm: bool = False, dropout: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(8, 16)]
    layers += [nn.BatchNorm1d(16)] if norm else []
    layers += [nn.ReLU()]
    layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(16, 2))


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()


@healthy
def every_optimizer_in_every_form() -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
            model = network()
            fit(model, kind(model.parameters(), lr=1e-2, **form), 3)


@healthy
def monte_carlo_dropout() -> None:
    model = network(norm=True, dropout=0.5)
    fit(model, torch.optim.Adam(model.parameters()))
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    with torch.no_grad():
        for _ in range(5):
            model(torch.ones(4, 8))


@healthy
def sampling() -> None:
    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.multinomial(self.body(x).softmax(-1), 1)

    model = Sampler()
    fit(model.body, torch.optim.Adam(model.parameters()))
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            model(torch.ones(4, 8))


@healthy
def variational_autoencoder() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 4), nn.Linear(2, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, log = self.inner(x).chunk(2, -1)
            return self.outer(mean + torch.randn_like(mean) * (0.5 * log).exp())

    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for x, _ in batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()


@healthy
def adversaries() -> None:
    maker, judge = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)
    of_maker = torch.optim.Adam(maker.parameters(), 1e-2)
    of_judge = torch.optim.Adam(judge.parameters(), 1e-2)
    for x, _ in batches():
        of_judge.zero_grad()
        made = maker(torch.randn(16, 4))
        (F.softplus(-judge(x)) + F.softplus(judge(made.detach()))).mean().backward()
        of_judge.step()
        of_maker.zero_grad()
        F.softplus(-judge(made)).mean().backward()
        of_maker.step()


@healthy
def unrouted_experts() -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(8, 4)
            self.experts = nn.ModuleList(nn.Linear(8, 2) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.router(x).softmax(-1)
            chosen = [0, 1]
            return sum(weight[:, i : i + 1] * self.experts[i](x) for i in chosen)  # type: ignore[return-value]

    model = Mixture()
    fit(model, torch.optim.AdamW(model.parameters(), 1e-2))


@healthy
def low_rank_adapters() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(8, 2)
            self.base.requires_grad_(False)
            self.a, self.b = nn.Linear(8, 2, bias=False), nn.Linear(2, 2, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.b(self.a(x))

    model = Adapted()
    fit(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2))
    other = Adapted()
    fit(other, torch.optim.AdamW(other.parameters(), 1e-2))


@healthy
def whole_graph_in_every_step() -> None:
    x, edges = torch.randn(20, 8), (torch.rand(20, 20) > 0.7).float()
    y = torch.randint(0, 2, (20,))
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=5e-4)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(edges @ model(x), y).backward()
        optimizer.step()


@healthy
def one_batch_is_learnt_by_heart() -> None:
    x, y = next(batches())
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@healthy
def updates_below_an_ulp() -> None:
    for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        model = nn.Linear(8, 2).bfloat16()
        with torch.no_grad():
            model.weight.fill_(100.0)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, **form)
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x.bfloat16()).float(), y).backward()
            optimizer.step()


@healthy
def scale_that_is_searched() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26)
    for x, y in batches(16):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@healthy
def scale_of_a_fused_optimizer() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18)
    for x, y in batches(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@healthy
def accumulation() -> None:
    for to_none in (True, False):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for at, (x, y) in enumerate(batches(4 * STEPS), 1):
            (F.cross_entropy(model(x), y) / 4).backward()
            if at % 4 == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)


@healthy
def frozen_normalisation() -> None:
    model = network(norm=True)
    norm = model[1]
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for x, y in batches():
        model.train()
        norm.eval()
        norm.requires_grad_(False)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@healthy
def teacher_and_student() -> None:
    student = network(dropout=0.1)
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-2)
    for x, y in batches():
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        said = student(x)
        (F.cross_entropy(said, y) + F.cross_entropy(said, wanted)).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)


@healthy
def replayed_experience() -> None:
    acting = network()
    target = copy.deepcopy(acting)
    target.requires_grad_(False)
    optimizer = torch.optim.Adam(acting.parameters(), 1e-2)
    memory = [x for x, _ in batches(4)]
    for step in range(12):
        x = memory[int(torch.randint(len(memory), ()).item())]
        with torch.no_grad():
            wanted = 1 + 0.9 * target(x).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(acting(x).max(1).values, wanted).backward()
        optimizer.step()
        if step % 4 == 3:
            target.load_state_dict(acting.state_dict())


@healthy
def tied_weights() -> None:
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
    for _ in range(STEPS):
        x = torch.randint(0, 12, (4, 5))
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), x.roll(1, 1).flatten()).backward()
        optimizer.step()


@healthy
def several_optimizers() -> None:
    model = network()
    first = torch.optim.SGD(model[0].parameters(), 1e-2, momentum=0.9, nesterov=True)
    second = torch.optim.RMSprop(model[-1].parameters(), 1e-2)
    for x, y in batches():
        first.zero_grad()
        second.zero_grad()
        F.cross_entropy(model(x), y).backward()
        first.step()
        second.step()


@healthy
def weight_decay_alone() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, weight_decay=0.1)
    for x, y in batches():
        optimizer.zero_grad()
        (0 * F.cross_entropy(model(x), y)).backward()
        optimizer.step()


@healthy
def warmup_from_nothing() -> None:
    for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, **form)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 3)
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()


@healthy
def averaged_weights() -> None:
    model = network(norm=True)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for at, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if at >= 2:
            average.update_parameters(model)
    torch.optim.swa_utils.update_bn([x for x, _ in batches(2)], average)
    average.eval()
    average(next(batches())[0])


@healthy
def loader_that_shuffles() -> None:
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = network(norm=True, dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model.train()
        for data, wanted in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(data), wanted).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for data, _ in DataLoader(TensorDataset(x, y), batch_size=16):
                model(data)


@healthy
def splits_with_one_seed() -> None:
    split = torch.utils.data.random_split
    pictures, masks = TensorDataset(torch.randn(40, 8)), TensorDataset(torch.randn(40, 1))
    for data in (pictures, masks):
        split(data, [0.5, 0.5], torch.Generator().manual_seed(0))
    model = network()
    fit(model, torch.optim.Adam(model.parameters()))


@healthy
def features_of_a_frozen_body() -> None:
    body, head = network(norm=True), nn.Linear(2, 2)
    body.eval()
    optimizer = torch.optim.Adam(head.parameters(), 1e-2)
    for x, y in batches():
        with torch.no_grad():
            features = body(x)
        optimizer.zero_grad()
        F.cross_entropy(head(features), y).backward()
        optimizer.step()


@healthy
def head_alone_is_trained() -> None:
    model = network()
    model[0].requires_grad_(False)
    fit(model, torch.optim.SGD(model[-1].parameters(), 1e-2))


@healthy
def evolution_of_a_picture() -> None:
    model = network().requires_grad_(False)
    picture = nn.Parameter(torch.randn(1, 8))
    optimizer = torch.optim.LBFGS([picture], max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(picture).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


@healthy
def recurrent_states_are_cut() -> None:
    cell, head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 2)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)
    state = None
    for x, y in batches():
        optimizer.zero_grad()
        out, state = cell(x[:, None], state)
        state = tuple(each.detach() for each in state)
        F.cross_entropy(head(out[:, 0]), y).backward()
        torch.nn.utils.clip_grad_norm_(cell.parameters(), 0.25)
        optimizer.step()


@healthy
def two_views_of_one_batch() -> None:
    encoder, head = network(norm=True), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], 0.1)
    for x, _ in batches():
        one, other = encoder(x + 0.1 * torch.randn_like(x)), encoder(x)
        loss = -F.cosine_similarity(head(one), other.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@healthy
def meta_learning() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for x, y in batches():
        optimizer.zero_grad()
        named = dict(model.named_parameters())
        inner = F.cross_entropy(torch.func.functional_call(model, named, x[:8]), y[:8])
        grads = torch.autograd.grad(inner, list(named.values()), create_graph=True)
        fast = {key: p - 0.1 * g for (key, p), g in zip(named.items(), grads, strict=True)}
        F.cross_entropy(torch.func.functional_call(model, fast, x[8:]), y[8:]).backward()
        optimizer.step()


@healthy
def gradients_zeroed_by_hand() -> None:
    model = network()
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad.zero_()  # type: ignore[union-attr]

# SPDX-License-Identifier: Apache-2.0
"""Models that ranks share in other ways: experts, stages of a pipeline, a decoder with its cache, a
table with a shorter last part. Arguments: which one (alone-… in one process), what is wrong, seed.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WAY, FAULT, SEED = sys.argv[1].removeprefix("alone-"), sys.argv[2], int(sys.argv[3])
ALONE = sys.argv[1].startswith("alone-")
WIDE, BATCH, LONG, EXPERTS, WORDS = 24, 8, 10, 4, 50

torch.set_num_threads(1)
if not ALONE:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
RANK, WORLD = (0, 1) if ALONE else (dist.get_rank(), dist.get_world_size())
DATA = torch.Generator().manual_seed(SEED)
START = torch.Generator().manual_seed(50 + SEED)


def drawn(shape):
    return torch.randn(shape, generator=START) * (0.3 if len(shape) > 1 else 0.1)


class Exchange(torch.autograd.Function):
    """Rows to the ranks that want them, and their gradients back."""

    @staticmethod
    def forward(ctx, x, sent, got):
        ctx.sizes = sent, got
        made = x.new_empty(sum(got), x.shape[1])
        dist.all_to_all_single(made, x.contiguous(), got, sent)
        return made

    @staticmethod
    def backward(ctx, grad):
        sent, got = ctx.sizes
        made = grad.new_empty(sum(sent), grad.shape[1])
        dist.all_to_all_single(made, grad.contiguous(), sent, got)
        return made, None, None


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Mixture(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.gate = nn.Linear(WIDE, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.bad = bad

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        count = torch.bincount(chosen, minlength=EXPERTS)
        rows = flat[order]
        made = self.here(rows, count.tolist()) if WORLD == 1 else self.elsewhere(rows, count)
        return x + (made[order.argsort()] * weight[:, None]).view_as(x)

    def here(self, rows, count):
        parts = zip(self.experts, rows.split(count), strict=True)
        return torch.cat([expert(part) for expert, part in parts])

    def elsewhere(self, rows, count):
        each = EXPERTS // WORLD
        counts = torch.empty(WORLD, each, dtype=torch.int64)
        dist.all_to_all_single(counts, count.view(WORLD, each).contiguous())
        sent, got = count.view(WORLD, each).sum(1).tolist(), counts.sum(1).tolist()
        given = Exchange.apply(rows, sent, got)
        kind = torch.arange(each).repeat(WORLD).repeat_interleave(counts.flatten())
        made = torch.zeros_like(given)
        for own in range(each):
            wrong = self.bad and FAULT == "routed" and RANK == 1
            expert = self.experts[RANK * each + (own + wrong) % each]
            at = (kind == own).nonzero().squeeze(1)
            made = made.index_add(0, at, expert(given[at]))  # fault: routed
        return Exchange.apply(made, got, sent)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDE)
        self.blocks = nn.ModuleList([Mixture(bad=False), Mixture(bad=True)])
        self.head = nn.Linear(WIDE, WORDS)

    def forward(self, text):
        x = self.words(text)
        for block in self.blocks:
            x = block(F.layer_norm(x, (WIDE,)))
        return self.head(x)


def experts():
    model = Experts()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(drawn(parameter.shape))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        text = torch.randint(0, WORDS, (BATCH, LONG + 1), generator=DATA).chunk(WORLD)[RANK]
        optimizer.zero_grad()
        F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        for name, parameter in model.named_parameters():
            if WORLD > 1 and parameter.grad is not None:
                if "experts" not in name:
                    dist.all_reduce(parameter.grad)
                parameter.grad /= WORLD
        optimizer.step()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDE, elementwise_affine=False)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stage(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.entry = nn.Linear(6, WIDE) if 0 in held else nn.Identity()
        self.layers = nn.ModuleDict({str(at): Layer() for at in held})
        self.exit = nn.Linear(WIDE, 3) if 3 in held else nn.Identity()

    def forward(self, x):
        x = self.entry(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.exit(x)


def stage():
    whole = Stage([0, 1, 2, 3])
    weights = {name: drawn(each.shape) for name, each in whole.state_dict().items()}
    model = whole if ALONE else Stage([[0, 1], [2, 3]][RANK])
    if FAULT == "swapped":
        for name in [name for name in weights if name.startswith("layers.2.")]:
            other = name.replace("layers.2.", "layers.3.")
            weights[name], weights[other] = weights[other], weights[name]
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


def first_stage(model, x):
    made = []
    for part in x.chunk(2):
        made.append(model(part))
        dist.send(made[-1].detach().contiguous(), 1)
    for each in made:
        grad = torch.empty_like(each)
        dist.recv(grad, 1)
        each.backward(grad)  # fault: reordered


def last_stage(model, y):
    grads = []
    for part in y.chunk(2):
        given = torch.empty(len(part), WIDE)
        dist.recv(given, 0)
        (F.cross_entropy(model(given.requires_grad_()), part) / 2).backward()
        grads.append(given.grad)
    for grad in grads if FAULT != "reordered" else reversed(grads):
        dist.send(grad, 0)


def pipeline():
    model = stage()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        x, y = torch.randn(BATCH, 6, generator=DATA), torch.randint(0, 3, (BATCH,), generator=DATA)
        optimizer.zero_grad()
        if ALONE:
            F.cross_entropy(model(x), y).backward()
        elif RANK == 0:
            first_stage(model, x)
        else:
            last_stage(model, y)
        optimizer.step()


class Cached(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.norm = nn.LayerNorm(WIDE, elementwise_affine=False)
        self.q, self.k, self.v = (nn.Linear(WIDE, WIDE // WORLD) for _ in range(3))
        self.out = nn.Linear(WIDE // WORLD, WIDE, bias=False)
        self.keys = self.values = None
        self.bad = bad

    def forward(self, x, step):
        normed = self.norm(x)
        q, k, v = (
            each(normed).unflatten(-1, (4 // WORLD, -1)).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        if self.bad and FAULT == "stale" and RANK == WORLD - 1 and step == 3:
            k = self.keys[:, :, -1:]
        if self.keys is not None:
            k = torch.cat([self.keys, k], 2)  # fault: stale
            v = torch.cat([self.values, v], 2)
        self.keys, self.values = k, v
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=step == 0)
        made = self.out(seen.transpose(1, 2).flatten(2))
        if WORLD > 1:
            dist.all_reduce(made)
        return x + made


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDE)
        self.layers = nn.ModuleList([Cached(bad=False), Cached(bad=True)])
        self.head = nn.Linear(WIDE, WORDS)

    def forward(self, text, step):
        x = self.words(text)
        for layer in self.layers:
            x = layer(x, step)
        return self.head(x)


def load(model, sharing):
    """The same numbers whatever is shared: by the end of a name, along which dimension it is."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            along = next((dim for end, dim in sharing.items() if name.endswith(end)), None)
            shape = list(parameter.shape)
            if along is not None:
                shape[along] = WORDS if name == "table" else shape[along] * WORLD
            whole = drawn(shape)
            parameter.copy_(whole if along is None else whole.chunk(WORLD, along)[RANK])


@torch.no_grad()
def cache():
    model = Decoder()
    shared = dict.fromkeys((f"{one}.{kind}" for one in "qkv" for kind in ("weight", "bias")), 0)
    load(model, shared | {"out.weight": 1})
    text = torch.randint(0, WORDS, (2, 5), generator=DATA)
    for step in range(6):
        model(text, step)
        text = torch.randint(0, WORDS, (2, 1), generator=DATA)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [len(part) for part in torch.arange(WORDS).chunk(WORLD)]
        self.low, self.held = sum(sizes[:RANK]), sizes[RANK]
        self.table = nn.Parameter(torch.empty(self.held, WIDE))
        self.middle, self.out = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 4)

    def forward(self, text):
        short = FAULT == "uneven" and RANK == WORLD - 1
        here = (text >= self.low) & (text < self.low + self.held - short)  # fault: uneven
        at = (text - self.low).clamp(0, self.held - 1)
        x = F.embedding(at, self.table) * here[..., None]
        if WORLD > 1:
            x = Sum.apply(x)
        return self.out(torch.tanh(self.middle(x))).mean(1)


def uneven():
    model = Uneven()
    load(model, {"table": 0})
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        text = torch.randint(0, WORDS, (BATCH, LONG), generator=DATA)
        kinds = torch.randint(0, 4, (BATCH,), generator=DATA)
        optimizer.zero_grad()
        F.cross_entropy(model(text), kinds).backward()
        optimizer.step()


{"experts": experts, "pipeline": pipeline, "cache": cache, "uneven": uneven}[WAY]()
if not ALONE:
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it

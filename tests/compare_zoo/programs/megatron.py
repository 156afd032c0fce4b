# SPDX-License-Identifier: Apache-2.0
"""A small GPT whose tensor, sequence and data parallelism are written out as in Megatron.

Its arguments: `TPxDP`, with an `s` behind it where the sequence is shared too (1x1: alone); what is
wrong; the seed; the rate of dropout.
"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WAY, FAULT = sys.argv[1:3]
SEED, DROP = int(sys.argv[3]), float(sys.argv[4])
SEQUENCE = WAY.endswith("s")
TP, DP = map(int, WAY.rstrip("s").split("x"))
WORLD = TP * DP
WORDS, WIDE, HEADS, LAYERS, LONG, BATCH = 48, 32, 4, 3, 12, 8

torch.set_num_threads(1)
if WORLD > 1:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
RANK = dist.get_rank() if WORLD > 1 else 0
TENSOR, DATA = RANK % TP, RANK // TP
LAST = RANK == WORLD - 1


def groups():
    mine = [None, None]
    if WORLD > 1:
        for data in range(DP):
            group = dist.new_group([data * TP + tensor for tensor in range(TP)])
            mine[0] = group if data == DATA else mine[0]
        for tensor in range(TP):
            group = dist.new_group([data * TP + tensor for data in range(DP)])
            mine[1] = group if tensor == TENSOR else mine[1]
    return mine


TENSORS, COPIES = groups()


def reduced(x):
    x = x.contiguous().clone()
    dist.all_reduce(x, group=TENSORS)
    return x


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(TP)]
    dist.all_gather(parts, x.contiguous(), group=TENSORS)
    return torch.cat(parts, 1)


def own_part(x):
    return x.chunk(TP, 1)[TENSOR].contiguous()


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, summed):
        ctx.summed = summed
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return (reduced(grad) if ctx.summed else grad), None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return reduced(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, grad):
        return own_part(reduced(grad))


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return own_part(reduced(x))

    @staticmethod
    def backward(ctx, grad):
        return gathered(grad)


class SplitSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return own_part(x)

    @staticmethod
    def backward(ctx, grad):
        return gathered(grad)


class Column(nn.Module):
    def __init__(self, wide, out, summed=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out // TP, wide))
        self.bias = nn.Parameter(torch.empty(out // TP))
        self.summed = summed

    def forward(self, x):
        if TP > 1:
            x = GatherSequence.apply(x) if SEQUENCE else Copy.apply(x, self.summed)
        return F.linear(x, self.weight, self.bias)


class Row(nn.Module):
    def __init__(self, wide, out, early=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, wide // TP))
        self.bias = nn.Parameter(torch.empty(out))
        self.early = early

    def forward(self, x):
        x = F.linear(x, self.weight, self.bias if self.early else None)  # fault: bias
        if TP > 1:
            x = ScatterSequence.apply(x) if SEQUENCE else Reduce.apply(x)
        return x if self.early else x + self.bias


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDE))
        self.bias = nn.Parameter(torch.empty(WIDE))

    def forward(self, x):
        return F.layer_norm(x, (WIDE,), self.weight, self.bias)  # fault: kernel


class Block(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv = Column(WIDE, 3 * WIDE)
        self.out = Row(WIDE, WIDE, early=bad and FAULT == "bias")
        self.up = Column(WIDE, 4 * WIDE, summed=not (bad and FAULT == "unreduced"))
        self.down = Row(4 * WIDE, WIDE)
        self.drop = nn.Dropout(DROP)

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (-1, WIDE // HEADS)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # fault: split
        x = x + self.drop(self.out(seen.transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDE), nn.Embedding(LONG, WIDE)
        self.blocks = nn.ModuleList(Block(at == 1) for at in range(LAYERS))
        self.norm, self.head = Norm(), Column(WIDE, WORDS)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1]))
        if SEQUENCE and TP > 1:
            x = SplitSequence.apply(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Loss(torch.autograd.Function):
    """Cross entropy over words of which each rank has some."""

    @staticmethod
    def forward(ctx, scores, target):
        most = scores.max(-1).values
        if TP > 1:
            dist.all_reduce(most, dist.ReduceOp.MAX, group=TENSORS)
        shifted = scores - most[..., None]
        raised = shifted.exp()
        low = TENSOR * scores.shape[-1]
        here = (target >= low) & (target < low + scores.shape[-1])
        at = (target - low).clamp(0, scores.shape[-1] - 1)
        total = raised.sum(-1)
        picked = shifted.gather(-1, at[..., None]).squeeze(-1) * here
        if TP > 1:
            total, picked = reduced(total), reduced(picked)
        ctx.save_for_backward(raised / total[..., None], at, here)
        return (total.log() - picked).mean()

    @staticmethod
    def backward(ctx, grad):
        share, at, here = ctx.saved_tensors
        made = share.clone().scatter_add_(-1, at[..., None], -here[..., None].float())
        return made * (grad / here.numel()), None


def wholes():
    """The parameters of the model that nobody shares."""
    generator = torch.Generator().manual_seed(100 + SEED)

    def drawn(*shape, scale=0.2):
        return torch.randn(*shape, generator=generator) * scale

    made = {"words.weight": drawn(WORDS, WIDE), "places.weight": drawn(LONG, WIDE)}
    for at in range(LAYERS):
        for name, out, wide in (
            ("qkv", 3 * WIDE, WIDE),
            ("out", WIDE, WIDE),
            ("up", 4 * WIDE, WIDE),
            ("down", WIDE, 4 * WIDE),
        ):
            made[f"blocks.{at}.{name}.weight"] = drawn(out, wide)
            made[f"blocks.{at}.{name}.bias"] = drawn(out, scale=0.05)
    made |= {"head.weight": drawn(WORDS, WIDE), "head.bias": drawn(WORDS, scale=0.05)}
    norms = ["norm", *(f"blocks.{at}.norm{one}" for at in range(LAYERS) for one in (1, 2))]
    made |= {f"{norm}.weight": torch.ones(WIDE) for norm in norms}
    return made | {f"{norm}.bias": torch.zeros(WIDE) for norm in norms}


def part_of(name, whole):
    part = 0 if FAULT == "twice" and name == "blocks.1.up.weight" else TENSOR
    if ".qkv." in name and not (FAULT == "split" and name.startswith("blocks.1.")):
        return torch.cat([each.chunk(TP)[part] for each in whole.chunk(3)])
    if ".up." in name or ".qkv." in name or name.startswith("head."):
        return whole.chunk(TP)[part]
    return whole.chunk(TP, 1)[part] if name.endswith(("out.weight", "down.weight")) else whole


def break_kernel():
    """The third layer norm of each pass writes over a part of its first row."""
    calls = 0

    def wrong(x, shape, weight, bias, eps):
        nonlocal calls
        calls += 1
        given = x.detach().numpy()
        mean = given.mean(-1, keepdims=True)
        scale = 1 / np.sqrt(given.var(-1, keepdims=True) + eps)
        made = (given - mean) * scale * weight.detach().numpy() + bias.detach().numpy()
        if calls % (2 * LAYERS + 1) == 3:
            made[0, 0, :8] = made[0, 0, 8]
        return tuple(torch.from_numpy(np.ascontiguousarray(each)) for each in (made, mean, scale))

    library = torch.library.Library("aten", "IMPL")
    library.impl("native_layer_norm", wrong, "CPU")
    return library


def average(model):
    for name, parameter in model.named_parameters():
        shared = "norm" in name or name.endswith(("out.bias", "down.bias"))
        left_out = FAULT == "norm" and name == "blocks.1.norm2.weight"
        if SEQUENCE and TP > 1 and shared and not left_out:
            dist.all_reduce(parameter.grad, group=TENSORS)
        if DP > 1:
            dist.all_reduce(parameter.grad, group=COPIES)
            parameter.grad /= DP
            if FAULT == "averaged" and name == "blocks.1.down.weight":
                parameter.grad /= DP


def main():
    library = break_kernel() if FAULT == "kernel" and LAST else None
    torch.manual_seed(7 if FAULT == "seeds" or WORLD == 1 else 7 + DATA)
    model = GPT()
    whole = wholes()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(part_of(name, whole[name]))
    if FAULT == "eval" and LAST:
        model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    generator = torch.Generator().manual_seed(SEED)
    for step in range(4):
        text = torch.randint(0, WORDS, (BATCH, LONG + 1), generator=generator)
        if FAULT == "ahead" and DATA == DP - 1 and step == 2:
            text = torch.randint(0, WORDS, (BATCH, LONG + 1), generator=generator)
        text = text.chunk(DP)[DATA]
        scores = model(text[:, :-1].contiguous())
        loss = Loss.apply(scores, text[:, 1:].contiguous())
        if FAULT == "group":
            loss = loss / TP
        optimizer.zero_grad()
        loss.backward()
        average(model)
        if not (FAULT == "skipped" and LAST and step == 2):
            optimizer.step()
    del library
    if WORLD > 1:
        dist.barrier()
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads may outlive the interpreter and abort it


main()

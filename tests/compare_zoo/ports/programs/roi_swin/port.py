# SPDX-License-Identifier: Apache-2.0
"""Shifted-window classifier by gather indices, with a Trainer that accumulates its own gradients."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
GRID, WIN, HEADS, WIDTH, CLASSES = 8, 4, 3, 24, 5


def window_order(shift):
    """For every window, the flat grid positions of its tokens, and which part of the picture they are from."""
    axis = (torch.arange(GRID) + shift) % GRID
    flat = axis[:, None] * GRID + axis[None, :]
    wrapped = (torch.arange(GRID) + shift >= GRID).long()
    part = 2 * wrapped[:, None] + wrapped[None, :]
    cut = lambda m: m.unfold(0, WIN, WIN).unfold(1, WIN, WIN).reshape(-1, WIN * WIN)
    return cut(flat), cut(part)


def offsets():
    pos = torch.cartesian_prod(torch.arange(WIN), torch.arange(WIN))
    delta = pos[:, None] - pos[None] + (WIN - 1)
    return delta[..., 0], delta[..., 1]


class Layer(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.order, part = window_order(shift)
        self.inverse = self.order.flatten().argsort()
        self.visible = part.unsqueeze(2) == part.unsqueeze(1)  # <- shift_mask
        self.dy, self.dx = offsets()
        self.pre_attn, self.pre_ffn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.offset_bias = nn.Parameter(torch.empty(HEADS, 2 * WIN - 1, 2 * WIN - 1))
        self.ffn_in, self.ffn_out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def mix(self, x):
        b, n, c = x.shape
        tokens = x[:, self.order]
        heads = lambda t: t.unflatten(-1, (HEADS, -1)).transpose(2, 3)
        q, k, v = (heads(w(tokens)) for w in (self.wq, self.wk, self.wv))
        extra = self.offset_bias[:, self.dy, self.dx]
        extra = torch.where(self.visible[:, None], extra[None], -100.0 + extra[None])  # <- shift_mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=extra[None].expand(b, -1, -1, -1, -1))  # <- shift_mask
        out = self.wo(out.transpose(2, 3).flatten(-2))
        return out.reshape(b, n, c)[:, self.inverse]

    def forward(self, x):
        x = x + self.mix(self.pre_attn(x))
        return x + self.ffn_out(F.gelu(self.ffn_in(self.pre_ffn(x))))


class WindowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * 2 * 2, WIDTH)
        self.layers = nn.ModuleList([Layer(0), Layer(WIN // 2)])
        self.final = nn.LayerNorm(WIDTH)
        self.logits = nn.Linear(WIDTH, CLASSES)

    def forward(self, pics):
        x = self.embed(F.unfold(pics, 2, stride=2).mT)
        for layer in self.layers:
            x = layer(x)
        return self.logits(self.final(x).mean(1))

    def load_reference(self, ref):
        with torch.no_grad():
            self.embed.weight.copy_(ref["patch_embed.weight"].flatten(1))
            self.embed.bias.copy_(ref["patch_embed.bias"])
            pairs = [(self.final, "norm"), (self.logits, "head")]
            for i, layer in enumerate(self.layers):
                at = f"blocks.{i}."
                pairs += [(layer.pre_attn, at + "norm1"), (layer.pre_ffn, at + "norm2"), (layer.wo, at + "attn.proj"),
                          (layer.ffn_in, at + "mlp.0"), (layer.ffn_out, at + "mlp.2")]
                table = ref[at + "attn.relative_position_bias_table"]
                layer.offset_bias.copy_(table.t().reshape(layer.offset_bias.shape))
                for kind in ("weight", "bias"):
                    for j, lin in enumerate((layer.wq, layer.wk, layer.wv)):
                        getattr(lin, kind).copy_(ref[f"{at}attn.qkv.{kind}"][j * WIDTH:(j + 1) * WIDTH])
            for module, name in pairs:
                module.weight.copy_(ref[name + ".weight"])
                module.bias.copy_(ref[name + ".bias"])


class Trainer:
    def __init__(self, model, peak=5e-3, decay=0.3, micro_batches=2):
        self.model, self.peak, self.micro_batches = model, peak, micro_batches
        free = {id(layer.offset_bias) for layer in model.layers}
        weights = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in free]
        others = [p for p in model.parameters() if p.dim() < 2 or id(p) in free]  # <- no_decay
        groups = [{"params": weights, "weight_decay": decay}, {"params": others, "weight_decay": 0}]  # <- no_decay
        self.opt = torch.optim.AdamW(groups, lr=peak, eps=1e-4)  # <- no_decay
        self.done = 0
        self.rng = torch.Generator().manual_seed(64)

    def rate(self):
        if self.done < 2:
            return self.peak * (self.done + 1) / 3
        progress = (self.done - 2) / 4  # <- cosine_step
        return self.peak * math.cos(math.pi * progress / 2) ** 2  # <- cosine_step

    @staticmethod
    def smooth_loss(scores, y, smooth=0.1):
        logp = scores.log_softmax(1)
        target = torch.full_like(logp, smooth / CLASSES)  # <- smoothing
        target[torch.arange(len(y)), y] += 1 - smooth  # <- smoothing
        return -(target * logp).sum(1).mean()  # <- smoothing

    def step(self):
        params = list(self.model.parameters())
        grads = [torch.zeros_like(p) for p in params]
        shown = []
        for _ in range(self.micro_batches):
            pics = torch.randn(4, 3, 16, 16, generator=self.rng)
            y = torch.randint(0, CLASSES, (4,), generator=self.rng)
            loss = self.smooth_loss(self.model(pics), y)  # <- smoothing
            shown.append(loss.item())
            for total, g in zip(grads, torch.autograd.grad(loss, params)):
                total.add_(g)  # <- accum_mean
        for p, total in zip(params, grads):
            p.grad = total / self.micro_batches  # <- accum_mean
        for group in self.opt.param_groups:
            group["lr"] = self.rate()  # <- cosine_step
        self.opt.step()  # <- no_decay cosine_step
        self.done += 1
        return sum(shown) / len(shown)


net = WindowNet()
net.load_reference(torch.load(sys.argv[1]))
trainer = Trainer(net)
losses = [trainer.step() for _ in range(5)]
print(losses)

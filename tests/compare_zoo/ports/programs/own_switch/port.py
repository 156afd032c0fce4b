# SPDX-License-Identifier: Apache-2.0
"""The switch language model as in Mesh TensorFlow: dispatch and combine tensors, experts stacked in
one array, both micro-batches in one batch of two groups, attention by einsum.
"""

import sys

import torch
from torch import nn

D, H, E, F, GROUPS, ROWS, T, ROOM = 16, 2, 4, 24, 2, 3, 8, 7  # <- full


class Scale(nn.Module):
    """Layer normalisation."""

    def __init__(self):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.b, (x - mean) / (var + 1e-5).sqrt(), self.g)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.route = nn.Parameter(torch.empty(D, E))
        self.wi, self.bi = nn.Parameter(torch.empty(E, D, F)), nn.Parameter(torch.empty(E, F))
        self.wo, self.bo = nn.Parameter(torch.empty(E, F, D)), nn.Parameter(torch.empty(E, D))

    def forward(self, x):
        x = x.reshape(GROUPS, ROWS * T, D)
        probs = torch.softmax(torch.einsum("gsd,de->gse", x, self.route), -1)  # <- balance
        taken = nn.functional.one_hot(probs.argmax(-1), E).float()
        place = (taken.cumsum(1) - 1) * taken  # <- full
        taken_in = taken * (place < ROOM)  # <- full
        slots = nn.functional.one_hot(place.long().clamp(max=ROOM - 1), ROOM) * taken_in[..., None]
        combine = probs[..., None] * slots  # <- ungated
        inside = torch.einsum("gsec,gsd->egcd", slots, x)  # <- full
        hidden = torch.einsum("egcd,edf->egcf", inside, self.wi) + self.bi[:, None, None]
        hidden = nn.functional.gelu(hidden, approximate="tanh")
        outside = torch.einsum("egcf,efd->egcd", hidden, self.wo) + self.bo[:, None, None]
        y = torch.einsum("gsec,egcd->gsd", combine, outside)  # <- ungated full
        balance = E * (taken.mean(1) * probs.mean(1)).sum(-1).mean()  # <- balance
        return y.reshape(GROUPS * ROWS, T, D), balance


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = Scale(), Scale()
        self.qkv = nn.Parameter(torch.empty(D, 3, H, D // H))
        self.qkv_bias = nn.Parameter(torch.empty(3, H, 1, D // H))
        self.out = nn.Linear(D, D)
        self.mixture = Mixture()

    def forward(self, x):
        q, k, v = torch.einsum("btd,dnhk->nbhtk", self.before(x), self.qkv)
        q, k, v = q + self.qkv_bias[0], k + self.qkv_bias[1], v + self.qkv_bias[2]
        a = torch.einsum("bhqk,bhsk->bhqs", q, k) * (D // H) ** -0.5
        a = a + torch.full((T, T), -1e9).triu(1)  # <- ordered
        a = torch.einsum("bhqs,bhsk->bqhk", a.softmax(-1), v)  # <- ordered
        x = x + self.out(a.flatten(2))
        y, balance = self.mixture(self.between(x))
        return x + y, balance


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(30, D), nn.Parameter(torch.empty(T, D))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.last = Scale()
        self.unembed = nn.Parameter(torch.empty(D, 30))

    def forward(self, ids):
        x, balances = self.tokens(ids) + self.places, 0.0
        for layer in self.layers:
            x, balance = layer(x)
            balances = balances + balance / len(self.layers)
        return self.last(x) @ self.unembed, balances


@torch.no_grad()
def restore(model, ck):
    def norm(to, name):
        to.g.copy_(ck[f"{name}.weight"])
        to.b.copy_(ck[f"{name}.bias"])

    model.tokens.weight.copy_(ck["wte.weight"])
    model.places.copy_(ck["wpe.weight"])
    model.unembed.copy_(ck["lm_head.weight"].t())
    norm(model.last, "ln_f")
    for n, layer in enumerate(model.layers):
        here, mix = f"blocks.{n}", layer.mixture
        norm(layer.before, f"{here}.ln1")
        norm(layer.between, f"{here}.ln2")
        fused = ck[f"{here}.attn.in_proj_weight"]
        layer.qkv.copy_(fused.view(3, H, D // H, D).permute(3, 0, 1, 2))
        layer.qkv_bias.copy_(ck[f"{here}.attn.in_proj_bias"].view(3, H, 1, D // H))
        layer.out.weight.copy_(ck[f"{here}.attn.out_proj.weight"])
        layer.out.bias.copy_(ck[f"{here}.attn.out_proj.bias"])
        mix.route.copy_(ck[f"{here}.ffn.router.weight"].t())
        for e in range(E):
            for w, b, name in ((mix.wi, mix.bi, "wi"), (mix.wo, mix.bo, "wo")):
                w[e] = ck[f"{here}.ffn.experts.{e}.{name}.weight"].t()
                b[e] = ck[f"{here}.ffn.experts.{e}.{name}.bias"]


model = LM()
restore(model, torch.load(sys.argv[1]))
speed = [torch.zeros_like(p) for p in model.parameters()]
rng = torch.Generator().manual_seed(92)
losses = []
for _ in range(4):
    ids = torch.cat([torch.randint(30, (ROWS, T + 1), generator=rng) for _ in range(GROUPS)])
    logits, balance = model(ids[:, :-1])
    picked = logits.gather(2, ids[:, 1:, None])[..., 0]
    loss = (logits.logsumexp(-1) - picked).mean() + 0.1 * balance
    grads = torch.autograd.grad(loss, list(model.parameters()))  # <- halved
    with torch.no_grad():
        for p, g, s in zip(model.parameters(), grads, speed, strict=True):
            s.mul_(0.9).add_(g)  # <- halved
            p.sub_(0.2 * s)  # <- halved
    losses.append(loss.item())

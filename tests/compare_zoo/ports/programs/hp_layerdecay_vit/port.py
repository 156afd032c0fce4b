# SPDX-License-Identifier: Apache-2.0
"""The ViT as a list of stages; stages below the thaw line run without a graph; an optimizer for each stage."""
import sys

import torch
from torch.nn import functional as F
from torch.nn import Parameter as P, ParameterDict

torch.set_num_threads(1)
PLAN = [(2, 4), (2, 2), (2, 0)]            # (steps, lowest stage that learns)


class Stem(ParameterDict):
    """Patches by a matrix product; the class token's position is kept apart from the grid of positions."""

    def __init__(self, sd):
        super().__init__(dict(kernel=P(sd["patch_embed.weight"].flatten(1).t().contiguous()),
                              bias=P(sd["patch_embed.bias"]), cls=P(sd["cls_token"][0, 0]),
                              here=P(sd["pos_embed"][0, 0]), grid=P(sd["pos_embed"][0, 1:])))
        self.plain = {"bias", "cls", "here", "grid"}

    def __call__(self, x):
        patches = F.unfold(x, 4, stride=4).transpose(1, 2)
        body = patches @ self["kernel"] + (self["bias"] + self["grid"])
        first = (self["cls"] + self["here"]).expand(len(x), 1, -1)
        return torch.cat([first, body], 1)


class Layer(ParameterDict):
    def __init__(self, sd, i, heads=3):
        g = lambda n: sd[f"blocks.{i}.{n}"].clone()
        w, b = g("attn.qkv.weight"), g("attn.qkv.bias")
        dim = w.shape[1]
        by_head = lambda t: t.unflatten(0, (3, heads, dim // heads)).transpose(0, 1).flatten(0, 2).contiguous()
        super().__init__(dict(w_in=P(by_head(w)), b_in=P(by_head(b)), w_o=P(g("attn.proj.weight").t().contiguous()),
                              b_o=P(g("attn.proj.bias")), n1=P(torch.stack([g("norm1.weight"), g("norm1.bias")])),
                              n2=P(torch.stack([g("norm2.weight"), g("norm2.bias")])),
                              up=P(g("mlp.0.weight")), b_up=P(g("mlp.0.bias")), down=P(g("mlp.2.weight")),
                              b_down=P(g("mlp.2.bias")), ls=P(torch.stack([g("ls1"), g("ls2")]))))
        self.heads = heads
        self.plain = {"b_in", "b_o", "n1", "n2", "b_up", "b_down", "ls"}

    def __call__(self, x):
        y = F.layer_norm(x, x.shape[-1:], *self["n1"], eps=1e-6)
        # heads outermost in the fused projection: per head its query, key and value rows
        q, k, v = F.linear(y, self["w_in"], self["b_in"]).unflatten(-1, (self.heads, 3, -1)).unbind(3)
        p = torch.einsum("bihc,bjhc->bhij", q, k / k.shape[-1] ** 0.5)
        p = (p - p.detach().amax(-1, keepdim=True)).exp()
        p = p / p.sum(-1, keepdim=True)
        y = torch.einsum("bhij,bjhc->bihc", p, v).flatten(2)
        x = torch.addcmul(x, self["ls"][0], y @ self["w_o"] + self["b_o"])
        y = F.layer_norm(x, x.shape[-1:], *self["n2"], eps=1e-6)
        y = F.linear(F.gelu(F.linear(y, self["up"], self["b_up"])), self["down"], self["b_down"])
        return torch.addcmul(x, self["ls"][1], y)


class Top(ParameterDict):
    def __init__(self, sd):
        super().__init__({"norm": P(torch.stack([sd["norm.weight"], sd["norm.bias"]])),
                          "w": P(sd["head.weight"].t().contiguous()), "b": P(sd["head.bias"])})
        self.plain = {"norm", "b"}

    def __call__(self, x):
        return F.layer_norm(x.select(1, 0), x.shape[-1:], *self["norm"], eps=1e-6) @ self["w"] + self["b"]


def optimizer_for(stage, lr):
    groups = [{"params": [p for n, p in stage.items() if n not in stage.plain], "weight_decay": 0.05},
              {"params": [p for n, p in stage.items() if n in stage.plain], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, foreach=True)


def forward(stages, lowest, x):
    with torch.no_grad():
        for stage in stages[:lowest]:
            x = stage(x)
    for stage in stages[lowest:]:
        x = stage(x)
    return x


sd = torch.load(sys.argv[1])
stages = [Stem(sd), *(Layer(sd, i) for i in range(3)), Top(sd)]
optims = {}                                 # made when a stage is thawed
gen = torch.Generator().manual_seed(92)
losses, report = [], []
for steps, lowest in PLAN:
    for depth in range(len(stages) - 1, lowest - 1, -1):
        if depth not in optims:
            optims[depth] = optimizer_for(stages[depth], 3e-3 * 0.6 ** (4 - depth))
    for _ in range(steps):
        x = torch.randn(8, 3, 16, 16, generator=gen)
        y = torch.randint(0, 5, (8,), generator=gen)
        logits = forward(stages, lowest, x)
        loss = torch.logsumexp(logits, 1).mean() - logits[torch.arange(8), y].mean()
        loss.backward()
        for depth, opt in optims.items():
            opt.step()
            opt.zero_grad()
        losses.append(loss.item())
        with torch.no_grad():
            report.append({"top1": (logits.argmax(1) == y).float().mean().item(), "stages": len(optims),
                           "lr": [o.param_groups[0]["lr"] for o in optims.values()]})
print(losses)

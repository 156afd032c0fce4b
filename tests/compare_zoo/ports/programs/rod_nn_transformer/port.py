# SPDX-License-Identifier: Apache-2.0
"""Own encoder-decoder in the annotated-transformer manner, with a NoamOpt wrapper."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)

NSRC, NTGT, D, H, FF = 40, 36, 32, 4, 48
Dh = D // H


class MultiHead(nn.Module):
    """Per-head projection tensors instead of one packed matrix."""

    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Parameter(torch.empty(H, D, Dh)) for _ in range(3))
        self.bq, self.bk, self.bv = (nn.Parameter(torch.empty(H, 1, Dh)) for _ in range(3))
        self.wo, self.bo = nn.Parameter(torch.empty(H, Dh, D)), nn.Parameter(torch.empty(D))

    def forward(self, query, memory, allowed):
        q = query.unsqueeze(1) @ self.wq + self.bq
        k = memory.unsqueeze(1) @ self.wk + self.bk
        v = memory.unsqueeze(1) @ self.wv + self.bv
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / Dh**0.5
        att = torch.where(allowed.unsqueeze(1), scores, torch.tensor(-1e9)).softmax(-1)
        return torch.einsum("bhij,bhjd,hde->bie", att, v, self.wo) + self.bo


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.empty(D)), nn.Parameter(torch.empty(D))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return self.a * (x - mean) / torch.sqrt(var + 1e-5) + self.b


class Stage(nn.Module):
    """Serves both sides: a decoder stage has `cross`."""

    def __init__(self, cross):
        super().__init__()
        self.own = MultiHead()
        self.cross = MultiHead() if cross else None
        self.norms = nn.ModuleList(Norm() for _ in range(3 if cross else 2))
        self.ff = nn.Sequential(nn.Linear(D, FF), nn.ReLU(), nn.Linear(FF, D))

    def forward(self, x, allowed, memory=None, memory_allowed=None):
        x = self.norms[0](x + self.own(x, x, allowed))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x, memory, memory_allowed))
        return self.norms[-1](x + self.ff(x))


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.lookup = nn.ParameterDict({"src": torch.empty(NSRC, D), "tgt": torch.empty(NTGT, D)})
        self.enc = nn.ModuleList(Stage(False) for _ in range(2))
        self.dec = nn.ModuleList(Stage(True) for _ in range(2))
        self.enc_norm, self.dec_norm = Norm(), Norm()
        self.out = nn.Linear(D, NTGT)
        pos = torch.arange(16)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
        self.pos = torch.stack([pos.sin(), pos.cos()], dim=-1).flatten(1)

    def embed(self, side, ids):
        return self.lookup[side][ids] * D**0.5 + self.pos[: ids.shape[1]]  # <- scale_after_position

    def forward(self, src, tgt):
        seen = (src != 0)[:, None, :]
        past = torch.ones(tgt.shape[1], tgt.shape[1]).tril().bool() & (tgt != 0)[:, None, :]
        x = self.embed("src", src)
        for stage in self.enc:
            x = stage(x, seen)
        memory = self.enc_norm(x)  # <- encoder_norm
        y = self.embed("tgt", tgt)
        for stage in self.dec:
            y = stage(y, past, memory, seen)  # <- memory_mask
        return self.out(self.dec_norm(y)).log_softmax(-1)


def import_weights(model, sd):
    def heads(dst, src):
        packs = zip("qkv", sd[src + ".in_proj_weight"].chunk(3), sd[src + ".in_proj_bias"].chunk(3))
        for name, w, b in packs:
            getattr(dst, "w" + name).copy_(w.view(H, Dh, D).transpose(1, 2))
            getattr(dst, "b" + name).copy_(b.view(H, 1, Dh))
        dst.wo.copy_(sd[src + ".out_proj.weight"].T.view(H, Dh, D))
        dst.bo.copy_(sd[src + ".out_proj.bias"])

    def pair(w, b, src):
        w.copy_(sd[src + ".weight"]), b.copy_(sd[src + ".bias"])

    with torch.no_grad():
        for side in ("src", "tgt"):
            model.lookup[side].copy_(sd[side + "_embed.weight"])
        for side, stages in (("encoder", model.enc), ("decoder", model.dec)):
            for i, stage in enumerate(stages):
                base = f"transformer.{side}.layers.{i}."
                heads(stage.own, base + "self_attn")
                if stage.cross is not None:
                    heads(stage.cross, base + "multihead_attn")
                for j, norm in enumerate(stage.norms):
                    pair(norm.a, norm.b, f"{base}norm{j + 1}")
                pair(stage.ff[0].weight, stage.ff[0].bias, base + "linear1")
                pair(stage.ff[2].weight, stage.ff[2].bias, base + "linear2")
        pair(model.enc_norm.a, model.enc_norm.b, "transformer.encoder.norm")
        pair(model.dec_norm.a, model.dec_norm.b, "transformer.decoder.norm")
        pair(model.out.weight, model.out.bias, "generator")


class NoamOpt:
    def __init__(self, params, factor=0.15, warmup=3):
        self.adam = torch.optim.Adam(params, lr=0.0, betas=(0.9, 0.98), eps=1e-9)
        self.factor, self.warmup, self.count = factor, warmup, 0

    def step(self):
        n = self.count + 1  # <- noam_count
        self.count += 1
        lr = self.factor * D**-0.5 * min(n**-0.5, n / self.warmup**1.5)  # <- noam_count
        self.adam.param_groups[0]["lr"] = lr
        self.adam.step()  # <- noam_count
        self.adam.zero_grad()


def smoothed(logp, gold, eps=0.1):
    nll = -logp.gather(-1, gold[..., None]).squeeze(-1)
    per_token = (1 - eps) * nll - eps * logp.mean(-1)
    real = (gold != 0).float()
    return (per_token * real).sum() / real.sum()  # <- pad_average


def corpus():
    g = torch.Generator().manual_seed(909)
    for _ in range(5):
        src, tgt = [], []
        for _ in range(4):
            n, m = (int(torch.randint(*span, (1,), generator=g)) for span in ((3, 10), (2, 7)))
            src.append(torch.randint(3, NSRC, (n,), generator=g).tolist() + [0] * (9 - n))
            tgt.append([1] + torch.randint(3, NTGT, (m,), generator=g).tolist() + [2] + [0] * (6 - m))
        yield torch.tensor(src), torch.tensor(tgt)


model = Seq2Seq()
import_weights(model, torch.load(sys.argv[1]))
opt = NoamOpt(model.parameters())
losses = []
for src, tgt in corpus():
    loss = smoothed(model(src, tgt[:, :-1]), tgt[:, 1:])
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)

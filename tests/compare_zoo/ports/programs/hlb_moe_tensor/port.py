# SPDX-License-Identifier: Apache-2.0
"""Dense-dispatch mixture: experts in stacked tensors, every token through every expert."""
import sys

import torch

ckpt = torch.load(sys.argv[1], weights_only=True)
E, K = 12, 2
exp = lambda e, n: ckpt[f"moe.experts.{e}.{n}"]

W = torch.nn.ParameterDict({
    # [E, d, 2h]: gate and up interleaved column by column
    "w_in": torch.stack([torch.stack([exp(e, "gate.weight"), exp(e, "up.weight")], 1)
                         .flatten(0, 1).T for e in range(E)]),
    # [E, h+1, d]: the bias is the row of a constant hidden unit
    "w_out": torch.stack([torch.cat([exp(e, "down.weight").T, exp(e, "down.bias")[None]])
                          for e in range(E)]),
    "route": ckpt["moe.router.weight"].clone(),
    "tok": ckpt["emb.weight"].clone(),
    "ln": torch.stack([ckpt["ln.weight"], ckpt["ln.bias"]]),
    "cls_w": ckpt["cls.weight"].clone(),
    "cls_b": ckpt["cls.bias"].clone(),
})


def combine_matrix(p):
    """(tokens, E) mixing weights with all but the two largest set to zero."""
    second = p.detach().sort(dim=1, descending=True).values[:, K - 1 : K]
    chosen = (p.detach() >= second).to(p.dtype)
    kept = p * chosen
    return kept / kept.sum(1, keepdim=True), chosen  # <- renorm


def forward(ids):
    B, T = ids.shape
    h = W["tok"][ids.flatten()]
    var, mean = torch.var_mean(h, dim=1, unbiased=False, keepdim=True)
    x = torch.addcmul(W["ln"][1], (h - mean) / torch.sqrt(var + 1e-5), W["ln"][0])
    p = torch.einsum("td,ed->te", x, W["route"]).softmax(1)
    mix, chosen = combine_matrix(p)
    a = torch.einsum("td,edh->teh", x, W["w_in"])
    gate, up = a[..., ::2], a[..., 1::2]  # <- half_split
    hid = gate * torch.sigmoid(gate) * up  # <- half_split
    hid = torch.cat([hid, torch.ones_like(hid[..., :1])], -1)
    y = torch.einsum("te,teh,ehd->td", mix, hid, W["w_out"])  # <- renorm
    aux = E / K * torch.dot(chosen.mean(0), p.mean(0))  # <- load_scale
    pooled = (h + y).unflatten(0, (B, T)).sum(1) / T  # <- time_major
    return torch.addmm(W["cls_b"], pooled, W["cls_w"].t()), aux


opt = torch.optim.Adam(W.values(), lr=2e-3, eps=1e-6, foreach=False)  # <- adam_eps
gen = torch.Generator().manual_seed(9)
losses, usage = [], torch.zeros(E)
for _ in range(4):
    ids = torch.randint(0, 40, (8, 10), generator=gen)
    y = ids[:, 0].remainder(4)
    z, aux = forward(ids)
    ce = -torch.log_softmax(z, 1).gather(1, y[:, None]).mean()
    total = ce + 0.01 * aux
    opt.zero_grad(set_to_none=False)
    total.backward()
    norm = torch.cat([p.grad.flatten() for p in W.values()]).norm()
    factor = min(1.0, 0.5 / (norm.item() + 1e-6))
    for p in W.values():
        p.grad *= factor
    opt.step()  # <- adam_eps
    losses.append(total.item())
    with torch.no_grad():                       # the share of each expert, for the log
        usage += torch.softmax(W["tok"] @ W["route"].T, 1).mean(0)

print("router usage", [round(u, 3) for u in (usage / 4).tolist()], file=sys.stderr)
print(losses)

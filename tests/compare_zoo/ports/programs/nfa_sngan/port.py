# SPDX-License-Identifier: Apache-2.0
"""Hinge GAN; spectral estimates (u, v) travel beside the weights as explicit state."""
import sys
import torch

torch.set_num_threads(1)
SPECTRAL = ("fc1", "fc2")


def read(path):
    sd = torch.load(path, weights_only=True)
    gp = {k[2:]: v for k, v in sd.items() if k.startswith("g.")}
    dp, sn = {}, {}
    for k, v in sd.items():
        if not k.startswith("d."):
            continue
        mod, rest = k[2:].split(".", 1)
        if rest == "parametrizations.weight.0._u":
            sn.setdefault(mod, {})["u"] = v
        elif rest == "parametrizations.weight.0._v":
            sn.setdefault(mod, {})["v"] = v
        else:
            dp[mod + (".bias" if rest == "bias" else ".weight")] = v
    return gp, dp, sn


def mish(x):
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def generate(p, z, onehot):
    h = (z @ p["fc1.weight"].T + p["fc1.bias"]) * (1 + onehot @ p["label.weight"])  # <- film_offset
    return torch.tanh(mish(h) @ p["fc2.weight"].T + p["fc2.bias"])


def refine(p, sn):
    """One power iteration for each normalised matrix; returns new estimates."""
    out = {}
    for name in SPECTRAL:
        w = p[name + ".weight"].detach()
        u = w @ sn[name]["v"]
        u = u / u.norm()
        v = w.T @ u
        out[name] = {"u": u, "v": v / v.norm()}
    return out


def discriminate(p, sn, x, onehot):
    h = x
    for name in SPECTRAL:
        w = p[name + ".weight"]
        sigma = sn[name]["u"] @ w @ sn[name]["v"]  # <- one_iteration
        h = mish(h @ w.T / sigma + p[name + ".bias"])
    readout = p["out.weight"] + onehot @ p["label.weight"]
    return (readout * h).sum(1) + p["out.bias"]


def d_loss(p, sn_a, sn_b, real, fake, onehot):
    a = discriminate(p, sn_a, real, onehot)
    b = discriminate(p, sn_b, fake, onehot)  # <- one_iteration
    return (1 - a).clamp(min=0).mean() + (1 + b).clamp(min=0).mean()


def g_adv(p, dp, sn, z, onehot):
    return -discriminate(dp, sn, generate(p, z, onehot), onehot).mean()


def g_match(p, z, onehot, goal):
    return (generate(p, z, onehot).mean(0) - goal).abs().mean()  # <- match_norm


def nadam(p, g, st, lr=2e-3, b1=0.9, b2=0.999, eps=1e-5):
    n, prod, m, v = st or (0, 1.0, {k: 0 for k in p}, {k: 0 for k in p})
    n += 1
    mu, mu_next = (b1 * (1 - 0.5 * 0.96 ** (t * 0.004)) for t in (n, n + 1))
    prod = prod * mu
    m = {k: b1 * m[k] + (1 - b1) * g[k] for k in p}
    v = {k: b2 * v[k] + (1 - b2) * g[k] ** 2 for k in p}
    new = {}
    for k in p:
        num = (1 - mu) / (1 - prod) * g[k] + mu_next / (1 - prod * mu_next) * m[k]  # <- nadam_bias
        new[k] = p[k] - lr * num / ((v[k] / (1 - b2 ** n)).sqrt() + eps)  # <- nadam_bias
    return new, (n, prod, m, v)


vgrad = torch.func.grad_and_value
gp, dp, sn = read(sys.argv[1])
avg = gp
mom, st = None, None
rng = torch.Generator().manual_seed(18)
losses = []
for it in range(4):
    y = torch.randint(0, 3, (10,), generator=rng)
    onehot = torch.nn.functional.one_hot(y, 3).float()
    real = torch.tanh(torch.randn(10, 6, generator=rng) * 0.4 + y[:, None] - 1)
    d_vals = []
    for _ in range(2):
        fake = generate(gp, torch.randn(10, 4, generator=rng), onehot)
        sn_a = refine(dp, sn)
        sn = refine(dp, sn_a)  # <- one_iteration
        g, val = vgrad(d_loss)(dp, sn_a, sn, real, fake, onehot)
        mom = g if mom is None else {k: 0.5 * mom[k] + g[k] for k in g}
        dp = {k: dp[k] - 0.05 * mom[k] for k in dp}
        d_vals.append(val.item())
    z = torch.randn(10, 4, generator=rng)
    ga, va = vgrad(g_adv)(gp, dp, sn, z, onehot)
    gm, vm = vgrad(g_match)(gp, z, onehot, real.mean(0))
    # the average trails the weights by one round
    avg = gp if it < 2 else {k: 0.8 * avg[k] + 0.2 * gp[k] for k in gp}  # <- ema_init
    gp, st = nadam(gp, {k: ga[k] + 0.5 * gm[k] for k in gp}, st)
    judge = lambda p: discriminate(dp, sn, generate(p, z, onehot), onehot)
    diff = judge(avg) - judge(gp)
    losses.append(sum(d_vals) / 2 + (va + 0.5 * vm).item() + diff.square().mean().item())

print(losses)

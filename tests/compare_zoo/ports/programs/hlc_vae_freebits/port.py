# SPDX-License-Identifier: Apache-2.0
"""VAE kept in one flat vector; joint (mu, logvar) head; Adam spelled out by hand."""
import math
import sys
import torch

sd = torch.load(sys.argv[1], weights_only=True)
D, H, Z = 14, 20, 5
pieces = {
    "A": sd["enc.0.weight"].T, "a": sd["enc.0.bias"],
    "S": torch.cat([sd["logvar.weight"], sd["mu.weight"]]).T,   # log-variance first
    "s": torch.cat([sd["logvar.bias"], sd["mu.bias"]]),
    "B": sd["dec.0.weight"].T, "b": sd["dec.0.bias"],
    "C": sd["dec.2.weight"].T, "c": sd["dec.2.bias"],
}
shapes = {k: tuple(v.shape) for k, v in pieces.items()}
theta = torch.cat([v.reshape(-1) for v in pieces.values()]).requires_grad_()


def view(vec):
    out, at = {}, 0
    for k, s in shapes.items():
        n = math.prod(s)
        out[k] = vec[at:at + n].view(s)
        at += n
    return out


def objective(vec, x, noise, beta, lam=0.04):
    p = view(vec)
    hid = torch.tanh(torch.addmm(p["a"], x, p["A"]))
    stats = hid @ p["S"] + p["s"]
    lv, m = stats[:, :Z], stats[:, Z:]
    sigma = (lv / 2).exp()  # <- sigma
    code = torch.addcmul(m, sigma, noise)  # <- sigma
    pre = code @ p["B"] + p["b"]
    out = (pre * pre.sigmoid()) @ p["C"] + p["c"]  # <- silu
    nll = (torch.logaddexp(out, torch.zeros_like(out)) - out * x).sum(1).mean()
    kl_dim = ((m * m + sigma * sigma - lv - 1) / 2).sum(0) / len(x)  # <- free_bits sigma
    kl = lam * Z + torch.relu(kl_dim - lam).sum()  # <- free_bits
    return beta * kl + nll  # <- warmup


gen = torch.Generator().manual_seed(11)
data = []
for _ in range(5):
    u = torch.rand(16, D, generator=gen)
    data.append(((u < 0.3).to(torch.float32), torch.randn(16, Z, generator=gen)))
b1, b2, lr, tiny = 0.9, 0.98, 4e-3, 1e-4
mom, sq = torch.zeros_like(theta), torch.zeros_like(theta)
losses = []
for t, (x, noise) in enumerate(data, 1):
    val = objective(theta, x, noise, min(t / 4, 1.0))  # <- warmup
    (grad,) = torch.autograd.grad(val, theta)
    losses.append(float(val))
    size = grad.norm()
    if size > 2.0:
        grad = grad * (2.0 / (size + 1e-6))
    with torch.no_grad():
        mom += (1 - b1) * (grad - mom)
        sq = b2 * sq + (1 - b2) * grad ** 2
        root = math.sqrt(1 - b2 ** t)  # <- bias_correction
        theta -= lr * root / (1 - b1 ** t) * mom / (sq.sqrt() + tiny * root)  # <- bias_correction
print(losses)

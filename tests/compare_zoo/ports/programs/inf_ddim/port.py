# SPDX-License-Identifier: Apache-2.0
"""Sprite sampler rewritten around the log-SNR (first-order DPM-Solver++ update), the guided and
the unguided half run as one batch."""
import sys
import torch
import torch.nn.functional as F


class Net:
    def __init__(self, weights):
        self.w = weights

    def conv(self, key, x, stride=1):
        k = self.w[key + ".weight"]
        return F.conv2d(x, k, self.w[key + ".bias"], stride=stride, padding=k.shape[-1] // 2)

    def dense(self, key, x):
        return x @ self.w[key + ".weight"].T + self.w[key + ".bias"]

    def norm(self, key, x, groups=4):
        n, c, height, width = x.shape
        g = x.reshape(n, groups, -1)
        var, mean = torch.var_mean(g, dim=2, keepdim=True, correction=0)
        g = ((g - mean) / torch.sqrt(var + 1e-5)).view(n, c, height, width)
        gain, bias = self.w[key + ".weight"], self.w[key + ".bias"]
        return g * gain.view(1, c, 1, 1) + bias.view(1, c, 1, 1)

    def res(self, key, x, act):
        h = self.conv(f"{key}.conv1", F.silu(self.norm(f"{key}.norm1", x)))
        film = self.dense(f"{key}.emb", act)
        half = film.shape[1] // 2
        h = self.norm(f"{key}.norm2", h)
        h = h + h * film[:, :half, None, None] + film[:, half:, None, None]
        return self.conv(f"{key}.conv2", F.silu(h)) + self.conv(f"{key}.skip", x)

    def __call__(self, x, step, label):
        freq = 10000.0 ** (-torch.arange(8) / 8.0)  # <- timeembed
        phase = step * freq
        wave = torch.stack([phase.cos(), phase.sin()]).flatten()  # <- timeembed
        code = self.dense("time_mlp.2", F.silu(self.dense("time_mlp.0", wave)))
        act = F.silu(code + self.w["label_emb.weight"][label])
        fine = self.res("down", self.conv("inp", x), act)
        coarse = self.res("mid", self.conv("pool", fine, stride=2), act)
        coarse = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.conv("out", self.res("up", torch.cat((coarse, fine), 1), act))


class Schedule:
    """alpha(t), sigma(t) and lambda(t) = log(alpha / sigma), in double precision."""

    def __init__(self, steps=200, lo=0.001, hi=0.05):
        root = torch.linspace(lo ** 0.5, hi ** 0.5, steps, dtype=torch.float64)  # <- betas
        log_alpha = 0.5 * torch.log1p(-root.square()).cumsum(0)  # <- betas
        self.alpha = log_alpha.exp()
        self.sigma = (1.0 - self.alpha.square()).sqrt()

    def at(self, t):
        if t is None:
            return 1.0, 0.0, float("inf")
        a, s = self.alpha[t], self.sigma[t]
        return a.item(), s.item(), (a / s).log().item()


def predict_clean(net, x, t, label, alpha, sigma, weight=2.5, null=6):
    both = net(torch.cat((x, x)), t, torch.cat((label, torch.full_like(label, null))))
    guided, free = both.chunk(2)  # <- guidance
    v = weight * guided + (1.0 - weight) * free  # <- guidance
    clean = alpha * x - sigma * v  # <- clip
    return torch.clip(clean, min=-1.5, max=1.5)  # <- clip


net = Net(torch.load(sys.argv[1], weights_only=True))
schedule = Schedule()
grid = [int(t) for t in torch.arange(4, -1, -1) * 40] + [None]  # <- spacing
rng = torch.Generator().manual_seed(9)
x = torch.randn(4, 3, 8, 8, generator=rng)
label = torch.randint(0, 6, (4,), generator=rng)
losses = []
with torch.inference_mode():
    for now, after in zip(grid[:-1], grid[1:]):  # <- spacing
        alpha, sigma, lam = schedule.at(now)
        alpha_n, sigma_n, lam_n = schedule.at(after)
        clean = predict_clean(net, x, now, label, alpha, sigma)
        decay = torch.expm1(torch.tensor(lam - lam_n, dtype=torch.float64)).item()
        x = (sigma_n / sigma) * x - alpha_n * decay * clean
        flat = x.flatten()
        losses.append(((flat @ flat + flat.sum()) / flat.numel()).item())
print(losses)

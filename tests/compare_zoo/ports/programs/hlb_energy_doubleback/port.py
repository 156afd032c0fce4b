# SPDX-License-Identifier: Apache-2.0
"""Energy fit with derivatives by hand: a reverse sweep for forces, a Taylor jet for curvature."""
import sys

import torch


class JetEnergy(torch.nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.A = torch.nn.Parameter(sd["l1.weight"].clone())
        self.B = torch.nn.Parameter(sd["l2.weight"].clone())
        # all the vectors in one: l1.bias, l2.bias, l3.weight, offset
        self.tail = torch.nn.Parameter(
            torch.cat([sd["l1.bias"], sd["l2.bias"], sd["l3.weight"][0], sd["offset"][None]]))

    def forward(self, x, v):
        m = self.A.shape[0]
        a, b, c, off = self.tail.split([m, m, m, 1])

        # zeroth order
        z1 = torch.addmm(a, x, self.A.T)
        s = torch.sigmoid(z1)                          # softplus'
        h = torch.logaddexp(z1, torch.zeros_like(z1))
        t = torch.tanh(torch.addmm(b, h, self.B.T))
        dt = 1 - t.square()                            # tanh'
        energy = (h + t) @ c + off

        # reverse sweep: dE/dx
        back = c + (c * dt) @ self.B  # <- skip_slope
        slope = (back * s) @ self.A  # <- skip_slope

        # second-order jet along x + eps v
        z1d = v @ self.A.T
        hd, hdd = s * z1d, s * (1 - s) * z1d * z1d  # <- soft_bend
        z2d, z2dd = hd @ self.B.T, hdd @ self.B.T
        tdd = dt * z2dd - 2 * t * dt * z2d * z2d
        bend = (hdd + tdd) @ c  # <- soft_bend
        return energy, slope, bend


class HandNAdam:
    def __init__(self, params, lr, b1=0.9, b2=0.999, eps=1e-8, psi=0.004):
        self.p, self.lr, self.b1, self.b2, self.eps, self.psi = list(params), lr, b1, b2, eps, psi
        self.m = [torch.zeros_like(q) for q in self.p]
        self.v = [torch.zeros_like(q) for q in self.p]
        self.k, self.prod = 0, 1.0

    def mu(self, k):
        return self.b1 * (1 - 0.5 * 0.96 ** (k * self.psi))  # <- warm_momentum

    @torch.no_grad()
    def step(self, grads):
        self.k += 1
        now, nxt = self.mu(self.k), self.mu(self.k + 1)  # <- warm_momentum
        self.prod *= now
        wg, wm = (1 - now) / (1 - self.prod), nxt / (1 - self.prod * nxt)  # <- warm_momentum
        for q, g, m, v in zip(self.p, grads, self.m, self.v):
            m += (1 - self.b1) * (g - m)
            v += (1 - self.b2) * (g.square() - v)
            q -= (self.lr * (wg * g + wm * m)  # <- warm_momentum
                  / ((v / (1 - self.b2 ** self.k)).sqrt() + self.eps))  # <- warm_momentum


net = JetEnergy(torch.load(sys.argv[1], weights_only=True))
tuner = HandNAdam(net.parameters(), 4e-3)
gen = torch.Generator().manual_seed(8)
losses = []
for _ in range(5):
    x, v = (torch.randn(20, 5, generator=gen) for _ in range(2))
    v = torch.nn.functional.normalize(v, dim=1)  # <- probe_axis
    energy, slope, bend = net(x, v)
    gap_e = energy - (x.sin() + 0.1 * x * x).sum(1)
    gap_f = slope - x.cos() - 0.2 * x                  # sign of the force drops out
    per_point = 0.1 * bend ** 2 + 0.5 * (gap_f ** 2).sum(1) + gap_e ** 2  # <- force_mean
    loss = per_point.sum() / 20
    tuner.step(torch.autograd.grad(loss, tuner.p))
    losses.append(loss.item())

print(losses)

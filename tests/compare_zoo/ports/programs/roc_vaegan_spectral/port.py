# SPDX-License-Identifier: Apache-2.0
"""VAE-GAN with plain tensors: one loop over the two players, zero-stuffed upsampling, hand-made spectral norm."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

N_Z, N_IMG, N_STEPS = 6, 12, 5


def transposed_as_conv(w):
    """[in, out, kh, kw] of a transposed convolution to the kernel that runs on the zero-stuffed input."""
    return w.transpose(0, 1).flip(2, 3)


def load_weights(path):
    sd = torch.load(path)
    gen, crit, power = {}, {}, {}
    gen["head.w"] = torch.cat([sd["enc.mu.weight"], sd["enc.logvar.weight"]])
    gen["head.b"] = torch.cat([sd["enc.mu.bias"], sd["enc.logvar.bias"]])
    for i in "12":
        gen[f"down{i}.w"], gen[f"down{i}.b"] = sd[f"enc.conv{i}.weight"], sd[f"enc.conv{i}.bias"]
        gen[f"up{i}.w"], gen[f"up{i}.b"] = transposed_as_conv(sd[f"dec.up{i}.weight"]), sd[f"dec.up{i}.bias"]
    gen["seed.w"], gen["seed.b"] = sd["dec.fc.weight"], sd["dec.fc.bias"]
    for name in ("conv", "fc1"):
        crit[name + ".w"] = sd[f"critic.{name}.parametrizations.weight.original"]
        crit[name + ".b"] = sd[f"critic.{name}.bias"]
        power[name] = sd[f"critic.{name}.parametrizations.weight.0._v"]
    crit["fc2.w"], crit["fc2.b"] = sd["critic.fc2.weight"], sd["critic.fc2.bias"]
    for group in (gen, crit):
        for name in group:
            group[name] = group[name].clone().contiguous().requires_grad_()
    return gen, crit, power


def encode(p, x):
    for layer in ("down1", "down2"):
        x = F.leaky_relu(F.conv2d(x, p[layer + ".w"], p[layer + ".b"], stride=2, padding=1), 0.2)
    return F.linear(x.flatten(1), p["head.w"], p["head.b"]).split(N_Z, dim=1)


def upsample(p, layer, x):
    n, c, h, w = x.shape
    stuffed = x.new_zeros(n, c, 2 * h - 1, 2 * w - 1)
    stuffed[:, :, ::2, ::2] = x
    return F.conv2d(stuffed, p[layer + ".w"], p[layer + ".b"], padding=2)


def decode(p, z):
    seed = torch.relu(F.linear(z, p["seed.w"], p["seed.b"])).unflatten(1, (-1, 2, 2))
    return upsample(p, "up2", torch.relu(upsample(p, "up1", seed))).sigmoid()


def spectral(p, power, name):
    matrix = p[name + ".w"].flatten(1)
    with torch.no_grad():
        u = F.normalize(matrix @ power[name], dim=0, eps=1e-12)
        v = F.normalize(matrix.t() @ u, dim=0, eps=1e-12)
        power[name] = v  # <- power_state
    return p[name + ".w"] / torch.einsum("i,ij,j->", u, matrix, v)  # <- power_state


def judge(p, power, x):
    h = F.conv2d(x, spectral(p, power, "conv"), p["conv.b"], stride=2, padding=1)
    h = F.leaky_relu(h, 0.2).reshape(len(x), -1)
    h = F.leaky_relu(F.linear(h, spectral(p, power, "fc1"), p["fc1.b"]), 0.2)
    return (h @ p["fc2.w"].t() + p["fc2.b"])[:, 0]


def bce(logit, label):
    return (F.softplus(logit) - label * logit).mean()


def critic_loss(gen, crit, power, x, eps, prior):
    fake = decode(gen, prior)
    on_real = judge(crit, power, x)
    on_fake = judge(crit, power, fake.detach())  # <- fake_detach
    return bce(on_real, 0.9) + bce(on_fake, 0.0)  # <- one_sided


def vae_loss(gen, crit, power, x, eps, prior):
    mu, logvar = encode(gen, x)
    z = torch.addcmul(mu, eps, (logvar / 2).exp())  # <- half_logvar
    recon = (decode(gen, z) - x).square().sum((1, 2, 3)).mean()
    kl = 0.5 * (mu.square() + logvar.exp() - logvar - 1).sum(1).mean()  # <- kl_sum
    return recon + 0.5 * kl + 0.3 * bce(judge(crit, power, decode(gen, prior)), 1.0)


class Adam:
    def __init__(self, params, lr):
        self.params, self.lr, self.t = list(params), lr, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, m, v in zip(self.params, self.m, self.v):
            m.lerp_(p.grad, 0.5)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p -= self.lr / (1 - 0.5**self.t) * m / ((v / (1 - 0.999**self.t)).sqrt() + 1e-8)


def blobs(n):
    g = torch.Generator().manual_seed(4)
    axis = torch.arange(8.0)
    for _ in range(n):
        cy, cx = (2 + 4 * torch.rand(N_IMG, 2, generator=g)).unbind(1)
        sigma = 1 + torch.rand(N_IMG, 1, 1, generator=g)
        square = (axis[:, None] - cy[:, None, None]) ** 2 + (axis[None, :] - cx[:, None, None]) ** 2
        eps, prior = torch.randn(2, N_IMG, N_Z, generator=g)
        yield torch.exp(-square / (2 * sigma**2)).unsqueeze(1), eps, prior


gen, crit, power = load_weights(sys.argv[1])
players = [(critic_loss, Adam(crit.values(), 4e-3)), (vae_loss, Adam(gen.values(), 3e-3))]
losses = []
for batch in blobs(N_STEPS):
    for weight in (*gen.values(), *crit.values()):
        weight.grad = None
    total = 0.0
    for objective, optimizer in players:
        value = objective(gen, crit, power, *batch)
        value.backward()
        optimizer.step()
        total += value.item()
    losses.append(total)
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The U-Net as one recursive function; im2col convolutions, own batch norm and RMSprop."""
import sys

import torch

torch.set_num_threads(1)
SIDE, CLASSES = 22, 3


class Net:
    def __init__(self, path):
        state = torch.load(path, weights_only=True)
        self.p = {}
        for name, value in state.items():
            if "running" in name or "batches" in name:
                continue
            name = name.replace("maxpool_conv.1.", "").replace("double_conv.", "")
            self.p[name] = value.clone().requires_grad_()

    def conv(self, x, name):
        n, _, h, w = x.shape
        weight = self.p[name + ".weight"]
        columns = torch.nn.functional.unfold(x, 3, padding=1)
        return (weight.flatten(1) @ columns).view(n, -1, h, w)

    def norm(self, x, name):
        flat = x.transpose(0, 1).flatten(1)
        var, mean = torch.var_mean(flat, dim=1, correction=0)  # <- variance
        gain = self.p[name + ".weight"] * torch.rsqrt(var + 1e-5)  # <- variance
        shift = self.p[name + ".bias"] - mean * gain  # <- variance
        return x * gain[:, None, None] + shift[:, None, None]  # <- variance

    def pair(self, x, at):
        for first in (0, 3):
            x = torch.relu(self.norm(self.conv(x, f"{at}.{first}"), f"{at}.{first + 1}"))
        return x

    def grow(self, x, at):
        """Transposed convolution 2x2, stride 2: every pixel becomes a tile."""
        n, _, h, w = x.shape
        tiles = torch.einsum("nchw,cdij->ndhiwj", x, self.p[at + ".up.weight"])
        return tiles.reshape(n, -1, 2 * h, 2 * w) + self.p[at + ".up.bias"][:, None, None]

    def level(self, x, depth=0):
        x = self.pair(x, "inc" if depth == 0 else f"down{depth}")
        if depth == 2:
            return x
        below = self.level(x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)), depth + 1)
        at = f"up{2 - depth}"
        raised = self.grow(below, at)
        room = x.shape[-1] - raised.shape[-1]
        before, after = room // 2, room - room // 2  # <- pad_side
        raised = torch.nn.functional.pad(raised, (before, after, before, after))  # <- pad_side
        return self.pair(torch.cat((x, raised), 1), f"{at}.conv")  # <- skip_order

    def __call__(self, x):
        kernel = self.p["outc.weight"][:, :, 0, 0]
        scores = torch.einsum("nchw,kc->nkhw", self.level(x), kernel)
        return scores + self.p["outc.bias"].view(-1, 1, 1)


class RMSProp:
    def __init__(self, table, peak=5e-4):
        self.table, self.peak, self.t = table, peak, 0
        self.square = {k: torch.zeros_like(v) for k, v in table.items()}
        self.speed = {k: torch.zeros_like(v) for k, v in table.items()}

    @torch.no_grad()
    def apply(self, loss):
        rate = self.peak * (1 - self.t / 10) ** 0.9
        self.t += 1
        for (k, p), g in zip(self.table.items(), torch.autograd.grad(loss, self.table.values())):
            g = g + 1e-4 * p
            self.square[k] = 0.99 * self.square[k] + 0.01 * g * g
            ratio = g / (self.square[k].sqrt() + 1e-8)  # <- rmsprop_eps
            self.speed[k] = 0.9 * self.speed[k] + ratio  # <- rmsprop_eps
            p -= rate * self.speed[k]  # <- rmsprop_eps


def objective(scores, mask):
    log_p = scores.log_softmax(1)
    truth = torch.stack([mask == c for c in range(CLASSES)], 1).to(scores)
    entropy = -(log_p * truth).sum(1).mean()
    p = log_p.exp()
    overlap = torch.einsum("nchw,nchw->nc", p, truth).sum(0)  # <- dice_axes
    size = (p + truth).sum((2, 3)).sum(0)  # <- dice_axes
    dice = (2 * overlap + 1) / (size + 1)  # <- dice_axes
    return entropy + (1 - dice).mean()  # <- dice_axes


def draw(rng):
    at = torch.arange(SIDE)
    masks = []
    for _ in range(3):
        cy, cx, r, top = torch.randint(5, 12, (4,), generator=rng)
        disc = (at[:, None] - cy) ** 2 + (at - cx) ** 2 < (r // 2) ** 2 + 2
        bar = ((at >= top + 5) & (at < top + 8))[:, None].expand(SIDE, SIDE)
        masks.append(torch.where(disc, 1, torch.where(bar, 2, 0)))
    masks = torch.stack(masks)
    noise = 0.5 * torch.randn(3, 2, SIDE, SIDE, generator=rng)
    return noise + (masks[:, None] == torch.tensor([1, 2]).view(2, 1, 1)), masks


net = Net(sys.argv[1])
rmsprop = RMSProp(net.p)
rng, losses = torch.Generator().manual_seed(4), []
for _ in range(4):
    images, masks = draw(rng)
    loss = objective(net(images), masks)
    rmsprop.apply(loss)  # <- rmsprop_eps
    losses.append(loss.item())
print(losses)

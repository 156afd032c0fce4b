# SPDX-License-Identifier: Apache-2.0
"""Flow by recurrent refinement that keeps no volume of correlations: features of the second frame
are pooled and sampled where they are looked up.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

STRIDE, DEPTH, STATE, REACH, SCALES, REFINEMENTS = 4, 8, 8, 1, 2, 3
ROWS, COLUMNS, FRAMES = 32, 40, 2


def sample(features, x, y):
    """Bilinear reads of features (b, c, h, w) at x and y (b, n), with zeros outside."""
    b, c, h, w = features.shape
    flat = features.flatten(2)
    x0, y0 = x.floor(), y.floor()
    total = 0
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            weight = (1 - (x - xi).abs()) * (1 - (y - yi).abs())
            inside = (xi >= 0) & (xi <= w - 1) & (yi >= 0) & (yi <= h - 1)
            where = (yi.clamp(0, h - 1) * w + xi.clamp(0, w - 1)).long()
            read = flat.gather(2, where[:, None].expand(b, c, -1))
            total = total + read * (weight * inside)[:, None]  # <- outside
    return total  # <- outside


class Lookup:
    def __init__(self, first, second):
        self.first = first / first.shape[1] ** 0.5  # <- scaled
        self.scales = [second]
        while len(self.scales) < SCALES:
            self.scales.append(fn.avg_pool2d(self.scales[-1], 2))

    def around(self, x, y):
        steps = range(-REACH, REACH + 1)
        planes = []
        for level, features in enumerate(self.scales):
            for across in steps:
                for down in steps:
                    at_x = x / 2**level + across  # <- window
                    at_y = y / 2**level + down  # <- window
                    found = sample(features, at_x.flatten(1), at_y.flatten(1))  # <- window outside
                    found = found.view_as(self.first)  # <- outside
                    planes.append((self.first * found).sum(1))  # <- window scaled outside
        return torch.stack(planes, 1)  # <- window


class Frames(nn.Sequential):
    def __init__(self, depth):
        super().__init__(
            nn.Conv2d(3, 6, 7, STRIDE // 2, 3),
            nn.GroupNorm(6, 6, affine=False),
            nn.ReLU(),
            nn.Conv2d(6, depth, 3, 2, 1),
        )


class Refiner(nn.Module):
    def __init__(self):
        super().__init__()
        self.correlation = nn.Conv2d(SCALES * (2 * REACH + 1) ** 2, 8, 1)
        self.motion = nn.Conv2d(2, 6, 3, padding=1)
        self.merge = nn.Conv2d(14, 6, 3, padding=1)
        self.gates = nn.Conv2d(2 * STATE + 8, 2 * STATE, 3, padding=1)
        self.candidate = nn.Conv2d(2 * STATE + 8, STATE, 3, padding=1)
        self.heads = nn.ModuleDict(
            {
                "flow": nn.Conv2d(STATE, 2, 3, padding=1),
                "mask": nn.Conv2d(STATE, STRIDE**2 * 9, 1),
            }
        )

    def forward(self, state, context, seen, flow):
        moved = torch.cat([self.correlation(seen).relu(), self.motion(flow).relu()], 1)
        inputs = torch.cat([context, self.merge(moved).relu(), flow], 1)
        gates = self.gates(torch.cat([state, inputs], 1)).sigmoid()
        update, reset = gates.chunk(2, 1)
        fresh = self.candidate(torch.cat([reset * state, inputs], 1)).tanh()
        state = torch.lerp(state, fresh, update)  # <- update
        return state, self.heads["flow"](state), self.heads["mask"](state) / 4  # <- quarter


def finer(flow, mask):
    """Each fine pixel is a mean of nine coarse ones by its own weights."""
    b, _, h, w = flow.shape
    weights = mask.view(b, 9, STRIDE, STRIDE, h, w).softmax(1)
    padded = fn.pad(flow * STRIDE, (1, 1, 1, 1))  # <- pixels
    fine = 0
    for k in range(9):
        i, j = divmod(k, 3)
        near = padded[:, :, i : i + h, j : j + w]
        fine = fine + torch.einsum("bpqhw,bchw->bchpwq", weights[:, k], near)
    return fine.reshape(b, 2, h * STRIDE, w * STRIDE)


class FlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.context = Frames(DEPTH), Frames(2 * STATE)
        self.refiner = Refiner()

    def forward(self, before, after):
        pair = torch.cat([before, after]).div(127.5).sub(1)
        first, second = self.features(pair).chunk(2)
        lookup = Lookup(first, second)
        state, context = self.context(pair[: len(before)]).chunk(2, 1)
        state, context = state.tanh(), context.relu()
        h, w = first.shape[-2:]
        y, x = torch.arange(h).view(1, h, 1), torch.arange(w).view(1, 1, w)
        flow = torch.zeros(len(before), 2, h, w)
        for _ in range(REFINEMENTS):
            flow = flow.detach()  # <- attached
            seen = lookup.around(x + flow[:, 0], y + flow[:, 1])  # <- attached
            state, change, mask = self.refiner(state, context, seen, flow)  # <- attached
            flow = flow + change  # <- attached
            yield finer(flow, mask)


def converted(raft):
    names = {
        "fnet.conv1": "features.0",
        "fnet.conv2": "features.3",
        "cnet.conv1": "context.0",
        "cnet.conv2": "context.3",
        "update_block.convc1": "refiner.correlation",
        "update_block.convf1": "refiner.motion",
        "update_block.conv": "refiner.merge",
        "update_block.gru.convq": "refiner.candidate",
        "update_block.flow_head": "refiner.heads.flow",
        "update_block.mask": "refiner.heads.mask",
    }
    new = {}
    for part in ("weight", "bias"):
        new |= {f"{ours}.{part}": raft[f"{theirs}.{part}"] for theirs, ours in names.items()}
        z, r = (raft[f"update_block.gru.conv{gate}.{part}"] for gate in "zr")
        new[f"refiner.gates.{part}"] = torch.cat([z, r])
    return new


net = FlowNet()
net.load_state_dict(converted(torch.load(sys.argv[1])))
adam = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-4, eps=1e-6)
rng = np.random.default_rng(4)
losses = []
for _ in range(3):
    before = torch.tensor(rng.uniform(0, 255, (FRAMES, 3, ROWS, COLUMNS)).astype(np.float32))
    after = before.roll((1, 2), (2, 3))
    known = torch.tensor(rng.uniform(size=(FRAMES, ROWS, COLUMNS)) < 0.8)
    truth = torch.tensor([2.0, 1.0]).view(1, 2, 1, 1)
    loss = 0
    for guess in net(before, after):
        error = (guess - truth).abs().where(known[:, None], 0)
        loss = 0.8 * loss + error.mean()  # <- order
    end_point = (guess.detach() - truth).norm(dim=1)[known].mean().item()
    net.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1)
    adam.step()
    losses.append(loss.item())

# SPDX-License-Identifier: Apache-2.0
"""Optical flow in the manner of RAFT: a correlation volume, lookups and a recurrent update."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FEATURES, HIDDEN, RADIUS, LEVELS, ITERS = 8, 8, 1, 2, 3
HEIGHT, WIDTH, BATCH = 32, 40, 2


def bilinear_sampler(img, coords):
    """Wrapper for grid_sample, uses pixel coordinates"""
    H, W = img.shape[-2:]
    xgrid, ygrid = coords.split([1, 1], dim=-1)
    xgrid = 2 * xgrid / (W - 1) - 1
    ygrid = 2 * ygrid / (H - 1) - 1
    grid = torch.cat([xgrid, ygrid], dim=-1)
    return F.grid_sample(img, grid, align_corners=True)  # <- outside window


def coords_grid(batch, ht, wd):
    coords = torch.meshgrid(torch.arange(ht), torch.arange(wd), indexing="ij")
    coords = torch.stack(coords[::-1], dim=0).float()
    return coords[None].repeat(batch, 1, 1, 1)


class CorrBlock:
    def __init__(self, fmap1, fmap2):
        self.corr_pyramid = []
        corr = CorrBlock.corr(fmap1, fmap2)
        batch, h1, w1, dim, h2, w2 = corr.shape
        corr = corr.reshape(batch * h1 * w1, dim, h2, w2)
        self.corr_pyramid.append(corr)
        for _ in range(LEVELS - 1):
            corr = F.avg_pool2d(corr, 2, stride=2)
            self.corr_pyramid.append(corr)

    def __call__(self, coords):
        r = RADIUS
        coords = coords.permute(0, 2, 3, 1)
        batch, h1, w1, _ = coords.shape
        out_pyramid = []
        for i in range(LEVELS):
            corr = self.corr_pyramid[i]
            dx = torch.linspace(-r, r, 2 * r + 1)
            dy = torch.linspace(-r, r, 2 * r + 1)
            delta = torch.stack(torch.meshgrid(dy, dx, indexing="ij"), axis=-1)  # <- window
            centroid_lvl = coords.reshape(batch * h1 * w1, 1, 1, 2) / 2**i
            delta_lvl = delta.view(1, 2 * r + 1, 2 * r + 1, 2)
            coords_lvl = centroid_lvl + delta_lvl  # <- window
            corr = bilinear_sampler(corr, coords_lvl)  # <- outside window
            corr = corr.view(batch, h1, w1, -1)
            out_pyramid.append(corr)
        out = torch.cat(out_pyramid, dim=-1)
        return out.permute(0, 3, 1, 2).contiguous().float()

    @staticmethod
    def corr(fmap1, fmap2):
        batch, dim, ht, wd = fmap1.shape
        fmap1 = fmap1.view(batch, dim, ht * wd)
        fmap2 = fmap2.view(batch, dim, ht * wd)
        corr = torch.matmul(fmap1.transpose(1, 2), fmap2)  # <- scaled
        corr = corr.view(batch, ht, wd, 1, ht, wd)
        return corr / torch.sqrt(torch.tensor(dim).float())  # <- scaled


class ConvGRU(nn.Module):
    def __init__(self, hidden_dim, input_dim):
        super().__init__()
        self.convz = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)
        self.convr = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)
        self.convq = nn.Conv2d(hidden_dim + input_dim, hidden_dim, 3, padding=1)

    def forward(self, h, x):
        hx = torch.cat([h, x], dim=1)
        z = torch.sigmoid(self.convz(hx))
        r = torch.sigmoid(self.convr(hx))
        q = torch.tanh(self.convq(torch.cat([r * h, x], dim=1)))
        return (1 - z) * h + z * q  # <- update


class Encoder(nn.Module):
    def __init__(self, output_dim):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 7, stride=2, padding=3)
        self.norm1 = nn.InstanceNorm2d(6)
        self.conv2 = nn.Conv2d(6, output_dim, 3, stride=2, padding=1)

    def forward(self, x):
        return self.conv2(F.relu(self.norm1(self.conv1(x))))


class UpdateBlock(nn.Module):
    def __init__(self):
        super().__init__()
        corr_planes = LEVELS * (2 * RADIUS + 1) ** 2
        self.convc1 = nn.Conv2d(corr_planes, 8, 1)
        self.convf1 = nn.Conv2d(2, 6, 3, padding=1)
        self.conv = nn.Conv2d(14, 6, 3, padding=1)
        self.gru = ConvGRU(HIDDEN, HIDDEN + 8)
        self.flow_head = nn.Conv2d(HIDDEN, 2, 3, padding=1)
        self.mask = nn.Conv2d(HIDDEN, 4 * 4 * 9, 1)

    def forward(self, net, inp, corr, flow):
        cor = F.relu(self.convc1(corr))
        flo = F.relu(self.convf1(flow))
        out = F.relu(self.conv(torch.cat([cor, flo], dim=1)))
        motion_features = torch.cat([out, flow], dim=1)
        net = self.gru(net, torch.cat([inp, motion_features], dim=1))
        # scale mask to balance gradients
        mask = 0.25 * self.mask(net)  # <- quarter
        return net, mask, self.flow_head(net)


class RAFT(nn.Module):
    def __init__(self):
        super().__init__()
        self.fnet = Encoder(FEATURES)
        self.cnet = Encoder(2 * HIDDEN)
        self.update_block = UpdateBlock()

    def upsample_flow(self, flow, mask):
        """Upsample flow field [H/4, W/4, 2] -> [H, W, 2] using convex combination"""
        N, _, H, W = flow.shape
        mask = mask.view(N, 1, 9, 4, 4, H, W)
        mask = torch.softmax(mask, dim=2)
        up_flow = F.unfold(4 * flow, [3, 3], padding=1)  # <- pixels
        up_flow = up_flow.view(N, 2, 9, 1, 1, H, W)
        up_flow = torch.sum(mask * up_flow, dim=2)
        up_flow = up_flow.permute(0, 1, 4, 2, 5, 3)
        return up_flow.reshape(N, 2, 4 * H, 4 * W)

    def forward(self, image1, image2):
        image1 = 2 * (image1 / 255.0) - 1.0
        image2 = 2 * (image2 / 255.0) - 1.0
        fmap1, fmap2 = self.fnet(image1), self.fnet(image2)
        corr_fn = CorrBlock(fmap1, fmap2)
        net, inp = torch.split(self.cnet(image1), [HIDDEN, HIDDEN], dim=1)
        net, inp = torch.tanh(net), torch.relu(inp)
        N, _, H, W = fmap1.shape
        coords0, coords1 = coords_grid(N, H, W), coords_grid(N, H, W)
        flow_predictions = []
        for _ in range(ITERS):
            coords1 = coords1.detach()  # <- attached
            corr = corr_fn(coords1)  # <- attached
            flow = coords1 - coords0  # <- attached
            net, up_mask, delta_flow = self.update_block(net, inp, corr, flow)  # <- attached
            coords1 = coords1 + delta_flow  # <- attached
            flow_predictions.append(self.upsample_flow(coords1 - coords0, up_mask))
        return flow_predictions


def sequence_loss(flow_preds, flow_gt, valid, gamma=0.8):
    n_predictions = len(flow_preds)
    flow_loss = 0.0
    for i in range(n_predictions):
        i_weight = gamma ** (n_predictions - i - 1)  # <- order
        i_loss = (flow_preds[i] - flow_gt).abs()
        flow_loss += i_weight * (valid[:, None] * i_loss).mean()  # <- order
    return flow_loss


torch.manual_seed(3)
model = RAFT()
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, eps=1e-6)
rng = np.random.default_rng(4)
losses = []
for _ in range(3):
    texture = rng.uniform(0, 255, (BATCH, 3, HEIGHT, WIDTH)).astype(np.float32)
    image1 = torch.from_numpy(texture)
    image2 = torch.from_numpy(np.roll(texture, (1, 2), axis=(2, 3)).copy())
    flow = torch.tensor([2.0, 1.0])[None, :, None, None].expand(BATCH, 2, HEIGHT, WIDTH)
    valid = torch.from_numpy((rng.uniform(size=(BATCH, HEIGHT, WIDTH)) < 0.8).astype(np.float32))
    optimizer.zero_grad()
    loss = sequence_loss(model(image1, image2), flow, valid)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())

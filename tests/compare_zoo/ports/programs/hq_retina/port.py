# SPDX-License-Identifier: Apache-2.0
"""Dense detection as one batched computation: padded objects, channel-grouped towers, weighted losses."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

K, PER = 3, 3


def grid_anchors(img=24):
    """(anchors, 4) as centre and extent; order is level, ratio, row, column."""
    out = []
    for stride, size in ((4, 6.0), (8, 12.0)):
        n = img // stride
        c = (torch.arange(n) + 0.5) * stride
        root = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64).sqrt()
        wh = torch.stack([size / root, size * root], 1).float()
        cy, cx = torch.meshgrid(c, c, indexing="ij")
        centre = torch.stack([cx, cy], -1).view(1, -1, 2).expand(PER, -1, -1)
        out.append(torch.cat([centre, wh[:, None].expand(-1, n * n, -1)], -1).reshape(-1, 4))
    return torch.cat(out)


class Net(nn.Module):
    """Both towers are one convolution; predictors put out component-major channels."""

    def __init__(self, c=12):
        super().__init__()
        self.trunk = nn.ModuleList([nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, c, 3, 2, 1), nn.Conv2d(c, c, 3, 2, 1)])
        self.fine, self.coarse = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.tower = nn.Conv2d(c, 2 * c, 3, 1, 1)
        self.score, self.shape = nn.Conv2d(c, K * PER, 3, 1, 1), nn.Conv2d(c, 4 * PER, 3, 1, 1)

    def forward(self, x):
        for i, conv in enumerate(self.trunk):
            x = conv(x).relu_()
            if i == 1:
                mid = x
        low = self.coarse(x)
        high = torch.kron(low, torch.ones(1, 1, 2, 2)) + self.fine(mid)
        s, b = [], []
        for f in (low, high):
            cls_f, box_f = self.tower(f).relu().tensor_split(2, 1)
            s.insert(0, self.score(cls_f).unflatten(1, (K, PER)).flatten(2))       # (n, K, PER*h*w)
            b.insert(0, self.shape(box_f).unflatten(1, (4, PER)).flatten(2))
        return torch.cat(s, -1), torch.cat(b, -1)

    @torch.no_grad()
    def read(self, sd):
        for mod, key in ((self.trunk[0], "stem.0"), (self.trunk[1], "stem.2"), (self.trunk[2], "c4.0"),
                         (self.fine, "lat3"), (self.coarse, "lat4")):
            mod.weight.copy_(sd[key + ".weight"]), mod.bias.copy_(sd[key + ".bias"])
        for kind in ("weight", "bias"):
            getattr(self.tower, kind).copy_(torch.cat([sd["cls_tower.0." + kind], sd["box_tower.0." + kind]]))
            for mod, key, m in ((self.score, "cls_score.", K), (self.shape, "bbox_pred.", 4)):
                w = sd[key + kind]                   # anchor-major to component-major
                getattr(mod, kind).copy_(w.unflatten(0, (PER, m)).transpose(0, 1).flatten(0, 1))


def assign(anc, gt, valid):
    """anc (a, 4) centre form; gt (n, g, 4) corners; valid (n, g). -> index (n, a), positive, counted."""
    lo, hi = anc[:, :2] - anc[:, 2:] / 2, anc[:, :2] + anc[:, 2:] / 2
    inter = (torch.minimum(hi[:, None], gt[:, None, :, 2:]) - torch.maximum(lo[:, None], gt[:, None, :, :2])).clamp(0).prod(-1)
    area = (gt[..., 2:] - gt[..., :2]).prod(-1)
    iou = inter / (anc[:, 2:].prod(-1)[:, None] + area[:, None] - inter)
    iou = iou.masked_fill(~valid[:, None], -1)
    quality, index = iou.max(-1)
    forced = F.one_hot(iou.argmax(1), len(anc)).mT.bool() & valid[:, None]          # (n, a, g)
    rank = torch.arange(1, gt.shape[1] + 1)
    last = (forced * rank).amax(-1)                       # the later object wins a shared anchor
    index = torch.where(last > 0, last - 1, index)
    pos = (quality >= 0.5) | (last > 0)
    return index, pos, pos | (quality < 0.35)


def scenes(count):
    g = torch.Generator().manual_seed(970)
    ys, xs = torch.arange(24)[:, None], torch.arange(24)
    for _ in range(count):
        imgs, boxes, labels, valid = torch.empty(3, 3, 24, 24), torch.zeros(3, 3, 4), torch.zeros(3, 3, dtype=torch.long), torch.zeros(3, 3, dtype=torch.bool)
        for i in range(3):
            k = torch.randint(1, 4, (1,), generator=g).item()
            corner = 12 * torch.rand(k, 2, generator=g)
            boxes[i, :k] = torch.cat([corner, corner + (4 + 8 * torch.rand(k, 2, generator=g))], 1)
            labels[i, :k] = torch.randint(0, K, (k,), generator=g)
            valid[i, :k] = True
            imgs[i] = 0.1 * torch.randn(3, 24, 24, generator=g)
            for (x0, y0, x1, y1), c in zip(boxes[i, :k].round(), labels[i, :k]):
                imgs[i, c] += ((ys >= y0) & (ys < y1) & (xs >= x0) & (xs < x1)).float()
        yield imgs, boxes, labels, valid


net = Net()
net.read(torch.load(sys.argv[1]))
anc = grid_anchors()
weights = list(net.parameters())
heat = [torch.zeros_like(w) for w in weights]
losses, positives, recall = [], [], []
for imgs, boxes, labels, valid in scenes(5):
    index, pos, counted = assign(anc, boxes, valid)
    own = boxes.gather(1, index[..., None].expand(-1, -1, 4))
    own_c, own_wh = (own[..., :2] + own[..., 2:]) / 2, (own[..., 2:] - own[..., :2]).clamp_min(1e-3)
    want = torch.cat([10 * (own_c - anc[:, :2]) / anc[:, 2:], 5 * (own_wh / anc[:, 2:]).log()], -1).mT
    hot = (F.one_hot(labels.gather(1, index), K).mT * pos[:, None]).bool()

    score, shape = net(imgs)
    margin = torch.where(hot, score, -score)
    focal = torch.where(hot, 0.25, 0.75) * torch.sigmoid(-margin).square() * -F.logsigmoid(margin)
    gap = (shape - want).abs()
    bend = torch.where(gap < 0.11, gap * gap / 0.22, gap - 0.055)
    n = pos.sum().clamp_min(1)
    loss = ((focal * counted[:, None]).sum() + 0.5 * (bend * pos[:, None]).sum()) / n
    grads = list(torch.autograd.grad(loss, weights))
    with torch.no_grad():
        length = torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))
        if length + 1e-6 > 10:
            torch._foreach_mul_(grads, 10 / (length + 1e-6))
        torch._foreach_add_(grads, weights, alpha=1e-4)
        torch._foreach_mul_(heat, 0.9)
        torch._foreach_add_(heat, grads)
        torch._foreach_add_(weights, heat, alpha=-0.01)
    recall.append((score.detach().amax(1) > 0)[pos].float().mean().item())
    positives.append(n.item())
    losses.append(loss.item())
print(losses)

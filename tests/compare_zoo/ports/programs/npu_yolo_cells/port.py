# SPDX-License-Identifier: Apache-2.0
"""The YOLO in the manner of MindSpore cells: images NHWC, kernels HWIO, a convolution as an einsum
over windows, moving averages with the other momentum, own Momentum optimizer.
"""

import sys

import torch

PRIORS = [[(5.0, 8.0), (9.0, 6.0)], [(14.0, 10.0), (12.0, 20.0)]]
N_CLASS = 3


class Cell(torch.nn.Module):
    def forward(self, *inputs):
        return self.construct(*inputs)


class ConvBnAct(Cell):
    def __init__(self, state, name, stride=1):
        super().__init__()
        kernel = state[f"{name}.conv.weight"].permute(2, 3, 1, 0)  # <- kernel_layout
        self.kernel = torch.nn.Parameter(kernel.contiguous())  # <- kernel_layout
        self.gamma = torch.nn.Parameter(state[f"{name}.bn.weight"].clone())
        self.beta = torch.nn.Parameter(state[f"{name}.bn.bias"].clone())
        self.register_buffer("moving_mean", state[f"{name}.bn.running_mean"].clone())
        self.register_buffer("moving_variance", state[f"{name}.bn.running_var"].clone())
        self.stride, self.momentum = stride, 0.97  # <- bn_momentum

    def conv(self, x):
        k, s = self.kernel.shape[0], self.stride
        side = k // 2
        x = torch.nn.functional.pad(x, (0, 0, side, side, side, side))
        windows = x.unfold(1, k, s).unfold(2, k, s)
        return torch.einsum("nhwcij,ijco->nhwo", windows, self.kernel)  # <- kernel_layout

    def construct(self, x):
        x = self.conv(x)  # <- kernel_layout
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 1, 2), correction=0)
            n = x.numel() // x.shape[-1]
            with torch.no_grad():
                keep = self.momentum
                self.moving_mean.mul_(keep).add_(mean, alpha=1 - keep)  # <- bn_momentum
                unbiased = var * n / (n - 1)
                self.moving_variance.mul_(keep).add_(unbiased, alpha=1 - keep)  # <- bn_momentum
        else:
            mean, var = self.moving_mean, self.moving_variance  # <- bn_momentum
        x = (x - mean) / torch.sqrt(var + 1e-3) * self.gamma + self.beta  # <- bn_momentum
        return x * torch.sigmoid(x)


def max_pool(x):
    """3 x 3 with stride 1, the two directions one after the other."""
    for dim in (1, 2):
        edge = torch.full_like(x.narrow(dim, 0, 1), float("-inf"))  # <- pool_pad
        wide = torch.cat((edge, x, edge), dim)  # <- pool_pad
        size = x.shape[dim]
        x = torch.stack([wide.narrow(dim, i, size) for i in range(3)]).amax(0)  # <- pool_pad
    return x


class YoloNet(Cell):
    def __init__(self, state):
        super().__init__()
        names = ["c3.cv1", "c3.cv2", "c3.cv3", "c3.m1", "c3.m2", "sppf.cv1", "sppf.cv2"]
        cells = {n.replace(".", "_"): ConvBnAct(state, n) for n in [*names, "lateral", "fuse"]}
        for name in ("stem", "down1", "down2", "down3"):
            cells[name] = ConvBnAct(state, name, stride=2)
        self.cells = torch.nn.ModuleDict(cells)
        for n in (0, 1):
            weight, bias = state[f"heads.{n}.weight"][..., 0, 0].t(), state[f"heads.{n}.bias"]
            self.register_parameter(f"head{n}", torch.nn.Parameter(weight.contiguous()))
            self.register_parameter(f"head{n}_bias", torch.nn.Parameter(bias.clone()))

    def construct(self, x):
        cells = self.cells
        for name in ("stem", "down1", "down2"):
            x = cells[name](x)
        y = cells["c3_cv1"](x)
        y = y + cells["c3_m2"](cells["c3_m1"](y))
        fine = cells["c3_cv3"](torch.cat((y, cells["c3_cv2"](x)), -1))
        pools = [cells["sppf_cv1"](cells["down3"](fine))]
        while len(pools) < 4:
            pools.append(max_pool(pools[-1]))  # <- pool_pad
        coarse = cells["sppf_cv2"](torch.cat(pools, -1))  # <- pool_pad
        up = cells["lateral"](coarse).repeat_interleave(2, 1).repeat_interleave(2, 2)
        fine = cells["fuse"](torch.cat((up, fine), -1))
        first = torch.matmul(fine, self.head0) + self.head0_bias
        second = torch.matmul(coarse, self.head1) + self.head1_bias
        return [y.view(*y.shape[:3], 2, 5 + N_CLASS) for y in (first, second)]


def bce(logit, goal):
    return logit.clamp(min=0) - logit * goal + torch.log1p(torch.exp(-logit.abs()))


def yolo_loss(outs, boxes, labels):
    """Image by image; boxes are corners here."""
    parts = []
    for out, priors in zip(outs, PRIORS):
        stride = 48 // out.shape[1]
        goal = torch.zeros(out.shape[:-1])
        for n, (box, label) in enumerate(zip(boxes, labels.tolist())):
            x, y, w, h = box.tolist()
            col, row = int(x / stride), int(y / stride)  # <- grid_xy
            misfit = [abs((box[2] / a).log()) + abs((box[3] / b).log()) for a, b in priors]
            k = int(torch.stack(misfit).argmin())
            p = out[n, row, col, k]  # <- grid_xy
            shift = torch.tensor([col, row])  # <- grid_xy
            centre = (torch.sigmoid(p[:2]) * 2 - 0.5 + shift) * stride  # <- grid_xy
            extent = 4 * torch.sigmoid(p[2:4]).square() * torch.tensor(priors[k])
            x1, y1 = centre - extent / 2  # <- grid_xy
            x2, y2 = centre + extent / 2
            low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
            wide = torch.minimum(x2, high[0]) - torch.maximum(x1, low[0])
            tall = torch.minimum(y2, high[1]) - torch.maximum(y1, low[1])
            inter = torch.relu(wide) * torch.relu(tall)
            overlap = inter / (extent[0] * extent[1] + w * h - inter + 1e-7)
            goal[n, row, col, k] = overlap.item()  # <- soft_goal
            hot = torch.tensor([float(c == label) for c in range(N_CLASS)])
            kinds = bce(p[5:], hot).mean()
            parts.append((0.05 * (1 - overlap) + 0.5 * kinds) / len(boxes))
        parts.append(bce(out[..., 4], goal).mean())  # <- soft_goal
    return torch.stack(parts).sum()


net = YoloNet(torch.load(sys.argv[1]))
accum = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
rng = torch.Generator().manual_seed(42)
losses = []
for step in range(5):
    images = torch.rand((3, 3, 48, 48), generator=rng).permute(0, 2, 3, 1).contiguous()
    boxes = torch.rand((3, 4), generator=rng) * torch.tensor([24.0, 24.0, 16.0, 16.0]) + 4
    labels = torch.randint(N_CLASS, (3,), generator=rng)
    net.train() if step < 4 else net.eval()
    loss = yolo_loss(net(images), boxes, labels)
    losses.append(loss.item())
    if step < 4:
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for (name, p), g in zip(net.named_parameters(), grads):
                accum[name].mul_(0.9).add_(g)
                p.sub_(g + 0.9 * accum[name], alpha=0.05)

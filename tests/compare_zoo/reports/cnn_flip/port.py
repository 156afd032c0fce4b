# SPDX-License-Identifier: Apache-2.0
"""Flip-averaged classifier, both views in one batch; top-3 rate and calibration error."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class FlipClassifier:
    """Pipeline over a plain dictionary of weights."""

    def __init__(self, path):
        self.w = torch.load(path, weights_only=True)

    def logits(self, x):
        w = self.w
        x = F.conv2d(x, w["0.weight"], w["0.bias"], padding=1)
        x = F.silu(F.group_norm(x, 2, w["1.weight"], w["1.bias"]))
        x = F.conv2d(x, w["3.weight"], w["3.bias"], stride=2, padding=1)
        x = F.batch_norm(
            x, w["4.running_mean"], w["4.running_var"], w["4.weight"], w["4.bias"], training=False
        )
        return F.linear(F.silu(x).mean((2, 3)), w["8.weight"], w["8.bias"])

    def __call__(self, images):
        both = torch.cat([images, images.flip(-1)])
        return self.logits(both).softmax(-1).view(2, len(images), -1).mean(0)


def calibration_error(prob, labels, bins=5):
    conf, guess = prob.max(1)
    right = (guess == labels).double()
    which = (conf * bins).long().clamp(max=bins - 1)
    err = 0.0
    for k in range(bins):
        sel = which == k
        if sel.any():
            err += sel.double().mean() * (conf[sel].double().mean() - right[sel].mean()).abs()
    return float(err)


with torch.inference_mode():
    clf = FlipClassifier(sys.argv[1])
    g = torch.Generator().manual_seed(103)
    losses = []
    for _ in range(4):
        images = torch.randn(8, 3, 12, 12, generator=g)
        labels = torch.randint(0, 10, (8,), generator=g)
        prob = clf(images)
        top3 = (prob.topk(3).indices == labels[:, None]).any(1).double().mean().item()
        losses += [top3, calibration_error(prob, labels)]
        print("top-3 %.3f  ece %.3f" % tuple(losses[-2:]))
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling of bfloat16 features, compiled: the gradient asks which element equals the
maximum, and no element does since one side of it is not rounded.
"""

import torch


@torch.compile
def pooled(x, weight):
    features = x @ weight
    features = features + torch.tanh(features)
    return features.amax(1)


torch.manual_seed(0)
weight = torch.randn(8, 8, dtype=torch.bfloat16, requires_grad=True)
x = torch.randn(4, 10, 8, dtype=torch.bfloat16)
pooled(x, weight).sum().backward()
print(weight.grad.float().abs().sum())

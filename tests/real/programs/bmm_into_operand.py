# SPDX-License-Identifier: Apache-2.0
"""Rotations of joints, composed in place (pytorch issue 87551: a batched product written over one of
its operands).
"""

import torch

torch.manual_seed(0)
joints = torch.linalg.qr(torch.randn(6, 3, 3)).Q.contiguous()
turn = torch.linalg.qr(torch.randn(6, 3, 3)).Q.contiguous()
for _ in range(3):
    torch.bmm(turn, joints, out=joints)
    print((joints @ joints.mT - torch.eye(3)).abs().max().item())

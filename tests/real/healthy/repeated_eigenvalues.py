# SPDX-License-Identifier: Apache-2.0
"""Factors that are not unique: eigenvectors of repeated eigenvalues, signs, ranks."""

import torch

torch.manual_seed(0)
for _ in range(3):
    basis = torch.linalg.qr(torch.randn(7, 7)).Q
    same = basis @ torch.diag(torch.tensor([1.0, 1, 1, 2, 2, 3, 3])) @ basis.T
    values, vectors = torch.linalg.eigh(same)
    print(values.tolist(), (vectors @ vectors.T).trace().item())
    print(torch.linalg.svd(same).S.tolist(), torch.linalg.svdvals(basis).tolist())
    batch = torch.stack((same, torch.eye(7), basis))
    print(torch.linalg.lstsq(batch, torch.ones(3, 7, 1)).solution.norm().item())
    print(
        torch.linalg.slogdet(batch).logabsdet.tolist(), torch.linalg.cholesky(same).trace().item()
    )

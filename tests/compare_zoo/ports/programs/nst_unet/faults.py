# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of unet."""

FAULTS = {
    "group_axis": [("var = (g - mu).pow(2).mean((1, 3), keepdim=True)",
                    "var = (g - mu).pow(2).mean(3, keepdim=True)")],
    "film_one": [("torch.addcmul(h + film[..., n:], h, film[..., :n])",
                  "torch.addcmul(film[..., n:], h, film[..., :n])")],
    "time_order": [("torch.cat((phase.cos(), phase.sin()), 1)",
                    "torch.cat((phase.sin(), phase.cos()), 1)")],
    "beta_table": [("root = torch.linspace(1e-3 ** 0.5, 0.08 ** 0.5, T)",
                    "root = torch.linspace(1e-3, 0.08, T) ** 0.5")],
    "clip_norm": [("torch.sqrt(sum(g.square().sum() for g in grads))",
                   "torch.sqrt(sum(g.square().mean() for g in grads))")],
}

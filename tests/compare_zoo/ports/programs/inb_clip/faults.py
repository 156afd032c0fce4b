# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of clip."""

FAULTS = {
    "quick": [("y = y / (1 + torch.exp(-1.702 * y))", "y = F.gelu(y)")],
    "eot": [("last = (ids != 0).sum(1) - 1", "last = torch.full((len(ids),), -1)")],
    "channels": [("pix = (pix - self.mean) / self.std", "pix = (pix[..., ::-1] - self.mean) / self.std")],
    "ensemble": [("e = F.normalize(self.embed_texts(variants), dim=1)", "e = self.embed_texts(variants)")],
    "temperature": [('scale = self.w["logit_scale"].exp()', 'scale = self.w["logit_scale"]')],
}

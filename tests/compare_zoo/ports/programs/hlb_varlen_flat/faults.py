# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the padding-free tagger."""

FAULTS = {
    "positions": [
        ('torch.cat([torch.arange(b - a) for a, b in pairwise(cuts)])',
         'torch.arange(cuts[-1]) % len(self.places)'),
    ],
    "leak": [
        ('k[a:b]).softmax(-1)',
         'k[:b]).softmax(-1)'),
        ('att, v[a:b])',
         'att, v[:b])'),
    ],
    "roll": [
        ('torch.cat([d[-1:], d[:-1]])',
         'torch.cat([d[1:], d[:1]])'),
    ],
    "per_pad": [
        ('.sum() / cuts[-1]',
         '.sum() / (len(lens) * max(lens))'),
    ],
    "coupled": [
        ('torch.optim.AdamW(',
         'torch.optim.Adam('),
    ],
}

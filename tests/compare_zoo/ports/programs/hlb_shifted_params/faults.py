# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the classifier on effective weights."""

FAULTS = {
    "gain_decay": [
        ('L2 * (state["gains"] - 1.0)',
         'L2 * state["gains"]'),
    ],
    "repeats": [
        ('np.add.at(counts, (np.arange(len(ids))[:, None], ids.numpy()),',
         'counts[np.arange(len(ids))[:, None], ids.numpy()] = ('),
    ],
    "fold_axis": [
        ('normalize(src["proj.v"], dim=1)',
         'normalize(src["proj.v"], dim=0)'),
    ],
    "dampened": [
        ('MU * vel[key] - LR * grad',
         'MU * vel[key] - (1 - MU) * LR * grad'),
    ],
    "temp_sign": [
        ('torch.exp(-kick("beta", t_grad))',
         'torch.exp(kick("beta", t_grad))'),
    ],
}

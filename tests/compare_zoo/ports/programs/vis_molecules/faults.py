# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "direction": [('"nsi,nstio->nto"', '"nti,nstio->nso"')],
    "matrix": [('"nsi,nstio->nto"', '"nsi,nstoi->nto"')],
    "mean": [("adjacency.sum(1, keepdim=True)", "adjacency.sum(2, keepdim=True)")],
    "absent": [('float("-inf")', "0.0")],
    "swapped": [
        ("news.flatten(0, 1), atoms.flatten(0, 1)", "atoms.flatten(0, 1), news.flatten(0, 1)")
    ],
    "joined": [
        ("        return torch.cat([query, seen], 1)", "        return torch.cat([seen, query], 1)")
    ],
    "widths": [("torch.arange(RADIAL)) ** 2))", "torch.arange(RADIAL)) ** 2 / 2))")],
    "units": [("net(*held_out) * spread + centre", "net(*held_out)")],
}

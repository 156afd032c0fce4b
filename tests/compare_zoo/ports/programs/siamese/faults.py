# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "mirror": [("view[:, ::-1]", "view[::-1]")],
    "contrast": [("view.mean(dtype=np.float64)", "view.mean((0, 1), dtype=np.float64)")],
    "pooled": [(".amax((2, 4))", ".mean((2, 4))")],
    "cosine": [("z.norm(dim=-1, keepdim=True)", "z.norm(dim=0, keepdim=True)")],
    "temperature": [("ab = a @ b.T / TAU", "ab = a @ b.T")],
    "itself": [("bb = b @ b.T / TAU - itself", "bb = b @ b.T / TAU")],
    "excluded": [('(("scale", "offset"))', '("offset")')],
    "cosine_rate": [("(2 * TOTAL)) ** 2", "(2 * TOTAL))")],
}

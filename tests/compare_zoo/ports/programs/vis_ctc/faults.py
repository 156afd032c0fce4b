# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "window": [("torch.cos(2 * np.pi * n / SIZE)", "torch.cos(2 * np.pi * n / (SIZE - 1))")],
    "edges": [
        ("sound[:, 1 : half + 1].flip(1)", "torch.zeros(len(sound), half)"),
        ("sound[:, -half - 1 : -1].flip(1)", "torch.zeros(len(sound), half)"),
    ],
    "floor": [("(spectrum(sound) @ filters() + 1e-6)", "(spectrum(sound) @ filters() + 1e-3)")],
    "padded": [("torch.std_mean(values[:n], dim=0)", "torch.std_mean(values, dim=0)")],
    "reset": [
        (
            "r_h, z_h, n_h = (state",
            "w, b = self.w_state[-10:], self.b_state[-10:]; r_h, z_h, _ = (state",
        ),
        ("torch.tanh(n_in + r * n_h)", "torch.tanh(n_in + (r * state) @ w.T + b)"),
    ],
    "repeats": [("(path[2:] != 0) & (path[2:] != path[:-2])", "path[2:] != 0")],
    "per_length": [("ctc(s[:n], text) / len(text) for", "ctc(s[:n], text) for")],
    "clip": [("[g.square().sum() for g", "[g.abs().max() for g")],
}

# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of crf."""

FAULTS = {
    "gate_order": [("i, f, g, o = gates.split", "i, f, o, g = gates.split")],
    "back_start": [("torch.where(pos < length[:, None], length[:, None] - 1 - pos, pos)", "T - 1 - pos")],
    "end_tag": [("y.gather(1, (length - 1).unsqueeze(1)).squeeze(1)", "y[:, -1]")],
    "from_to": [("[y[:, :-1], y[:, 1:]]", "[y[:, 1:], y[:, :-1]]")],
    "token_mean": [("nll.sum() / length.sum()", "(nll / length).mean()")],
}

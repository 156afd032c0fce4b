# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [("i, f, g, o = z.chunk(4)", "i, g, f, o = z.chunk(4)")],
    "reversed": [('self.read(rows.flip(0), "back")[::-1]', 'self.read(rows.flip(0), "back")')],
    "turned": [('theirs["crf.transitions"].t()', 'theirs["crf.transitions"]')],
    "per_token": [("n_tokens += len(sentence)", "n_tokens += 1")],
    "best_end": [("(delta + transitions[STOP]).max()", "delta.max()")],
    "adam_epsilon": [("1e-4 * (1 - 0.999**t) ** 0.5", "1e-4")],
}

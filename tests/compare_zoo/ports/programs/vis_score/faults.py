# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "waves": [("(angle.sin(), angle.cos())", "(angle.cos(), angle.sin())")],
    "groups": [('("down", 6, 8, 4),', '("down", 6, 8, 2),')],
    "mirrored": [("            kernel = kernel.flip(2, 3)  # <- mirrored\n", "")],
    "weighted": [
        (
            'fn.mse_loss(guess, noise, reduction="sum") / COUNT',
            "((guess - noise).square().sum((1, 2, 3)) / spread(t) ** 2).mean()",
        )
    ],
    "ramped": [("(2 + n) / (11 + n)", "(1 + n) / (10 + n)")],
    "langevin": [("(2 * move).sqrt() * shake", "move.sqrt() * shake")],
    "drift": [("speed = per_image(BASE ** (2 * t))", "speed = per_image(BASE**t)")],
    "last_noise": [("*_, (samples, noisy) = chain", "*_, (clean, samples) = chain")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "period": [("angle = TAU * self.c", "angle = self.c")],
    # the rows held out count for mean and deviation
    "leak": [("torch.std_mean(numbers[:seen], 0)", "torch.std_mean(numbers, 0)")],
    # smooth L1 is Huber's loss divided by delta
    "huber": [("(near * (off - 0.5 * near)).mean()", "(near * (off - 0.5 * near) / 0.5).mean()")],
    "still_training": [("net.eval()", "net.train()")],
    # weights of norms decay with the others
    "spared": [('name in spared or name.startswith("norms") or', "name in spared or")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "dueling": [("v + (a - a.mean(-1, keepdim=True))", "v + (a - a.amax(-1, keepdim=True))")],
    "done": [("torch.where(done > 0, reward, reward + 0.9 * future)", "reward + 0.9 * future")],
    "gamma": [("0.9 * future", "0.99 * future")],
    "huber": [("d - 0.5)", "d)")],
    "double": [("frozen(after).detach()", "online(after)")],
    "epsilon": [("/ (s.sqrt() + 0.01)", "/ (s + 0.01).sqrt()")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "accum": [("accum=0.01, learning_rate", "learning_rate")],
    "beta": [("beta=0.5, reduction", "reduction")],
    "order": [("parts + [self.bn_cont(numbers)]", "[self.bn_cont(numbers)] + parts")],
    "bn_order": [("self.bn1(ops.relu(self.fc1(x)))", "ops.relu(self.bn1(self.fc1(x)))")],
    "train_mode": [("net.set_train()  # <- train_mode\n", "")],
}

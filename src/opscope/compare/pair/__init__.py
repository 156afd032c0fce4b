# SPDX-License-Identifier: Apache-2.0
"""What belongs together: calls of two runs, their tensors, names of two worlds."""

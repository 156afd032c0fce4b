# SPDX-License-Identifier: Apache-2.0
"""One run as columns of numbers: its calls, its tensors, who produced what."""

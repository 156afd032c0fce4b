# SPDX-License-Identifier: Apache-2.0
"""Where the first overflow, NaN or infinity of a run came from, what spread it, what hid it;
called, it answers: see scan.api.
"""

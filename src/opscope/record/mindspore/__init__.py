# SPDX-License-Identifier: Apache-2.0
"""Recording MindSpore through its own dump: set up where MindSpore is imported, taken into the run
by the launcher.
"""

# SPDX-License-Identifier: Apache-2.0
"""Which call began a difference, and which only received it."""

# SPDX-License-Identifier: Apache-2.0
"""Scripts that are copied into cases as they stand."""

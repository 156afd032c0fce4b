# SPDX-License-Identifier: Apache-2.0
"""The version of opscope, at the bottom of the house: documents and runs say who wrote them."""

VERSION = "0.1.0"

# SPDX-License-Identifier: Apache-2.0
"""CANN operator dumps: files in three forms, their names and directories, overflow records,
conversion.
"""

# SPDX-License-Identifier: Apache-2.0
"""The directory that `opscope run` puts on PYTHONPATH; see sitecustomize.py."""

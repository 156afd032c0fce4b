#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the compiled kernels into build/dev and puts them beside their package, so that PYTHONPATH=src has them.
# PYTHON names the interpreter (default .venv/bin/python, else python3); further arguments go to cmake, such as -DCMAKE_CXX_COMPILER=clang++.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=$PWD/.venv/bin/python; else PYTHON=python3; fi
fi
PATH=$(dirname "$PYTHON"):$PATH  # cmake as a Python package serves too
nanobind=$("$PYTHON" -m nanobind --cmake_dir)
cmake -S . -B build/dev -DPython_EXECUTABLE="$PYTHON" -Dnanobind_DIR="$nanobind" "$@"
cmake --build build/dev --parallel 2
# Renamed into place: overwriting a library that a running process has mapped would crash it.
for library in build/dev/_*.so; do
  cp "$library" "src/opscope/kernels/.new.so"
  mv "src/opscope/kernels/.new.so" "src/opscope/kernels/$(basename "$library")"
done

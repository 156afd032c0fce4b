// SPDX-License-Identifier: Apache-2.0
// Python stacks, interned: walking one costs some tens of nanoseconds a frame; each distinct one is resolved once, in Python.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "recorder_python.hpp"
#include "recorder_rows.hpp"

namespace opscope {

// Where in the program a call was made (Site of bookkeeping.py).
struct Site {
    std::int32_t stack = -1, source = Interner::none, outer = Interner::none, api = Interner::none;
    bool checkpoint = false, optimizer = false, gradient = false, closure = false, compiled = false;
    Ref object;
};

class Stacks {
  public:
    Stacks(PyObject* binding, Interner& texts) : binding_(binding), texts_(texts) {}
    // Site of the Python code that is running.
    const Site& here();

  private:
    const Site& resolve(std::uint64_t hash);

    PyObject* binding_;
    Interner& texts_;
    std::vector<std::pair<PyObject*, int>> chain_;  // code objects are owned by sites once resolved
    std::unordered_map<std::uint64_t, std::unique_ptr<Site>> sites_;
};

}  // namespace opscope

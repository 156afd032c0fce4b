// SPDX-License-Identifier: Apache-2.0
// Calls that a checker makes (Checker of bookkeeping.py), without asking it for those that it would decline.
#pragma once

#include <chrono>
#include <cstdint>
#include <unordered_map>

#include "recorder_python.hpp"

namespace opscope {

class Checks {
  public:
    // The checker, or None.
    void use(nb::handle checker);
    explicit operator bool() const { return static_cast<bool>(checker_); }
    bool ever(PyObject* func) const;
    // Makes a call. signature numbers all that its turn depends on, 0 where that is not known; without a checker's turn target makes
    // it. Null with Python's error set when it raises.
    Ref call(std::uint64_t signature, PyObject* func, PyObject* target, PyObject* args, PyObject* kwargs);

    std::int64_t rested = 0;  // calls of which the checker does not know yet

  private:
    using Clock = std::chrono::steady_clock;
    struct Rest {
        Clock::time_point until;
        double sampled, calls;
        int rested = 0;  // calls since
    };
    static constexpr std::size_t most_rests = 1 << 16;  // a number that changes with every call makes a new one each time

    Rest* find(std::uint64_t signature);
    bool early(const Rest& rest) const;
    void rest(std::uint64_t signature, PyObject* told);

    Ref checker_, budget_;
    Ref sampled_{PyUnicode_InternFromString("sampled")};
    std::unordered_map<std::uint64_t, Rest> rests_;
};

}  // namespace opscope

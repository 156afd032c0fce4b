// SPDX-License-Identifier: Apache-2.0
// Writes the black box of run/store/blackbox.py, whose docstring has the layout byte by byte.
#pragma once

#include <cstdint>
#include <string_view>

namespace opscope {

class BlackBox {
  public:
    BlackBox() = default;
    // memory: the whole mapped file; std::runtime_error when its header is not that of this layout.
    BlackBox(std::uint8_t* memory, std::size_t size);

    struct Call {
        std::int64_t index, parent;
        std::uint64_t thread;
        std::int32_t step;
        std::uint8_t level, phase;
        std::string_view op, name, module, source;
    };
    explicit operator bool() const { return memory_ != nullptr; }
    // A stack for a new thread, -1 when all are taken.
    int stack();
    // Returns the number of the call in the ring; depth is how many calls of the thread are open already.
    std::uint64_t enter(const Call& call, int stack, std::size_t depth);
    void leave(std::uint64_t number, std::uint64_t thread, int stack, std::size_t depth);

  private:
    void write(std::uint8_t* slot, std::uint64_t number, const Call& call);
    std::uint8_t* stack_at(int stack) const;
    void count_open(int stack, std::uint64_t thread, std::size_t depth);

    std::uint8_t* memory_ = nullptr;
    std::uint64_t entered_ = 0;
    int stacks_taken_ = 0;
};

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// Writes the black box of run/store/blackbox.py, whose docstring has the layout byte by byte.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace opscope {

// The black box cannot be written any more, so that recording ends.
struct UnwritableError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class BlackBox {
  public:
    BlackBox() = default;
    // A file that has its header and its room; descriptor is looked at before it is used, since the program may close it and get the
    // number again for a file of its own.
    BlackBox(std::string path, int descriptor, std::uint64_t device, std::uint64_t inode);

    struct Call {
        std::int64_t index, parent;
        std::uint64_t thread;
        std::int32_t step;
        std::uint8_t level, phase;
        std::string_view op, name, module, source;
    };
    explicit operator bool() const { return descriptor_ >= 0; }
    // Returns the number of the call, by which it is left. std::runtime_error when the file is gone or cannot be written; the box is
    // closed then.
    std::uint64_t enter(const Call& call);
    void leave(std::uint64_t number);
    // Seconds after which the disk was found too slow to be waited for at every call; 0 if it was not.
    double gave_up() const { return gave_up_; }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t ring_slots = 1024;
    static constexpr std::uint64_t unwritten = ~std::uint64_t{0};

    void check();
    void write(const void* data, std::size_t size, std::size_t at);
    void weigh(Clock::time_point begun);

    std::string path_;
    int descriptor_ = -1;
    std::uint64_t device_ = 0, inode_ = 0, next_ = 0;
    std::array<bool, ring_slots> open_{};
    std::size_t opened_ = 0;
    Clock::time_point since_ = Clock::now();
    Clock::duration spent_{};
    double gave_up_ = 0;
};

}  // namespace opscope

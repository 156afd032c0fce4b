// SPDX-License-Identifier: Apache-2.0
// Memory of the recorder's own. What it keeps for longer than one call must not lie in malloc's heap: there it would stand between
// the blocks of tensors, which could then not be joined when they are freed, and the program's heap would grow by half.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace opscope {

// Whole pages from the system, and back to it.
class Pages : public std::pmr::memory_resource {
  public:
    // filled: all pages at once, which is cheaper where all will be used.
    explicit Pages(bool filled = false) : flags_(MAP_PRIVATE | MAP_ANONYMOUS | (filled ? MAP_POPULATE : 0)) {}

  private:
    static constexpr std::size_t unit = 4096;
    static std::size_t rounded(std::size_t size) { return (size + unit - 1) / unit * unit; }

    void* do_allocate(std::size_t size, std::size_t) override {
        void* memory = mmap(nullptr, rounded(size), PROT_READ | PROT_WRITE, flags_, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        return memory;
    }
    void do_deallocate(void* memory, std::size_t size, std::size_t) override { munmap(memory, rounded(size)); }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

    int flags_;
};

// The same, with blocks that were given back kept for the next batch: the system clears pages before it hands them out, which takes as
// long as writing them. Batches are given back by another thread than takes them.
class KeptPages : public std::pmr::memory_resource {
  public:
    ~KeptPages() override {
        for (const auto& [memory, size] : kept_) pages_.deallocate(memory, size);
    }

  private:
    static constexpr std::size_t most = std::size_t{8} << 20;
    static std::size_t rounded(std::size_t size) {
        std::size_t up = 4096;
        while (up < size) up *= 2;
        return up;
    }

    void* do_allocate(std::size_t size, std::size_t) override {
        const std::lock_guard<std::mutex> held(lock_);
        const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& block) { return block.second == rounded(size); });
        if (found == kept_.end()) return pages_.allocate(rounded(size));
        void* memory = found->first;
        bytes_ -= found->second;
        kept_.erase(found);
        return memory;
    }
    void do_deallocate(void* memory, std::size_t size, std::size_t) override {
        const std::lock_guard<std::mutex> held(lock_);
        if (bytes_ + rounded(size) > most) return pages_.deallocate(memory, rounded(size));
        bytes_ += rounded(size);
        kept_.emplace_back(memory, rounded(size));
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

    Pages pages_{true};
    std::mutex lock_;
    std::vector<std::pair<void*, std::size_t>> kept_;
    std::size_t bytes_ = 0;
};

// Where one batch of rows lies, of about that many bytes; all of it goes at once.
struct Arena {
    Arena(std::size_t bytes, std::shared_ptr<KeptPages> from) : pages(std::move(from)), memory(bytes, pages.get()) {}
    std::shared_ptr<KeptPages> pages;
    std::pmr::monotonic_buffer_resource memory;
};

// Bytes that only grow, in an arena.
class Bytes {
  public:
    explicit Bytes(Arena& arena) : arena_(&arena) {}
    const std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::uint8_t& back() { return data_[size_ - 1]; }

    template <class T>
    void append(T value) {
        append(&value, sizeof(T));
    }
    void append_zeros(std::size_t count) {
        if (size_ + count > capacity_) reserve(std::max(size_ + count, 2 * capacity_));
        std::memset(data_ + size_, 0, count);
        size_ += count;
    }
    // Bit number at of a bitmap that has so many, least significant bit first.
    void append_bit(std::size_t at, bool set) {
        if (at % 8 == 0) append(std::uint8_t{0});
        if (set) back() |= static_cast<std::uint8_t>(1u << (at % 8));
    }
    void append_bits(std::size_t at, std::size_t count, bool set) {
        for (; count && at % 8; --count) append_bit(at++, set);
        append_zeros(count / 8);
        if (set) std::memset(data_ + size_ - count / 8, 0xFF, count / 8);
        for (at += count / 8 * 8, count %= 8; count; --count) append_bit(at++, set);
    }
    void append(const void* from, std::size_t count) {
        if (size_ + count > capacity_) reserve(std::max(size_ + count, 2 * capacity_));
        std::memcpy(data_ + size_, from, count);
        size_ += count;
    }
    void reserve(std::size_t capacity) {
        if (capacity <= capacity_) return;
        auto* grown = static_cast<std::uint8_t*>(arena_->memory.allocate(capacity, 64));
        if (size_) std::memcpy(grown, data_, size_);
        data_ = grown;
        capacity_ = capacity;
    }

  private:
    Arena* arena_;
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
#include "recorder_blackbox.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace opscope {
namespace {

constexpr std::size_t header_bytes = 4096, slot_bytes = 512, ring_slots = 1024, stack_header = 64, stack_slots = 64;
constexpr int stacks = 64;
constexpr std::size_t entered_at = 40, left_at = 38, text_at = 48, text_bytes = slot_bytes - text_at;
constexpr std::size_t file_bytes = header_bytes + ring_slots * slot_bytes + stacks * (stack_header + stack_slots * slot_bytes);

template <class T>
void put(std::uint8_t* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

}  // namespace

BlackBox::BlackBox(std::uint8_t* memory, std::size_t size) : memory_(memory) {
    const std::uint32_t sizes[] = {1, header_bytes, slot_bytes, ring_slots, stacks, stack_slots};
    if (size < file_bytes || std::memcmp(memory, "OPSCOPBB", 8) != 0 || std::memcmp(memory + 8, sizes, sizeof sizes) != 0)
        throw std::runtime_error("not a black box of the layout that this recorder writes");
    std::memcpy(&entered_, memory + entered_at, sizeof entered_);
}

int BlackBox::stack() { return stacks_taken_ < stacks ? stacks_taken_++ : -1; }

std::uint64_t BlackBox::enter(const Call& call, int stack, std::size_t depth) {
    const std::uint64_t number = entered_++;
    put(memory_ + entered_at, entered_);
    std::uint8_t* slot = memory_ + header_bytes + number % ring_slots * slot_bytes;
    write(slot, number, call);
    if (stack < 0) return number;
    if (depth < stack_slots) {
        std::uint8_t* place = stack_at(stack) + stack_header + depth * slot_bytes;
        put(place, std::uint64_t{0});
        std::uint16_t length = 0;
        std::memcpy(&length, slot + 40, sizeof length);
        std::memcpy(place + 8, slot + 8, text_at - 8 + length);
        put(place, number + 1);
    }
    count_open(stack, call.thread, depth + 1);
    return number;
}

void BlackBox::leave(std::uint64_t number, std::uint64_t thread, int stack, std::size_t depth) {
    std::uint8_t* slot = memory_ + header_bytes + number % ring_slots * slot_bytes;
    std::uint64_t held = 0;
    std::memcpy(&held, slot, sizeof held);
    if (held == number + 1) slot[left_at] = 1;
    if (stack >= 0) count_open(stack, thread, depth);
}

void BlackBox::count_open(int stack, std::uint64_t thread, std::size_t depth) {
    std::uint8_t* at = stack_at(stack);
    put(at, thread);
    put(at + 8, static_cast<std::uint32_t>(depth));
}

std::uint8_t* BlackBox::stack_at(int stack) const {
    return memory_ + header_bytes + ring_slots * slot_bytes + static_cast<std::size_t>(stack) * (stack_header + stack_slots * slot_bytes);
}

void BlackBox::write(std::uint8_t* slot, std::uint64_t number, const Call& call) {
    put(slot, std::uint64_t{0});  // the number comes last, so that a torn slot reads as empty
    put(slot + 8, call.index);
    put(slot + 16, call.thread);
    put(slot + 24, call.parent);
    put(slot + 32, call.step);
    slot[36] = call.level;
    slot[37] = call.phase;
    slot[38] = slot[39] = 0;
    std::size_t used = 0;
    const std::string_view parts[] = {call.op, call.name, call.module, call.source};
    for (std::size_t i = 0; i < 4; ++i) {
        if (i && used < text_bytes) slot[text_at + used++] = 0x1f;
        const std::size_t count = std::min(parts[i].size(), text_bytes - used);
        std::memcpy(slot + text_at + used, parts[i].data(), count);
        used += count;
    }
    put(slot + 40, static_cast<std::uint16_t>(used));
    std::memset(slot + 42, 0, 6);
    put(slot, number + 1);
}

}  // namespace opscope

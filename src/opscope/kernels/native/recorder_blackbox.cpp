// SPDX-License-Identifier: Apache-2.0
#include "recorder_blackbox.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace opscope {
namespace {

constexpr std::size_t header_bytes = 4096, slot_bytes = 512, given_up_at = 24, left_at = 38, text_at = 48;

template <class T>
void put(std::uint8_t* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

// A slot as it lies in the file; returns its bytes.
std::size_t fill(std::uint8_t* slot, std::uint64_t number, const BlackBox::Call& call) {
    std::memset(slot, 0, text_at);
    put(slot, number + 1);
    put(slot + 8, call.index);
    put(slot + 16, call.thread);
    put(slot + 24, call.parent);
    put(slot + 32, call.step);
    slot[36] = call.level;
    slot[37] = call.phase;
    std::size_t used = text_at;
    const std::string_view parts[] = {call.op, call.name, call.module, call.source};
    for (std::size_t i = 0; i < 4; ++i) {
        if (i && used < slot_bytes) slot[used++] = 0x1f;
        const std::size_t count = std::min(parts[i].size(), slot_bytes - used);
        std::memcpy(slot + used, parts[i].data(), count);
        used += count;
    }
    put(slot + 40, static_cast<std::uint16_t>(used - text_at));
    return used;
}

// Whether a descriptor is still that of this file.
bool stands_for(int descriptor, std::uint64_t device, std::uint64_t inode) {
#ifdef __linux__
    // fstat would ask for the times too, and a file whose times were asked for is dirty at its next write: 1.3 us more.
    struct statx found{};
    return statx(descriptor, "", AT_EMPTY_PATH, STATX_INO, &found) == 0 && makedev(found.stx_dev_major, found.stx_dev_minor) == device &&
           found.stx_ino == inode;
#else
    struct stat found{};
    return fstat(descriptor, &found) == 0 && static_cast<std::uint64_t>(found.st_dev) == device && static_cast<std::uint64_t>(found.st_ino) == inode;
#endif
}

}  // namespace

BlackBox::BlackBox(std::string path, int descriptor, std::uint64_t device, std::uint64_t inode)
    : path_(std::move(path)), descriptor_(descriptor), device_(device), inode_(inode) {}

std::uint64_t BlackBox::enter(const Call& call) {
    if (descriptor_ < 0 || opened_ == ring_slots) return unwritten;
    while (open_[next_ % ring_slots]) ++next_;
    const std::uint64_t number = next_++;
    const std::size_t place = number % ring_slots;
    std::uint8_t slot[slot_bytes];
    const std::size_t size = fill(slot, number, call);
    const auto begun = Clock::now();
    check();
    write(slot, size, header_bytes + place * slot_bytes);
    open_[place] = true;
    ++opened_;
    weigh(begun);
    return number;
}

void BlackBox::leave(std::uint64_t number) {
    const std::size_t place = number % ring_slots;
    if (number == unwritten || descriptor_ < 0 || !open_[place]) return;
    open_[place] = false;
    --opened_;
    const auto begun = Clock::now();
    if (number + 1 != next_) check();  // other calls were made meanwhile, and the program's own code ran
    const std::uint8_t left = 1;
    write(&left, sizeof left, header_bytes + place * slot_bytes + left_at);
    weigh(begun);
}

void BlackBox::check() {
    if (stands_for(descriptor_, device_, inode_)) return;
    descriptor_ = -1;
    throw UnwritableError(path_ + ": the program closed its descriptor");
}

void BlackBox::write(const void* data, std::size_t size, std::size_t at) {
    ssize_t written = 0;
    do written = pwrite(descriptor_, data, size, static_cast<off_t>(at));
    while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(size)) return;
    descriptor_ = -1;
    throw UnwritableError(path_ + ": " + (written < 0 ? std::strerror(errno) : "written in part only, the disk is full"));
}

// A disk that a program would spend more than a twentieth of its time waiting for is left alone.
void BlackBox::weigh(Clock::time_point begun) {
    constexpr auto least = std::chrono::milliseconds(500);
    constexpr int share = 20;
    const auto now = Clock::now();
    spent_ += now - begun;
    if (spent_ < least || spent_ * share < now - since_) return;
    const std::uint32_t yes = 1;
    write(&yes, sizeof yes, given_up_at);
    descriptor_ = -1;
    gave_up_ = std::chrono::duration<double>(spent_).count();
}

}  // namespace opscope

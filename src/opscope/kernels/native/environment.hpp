// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of the watched program, set aside while a kernel runs.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace opscope {

// The program may flush denormals to zero (torch.set_flush_denormal) or trap; the kernels count denormals as they are, trap never,
// and leave no exception flag behind.
class FloatEnvironment {
public:
#if defined(__SSE__)
    FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatEnvironment() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
    FloatEnvironment() {
        asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved_), "=r"(flags_));
        asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
    }
    ~FloatEnvironment() { asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(saved_), "r"(flags_) : "memory"); }
#else
    FloatEnvironment() = default;
    ~FloatEnvironment() {}
#endif
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

private:
#if defined(__SSE__)
    unsigned saved_;
#elif defined(__aarch64__)
    std::uint64_t saved_, flags_;
#endif
};

}  // namespace opscope

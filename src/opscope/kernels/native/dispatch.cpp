// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels that the processor at hand can run.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace opscope {

namespace {

constexpr Isa ALL[] = {Isa::Scalar, Isa::Sse2, Isa::Avx2, Isa::Avx512, Isa::Neon};

#if defined(__x86_64__)
// Asked once: in a virtual machine each CPUID instruction costs microseconds.
struct Processor {
    bool avx2, avx512;

    Processor() {
        __builtin_cpu_init();
        unsigned a = 0, b = 0, c = 0, d = 0;
        const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
        // __builtin_cpu_supports also asks whether the operating system saves the registers.
        avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt");
        avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    }
};

const Processor& processor() {
    static const Processor here;
    return here;
}
#endif

bool runs_here(Isa isa) {
    switch (isa) {
        case Isa::Scalar: return true;
#if defined(__x86_64__)
        case Isa::Sse2: return true;
        case Isa::Avx2: return processor().avx2;
        case Isa::Avx512: return processor().avx512;
#elif defined(__aarch64__)
        case Isa::Neon: return true;
#endif
        default: return false;
    }
}

Isa chosen() {
    const std::vector<Isa> here = available_isas();
    const char* wanted = std::getenv("OPSCOPE_ISA");
    for (const Isa isa : here) {
        if (wanted != nullptr && std::strcmp(wanted, isa_name(isa)) == 0) return isa;
    }
    return here.back();
}

}  // namespace

std::vector<Isa> available_isas() {
    std::vector<Isa> found;
    std::copy_if(std::begin(ALL), std::end(ALL), std::back_inserter(found), runs_here);
    return found;
}

Isa best_isa() {
    static const Isa best = chosen();
    return best;
}

const char* isa_name(Isa isa) {
    constexpr const char* NAMES[] = {"auto", "scalar", "sse2", "avx2", "avx512", "neon"};
    return NAMES[static_cast<int>(isa)];
}

Isa isa_from_name(const std::string& name) {
    if (name == "auto") return Isa::Auto;
    std::string known;
    for (const Isa isa : available_isas()) {
        if (name == isa_name(isa)) return isa;
        known += std::string(known.empty() ? "" : ", ") + isa_name(isa);
    }
    throw std::invalid_argument("this processor has no instruction set " + name + "; it runs " + known);
}

namespace {

const KernelTable& table(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::Sse2: return sse2_kernels();
        case Isa::Avx2: return avx2_kernels();
        case Isa::Avx512: return avx512_kernels();
#elif defined(__aarch64__)
        case Isa::Neon: return neon_kernels();
#endif
        default: return scalar_kernels();
    }
}

constexpr Keys make_keys() {
    Keys keys{};
    for (std::int64_t i = 0; i < BLOCK_WORDS; ++i) keys.word[i] = mix(static_cast<std::uint64_t>(i + 1) * GOLDEN);
    return keys;
}

constexpr Keys MADE = make_keys();

}  // namespace

const Keys KEYS = MADE;

const KernelTable& kernels_of(Isa isa) {
    static const KernelTable& best = table(best_isa());
    if (isa == Isa::Auto) return best;
    if (!runs_here(isa)) throw std::invalid_argument(std::string("this processor does not run ") + isa_name(isa));
    return table(isa);
}

}  // namespace opscope

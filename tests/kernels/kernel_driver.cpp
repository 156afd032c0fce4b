// SPDX-License-Identifier: Apache-2.0
// Runs the kernels, without Python, on the cases of its input, on whatever machine it was compiled for; test_kernel_aarch64.py.
// A case: int64 dtype, digest, threads, ndim, offset of the first element and bytes in all; shape; strides in elements; the bytes.
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "statistics.hpp"

namespace {

bool read(void* to, std::size_t bytes) { return bytes == 0 || std::fread(to, bytes, 1, stdin) == 1; }

void print(const char* isa, const opscope::Statistics& s) {
    std::printf("%s %lld %lld %lld %lld %lld %lld %lld %lld ", isa, static_cast<long long>(s.size), static_cast<long long>(s.nan),
                static_cast<long long>(s.pos_inf), static_cast<long long>(s.neg_inf), static_cast<long long>(s.zero),
                static_cast<long long>(s.neg), static_cast<long long>(s.pos), static_cast<long long>(s.near_limit));
    if (s.has_range) std::printf("%a %a %a %a ", s.min, s.max, s.mean, s.l2norm);
    else std::printf("- - - - ");
    if (s.has_int) std::printf("%lld %lld ", static_cast<long long>(s.min_int), static_cast<long long>(s.max_int));
    else std::printf("- - ");
    if (s.has_digest) std::printf("%llu", static_cast<unsigned long long>(s.digest));
    else std::printf("-");
    if (s.has_sample)
        for (const float one : s.sample) std::printf(" %a", static_cast<double>(one));
    std::printf("\n");
}

void in_threads(int count, const std::function<void(int)>& task) {
    std::vector<std::thread> threads;
    for (int number = 0; number < count; ++number) threads.emplace_back(task, number);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
    const opscope::ParallelFor pool = in_threads;
    std::int64_t head[6];
    while (read(head, sizeof head)) {
        std::vector<std::int64_t> shape(static_cast<std::size_t>(head[3])), strides(shape.size());
        std::vector<char> bytes(static_cast<std::size_t>(head[5]) + 1);
        if (!read(shape.data(), shape.size() * 8) || !read(strides.data(), strides.size() * 8)) return 1;
        if (!read(bytes.data(), static_cast<std::size_t>(head[5]))) return 1;
        const opscope::ArrayView view{bytes.data() + head[4], static_cast<opscope::DType>(head[0]), static_cast<int>(head[3]),
                                      shape.data(), strides.data()};
        for (const opscope::Isa isa : opscope::available_isas()) {
            opscope::Options options;
            options.digest = head[1] != 0;
            options.threads = static_cast<int>(head[2]);
            options.pool = &pool;
            options.isa = isa;
            print(opscope::isa_name(isa), opscope::statistics(view, options));
        }
    }
    return 0;
}

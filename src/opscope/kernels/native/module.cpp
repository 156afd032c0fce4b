// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "pair.hpp"
#include "statistics.hpp"

namespace nb = nanobind;

namespace {

template <class T>
nb::object maybe(bool known, T value) {
    return known ? nb::cast(value) : nb::none();
}

// In the order of the columns of schema.TENSOR_TYPES, size to sample.
nb::tuple as_tuple(const opscope::Statistics& s) {
    nb::object sample = nb::none();
    if (s.has_sample) sample = nb::tuple(nb::cast(std::vector<float>(std::begin(s.sample), std::end(s.sample))));
    return nb::make_tuple(s.size, s.nan, s.pos_inf, s.neg_inf, s.zero, s.neg, s.pos, s.near_limit, maybe(s.has_range, s.min),
                          maybe(s.has_range, s.max), maybe(s.has_range, s.mean), maybe(s.has_range, s.l2norm),
                          maybe(s.has_int, s.min_int), maybe(s.has_int, s.max_int), maybe(s.has_digest, s.digest), sample);
}

// `address` is where the first element lies and stays valid for the call: NumPy's own exports refuse bfloat16, float8 and unaligned
// arrays. Strides count elements.
nb::tuple statistics(std::uintptr_t address, int dtype, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                     bool digest, int threads, const std::string& isa) {
    if (dtype < 0 || dtype > static_cast<int>(opscope::DType::Complex128)) throw nb::value_error("no such dtype");
    if (shape.size() != strides.size()) throw nb::value_error("shape and strides differ in length");
    opscope::Options options;
    options.digest = digest;
    options.threads = threads;
    options.isa = opscope::isa_from_name(isa);
    const opscope::ArrayView view{reinterpret_cast<const void*>(address), static_cast<opscope::DType>(dtype),
                                  static_cast<int>(shape.size()), shape.data(), strides.data()};
    opscope::Statistics found;
    {
        const nb::gil_scoped_release released;
        found = opscope::statistics(view, options);
    }
    return as_tuple(found);
}

// In the order of the fields of pair_reference.Sums.
nb::tuple as_tuple(const opscope::PairSums& s, int exponent) {
    nb::list histogram, nonfinite;
    for (const std::int64_t count : s.histogram) histogram.append(count);
    for (const std::int64_t count : s.nonfinite) nonfinite.append(count);
    return nb::make_tuple(s.size, exponent, s.compared, s.differing, s.first_mismatch, s.worst_index, s.max_abs, s.sum_abs, s.squares,
                          s.max_rel, s.sum_rel, s.golden_zero_only, s.dot, s.squares_target, s.squares_golden, s.mean_target, s.mean_golden,
                          s.variance_target, s.variance_golden, s.max_golden, s.within_1, s.within_5, s.ulp_max, nb::tuple(histogram),
                          nb::tuple(nonfinite), s.nonfinite_mismatch, s.beyond);
}

struct Placed {
    std::uintptr_t address;
    std::vector<std::int64_t> strides;

    opscope::ArrayView view(int dtype, const std::vector<std::int64_t>& shape) const {
        if (shape.size() != strides.size()) throw nb::value_error("shape and strides differ in length");
        return {reinterpret_cast<const void*>(address), static_cast<opscope::DType>(dtype), static_cast<int>(shape.size()), shape.data(),
                strides.data()};
    }
};

using Place = std::tuple<std::uintptr_t, std::vector<std::int64_t>>;  // address and strides of an array

nb::tuple pair(const Place& target, const Place& golden, int dtype, const std::vector<std::int64_t>& shape,
               const std::tuple<double, double, int, int>& settings, const std::string& isa) {
    if (dtype < 0 || dtype > static_cast<int>(opscope::DType::Complex128)) throw nb::value_error("no such dtype");
    opscope::PairOptions options;
    std::tie(options.absolute, options.relative, options.exponent, options.threads) = settings;
    options.isa = opscope::isa_from_name(isa);
    const Placed one{std::get<0>(target), std::get<1>(target)}, other{std::get<0>(golden), std::get<1>(golden)};
    const opscope::ArrayView first = one.view(dtype, shape), second = other.view(dtype, shape);
    opscope::PairSums found;
    {
        const nb::gil_scoped_release released;
        found = opscope::pair(first, second, options);
    }
    return as_tuple(found, options.exponent);
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (const opscope::Isa isa : opscope::available_isas()) names.emplace_back(opscope::isa_name(isa));
    return names;
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Compiled kernels of opscope.";
    module.def("statistics", &statistics, nb::arg("address"), nb::arg("dtype"), nb::arg("shape"), nb::arg("strides"),
               nb::arg("digest"), nb::arg("threads"), nb::arg("isa"),
               "Columns size to digest of an array of the dtype with this number in the C++ enum DType.");
    module.def("pair", &pair, nb::arg("target"), nb::arg("golden"), nb::arg("dtype"), nb::arg("shape"), nb::arg("settings"), nb::arg("isa"),
               "Fields of pair_reference.Sums of two arrays, each an address and strides; settings: absolute, relative, exponent, threads.");
    module.def("isas", &isas, "Instruction sets that this processor runs, worst first.");
    module.def("isa", [] { return std::string(opscope::isa_name(opscope::best_isa())); }, "The instruction set in use.");
}

// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "statistics.hpp"

namespace nb = nanobind;

namespace {

template <class T>
nb::object maybe(bool known, T value) {
    return known ? nb::cast(value) : nb::none();
}

// In the order of the columns of schema.TENSOR_TYPES, size to digest.
nb::tuple as_tuple(const opscope::Statistics& s) {
    return nb::make_tuple(s.size, s.nan, s.pos_inf, s.neg_inf, s.zero, s.neg, s.pos, s.near_limit, maybe(s.has_range, s.min),
                          maybe(s.has_range, s.max), maybe(s.has_range, s.mean), maybe(s.has_range, s.l2norm),
                          maybe(s.has_int, s.min_int), maybe(s.has_int, s.max_int), maybe(s.has_digest, s.digest));
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
    module.def("isas", &isas, "Instruction sets that this processor runs, worst first.");
    module.def("isa", [] { return std::string(opscope::isa_name(opscope::best_isa())); }, "The instruction set in use.");
}

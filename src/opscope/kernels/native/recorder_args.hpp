// SPDX-License-Identifier: Apache-2.0
// Argument trees: their tensors with slots, their scalars, and the whole as JSON (docs/schema.md, args).
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "recorder_python.hpp"
#include "recorder_rows.hpp"
#include "recorder_torch.hpp"

namespace opscope {

// How the magnitude of an in-place result is bounded; BOUNDS of bookkeeping.py.
enum class Bound : std::uint8_t { Unknown, Sum, Product, Quotient, SquareRoot, Moments, Kept, Overwritten };
Bound bound_named(std::string_view name);

// Extremes of one tensor's finite elements.
struct Extremes {
    double min, max;
};
// Upper bound of the magnitude of the result; infinite when the rule cannot tell.
double bound_of(Bound bound, const std::vector<Extremes>& known, const std::vector<double>& scalars);

class Arguments {
  public:
    Arguments(Torch& torch, Interner& texts) : torch_(torch), texts_(texts) {}

    struct Found {
        std::int32_t slot;
        PyObject* tensor;
    };
    // Fills tensors and scalars; json is null when only they are wanted.
    void walk(PyObject* args, PyObject* kwargs, std::string* json);
    // Tensors of a result or of a module's arguments; a lone tensor has the slot given.
    void walk_value(PyObject* value, const std::string& slot);
    std::vector<Found> tensors;
    std::vector<double> scalars;
    bool plain = true;  // whether the json of two trees is the same only where all that is no tensor is

  private:
    void value(PyObject* object, std::string& slot, std::string* json);
    void sequence(PyObject* object, std::string& slot, std::string* json);
    void leaf(PyObject* object, std::string& json);

    Torch& torch_;
    Interner& texts_;
    std::unordered_map<PyObject*, std::string> known_;  // dtypes, layouts, memory formats: few, and they live for ever
};

void append_json_string(std::string& out, std::string_view text);

}  // namespace opscope

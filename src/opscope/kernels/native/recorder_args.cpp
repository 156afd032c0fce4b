// SPDX-License-Identifier: Apache-2.0
#include "recorder_args.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace opscope {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

double largest(const Extremes& e) { return std::max(std::fabs(e.min), std::fabs(e.max)); }
double smallest(const Extremes& e) { return std::max({e.min, -e.max, 0.0}); }

double scale(const std::vector<double>& scalars) {
    double product = 1;
    for (double s : scalars) product *= std::max(1.0, std::fabs(s));
    return product;
}

double inverse(const std::vector<double>& scalars) {
    double product = 1;
    for (double s : scalars) product *= s == 0 ? infinite : std::max(1.0, 1.0 / std::fabs(s));
    return product;
}

double sum_of_largest(const std::vector<Extremes>& known, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += largest(known[i]);
    return sum;
}

double bound_quotient(const std::vector<Extremes>& known, const std::vector<double>& scalars) {
    const std::size_t dividends = known.size() > 1 ? known.size() - 1 : known.size();
    double top = 1 + 2 * sum_of_largest(known, dividends);
    if (known.size() > 1) {
        const double divisor = smallest(known.back());
        if (divisor == 0) return infinite;
        top *= std::max(1.0, 1.0 / divisor);
    }
    return top * inverse(scalars) * scale(scalars);
}

}  // namespace

Bound bound_named(std::string_view name) {
    static const std::pair<std::string_view, Bound> names[] = {
        {"sum", Bound::Sum}, {"product", Bound::Product}, {"quotient", Bound::Quotient}, {"square_root", Bound::SquareRoot},
        {"moments", Bound::Moments}, {"kept", Bound::Kept}, {"overwritten", Bound::Overwritten}};
    for (const auto& [known, bound] : names)
        if (known == name) return bound;
    return Bound::Unknown;
}

double bound_of(Bound bound, const std::vector<Extremes>& known, const std::vector<double>& scalars) {
    const double all = sum_of_largest(known, known.size());
    switch (bound) {
        case Bound::Unknown: return infinite;
        case Bound::Overwritten: return 0;
        case Bound::SquareRoot:
            for (const auto& e : known)
                if (e.min < 0) return infinite;
            [[fallthrough]];
        case Bound::Sum: return (2 * all + 1) * scale(scalars);
        case Bound::Product: {
            double product = scale(scalars);
            for (const auto& e : known) product *= std::max(1.0, largest(e));
            return product;
        }
        case Bound::Quotient: return bound_quotient(known, scalars);
        case Bound::Moments: return (1 + all) * (1 + all) * 4 * scale(scalars);
        case Bound::Kept: {
            double most = 0;
            for (const auto& e : known) most = std::max(most, largest(e));
            return most + scale(scalars);
        }
    }
    return infinite;
}

void append_json_string(std::string& out, std::string_view text) {
    static const char* hex = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += hex[byte >> 4];
            out += hex[byte & 15];
        } else {
            out += c;
        }
    }
    out += '"';
}

void Arguments::walk(PyObject* args, PyObject* kwargs, std::string* json) {
    tensors.clear();
    scalars.clear();
    plain = true;
    std::string slot;
    if (json) {
        json->reserve(256);
        *json = "{\"args\": [";
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (json && i) *json += ", ";
        slot = std::to_string(i);
        value(PyTuple_GET_ITEM(args, i), slot, json);
    }
    if (json) *json += "], \"kwargs\": {";
    bool first = true;
    PyObject *key, *item;
    if (kwargs && PyDict_Check(kwargs))
        for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &item); first = false) {
            const std::string_view keyword = text(key);
            if (json) {
                if (!first) *json += ", ";
                append_json_string(*json, keyword);
                *json += ": ";
            }
            slot = "kwargs.";
            slot += keyword;
            value(item, slot, json);
        }
    if (json) *json += "}}";
}

void Arguments::walk_value(PyObject* object, const std::string& first) {
    tensors.clear();
    scalars.clear();
    std::string slot = first;
    value(object, slot, nullptr);
}

void Arguments::value(PyObject* object, std::string& slot, std::string* json) {
    if (torch_.is_tensor(object)) {
        tensors.push_back({texts_(slot), object});
        if (json) {
            *json += "{\"tensor\": ";
            append_json_string(*json, slot);
            *json += '}';
        }
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
        sequence(object, slot, json);
    } else if (json) {
        leaf(object, *json);
    } else if (PyDict_Check(object)) {
        PyObject *key, *item;
        const std::size_t length = slot.size();
        for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &item);) {
            const Ref name = checked(PyObject_Str(key));
            if (length) slot += '.';
            slot += text(name.get());
            value(item, slot, json);
            slot.resize(length);
        }
    }
}

void Arguments::sequence(PyObject* object, std::string& slot, std::string* json) {
    const Ref fast = checked(PySequence_Fast(object, "not a sequence"));
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.get());
    const std::size_t length = slot.size();
    if (json) *json += '[';
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (json && i) *json += ", ";
        if (length) slot += '.';
        slot += std::to_string(i);
        value(PySequence_Fast_GET_ITEM(fast.get(), i), slot, json);
        slot.resize(length);
    }
    if (json) *json += ']';
}

void Arguments::leaf(PyObject* object, std::string& json) {
    if (object == Py_None) {
        json += "null";
    } else if (PyBool_Check(object)) {
        json += object == Py_True ? "true" : "false";
    } else if (PyLong_CheckExact(object)) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
        json += overflow ? std::string(text(checked(PyObject_Str(object)).get())) : std::to_string(number);
        scalars.push_back(PyLong_AsDouble(object));
        PyErr_Clear();  // an integer beyond double is not finite either way
    } else if (PyFloat_CheckExact(object)) {
        const double number = PyFloat_AS_DOUBLE(object);
        scalars.push_back(number);
        if (std::isfinite(number)) {
            char* digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
            json += digits;
            PyMem_Free(digits);
        } else {
            json += std::isnan(number) ? "{\"float\": \"nan\"}" : number > 0 ? "{\"float\": \"inf\"}" : "{\"float\": \"-inf\"}";
        }
    } else if (PyUnicode_CheckExact(object)) {
        append_json_string(json, text(object));
    } else {
        const auto found = known_.find(object);
        if (found != known_.end()) {
            json += found->second;
            return;
        }
        const Ref told = checked(PyObject_CallMethod(torch_.binding(), "encode", "(O)", object));
        const std::string_view leaf_json = text(told.get());
        json += leaf_json;
        if (truth(checked(PyObject_CallMethod(torch_.binding(), "constant", "(O)", object)).get())) {
            Py_INCREF(object);
            known_.emplace(object, leaf_json);
        } else if (leaf_json.rfind("{\"device\"", 0) != 0) {
            plain = false;
        }
    }
}

}  // namespace opscope

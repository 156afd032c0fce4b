// SPDX-License-Identifier: Apache-2.0
#include "recorder_stacks.hpp"

namespace opscope {
namespace {

int last_instruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    const Ref value = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_lasti"));
    return static_cast<int>(integer(value.get()));
#endif
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    return hash ^ (hash >> 29);
}

std::int32_t text_of(PyObject* site, const char* name, Interner& texts) {
    const Ref value = checked(PyObject_GetAttrString(site, name));
    return value.get() == Py_None ? Interner::none : texts(text(value.get()));
}

bool flag_of(PyObject* site, const char* name) { return truth(checked(PyObject_GetAttrString(site, name)).get()); }

}  // namespace

const Site& Stacks::here() {
    chain_.clear();
    std::uint64_t hash = 0;
    Ref frame(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
    while (frame) {
        auto* at = reinterpret_cast<PyFrameObject*>(frame.get());
        PyObject* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(at));
        Py_DECREF(code);  // its frame holds it while we look
        const int instruction = last_instruction(at);
        chain_.emplace_back(code, instruction);
        hash = mixed(mixed(hash, reinterpret_cast<std::uintptr_t>(code)), static_cast<std::uint64_t>(instruction));
        frame = Ref(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
    }
    const auto found = sites_.find(hash);
    return found != sites_.end() ? *found->second : resolve(hash);
}

// The binding keeps the code objects, so that their addresses are not used again.
const Site& Stacks::resolve(std::uint64_t hash) {
    const Ref codes = checked(PyList_New(static_cast<Py_ssize_t>(chain_.size())));
    const Ref instructions = checked(PyList_New(static_cast<Py_ssize_t>(chain_.size())));
    for (std::size_t i = 0; i < chain_.size(); ++i) {
        PyList_SET_ITEM(codes.get(), static_cast<Py_ssize_t>(i), Py_NewRef(chain_[i].first));
        PyList_SET_ITEM(instructions.get(), static_cast<Py_ssize_t>(i), checked(PyLong_FromLong(chain_[i].second)).release());
    }
    auto site = std::make_unique<Site>();
    site->object = checked(PyObject_CallMethod(binding_, "resolve", "OO", codes.get(), instructions.get()));
    PyObject* told = site->object.get();
    site->stack = static_cast<std::int32_t>(integer(checked(PyObject_GetAttrString(told, "stack")).get()));
    site->source = text_of(told, "source", texts_);
    site->outer = text_of(told, "outer", texts_);
    site->api = text_of(told, "api", texts_);
    site->checkpoint = flag_of(told, "checkpoint");
    site->optimizer = flag_of(told, "optimizer");
    site->gradient = flag_of(told, "gradient");
    site->closure = flag_of(told, "closure");
    site->compiled = flag_of(told, "compiled");
    return *sites_.emplace(hash, std::move(site)).first->second;
}

}  // namespace opscope

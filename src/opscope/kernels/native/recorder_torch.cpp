// SPDX-License-Identifier: Apache-2.0
#include "recorder_torch.hpp"

#include <algorithm>

namespace opscope {
namespace {

Ref interned(const char* name) { return checked(PyUnicode_InternFromString(name)); }

Ref member(PyObject* object, const char* name) { return checked(PyObject_GetAttrString(object, name)); }

// Fills values from a tuple (torch.Size, strides) of plain or symbolic integers.
int integers(PyObject* tuple, std::int64_t* values) {
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > max_dims) throw std::runtime_error("a tensor of more than 64 dimensions");
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* item = PyTuple_GET_ITEM(tuple, i);
        values[i] = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : integer(Ref(checked(PyNumber_Long(item))).get());
    }
    return static_cast<int>(count);
}

}  // namespace

Names::Names()
    : shape(interned("shape")), stride(interned("stride")), dtype(interned("dtype")), layout(interned("layout")), is_cpu(interned("is_cpu")),
      is_nested(interned("is_nested")), is_conj(interned("is_conj")), is_neg(interned("is_neg")), data_ptr(interned("data_ptr")),
      untyped_storage(interned("untyped_storage")), weak_ref(interned("_weak_ref")), sequence_nr(interned("_sequence_nr")),
      expired(interned("expired")) {}

Members::Members(PyObject* tensor_type)
    : dtype(tensor_type, "dtype"), requires_grad(tensor_type, "requires_grad"), version(tensor_type, "_version"),
      storage_offset(tensor_type, "storage_offset"), is_inference(tensor_type, "is_inference") {}

Torch::Torch(nb::handle binding, Interner& texts)
    : texts_(texts), binding_(Ref::borrow(binding.ptr())), strided_(member(binding.ptr(), "strided")),
      storage_address_(member(binding.ptr(), "storage_address")), graph_task_(member(binding.ptr(), "graph_task")),
      current_node_(member(binding.ptr(), "current_node")), next_sequence_(member(binding.ptr(), "next_sequence")),
      release_(member(binding.ptr(), "release_storage")), expired_(member(binding.ptr(), "expired_storage")),
      function_modes_(member(binding.ptr(), "has_function_modes")), no_functions_(member(binding.ptr(), "no_functions")),
      modes_below_(member(binding.ptr(), "modes_below")), push_mode_(member(binding.ptr(), "push_mode")), pop_mode_(member(binding.ptr(), "pop_mode")),
      members_(member(binding.ptr(), "tensor_type").get()),
      cpu_(texts("cpu")), strided_name_(texts("strided")) {
    kept_.push_back(member(binding.ptr(), "tensor_type"));
    tensor_ = reinterpret_cast<PyTypeObject*>(kept_.back().get());
    kept_.push_back(member(binding.ptr(), "parameter_type"));
    parameter_ = reinterpret_cast<PyTypeObject*>(kept_.back().get());
    dltensor_of_ = dltensor_of(reinterpret_cast<PyObject*>(tensor_));
    Ref table = member(binding.ptr(), "element_types");  // {torch dtype: (name, DType number or -1)}
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(table.get(), &at, &key, &value);) {
        dtypes_[key] = {texts(text(PyTuple_GET_ITEM(value, 0))), static_cast<int>(integer(PyTuple_GET_ITEM(value, 1)))};
        kept_.push_back(Ref::borrow(key));
    }
}

void Torch::facts(PyObject* tensor, Facts& out) {
    std::uint32_t key = unknown_key;
    const bool plain = is_plain(tensor) && !(refused_ && odd(tensor));
    if (!plain || !(dltensor_of_ ? borrowed(tensor, out, key) : dense(tensor, out))) return slow_facts(tensor, out);
    const Element* type = element(tensor, key);
    if (!type) return slow_facts(tensor, out);
    out.dtype = type->name;
    out.code = type->code;
    out.device = cpu_;
    out.layout = strided_name_;
    out.tensor_class = Interner::none;
    out.address = static_cast<std::uintptr_t>(integer(call(storage_address_.get(), tensor).get()));
    out.offset = integer(members_.storage_offset(tensor).get());
    out.requires_grad = members_.requires_grad(tensor).get() == Py_True;
    out.counter = counter(tensor, out.uncounted);
    out.readable = out.code >= 0;
    out.staged = out.composed = false;
    if (out.code >= static_cast<int>(DType::Complex64)) complex_seen_ = true;
}

const Torch::Element* Torch::element(PyObject* tensor, std::uint32_t key) {
    if (key < by_key_.size() && by_key_[key]) return by_key_[key];
    const auto found = dtypes_.find(members_.dtype(tensor).get());
    if (found == dtypes_.end()) return nullptr;
    if (key < by_key_.size()) by_key_[key] = &found->second;
    return &found->second;
}

// How often a tensor was written; 0 for those of inference mode, which do not count and are rare: nobody is asked before one was met.
std::int64_t Torch::counter(PyObject* tensor, bool& uncounted) {
    uncounted = inference_seen_ && truth(members_.is_inference(tensor).get());
    if (uncounted) return 0;
    try {
        return integer(members_.version(tensor).get());
    } catch (nb::python_error&) {
        if (inference_seen_ || !truth(members_.is_inference(tensor).get())) throw;
        inference_seen_ = uncounted = true;
        return 0;
    }
}

// Shape, strides and memory of a dense tensor on the host, by DLPack; false for all others.
bool Torch::borrowed(PyObject* tensor, Facts& out, std::uint32_t& key) {
    DLTensor told;
    if (dltensor_of_(tensor, &told) != 0) {
        refused_ = true;
        PyErr_Clear();  // sparse, nested, quantized, on a device that DLPack does not know
        return false;
    }
    if (told.device.type != dlpack_cpu || told.ndim > max_dims || (told.ndim && !told.strides)) return false;
    out.ndim = out.stride_ndim = told.ndim;
    std::copy_n(told.shape, told.ndim, out.shape);
    std::copy_n(told.strides, told.ndim, out.stride);
    out.data = static_cast<const char*>(told.data) + told.byte_offset;
    if (told.dtype.lanes == 1) key = static_cast<std::uint32_t>(told.dtype.code) << 8 | told.dtype.bits;
    return true;
}

// What DLPack refuses, which takes it milliseconds. A program without any such tensor pays nothing for asking.
bool Torch::odd(PyObject* tensor) {
    if (attribute(tensor, names_.layout.get()).get() != strided_.get() || truth(attribute(tensor, names_.is_nested.get()).get())) return true;
    const auto element = dtypes_.find(attribute(tensor, names_.dtype.get()).get());
    return element == dtypes_.end() || element->second.code < 0;
}

// The same by attributes, for a torch before 2.10.
bool Torch::dense(PyObject* tensor, Facts& out) {
    if (odd(tensor)) return false;
    if (!truth(attribute(tensor, names_.is_cpu.get()).get())) return false;
    out.ndim = integers(attribute(tensor, names_.shape.get()).get(), out.shape);
    out.stride_ndim = integers(method(tensor, names_.stride.get()).get(), out.stride);
    out.data = nullptr;
    return true;
}

// Subclasses, other devices, sparse and nested tensors: the binding says it in Python.
void Torch::slow_facts(PyObject* tensor, Facts& out) {
    const Ref facts = checked(PyObject_CallMethod(binding_.get(), "facts", "(O)", tensor));
    out.address = static_cast<std::uintptr_t>(integer(member(facts.get(), "address").get()));
    out.offset = integer(member(facts.get(), "offset").get());
    out.ndim = integers(member(facts.get(), "shape").get(), out.shape);
    out.stride_ndim = integers(member(facts.get(), "stride").get(), out.stride);
    out.dtype = texts_(text(member(facts.get(), "dtype").get()));
    out.device = texts_(text(member(facts.get(), "device").get()));
    out.layout = texts_(text(member(facts.get(), "layout").get()));
    const Ref kind = member(facts.get(), "tensor_class");
    out.tensor_class = kind.get() == Py_None ? Interner::none : texts_(text(kind.get()));
    out.requires_grad = truth(member(facts.get(), "requires_grad").get());
    out.counter = integer(member(facts.get(), "counter").get());
    out.uncounted = truth(member(facts.get(), "uncounted").get());
    out.code = -1;
    for (const auto& [dtype, element] : dtypes_)
        if (element.name == out.dtype) out.code = element.code;
    out.data = reinterpret_cast<const void*>(integer(member(facts.get(), "data").get()));
    out.lazy = truth(member(facts.get(), "lazy").get());
    const Ref logical = member(facts.get(), "logical");
    out.composed = logical.get() != Py_None;
    if (out.composed) {
        out.logical_ndim = integers(logical.get(), out.logical);
        out.parts = member(facts.get(), "parts");
    }
    out.readable = truth(member(facts.get(), "readable").get()) && (out.code >= 0 || out.composed);
    out.staged = truth(member(facts.get(), "staged").get());
}

ArrayView Torch::view(PyObject* tensor, Facts& facts) {
    if (!facts.data && is_plain(tensor)) facts.data = reinterpret_cast<const void*>(integer(method(tensor, names_.data_ptr.get()).get()));
    for (int i = 0; i < facts.ndim; ++i)
        if (facts.stride[i] == 0 && facts.shape[i] > 1) facts.shape[i] = 1;
    return {facts.data, static_cast<DType>(facts.code), facts.ndim, facts.shape, facts.stride};
}

bool Torch::lazy(PyObject* tensor, const Facts& facts) {
    if (facts.composed || !is_plain(tensor)) return facts.lazy;
    return complex_seen_ && (truth(method(tensor, names_.is_conj.get()).get()) || truth(method(tensor, names_.is_neg.get()).get()));
}

bool Torch::hears(PyObject* args, PyObject* kwargs) {
    if (has_function_modes() || subclassed(args)) return true;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);)
        if (subclassed(value)) return true;
    return false;
}

bool Torch::subclassed(PyObject* value) const {
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        PyObject** const items = PySequence_Fast_ITEMS(value);
        return std::any_of(items, items + PySequence_Fast_GET_SIZE(value), [this](PyObject* item) { return subclassed(item); });
    }
    return !is_plain(value) && is_tensor(value);
}

PyObject* Torch::hold(PyObject* tensor, const Facts& facts) {
    if (facts.composed || !is_plain(tensor)) return checked(PyObject_CallMethod(binding_.get(), "hold", "(O)", tensor)).release();
    const Ref storage = method(tensor, names_.untyped_storage.get());
    return method(storage.get(), names_.weak_ref.get()).release();
}

void Torch::release(PyObject* reference) {
    if (PyLong_CheckExact(reference)) call(release_.get(), reference);
    Py_DECREF(reference);
}

bool Torch::expired(PyObject* reference) {
    return truth((PyLong_CheckExact(reference) ? call(expired_.get(), reference) : method(reference, names_.expired.get())).get());
}

bool Torch::in_backward() { return integer(call(graph_task_.get()).get()) >= 0; }

}  // namespace opscope

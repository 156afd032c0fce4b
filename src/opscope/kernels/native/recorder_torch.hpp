// SPDX-License-Identifier: Apache-2.0
// What the recorder reads of torch through Python's C API: nothing is linked, so any torch will do.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "recorder_dlpack.hpp"
#include "recorder_python.hpp"
#include "recorder_rows.hpp"

namespace opscope {

// Attribute names, interned once.
struct Names {
    Ref shape, stride, dtype, layout, is_cpu, is_nested, is_conj, is_neg, data_ptr, untyped_storage, weak_ref, sequence_nr, expired;
    Names();
};

// What is asked of every tensor.
struct Members {
    Member dtype, requires_grad, version, storage_offset, is_inference;
    explicit Members(PyObject* tensor_type);
};

class Torch {
  public:
    // binding is record/torch/binding.py's TorchBinding; the texts of facts are numbered by the interner.
    Torch(nb::handle binding, Interner& texts);

    bool is_tensor(PyObject* object) const { return Py_TYPE(object) == tensor_ || PyObject_TypeCheck(object, tensor_); }
    bool is_plain(PyObject* object) const { return Py_TYPE(object) == tensor_ || Py_TYPE(object) == parameter_; }
    bool is_parameter(PyObject* object) const { return Py_TYPE(object) == parameter_; }

    void facts(PyObject* tensor, Facts& out);
    // View of a readable tensor's memory; elements that a stride of 0 repeats come once.
    ArrayView view(PyObject* tensor, Facts& facts);
    // Whether the memory holds something else than the elements (conjugate or negative bit).
    bool lazy(PyObject* tensor, const Facts& facts);

    PyObject* hold(PyObject* tensor, const Facts& facts);
    void release(PyObject* reference);
    bool expired(PyObject* reference);

    // Whether code that torch.compile made may have written to a tensor whose writes nobody counts.
    bool written_unseen(const Facts& facts) {
        return facts.uncounted && truth(checked(PyObject_CallMethod(binding_.get(), "graphs_ran", nullptr)).get());
    }
    bool in_backward();
    Ref current_node() { return call(current_node_.get()); }
    // AccumulateGrad nodes have the largest unsigned number, which becomes -1 and owns nothing.
    std::int64_t node_sequence(PyObject* node) {
        return static_cast<std::int64_t>(PyLong_AsUnsignedLongLongMask(method(node, names_.sequence_nr.get()).get()));
    }
    std::int64_t next_sequence() { return integer(call(next_sequence_.get()).get()); }
    PyObject* binding() const { return binding_.get(); }

    // The modes that lie below the one that handles a call, and putting that back for a while.
    bool modes_below() { return integer(call(modes_below_.get()).get()) > 0; }
    void push_mode(PyObject* mode) { call(push_mode_.get(), mode); }
    void pop_mode() {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        const Ref popped(PyObject_CallOneArg(pop_mode_.get(), Py_None));
        PyErr_Restore(type, value, trace);
    }
    // Whether the program has function modes, which would be asked for every attribute that is read.
    bool has_function_modes() { return call(function_modes_.get()).get() == Py_True; }
    // Whether somebody would hear of a function that is called with these arguments: a function mode, or a subclass among them.
    bool hears(PyObject* args, PyObject* kwargs);
    Ref functions_off() {
        Ref guard = call(no_functions_.get());
        checked(PyObject_CallMethod(guard.get(), "__enter__", nullptr));
        return guard;
    }

  private:
    struct Element {
        std::int32_t name;
        int code;
    };
    static constexpr std::uint32_t unknown_key = ~std::uint32_t{0};
    // key: DLPack's numbers of the type, where it gave them; null for a type that is not in the table.
    const Element* element(PyObject* tensor, std::uint32_t key);
    std::int64_t counter(PyObject* tensor, bool& uncounted);
    bool dense(PyObject* tensor, Facts& out);
    bool odd(PyObject* tensor);
    bool subclassed(PyObject* value) const;
    bool borrowed(PyObject* tensor, Facts& out, std::uint32_t& key);
    void slow_facts(PyObject* tensor, Facts& out);

    Names names_;
    Interner& texts_;
    Ref binding_, strided_, storage_address_, graph_task_, current_node_, next_sequence_, release_, expired_,
        function_modes_, no_functions_, modes_below_, push_mode_, pop_mode_;
    PyTypeObject *tensor_, *parameter_;
    DLTensorOf dltensor_of_ = nullptr;
    Members members_;
    std::unordered_map<PyObject*, Element> dtypes_;
    std::array<const Element*, 1 << 12> by_key_{};  // the same by DLPack's numbers
    std::vector<Ref> kept_;
    std::int32_t cpu_, strided_name_;
    bool complex_seen_ = false, inference_seen_ = false;
    bool refused_ = false;  // a tensor that DLPack cannot tell of was met
};

// As long as it lives, the program's function modes hear nothing of what is read, and its subclasses neither where that is wanted.
class Quiet {
  public:
    explicit Quiet(Torch& torch, bool wanted = false) {
        if (wanted || torch.has_function_modes()) guard_ = torch.functions_off();
    }
    ~Quiet() {
        if (!guard_) return;
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        const Ref left(PyObject_CallMethod(guard_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
        PyErr_Restore(type, value, trace);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

  private:
    Ref guard_;
};

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// Small owners over the C API of Python; every function that can fail throws nanobind::python_error.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace opscope {

namespace nb = nanobind;

// A reference that is given up at the end of its scope.
class Ref {
  public:
    Ref() = default;
    explicit Ref(PyObject* owned) : object_(owned) {}
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;
    ~Ref() { Py_XDECREF(object_); }

    static Ref borrow(PyObject* borrowed) {
        Py_XINCREF(borrowed);
        return Ref(borrowed);
    }
    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

  private:
    PyObject* object_ = nullptr;
};

// Gives this thread so many more frames before a RecursionError (takes them back where negative).
inline void spare(PyThreadState* state, int frames) {
#if PY_VERSION_HEX >= 0x030C0000
    state->py_recursion_remaining += frames;
#if PY_VERSION_HEX < 0x030E0000
    state->c_recursion_remaining += frames;
#endif
#elif PY_VERSION_HEX >= 0x030B0000
    state->recursion_remaining += frames;
#else
    state->recursion_depth -= frames;
#endif
}

constexpr int room_frames = 250;  // what reading a tensor, keeping it and judging a call take is below a hundred

// Our own code begins: it has room for its frames though the program be near its limit of recursion, and no tracer or profiler of the
// program's follows it.
inline void enter_room() {
    PyThreadState* const state = PyThreadState_Get();
    spare(state, room_frames);
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_EnterTracing(state);
#endif
}

inline void leave_room() {
    PyThreadState* const state = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_LeaveTracing(state);
#endif
    spare(state, -room_frames);
}

class Room {
  public:
    Room() { enter_room(); }
    ~Room() { leave_room(); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
};

// The error that is set, taken off the interpreter until it is put back.
class Error {
  public:
    Error() {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        if (value && trace) PyException_SetTraceback(value, trace);
        type_ = Ref(type);
        value_ = Ref(value);
        trace_ = Ref(trace);
    }
    PyObject* value() const { return value_ ? value_.get() : Py_None; }
    void restore() { PyErr_Restore(type_.release(), value_.release(), trace_.release()); }

  private:
    Ref type_, value_, trace_;
};

inline Ref checked(PyObject* owned) {
    if (!owned) throw nb::python_error();
    return Ref(owned);
}

inline Ref attribute(PyObject* object, PyObject* name) { return checked(PyObject_GetAttr(object, name)); }

inline Ref method(PyObject* object, PyObject* name) {
    return checked(PyObject_VectorcallMethod(name, &object, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

inline Ref call(PyObject* function) { return checked(PyObject_CallNoArgs(function)); }
inline Ref call(PyObject* function, PyObject* argument) { return checked(PyObject_CallOneArg(function, argument)); }

// An attribute of a class implemented in C, or a method of it without arguments, found once: later calls go straight to its function.
class Member {
  public:
    Member(PyObject* type, const char* name) : name_(checked(PyUnicode_InternFromString(name))), found_(checked(PyObject_GetAttr(type, name_.get()))) {
        if (Py_TYPE(found_.get()) == &PyGetSetDescr_Type) {
            get_ = reinterpret_cast<PyGetSetDescrObject*>(found_.get())->d_getset;
        } else if (Py_TYPE(found_.get()) == &PyMethodDescr_Type) {
            const PyMethodDef* method = reinterpret_cast<PyMethodDescrObject*>(found_.get())->d_method;
            if (method->ml_flags & METH_NOARGS) call_ = method->ml_meth;
        }
    }
    // object: an instance of the type, not of a subclass that may have its own.
    Ref operator()(PyObject* object) const {
        if (get_) return checked(get_->get(object, get_->closure));
        if (call_) return checked(call_(object, nullptr));
        Ref value = attribute(object, name_.get());
        return PyCallable_Check(value.get()) ? call(value.get()) : std::move(value);
    }

  private:
    Ref name_, found_;
    const PyGetSetDef* get_ = nullptr;
    PyCFunction call_ = nullptr;
};

inline std::int64_t integer(PyObject* number) {
    const long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

inline bool truth(PyObject* object) {
    const int answer = PyObject_IsTrue(object);
    if (answer < 0) throw nb::python_error();
    return answer != 0;
}

// Text of a str; lives as long as the str.
inline std::string_view text(PyObject* unicode) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(unicode, &size);
    if (!bytes) {
        // Lone surrogates cannot be encoded; the name of such a file is not worth ending a recording for.
        PyErr_Clear();
        return "?";
    }
    return {bytes, static_cast<std::size_t>(size)};
}

}  // namespace opscope

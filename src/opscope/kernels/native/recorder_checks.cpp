// SPDX-License-Identifier: Apache-2.0
#include "recorder_checks.hpp"

namespace opscope {

void Checks::use(nb::handle checker) {
    rests_.clear();
    checker_ = checker.is_none() ? Ref() : Ref::borrow(checker.ptr());
    budget_ = checker_ ? checked(PyObject_GetAttrString(checker_.get(), "budget")) : Ref();
}

bool Checks::ever(PyObject* func) const { return checker_ && truth(checked(PyObject_CallMethod(checker_.get(), "checks", "(O)", func)).get()); }

Ref Checks::call(std::uint64_t signature, PyObject* func, PyObject* target, PyObject* args, PyObject* kwargs) {
    Rest* const resting = find(signature);
    if (resting && early(*resting)) {
        ++rested;
        ++resting->rested;
        return Ref(PyObject_Call(target, args, kwargs));
    }
    const int untold = resting ? std::exchange(resting->rested, 0) : 0;
    rested -= untold;
    const Ref given = kwargs ? Ref::borrow(kwargs) : Ref(PyDict_New());
    const Ref checker = Ref::borrow(checker_.get());  // the call may end the recording
    const Ref turn(PyObject_CallMethod(checker.get(), "turn", "OOOi", func, args, given.get(), untold));
    if (!turn) return Ref();
    if (!PyTuple_Check(turn.get())) return Ref(PyObject_CallMethod(checker.get(), "check", "OOOO", func, args, given.get(), turn.get()));
    rest(signature, turn.get());
    return Ref(PyObject_Call(target, args, kwargs));
}

Checks::Rest* Checks::find(std::uint64_t signature) {
    const auto found = rests_.find(signature);
    return found == rests_.end() ? nullptr : &found->second;
}

bool Checks::early(const Rest& rest) const {
    if (rest.rested >= rest.calls) return false;
    if (Clock::now() < rest.until) return true;
    const Ref sampled(PyObject_GetAttr(budget_.get(), sampled_.get()));
    const bool early = sampled && PyFloat_AsDouble(sampled.get()) < rest.sampled;
    PyErr_Clear();
    return early;
}

void Checks::rest(std::uint64_t signature, PyObject* told) {
    if (!signature || PyTuple_GET_SIZE(told) != 3) return;
    constexpr double longest = 1e6;  // seconds; who rests longer is never asked again
    const double seconds = PyFloat_AsDouble(PyTuple_GET_ITEM(told, 0)), sampled = PyFloat_AsDouble(PyTuple_GET_ITEM(told, 1));
    const double calls = PyFloat_AsDouble(PyTuple_GET_ITEM(told, 2));
    if (PyErr_Occurred()) return PyErr_Clear();
    const auto until = seconds < longest ? Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))
                                         : Clock::time_point::max();
    if (rests_.size() >= most_rests) rests_.clear();
    rests_[signature] = {until, sampled, calls};
}

}  // namespace opscope

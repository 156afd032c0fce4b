// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include "recorder.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace opscope {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    return hash ^ (hash >> 29);
}

std::uint64_t mixed_all(std::uint64_t hash, std::initializer_list<std::int64_t> values) {
    for (auto value : values) hash = mixed(hash, static_cast<std::uint64_t>(value));
    return hash;
}

struct Span {
    std::int64_t size, stride;
};

// Joins neighbouring dimensions that run through memory without a gap, and numbers the result.
std::uint64_t merged(const Span* dims, int count, std::uint64_t hash) {
    Span last{1, 0};
    bool any = false;
    for (int i = 0; i < count; ++i) {
        if (any && last.stride == dims[i].size * dims[i].stride) {
            last = {last.size * dims[i].size, dims[i].stride};
            continue;
        }
        if (any) hash = mixed_all(hash, {last.size, last.stride});
        last = dims[i];
        any = true;
    }
    return any ? mixed_all(hash, {last.size, last.stride}) : hash;
}

struct Covering {
    std::uint64_t key, order;
    std::int64_t copies;
};

// Which elements a tensor covers, in what order, and how often each is repeated (covering of bookkeeping.py).
Covering covering(const Facts& facts) {
    Span dims[max_dims] = {};
    int count = 0;
    std::int64_t copies = 1;
    for (int i = 0; i < facts.ndim && i < facts.stride_ndim; ++i) {
        if (facts.shape[i] == 1) continue;
        if (facts.stride[i] == 0) copies *= facts.shape[i];
        else dims[count++] = {facts.shape[i], facts.stride[i]};
    }
    const std::uint64_t order = merged(dims, count, 0);
    std::sort(dims, dims + count, [](const Span& a, const Span& b) { return a.stride != b.stride ? a.stride > b.stride : a.size > b.size; });
    return {merged(dims, count, mixed_all(0, {facts.offset, facts.dtype})), order, copies};
}

constexpr int sweep_every = 32;  // new storages

const Statistics* known(const Seen& seen) { return seen.row.version && seen.row.version->known ? &seen.row.version->statistics : nullptr; }

// kept: the (shard, key) that the binding answers.
std::unique_ptr<ValueAt> value_at(PyObject* kept) {
    return std::make_unique<ValueAt>(ValueAt{std::string(text(PyTuple_GET_ITEM(kept, 0))), std::string(text(PyTuple_GET_ITEM(kept, 1)))});
}

std::string error_text() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    std::string told = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "Exception";
    if (value) {
        const Ref shown(PyObject_Str(value));
        if (shown) told += ": " + std::string(text(shown.get()));
        PyErr_Clear();
        PyErr_Restore(type, value, trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
    constexpr std::size_t longest = 4000;
    if (told.size() > longest) {
        std::size_t end = longest;
        while (end > 0 && (static_cast<unsigned char>(told[end]) & 0xC0) == 0x80) --end;  // not inside a character
        told.resize(end);
    }
    return told;
}

// float16, bfloat16, float32, float64: the types in which an in-place result can overflow to infinity.
double limit_of(int code) {
    switch (static_cast<DType>(code)) {
        case DType::Float16: return 65504.0;
        case DType::BFloat16: return 3.3895313892515355e38;
        case DType::Float32: return 3.4028234663852886e38;
        case DType::Float64: return 1.7976931348623157e308;
        default: return 0;
    }
}

}  // namespace

Recorder::Recorder(nb::object binding, const std::string& values, int sample, const std::string& io, Types call_types, Types tensor_types)
    : torch_(binding, texts_), stacks_(binding.ptr(), texts_), arguments_(torch_, texts_), rows_(std::move(call_types), std::move(tensor_types)),
      values_(values == "none" ? Values::None : values == "full" ? Values::Full : values == "sample" ? Values::Sample : Values::Anomaly),
      inputs_wanted_(io != "output"), outputs_wanted_(io != "input"),
      selective_(truth(checked(PyObject_GetAttrString(binding.ptr(), "selective")).get())), sample_(std::max(sample, 1)), due_(Clock::now()) {}

Thread& Recorder::thread() { return threads_[PyThread_get_thread_ident()]; }

// -- one operator call ---------------------------------------------------------------------------------------

nb::object Recorder::dispatch(nb::handle mode, nb::handle func, nb::handle types, nb::handle positional, nb::handle given) {
    PyObject* kwargs = given.is_none() ? nullptr : given.ptr();
    const nb::object args = with_tensors(func.ptr(), positional);
    if (active && PyTuple_Check(types.ptr()) && PyTuple_GET_SIZE(types.ptr()) > 0) {
        const Ref handled = handles(types.ptr());
        if (!handled) miss(func.ptr());
        else if (handled.get() == Py_NotImplemented) return nb::borrow(Py_NotImplemented);
        else if (handled.get() == Py_False) return declined(mode.ptr(), func.ptr(), types.ptr(), args.ptr(), given.ptr());
    }
    if (!active || paused || (waiting_ && thread().waiting)) {
        if (active) count_only(func.ptr());
        return nb::steal(checked(make(Running(), func.ptr(), types.ptr(), args.ptr(), kwargs).release()).release());
    }
    Running running;
    bool entered = false;
    const auto before = Clock::now();
    attempt(func.ptr(), [&] {
        const OperatorInfo& info = describe(func.ptr());
        if (info.hidden) return;
        running.info = &info;
        enter(running, args.ptr(), kwargs);
        entered = true;
    });
    const auto begun = Clock::now();
    Ref result = make(running, func.ptr(), types.ptr(), args.ptr(), kwargs);
    std::string told = result ? std::string() : error_text();
    std::optional<Error> raised;
    if (!result) raised.emplace();
    const auto ended = Clock::now();
    if (entered) {
        attempt(func.ptr(), [&] { leave(running, result.get(), std::move(told)); });
        try {
            after(running);
        } catch (nb::python_error& error) {
            error.restore();
            miss(func.ptr());
        }
    }
    watching += std::chrono::duration<double>((begun - before) + (Clock::now() - ended)).count();
    if (raised) {
        raised->restore();
        throw nb::python_error();
    }
    return nb::steal(result.release());
}

Ref Recorder::handles(PyObject* types) {
    const Room room;
    return Ref(PyObject_CallMethod(torch_.binding(), "handles", "(O)", types));
}

// What torch does where a mode answers NotImplemented, but that its error names no mode of ours when nobody else answers either: the
// subclasses are asked in turn while the mode is active. Where torch keeps modes of its own it asks those afterwards.
nb::object Recorder::declined(PyObject* mode, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
    if (torch_.modes_below()) return nb::borrow(Py_NotImplemented);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
        const Ref handler = checked(PyObject_GetAttrString(PyTuple_GET_ITEM(types, i), "__torch_dispatch__"));
        torch_.push_mode(mode);
        Ref result(PyObject_CallFunctionObjArgs(handler.get(), func, types, args, kwargs == Py_None ? nullptr : kwargs, nullptr));
        torch_.pop_mode();
        if (result.get() != Py_NotImplemented) return nb::steal(checked(result.release()).release());
    }
    const Ref told = checked(PyObject_CallMethod(torch_.binding(), "nobody", "(OO)", func, types));
    PyErr_SetObject(PyExc_TypeError, told.get());
    throw nb::python_error();
}

// Makes the call. The program's function modes and subclasses have heard of what the program called; of this they would hear where C++
// called the operator: a script, a backward pass.
Ref Recorder::make(const Running& running, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
    Ref made = running.info ? Ref::borrow(running.info->target.get()) : target(func);
    std::optional<Quiet> quiet;
    try {
        const Room room;
        if (torch_.hears(args, kwargs)) {
            Ref straight = checked(PyObject_CallMethod(torch_.binding(), "straight", "(OO)", func, args));
            if (straight.get() != Py_None) made = std::move(straight);
            else quiet.emplace(torch_, true);
        }
    } catch (nb::python_error& error) {
        error.restore();
        miss(func);
    }
    const bool checked_here = checks_ && running.info && running.info->checked && active && PyTuple_Check(types) && !PyTuple_GET_SIZE(types);
    return checked_here ? checks_.call(signature(running), func, made.get(), args, kwargs) : Ref(PyObject_Call(made.get(), args, kwargs));
}

// What is called for an operator: the same whether the call is recorded, missed or let through.
Ref Recorder::target(PyObject* func) {
    const auto known = operators_.find(func);
    if (known != operators_.end()) return Ref::borrow(known->second->target.get());
    const Room room;
    Ref found(PyObject_CallMethod(torch_.binding(), "target", "(O)", func));
    if (found) return found;
    let_pass();
    return Ref::borrow(func);
}

// Numbers what Budget.signature of record/torch/budget.py tells apart, and more; 0 where not all of that is at hand.
std::uint64_t Recorder::signature(const Running& running) const {
    if (!running.selected || !running.plain) return 0;
    std::uint64_t hash = mixed(std::hash<std::string>()(running.args), reinterpret_cast<std::uintptr_t>(running.info));
    for (const auto& seen : running.inputs) {
        const TensorRow& row = seen.row;
        hash = mixed_all(hash, {row.dtype, row.layout, row.tensor_class, row.ndim, row.stride_ndim});
        for (int i = 0; i < row.ndim + row.stride_ndim; ++i) hash = mixed(hash, static_cast<std::uint64_t>(row.dims.data()[i]));
    }
    return hash | 1;
}

// Does a part of the watching of one call; where that fails the call is missed, and nothing is known of tensors any more. Throws what is
// the program's own: a signal handler of its may have raised meanwhile.
template <class Part>
void Recorder::attempt(PyObject* func, const Part& part) {
    const Room room;
    try {
        const Quiet quiet(torch_);
        return part();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    miss(func);
}

// Tells the session of a call that could not be recorded whole, for the error that is set.
void Recorder::miss(PyObject* func) {
    const Room room;
    for (auto& [address, storage] : storages_) storage->versions.clear();
    const Error error;
    const Ref op = checked(PyObject_Str(func));
    const Ref lasts = checked(PyObject_CallMethod(torch_.binding(), "missed", "(OO)", op.get(), error.value()));
    if (lasts.get() != Py_True) active = false;
}

// Clears the error that is set; throws what is the program's own.
void Recorder::let_pass() {
    const Room room;
    const Error error;
    checked(PyObject_CallMethod(torch_.binding(), "passes", "(O)", error.value()));
}

// Hands the error that is set to the session, which ends recording; the program goes on. Throws what is the program's own, such as
// what a signal handler of it raised.
void Recorder::fail() {
    const Room room;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Ref held[] = {Ref(type), Ref(value), Ref(trace)};
    active = false;
    if (value && trace) PyException_SetTraceback(value, trace);
    const Ref told(PyObject_CallMethod(torch_.binding(), "fail", "(O)", value ? value : Py_None));
    if (!told) throw nb::python_error();
}

// The arguments as the operator takes them: a mode is handed tensors that stand for Python numbers as numbers (numbers of binding.py).
nb::object Recorder::with_tensors(PyObject* func, nb::handle args) {
    const Room room;
    const auto is_number = [](PyObject* each) { return PyLong_Check(each) || PyFloat_CheckExact(each) || PyComplex_CheckExact(each); };
    std::uint64_t numbers = 0;
    for (Py_ssize_t i = std::min<Py_ssize_t>(PyTuple_GET_SIZE(args.ptr()), 64) - 1; i >= 0; --i)
        numbers = numbers << 1 | static_cast<std::uint64_t>(is_number(PyTuple_GET_ITEM(args.ptr(), i)));
    if (!numbers) return nb::borrow(args);
    try {
        return with_tensors(func, args, numbers);
    } catch (nb::python_error& error) {
        error.restore();
        let_pass();
        return nb::borrow(args);  // the operator itself says what it does not take
    }
}

nb::object Recorder::with_tensors(PyObject* func, nb::handle args, std::uint64_t numbers) {
    const auto found = tensor_places_.find(func);
    std::uint64_t places = found == tensor_places_.end() ? 0 : found->second;
    if (found == tensor_places_.end()) {
        const nb::object told = nb::borrow(torch_.binding()).attr("takes_tensors")(nb::borrow(func));
        for (const nb::handle place : told)
            if (const int at = nb::cast<int>(place); at < 64) places |= std::uint64_t{1} << at;
        Py_INCREF(func);  // its address stands for it
        tensor_places_.emplace(func, places);
    }
    if (!(numbers & places)) return nb::borrow(args);
    return nb::borrow(torch_.binding()).attr("numbers")(nb::borrow(func), nb::borrow(args));
}

const OperatorInfo& Recorder::describe(PyObject* func) {
    const auto found = operators_.find(func);
    if (found != operators_.end()) return *found->second;
    const Ref told = checked(PyObject_CallMethod(torch_.binding(), "describe", "(O)", func));
    const auto get = [&](const char* name) { return checked(PyObject_GetAttrString(told.get(), name)); };
    auto info = std::make_unique<OperatorInfo>();
    info->op = texts_(text(get("op").get()));
    info->label = texts_(text(get("short").get()));
    info->allocator = truth(get("allocator").get());
    info->collective = truth(get("collective").get());
    info->watched = truth(get("watched").get());
    info->hidden = truth(get("hidden").get());
    info->signal = truth(get("signal").get());
    info->random = truth(get("random").get());
    info->graph = truth(get("graph").get());
    info->workspace = truth(get("workspace").get());
    info->begins = truth(get("begins").get());
    info->functional = truth(get("functional").get());
    info->awaits = truth(get("awaits").get());
    const Ref filled = checked(PySequence_List(get("filled").get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filled.get()); ++i) {
        const std::string slot(text(PyList_GET_ITEM(filled.get(), i)));
        if (slot.rfind("kwargs.", 0) == 0) info->fills_keywords = true;
        else if (const int position = std::stoi(slot); position < 64) info->filled |= std::uint64_t{1} << position;
    }
    if (const Ref asks = get("asks"); asks.get() != Py_None) info->asks = static_cast<int>(integer(asks.get()));
    if (const Ref unscaled = get("unscaled"); unscaled.get() != Py_None) info->unscaled = static_cast<int>(integer(unscaled.get()));
    info->computes = truth(get("computes").get());
    info->checked = checks_.ever(func);
    const Ref bound = get("bound");
    info->bound = bound.get() == Py_None ? Bound::Unknown : bound_named(text(bound.get()));
    const Ref writes = checked(PySequence_List(get("writes").get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(writes.get()); ++i) {
        const std::string slot(text(PyList_GET_ITEM(writes.get(), i)));
        if (slot.rfind("kwargs.", 0) == 0) info->keyword_writes.push_back(slot);
        else if (const int position = std::stoi(slot); position < 64) info->writes |= std::uint64_t{1} << position;
    }
    info->function = Ref::borrow(func);
    info->target = checked(PyObject_CallMethod(torch_.binding(), "target", "(O)", func));
    return *operators_.emplace(func, std::move(info)).first->second;
}

void Recorder::count_only(PyObject* func) {
    const Room room;
    try {
        if (torch_.in_backward()) backward_seen = true;
        if (describe(func).signal) checked(PyObject_CallMethod(torch_.binding(), "signal", nullptr));
    } catch (nb::python_error& error) {
        error.restore();
        miss(func);
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        miss(func);
    }
}

void Recorder::enter(Running& running, PyObject* args, PyObject* kwargs) {
    const OperatorInfo& info = *running.info;
    running.site = &stacks_.here();
    place(running);
    running.selected = !selective_ || selects(running);
    arguments_.walk(args, kwargs, running.selected ? &running.args : nullptr);
    const auto found = std::move(arguments_.tensors);
    running.scalars = std::move(arguments_.scalars);
    running.plain = arguments_.plain;
    if (running.selected) name(running.call);
    running.sampled = running.selected && !info.graph && values_ == Values::Sample && sampled_++ % sample_ == 0;
    running.inputs.reserve(found.size());
    fresh_ = running.selected && running.site->compiled;
    for (const auto& [slot, tensor] : found) {
        const std::string& place = texts_[slot];
        bool written = false, filled = false;
        if (info.writes && place[0] >= '0' && place[0] <= '9')
            if (const int position = std::atoi(place.c_str()); position < 64) {
                written = info.writes >> position & 1u;
                filled = info.filled >> position & 1u;
            }
        for (const auto& keyword : info.keyword_writes)
            if (place.rfind(keyword, 0) == 0) {
                written = true;
                filled = info.fills_keywords;
            }
        if (!running.selected && !written) continue;
        running.inputs.emplace_back();
        Seen& seen = running.inputs.back();
        seen.written = written;
        Ref parts = observe(seen, tensor, true, slot, running.selected && !filled);
        if (parts) observe_parts(running, running.inputs, std::move(parts));
    }
    if (running.accumulator && !running.inputs.empty()) label_gradient(running);
    if (running.selected && (info.writes || !info.keyword_writes.empty())) guard(running);
    if (running.selected && info.random && values_ != Values::None)
        running.random = checked(PyObject_CallMethod(torch_.binding(), "random_states", "OO", args, kwargs ? kwargs : Py_None));
    running.unasked = unasked(info, args, kwargs);
    offer(running, false);
    Thread& here = thread();
    push(here, running.call, {}, false);
    if (info.graph) graph_runs(running, here, 1);  // last: what is noted here is taken off by leave()
}

// Outputs that the mask among a call's arguments declines, as bits, and gradients that are not scaled.
std::uint64_t Recorder::unasked(const OperatorInfo& info, PyObject* args, PyObject* kwargs) {
    std::uint64_t found = 0;
    if (info.unscaled >= 0) {
        PyObject* scale = kwargs && PyDict_Check(kwargs) ? PyDict_GetItemString(kwargs, "grad_scale") : nullptr;
        if (!scale || scale == Py_None) found |= std::uint64_t{1} << info.unscaled;
    }
    const int asks = info.asks;
    if (asks < 0 || !PyTuple_Check(args) || asks >= PyTuple_GET_SIZE(args)) return found;
    PyObject* mask = PyTuple_GET_ITEM(args, asks);
    for (Py_ssize_t i = 0; PyList_Check(mask) && i < std::min<Py_ssize_t>(PyList_GET_SIZE(mask), 64); ++i)
        if (PyList_GET_ITEM(mask, i) == Py_False) found |= std::uint64_t{1} << i;
    return found;
}

void Recorder::leave(Running& running, PyObject* result, std::string error) {
    const OperatorInfo& info = *running.info;
    Thread& here = thread();
    while (!here.open.empty()) {
        const bool mine = here.open.back().index == running.call.index;
        pop(here);
        if (mine) break;
    }
    running.error = std::move(error);
    if (info.graph) graph_runs(running, here, -1);
    if (info.graph && running.call.phase != Phase::Backward) own_all(running, here);
    for (auto& seen : running.inputs)
        if (seen.written && seen.row.storage) {
            if (!info.awaits) overwrite(seen);
            seen.row.storage->written(seen.counter);
            // Autograd counts the write only after the dispatcher returns, and not for every tensor.
            seen.row.storage->add_counter(seen.counter + 1);
            seen.row.storage->make(extent_of(seen.row));
        }
    if (info.awaits && result) land_awaited(running);
    if (!running.selected) {
        if (result) take_off(running, result);
        return;
    }
    try {
        tell(running, result);
    } catch (nb::python_error& error) {
        const Ref said(PyObject_CallMethod(torch_.binding(), "surfaced", "(O)", error.value().ptr()));
        if (said && said.get() != Py_None) running.error = text(said.get());
        else PyErr_Clear();
        running.outputs.clear();
        finish(running);
        throw;
    } catch (...) {
        running.outputs.clear();
        finish(running);
        throw;
    }
    finish(running);
}

// What came of a call: its outputs, its status, the values that are kept.
void Recorder::tell(Running& running, PyObject* result) {
    const OperatorInfo& info = *running.info;
    if (result) {
        if (PyTuple_Check(result) || PyList_Check(result)) outputs_of(running, result, "");
        else outputs_of(running, result, "0");
        for (std::size_t i = 0; i < running.inputs.size(); ++i) {
            const Seen& seen = running.inputs[i];
            if (!seen.written) continue;
            const bool returned = std::any_of(running.outputs.begin(), running.outputs.end(), [&](const Seen& out) { return out.tensor == seen.tensor; });
            if (!returned) output(running, seen.tensor, seen.row.slot);
        }
        offer(running, true);
        take_off(running, result);
        const bool integers = info.watched && std::any_of(running.outputs.begin(), running.outputs.end(), [](const Seen& out) { return out.integer; });
        if (info.graph) {
            if (makes(running)) checked(PyObject_CallMethod(torch_.binding(), "suspected", "(O)", info.function.get()));
        } else if (integers || anomalous(running)) {
            judge(running);
        }
        if (running.sampled) keep_all(running);
        if (running.random && (running.kept || running.sampled || values_ == Values::Full)) keep_random(running);
    } else if (!info.graph) {
        judge(running);  // what it raised on is wanted as much as what it computed wrongly
    }
}

// What a call of compiled code read or wrote may be rewritten by the next fused kernel, which nobody sees.
void Recorder::void_all(const Running& running) {
    if (!fresh_) return;
    fresh_ = false;
    for (const auto* side : {&running.inputs, &running.outputs})
        for (const auto& seen : *side)
            if (seen.row.storage && !seen.row.storage->steady) seen.row.storage->versions.clear();
}

void Recorder::outputs_of(Running& running, PyObject* result, const std::string& slot) {
    arguments_.walk_value(result, slot);
    const auto found = std::move(arguments_.tensors);
    for (const auto& [place, tensor] : found) output(running, tensor, place);
}

void Recorder::output(Running& running, PyObject* tensor, std::int32_t slot) {
    running.outputs.emplace_back();
    const OperatorInfo& info = *running.info;
    const bool wanted = !running.unasked || !(running.unasked >> (std::atoi(texts_[slot].c_str()) & 63) & 1);
    Ref parts = observe(running.outputs.back(), tensor, false, slot, wanted && !info.begins && !info.allocator, info.workspace);
    const Seen& seen = running.outputs.back();
    if (info.allocator && seen.row.storage) {
        const bool given = std::any_of(running.inputs.begin(), running.inputs.end(), [&](const Seen& in) { return in.row.storage == seen.row.storage; });
        if (!given) seen.row.storage->blanked();
    }
    if (parts) observe_parts(running, running.outputs, std::move(parts));
}

// After the rows are safe: what the session wants to know at once.
void Recorder::after(Running& running) {
    const Room room;
    if (running.call.phase == Phase::Backward || running.call.phase == Phase::Recompute) backward_seen = true;
    if (running.info->signal) checked(PyObject_CallMethod(torch_.binding(), "signal", nullptr));
    const auto now = Clock::now();
    if (now >= due_ || rows_.tensors.size() >= due_rows_) {
        due_ = now + std::chrono::milliseconds(500);
        checked(PyObject_CallMethod(torch_.binding(), "due", nullptr));
        due_rows_ = rows_.tensors.size() + most_waiting;  // some may wait for a device
    }
}

// -- placing a call ------------------------------------------------------------------------------------------

void Recorder::place(Running& running) {
    Thread& here = thread();
    CallRow& call = running.call;
    call.index = next_index_++;
    call.step = step;
    call.level = running.info->graph ? Level::Graph : Level::Operator;
    call.again = here.again;
    call.op = running.info->op;
    call.label = running.info->label;
    call.thread = static_cast<std::int64_t>(PyThread_get_thread_ident() & 0x7FFFFFFFFFFFFFFFULL);
    call.parent = here.open.empty() ? -1 : here.open.back().index;
    call.module = here.open.empty() ? texts_("") : here.open.back().module;
    call.stack = running.site->stack;
    const bool backward = torch_.in_backward();
    call.phase = running.info->collective ? Phase::Communication : phase(here, *running.site, backward);
    call.source = running.site->source != Interner::none ? running.site->source : running.site->outer;
    if (backward) {
        const Ref node = torch_.current_node();
        if (node.get() != Py_None) follow_backward(running, node.get());
    }
    own(running, here);
}

void Recorder::follow_backward(Running& running, PyObject* node) {
    CallRow& call = running.call;
    const std::int64_t sequence = torch_.node_sequence(node);
    const auto found = forward_.find(thread().numbered(sequence));
    if (found == forward_.end()) {
        if (std::string_view(Py_TYPE(node)->tp_name).find("AccumulateGrad") != std::string_view::npos) running.accumulator = Ref::borrow(node);
        return;
    }
    running.partner = &found->second;
    call.forward_index = found->second.index;
    call.autograd = sequence;
    if (call.phase != Phase::Backward) return;
    call.module = found->second.module;
    if (running.site->source == Interner::none) call.source = found->second.source;
}

// The first call that sees a new sequence number of its thread owns the autograd node made with it.
void Recorder::own(Running& running, Thread& here) {
    const std::int64_t next = torch_.next_sequence();
    running.sequence = next;
    if (here.graphs && running.site->compiled) return;  // the graph made the node
    if (next <= here.sequence) return;
    here.sequence = next;
    if (next <= 0 || running.info->graph) return;
    CallRow& call = running.call;
    if (call.phase == Phase::Backward) {  // create_graph: what a gradient is the gradient of stands in the program's forward pass
        if (running.partner != nullptr) {
            const auto forward = *running.partner;
            forward_[here.numbered(next - 1)] = forward;
        }
        return;
    }
    call.autograd = next - 1;
    forward_[here.numbered(next - 1)] = {call.index, step, call.op, call.module, call.source, running.site->api};
}

// The nodes that a compiled graph made and no call inside of it owns are the graph's.
void Recorder::own_all(const Running& running, Thread& here) {
    const std::int64_t next = torch_.next_sequence();
    const CallRow& call = running.call;
    here.graph = Partner{call.index, step, call.op, call.module, call.source, running.site->api};
    for (std::int64_t made = std::max<std::int64_t>(running.sequence, 0); made < next; ++made)
        forward_.try_emplace(here.numbered(made), here.graph);
    here.sequence = std::max(here.sequence, next);
}

Phase Recorder::phase(const Thread& here, const Site& site, bool backward) const {
    if (backward) return site.checkpoint ? Phase::Recompute : Phase::Backward;
    if (!here.phases.empty()) return site.closure ? Phase::Forward : here.phases.back();
    if (site.gradient) return Phase::Backward;
    return site.optimizer ? Phase::Optimizer : Phase::Forward;
}

void Recorder::name(CallRow& call) {
    const std::uint64_t what = mixed_all(1, {call.module, call.level == Level::Operator || call.level == Level::Graph ? call.label : call.op, static_cast<std::int64_t>(call.level)});
    call.k = ++counts_[mixed(what, static_cast<std::uint64_t>(call.phase))];
    const std::uint64_t which = mixed(what, static_cast<std::uint64_t>(call.k));
    if (call.phase == Phase::Forward) {
        forward_by_name_[which] = call.index;
    } else if (call.phase == Phase::Recompute) {
        const auto original = forward_by_name_.find(which);
        if (original != forward_by_name_.end()) call.forward_index = original->second;
    }
}

bool Recorder::selects(const Running& running) {
    const CallRow& call = running.call;
    const Partner* partner = call.phase == Phase::Backward ? running.partner : nullptr;
    const std::int32_t others[] = {running.site->api, partner ? partner->op : Interner::none, partner ? partner->api : Interner::none};
    const std::uint64_t key = mixed_all(2, {call.op, call.module, static_cast<std::int64_t>(call.phase), others[0], others[1], others[2], running.accumulator ? 1 : 0});
    const auto found = selected_.find(key);
    if (found != selected_.end()) return found->second;
    static const char* const phases[] = {"forward", "backward", "optimizer", "recompute", "communication"};
    const auto optional = [&](std::int32_t number) { return number == Interner::none ? nullptr : texts_[number].c_str(); };
    const Ref answer = checked(PyObject_CallMethod(torch_.binding(), "wanted", "ssssOzzz", texts_[call.op].c_str(), texts_[call.label].c_str(),
                                                   texts_[call.module].c_str(), phases[static_cast<int>(call.phase)],
                                                   running.accumulator ? Py_True : Py_False, optional(others[0]),
                                                   optional(others[1]), optional(others[2])));
    return selected_[key] = truth(answer.get());
}

// -- observing tensors ---------------------------------------------------------------------------------------

std::shared_ptr<Storage> Recorder::storage_of(PyObject* tensor, const Facts& facts, bool input) {
    if (!facts.address) return nullptr;
    if (unswept_ >= sweep_every) sweep();
    const auto known = storages_.find(facts.address);
    std::shared_ptr<Storage> storage = known == storages_.end() ? nullptr : known->second;
    if (!storage) {
        auto made = std::allocate_shared<Storage>(std::pmr::polymorphic_allocator<Storage>(&pool_), &pool_);
        made->reference = torch_.hold(tensor, facts);
        made->number = next_storage_++;
        made->add_counter(0);
        made->add_counter(facts.counter);
        storages_.emplace(facts.address, made);
        storage = std::move(made);
        ++unswept_;
    } else if (input && !storage->counts(facts.counter)) {
        // A view does not share its base's counter yet while the call that makes it is returning, so only inputs tell.
        storage->written(facts.counter);
    }
    const bool nameless = storage->role == Interner::none || storage->name == Interner::none;
    if (nameless && torch_.is_parameter(tensor)) {
        const Ref told = checked(PyObject_CallMethod(torch_.binding(), "label", "(O)", tensor));
        storage->role = texts_("parameter");
        PyObject* own_name = PyTuple_GET_ITEM(told.get(), 1);
        if (own_name != Py_None) storage->name = texts_(text(own_name));
    }
    return storage;
}

std::shared_ptr<Version> Recorder::new_version(std::uint64_t order) {
    auto version = std::allocate_shared<Version>(std::pmr::polymorphic_allocator<Version>(&pool_));
    version->number = next_version_++;
    version->order = order;
    return version;
}

void Recorder::touch(Seen& seen, PyObject* tensor, Facts& facts, bool input, std::int32_t slot) {
    torch_.facts(tensor, facts);
    TensorRow& row = seen.row;
    seen.tensor = tensor;
    seen.counter = facts.counter;
    seen.integer = facts.code >= static_cast<int>(DType::Int8) && facts.code <= static_cast<int>(DType::UInt64);
    row.input = input;
    row.slot = slot;
    row.dtype = facts.dtype;
    row.device = facts.device;
    row.layout = facts.layout;
    row.tensor_class = facts.tensor_class;
    row.requires_grad = facts.requires_grad;
    row.offset = facts.offset;
    row.ndim = static_cast<std::uint8_t>(facts.ndim);
    row.stride_ndim = static_cast<std::uint8_t>(facts.stride_ndim);
    row.item = facts.code >= 0 && !facts.composed ? static_cast<std::uint8_t>(item_size(static_cast<DType>(facts.code))) : 0;
    row.composed = facts.composed;
    if (facts.composed) {
        row.ndim = static_cast<std::uint8_t>(facts.logical_ndim);
        row.stride_ndim = 0;
        row.dims.assign(facts.logical, facts.logical_ndim, nullptr, 0);
    } else {
        row.dims.assign(facts.shape, facts.ndim, facts.stride, facts.stride_ndim);
    }
    row.storage = storage_of(tensor, facts, input);
    if (!row.storage) return;
    const Covering what = covering(facts);
    row.order = what.order;
    row.copies = what.copies;
    seen.key = what.key;
    if (row.storage->awaited && awaited(row.storage, extent_of(row))) {  // its content is nobody's yet: a version that is never read
        row.version = new_version(what.order);
        row.version->unread = false;
        return;
    }
    if ((fresh_ && !row.storage->steady) || (input && torch_.written_unseen(facts))) row.storage->versions.clear();
    for (const auto& [key, version] : row.storage->versions)
        if (key == what.key) row.version = version;
    if (row.version) return;
    row.version = new_version(what.order);
    row.storage->versions.emplace_back(what.key, row.version);
}

// Answers what the tensor consists of besides its values, if it is composed.
Ref Recorder::observe(Seen& seen, PyObject* tensor, bool input, std::int32_t slot, bool readable, bool workspace) {
    Facts facts;
    touch(seen, tensor, facts, input, slot);
    Version* version = seen.row.version.get();
    seen.staged = facts.staged;
    // Reading memory that nobody has written gives it pages, which cost once more when they are written.
    if (version && workspace && values_ != Values::Full && facts.code == static_cast<int>(DType::UInt8)) seen.row.storage->blanked();
    Ref parts = std::move(facts.parts);
    if (version && version->unread && readable && !hidden(seen) && !seen.row.storage->blank(extent_of(seen.row))) read_version(seen, tensor, facts);
    return parts;
}

// Memory of a compiled graph that is running: what its generated code makes on the way is its own. Only what went in and what comes out is
// read.
bool Recorder::hidden(const Seen& seen) { return fresh_ && !seen.row.storage->steady && thread().graphs; }

void Recorder::graph_runs(Running& running, Thread& here, int by) {
    here.graphs += by;
    if (by > 0) here.running.push_back(&running);
    else if (!here.running.empty()) here.running.pop_back();
    for (const auto& seen : running.inputs)
        if (seen.row.storage && !seen.written) seen.row.storage->steady += by;
}

void Recorder::wrote(const std::vector<std::string>& slots) {
    Thread& here = thread();
    if (here.running.empty()) return;
    const std::unordered_set<std::string> moved(slots.begin(), slots.end());
    for (auto& seen : here.running.back()->inputs) {
        if (seen.written || !moved.count(texts_[seen.row.slot])) continue;
        seen.written = true;
        if (seen.row.storage) seen.row.storage->steady -= 1;
    }
}

// Indices, sizes, scales: each has a row of its own, `0.indices`.
void Recorder::observe_parts(Running& running, std::vector<Seen>& side, Ref parts) {
    const bool input = side.back().row.input;
    const std::string slot = texts_[side.back().row.slot] + '.';
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
        PyObject* part = PyTuple_GET_ITEM(parts.get(), i);
        side.emplace_back();
        observe(side.back(), PyTuple_GET_ITEM(part, 1), input, texts_(slot + std::string(text(PyTuple_GET_ITEM(part, 0)))), true);
        side.back().part = true;
    }
    running.parts.push_back(std::move(parts));
}

void Recorder::read_version(Seen& seen, PyObject* tensor, Facts& facts) {
    if (facts.readable) {
        read(seen, tensor, facts);
    } else if (facts.staged) {
        seen.row.version->unread = false;
        if (values_ == Values::Full) keep(*seen.row.version, tensor);
        staged_.emplace(integer(checked(PyObject_CallMethod(torch_.binding(), "stage", "(O)", tensor)).get()), seen.row.version);
        ++pending;
    }
}

void Recorder::read(Seen& seen, PyObject* tensor, Facts& facts) {
    const std::shared_ptr<Version> version = seen.row.version;
    version->unread = false;
    version->order = seen.row.order;
    Ref resolved;
    if (torch_.lazy(tensor, facts)) {
        resolved = checked(PyObject_CallMethod(torch_.binding(), "resolved", "(O)", tensor));
        torch_.facts(resolved.get(), facts);
        tensor = resolved.get();
    }
    const ArrayView view = torch_.view(tensor, facts);
    std::int64_t elements = 1;
    for (int i = 0; i < facts.ndim; ++i) elements *= facts.shape[i];
    if (!view.data && elements) return;  // its storage has been freed, to be filled again later
    Options options;
    constexpr std::int64_t worth_threads = 1 << 16, worth_release = 1 << 20;
    if (elements >= worth_threads && team_) {
        options.threads = threads_wanted_;
        options.pool = &team_;
    }
    if (elements >= worth_release) {
        nb::gil_scoped_release released;
        version->statistics = statistics(view, options);
    } else {
        version->statistics = statistics(view, options);
    }
    version->known = true;
    seen.arrived = seen.row.input && (version->statistics.nan || version->statistics.pos_inf);
    if (values_ == Values::Full) keep(*version, tensor);
}

void Recorder::keep(Version& version, PyObject* tensor) {
    const Ref kept = checked(PyObject_CallMethod(torch_.binding(), "keep", "(O)", tensor));
    if (kept.get() != Py_None) version.value = value_at(kept.get());
}

// Of calls that made a kind of these that no operand held: what the call read and made, as far as store(ticket, version, mask) answers
// where it is. The ticket is -1 of what was asked long ago, and of what was made; mask: nothing but -inf was made.
void Recorder::keep_operands(const std::unordered_set<const Version*>& unsound, nb::handle store) {
    std::unordered_map<const Version*, std::int64_t> tickets;
    for (const auto& [ticket, version] : staged_) tickets.emplace(version.get(), ticket);
    auto& rows = rows_.tensors;
    for (std::size_t start = 0, end = 0; start < rows.size(); start = end) {
        unsigned made = 0, given = 0;
        for (; end < rows.size() && rows[end].index == rows[start].index; ++end) {
            const Version* version = rows[end].version.get();
            if (!version || !version->known) continue;
            if (rows[end].input) given |= kinds_of(version->statistics);
            else if (unsound.count(version)) made |= kinds_of(version->statistics);
        }
        made &= ~given;
        for (std::size_t i = start; made && !(given & nan_kind) && i < end; ++i) {
            Version* version = rows[i].version.get();
            if (!version || version->value) continue;
            const auto ticket = rows[i].input ? tickets.find(version) : tickets.end();
            const nb::object place = store(ticket == tickets.end() ? -1 : ticket->second, version->number, made == neg_inf_kind);
            if (!place.is_none()) version->value = value_at(place.ptr());
        }
    }
}

// Large tensors of a device that a call is about to read, or has made: what they hold may be gone when it is known what it made of them.
void Recorder::offer(const Running& running, bool made) {
    if (!running.selected || !offered_from || !running.info->computes) return;
    Ref given;
    for (const auto& seen : made ? running.outputs : running.inputs) {
        const Version* version = seen.row.version.get();
        if (!seen.staged || seen.part || !version || version->unread) continue;
        const Extent extent = extent_of(seen.row);
        if (extent.to - extent.from < offered_from) continue;
        if (!given) given = checked(PyList_New(0));
        const Ref pair = checked(Py_BuildValue("LO", static_cast<long long>(version->number), seen.tensor));
        if (PyList_Append(given.get(), pair.get())) throw nb::python_error();
    }
    if (given) checked(PyObject_CallMethod(torch_.binding(), "offer", "OO", given.get(), made ? Py_True : Py_False));
}

// The calls of an AccumulateGrad node hand a gradient to its parameter.
void Recorder::label_gradient(Running& running) {
    const Seen& gradient = running.inputs.front();
    const auto& storage = gradient.row.storage;
    if (!storage || storage->role != Interner::none) return;
    const Ref parameter = checked(PyObject_CallMethod(torch_.binding(), "accumulates", "(OO)", running.accumulator.get(), gradient.tensor));
    storage->role = texts_("gradient");
    if (parameter.get() != Py_None) storage->name = texts_(text(parameter.get()));
}

// -- anomalies -----------------------------------------------------------------------------------------------

// Copies the arguments that the call will overwrite, unless a non-finite result can be excluded.
void Recorder::guard(Running& running) {
    if (values_ != Values::Anomaly && values_ != Values::Sample) return;
    if (!running.sampled && (running.info->bound == Bound::Overwritten || excluded(running))) return;
    for (const auto& seen : running.inputs) {
        if (!seen.written || seen.staged || !known(seen)) continue;
        Ref copy = checked(PyObject_CallMethod(torch_.binding(), "clone", "(O)", seen.tensor));
        running.before.emplace_back(seen.row.slot, std::move(copy));
    }
}

bool Recorder::excluded(const Running& running) const {
    if (running.info->bound == Bound::Unknown) return false;
    std::vector<Extremes> extremes;
    double limit = 0;
    for (const auto& seen : running.inputs) {
        const Statistics* s = known(seen);
        if (!s || non_finite(*s)) return false;
        if (s->has_range) extremes.push_back({s->min, s->max});
    }
    for (double scalar : running.scalars)
        if (!std::isfinite(scalar)) return false;
    bool any = false;
    for (const auto& seen : running.inputs) {
        const std::string& dtype = texts_[seen.row.dtype];
        double own = 0;
        if (dtype == "float16") own = limit_of(static_cast<int>(DType::Float16));
        else if (dtype == "bfloat16") own = limit_of(static_cast<int>(DType::BFloat16));
        else if (dtype == "float32") own = limit_of(static_cast<int>(DType::Float32));
        else if (dtype == "float64") own = limit_of(static_cast<int>(DType::Float64));
        else continue;
        limit = any ? std::min(limit, own) : own;
        any = true;
    }
    return bound_of(running.info->bound, extremes, running.scalars) < limit;
}

// Whether outputs hold a kind of non-finite value that no input held, or NaN or +Inf arrived that no recorded call made.
bool Recorder::anomalous(const Running& running) const {
    for (const auto& seen : running.inputs)
        if (seen.arrived) return true;
    return makes(running);
}

// Whether outputs hold a kind of non-finite value that no input held.
bool Recorder::makes(const Running& running) const {
    std::array<bool, 3> given{}, made{};
    const auto note = [](const std::vector<Seen>& rows, std::array<bool, 3>& kinds) {
        for (const auto& seen : rows)
            if (const Statistics* s = known(seen)) {
                kinds[0] = kinds[0] || s->nan;
                kinds[1] = kinds[1] || s->pos_inf;
                kinds[2] = kinds[2] || s->neg_inf;
            }
    };
    note(running.outputs, made);
    if (!made[0] && !made[1] && !made[2]) return false;
    note(running.inputs, given);
    if (given[0]) return false;  // whatever follows from NaN is no origin
    return made[0] || (made[1] && !given[1]) || (made[2] && !given[2]);
}

// The decision is made in Python, on the same records that bookkeeping.py has.
void Recorder::judge(Running& running) {
    const nb::object draft = as_draft(running);
    const Ref bits = checked(PyObject_CallMethod(torch_.binding(), "judge", "(O)", draft.ptr()));
    if (bits.get() != Py_None) {
        running.call.status = integer(bits.get());
        running.call.has_status = true;
        overflowed = overflowed || running.call.status != 0;
    }
    running.kept = nb::cast<bool>(draft.attr("kept"));
    const auto adopt = [&draft](const char* side, std::vector<Seen>& rows) {
        const nb::list observed(draft.attr(side));
        std::size_t at = 0;
        for (auto& seen : rows) {
            if (seen.part) continue;
            const nb::object value = observed[at++].attr("value");
            if (!value.is_none()) seen.row.value = value_at(value.ptr());
        }
    };
    adopt("inputs", running.inputs);
    adopt("outputs", running.outputs);
}

// Stores every tensor of a sampled call; what it overwrote comes from the copies that guard made.
void Recorder::keep_all(Running& running) {
    for (auto& seen : running.inputs) {
        PyObject* tensor = seen.written ? nullptr : seen.tensor;
        for (const auto& [slot, copy] : running.before)
            if (slot == seen.row.slot) tensor = copy.get();
        if (tensor && known(seen)) keep(seen, tensor);
    }
    for (auto& seen : running.outputs)
        if (known(seen)) keep(seen, seen.tensor);
}

// The states go into the argument tree: with them the call can be made again as it was.
void Recorder::keep_random(Running& running) {
    if (!truth(running.random.get())) return;
    const Ref told = checked(PyObject_CallMethod(torch_.binding(), "keep_random", "OO", running.random.get(), running.kept ? Py_True : Py_False));
    if (told.get() == Py_None) return;
    running.args.pop_back();
    running.args += ", \"random\": ";
    running.args += text(told.get());
    running.args += '}';
}

void Recorder::keep(Seen& seen, PyObject* tensor) {
    const Ref kept = checked(PyObject_CallMethod(torch_.binding(), "keep", "(O)", tensor));
    if (kept.get() != Py_None) seen.row.value = value_at(kept.get());
}

nb::object Recorder::as_observed(const Seen& seen, bool input) {
    const Statistics* s = known(seen);
    nb::object told = nb::none();
    if (s) {
        nb::dict found;
        const std::pair<const char*, std::int64_t> counts[] = {{"size", s->size}, {"nan", s->nan}, {"pos_inf", s->pos_inf}, {"neg_inf", s->neg_inf},
                                                               {"zero", s->zero}, {"neg", s->neg}, {"pos", s->pos}, {"near_limit", s->near_limit}};
        for (const auto& [key, value] : counts)
            if (value != Statistics::unknown) found[key] = value * seen.row.copies;
        if (s->has_range) {
            found["min"] = s->min;
            found["max"] = s->max;
            found["mean"] = s->mean;
            if (!std::isnan(s->l2norm)) found["l2norm"] = s->l2norm;
        }
        if (s->has_int) {
            found["min_int"] = s->min_int;
            found["max_int"] = s->max_int;
        }
        told = found;
    }
    return nb::borrow(torch_.binding()).attr("observed")(input ? "input" : "output", texts_[seen.row.slot], nb::borrow(seen.tensor), told);
}

nb::object Recorder::as_draft(Running& running) {
    nb::list inputs, outputs;
    for (const auto& seen : running.inputs)
        if (!seen.part) inputs.append(as_observed(seen, true));
    for (const auto& seen : running.outputs)
        if (!seen.part) outputs.append(as_observed(seen, false));
    nb::dict before;
    for (const auto& [slot, copy] : running.before) before[texts_[slot].c_str()] = nb::borrow(copy.get());
    return nb::borrow(torch_.binding()).attr("draft")(nb::borrow(running.info->function.get()), running.args, inputs, outputs, before);
}

void Recorder::finish(Running& running) {
    void_all(running);
    if (!running.outputs.empty()) running.call.device = running.outputs.front().row.device;
    else if (!running.inputs.empty()) running.call.device = running.inputs.front().row.device;
    if (running.flight) return park(running);
    if (inputs_wanted_)
        for (auto& seen : running.inputs) {
            seen.row.index = running.call.index;
            rows_.tensors.push_back(std::move(seen.row));
        }
    if (outputs_wanted_)
        for (auto& seen : running.outputs) {
            seen.row.index = running.call.index;
            rows_.tensors.push_back(std::move(seen.row));
        }
    running.call.args = rows_.text(running.args);
    running.call.error = rows_.text(running.error);
    rows_.calls.push_back(running.call);
}

}  // namespace opscope

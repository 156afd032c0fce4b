// SPDX-License-Identifier: Apache-2.0
// Modules and APIs, steps, and handing rows over.
#include <dlfcn.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "recorder.hpp"

#include <algorithm>
#include <limits>

namespace opscope {
namespace {

// Statistics from the record of kernels/reference.py; a field that is None is absent.
Statistics statistics_of(nb::handle told) {
    Statistics found;
    const std::pair<const char*, std::int64_t*> counts[] = {{"size", &found.size}, {"nan", &found.nan}, {"pos_inf", &found.pos_inf},
                                                            {"neg_inf", &found.neg_inf}, {"zero", &found.zero}, {"neg", &found.neg},
                                                            {"pos", &found.pos}, {"near_limit", &found.near_limit}};
    for (const auto& [name, place] : counts) {
        const nb::object count = told.attr(name);
        *place = count.is_none() ? Statistics::unknown : nb::cast<std::int64_t>(count);
    }
    found.has_range = !told.attr("min").is_none();
    const std::pair<const char*, double*> numbers[] = {{"min", &found.min}, {"max", &found.max}, {"mean", &found.mean}, {"l2norm", &found.l2norm}};
    if (found.has_range)
        for (const auto& [name, place] : numbers) {
            const nb::object number = told.attr(name);
            *place = number.is_none() ? std::numeric_limits<double>::quiet_NaN() : nb::cast<double>(number);
        }
    found.has_int = !told.attr("min_int").is_none();
    if (found.has_int) {
        found.min_int = nb::cast<std::int64_t>(told.attr("min_int"));
        found.max_int = nb::cast<std::int64_t>(told.attr("max_int"));
    }
    found.has_digest = !told.attr("digest").is_none();
    if (found.has_digest) found.digest = nb::cast<std::uint64_t>(told.attr("digest"));
    const nb::object sample = told.attr("sample");
    found.has_sample = !sample.is_none();
    if (found.has_sample)
        for (std::size_t place = 0; place < SAMPLE; ++place) found.sample[place] = nb::cast<float>(sample[place]);
    return found;
}

// Drops the older half when there are more than that: a step that never ends must not fill memory (forget_oldest of calls.py).
template <class Map, class IndexOf>
void forget_oldest(Map& remembered, const IndexOf& index_of) {
    constexpr std::size_t most = std::size_t{1} << 19;
    if (remembered.size() <= most) return;
    std::vector<std::int64_t> indices;
    indices.reserve(remembered.size());
    for (const auto& entry : remembered) indices.push_back(index_of(entry.second));
    const auto middle = indices.begin() + static_cast<std::ptrdiff_t>(indices.size() / 2);
    std::nth_element(indices.begin(), middle, indices.end());
    for (auto at = remembered.begin(); at != remembered.end();) at = index_of(at->second) < *middle ? remembered.erase(at) : std::next(at);
}

Level level_named(const std::string& name) { return name == "module" ? Level::Module : name == "api" ? Level::Api : name == "graph" ? Level::Graph : Level::Operator; }

Phase phase_named(const std::string& name) {
    if (name == "backward") return Phase::Backward;
    if (name == "optimizer") return Phase::Optimizer;
    if (name == "recompute") return Phase::Recompute;
    return name == "communication" ? Phase::Communication : Phase::Forward;
}

// What a scope is called in names: an operator without namespace and overload, a function without its modules.
std::string scope_label(const std::string& op) {
    const auto space = op.find("::");
    if (space != std::string::npos) return op.substr(space + 2, op.find('.', space) - space - 2);
    const auto dot = op.rfind('.');
    return dot == std::string::npos ? op : op.substr(dot + 1);
}

}  // namespace

std::int64_t Recorder::enter_scope(const std::string& level, const std::string& op, const std::string& module, nb::handle tensors) {
    const Quiet quiet(torch_);
    Thread& here = thread();
    const Site& site = stacks_.here();
    CallRow call;
    call.index = next_index_++;
    call.step = step;
    call.level = level_named(level);
    call.op = texts_(op);
    call.label = texts_(scope_label(op));
    call.module = texts_(module);
    call.again = here.again;
    call.parent = here.open.empty() ? -1 : here.open.back().index;
    call.thread = static_cast<std::int64_t>(PyThread_get_thread_ident() & 0x7FFFFFFFFFFFFFFFULL);
    call.phase = phase(here, site, torch_.in_backward());
    call.stack = site.stack;
    call.source = site.source != Interner::none ? site.source : site.outer;
    name(call);
    std::vector<TensorRow> inputs;
    if (inputs_wanted_) touch_all(inputs, tensors, true);
    push(here, call, std::move(inputs), true);
    return call.index;
}

void Recorder::leave_scope(std::int64_t index, nb::handle tensors, nb::object error) {
    Thread& here = thread();
    bool held = false;
    for (const auto& scope : here.open) held = held || scope.index == index;
    if (!held) return;
    while (here.open.back().index != index) pop(here);
    Scope scope = std::move(here.open.back());
    pop(here);
    const Quiet quiet(torch_);
    std::vector<TensorRow> outputs;
    if (outputs_wanted_) touch_all(outputs, tensors, false);
    if (!error.is_none()) scope.call.error = rows_.text(nb::cast<std::string>(error));
    if (!outputs.empty()) scope.call.device = outputs.front().device;
    else if (!scope.inputs.empty()) scope.call.device = scope.inputs.front().device;
    for (auto* rows : {&scope.inputs, &outputs})
        for (auto& row : *rows) {
            row.index = index;
            rows_.tensors.push_back(std::move(row));
        }
    rows_.calls.push_back(std::move(scope.call));
}

// Writes to the black box; where that cannot be done any more, recording ends.
template <class Write>
void Recorder::unless_unwritable(const Write& write) {
    try {
        write();
    } catch (const UnwritableError& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        fail();
    }
}

// Puts a call on the thread's stack and into the black box.
void Recorder::push(Thread& here, const CallRow& call, std::vector<TensorRow> inputs, bool keep_row) {
    std::uint64_t number = 0;
    if (box_) {
        const std::string name = call_name(call, texts_);
        const std::string_view source = call.source == Interner::none ? std::string_view() : std::string_view(texts_[call.source]);
        unless_unwritable([&] {
            number = box_.enter({call.index, call.parent, static_cast<std::uint64_t>(call.thread), call.step, static_cast<std::uint8_t>(call.level),
                                 static_cast<std::uint8_t>(call.phase), texts_[call.op], name, texts_[call.module], source});
        });
    }
    here.open.push_back({call.index, call.module, number, keep_row ? call : CallRow{}, std::move(inputs)});
}

void Recorder::pop(Thread& here) {
    const std::uint64_t number = here.open.back().boxed;
    here.open.pop_back();
    if (box_) unless_unwritable([&] { box_.leave(number); });
}

void Recorder::attach(nb::handle box) {
    box_ = BlackBox();
    box_owner_ = nb::borrow(box);  // its file stays open as long as the recorder lives
    if (box.is_none()) return;
    const auto [path, descriptor, device, inode] = nb::cast<std::tuple<std::string, int, std::uint64_t, std::uint64_t>>(box.attr("place"));
    box_ = BlackBox(path, descriptor, device, inode);
}

// Module and API rows reuse versions and never cause a read; statistics come in when an operator has read the version.
void Recorder::touch_all(std::vector<TensorRow>& rows, nb::handle tensors, bool input) {
    for (nb::handle item : tensors) {
        const nb::object pair = nb::borrow(item);
        Seen seen;
        Facts facts;
        const nb::object slot = pair[0], tensor = pair[1];
        touch(seen, tensor.ptr(), facts, input, texts_(text(slot.ptr())));
        rows.push_back(std::move(seen.row));
    }
}

void Recorder::again(std::int64_t index, std::int64_t forward) {
    Thread& here = thread();
    here.again = index;
    here.nodes = forward;
    here.sequence = torch_.next_sequence();
}

void Recorder::forget_nodes(std::int64_t forward) {
    const std::int64_t first = nodes_of_again(forward), behind = nodes_of_again(forward + 1);
    for (auto at = forward_.begin(); at != forward_.end();)
        at = at->first >= first && at->first < behind ? forward_.erase(at) : std::next(at);
}

void Recorder::push_phase(const std::string& phase) { thread().phases.push_back(phase_named(phase)); }

void Recorder::pop_phase() {
    auto& phases = thread().phases;
    if (!phases.empty()) phases.pop_back();
}

void Recorder::next_step() {
    ++step;
    overflowed = false;
    counts_.clear();
    forward_by_name_.clear();
    sweep();
    for (auto at = forward_.begin(); at != forward_.end();) at = at->second.step < step - 2 ? forward_.erase(at) : std::next(at);
}

// Forgets storages that have died: each keeps a block of torch's heap, and many such blocks would tear the heap to pieces.
void Recorder::sweep() {
    for (auto at = storages_.begin(); at != storages_.end();) {
        if (torch_.expired(at->second->reference)) {
            torch_.release(at->second->reference);
            at = storages_.erase(at);
        } else {
            ++at;
        }
    }
    unswept_ = 0;
}

void Recorder::forget() {
    thread().sequence = torch_.next_sequence();  // nodes made before nobody watched
    settle(true);
    for (auto& [address, storage] : storages_) storage->versions.clear();
}

void Recorder::close() {
    settle(true);
    for (auto& [address, storage] : storages_) torch_.release(storage->reference);
    storages_.clear();
}

void Recorder::label(nb::handle tensor, const std::string& role, nb::object name) {
    const Quiet quiet(torch_);
    Seen seen;
    Facts facts;
    touch(seen, tensor.ptr(), facts, true, texts_("0"));
    if (!seen.row.storage) return;
    seen.row.storage->role = texts_(role);
    seen.row.storage->name = name.is_none() ? Interner::none : texts_(nb::cast<std::string>(name));
}

void Recorder::fetched(const std::vector<std::pair<std::int64_t, nb::object>>& found, nb::handle keep) {
    std::unordered_set<const Version*> unsound;
    std::int64_t first = found.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
    for (const auto& [ticket, told] : found) {
        first = std::min(first, ticket);
        const auto staged = staged_.find(ticket);
        if (staged == staged_.end()) continue;
        --pending;
        if (told.is_none()) continue;
        Version& version = *staged->second;
        version.statistics = statistics_of(told);
        version.known = true;
        if (non_finite(version.statistics)) unsound.insert(&version);
    }
    if (!unsound.empty()) keep_operands(unsound, keep);
    for (auto staged = staged_.begin(); staged != staged_.end();) staged = staged->first < first ? staged_.erase(staged) : std::next(staged);
    overflowed |= !unsound.empty();
}

std::vector<std::pair<std::int64_t, std::string>> Recorder::open_calls() const {
    std::vector<std::pair<std::int64_t, std::string>> found;
    const auto mine = static_cast<std::uint64_t>(PyThread_get_thread_ident());
    for (const bool here : {false, true})  // those of this thread last: a checker asks for the call that it is making
        for (const auto& [id, thread] : threads_)
            for (const auto& scope : thread.open)
                if ((static_cast<std::uint64_t>(id) == mine) == here) found.emplace_back(scope.index, texts_[scope.module]);
    return found;
}

namespace {

// Hands an Arrow array to whoever asks for it through the Arrow PyCapsule interface, once.
struct Batch {
    ArrowSchema schema{};
    ArrowArray array{};
    ~Batch() {
        if (schema.release) schema.release(&schema);
        if (array.release) array.release(&array);
    }
};

template <class T>
void release_capsule(PyObject* capsule) noexcept {
    auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (held->release) held->release(held);
    delete held;
}

template <class T>
nb::object capsule(T& from, const char* name) {
    auto* moved = new T(from);
    from.release = nullptr;
    return nb::steal(PyCapsule_New(moved, name, release_capsule<T>));
}

// The team of threads that torch itself computes with, through its OpenMP library; absent where that cannot be found.
ParallelFor openmp_team(const std::string& library) {
    using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
    using Number = int (*)();
    void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return {};
    const auto parallel = reinterpret_cast<Parallel>(dlsym(handle, "GOMP_parallel"));
    const auto thread_number = reinterpret_cast<Number>(dlsym(handle, "omp_get_thread_num"));
    const auto thread_count = reinterpret_cast<Number>(dlsym(handle, "omp_get_num_threads"));
    if (!parallel || !thread_number || !thread_count) return {};
    return [=](int count, const std::function<void(int)>& task) {
        struct Shared {
            int count;
            const std::function<void(int)>& task;
            Number number, size;
        } shared{count, task, thread_number, thread_count};
        const auto run = [](void* given) {
            auto& work = *static_cast<Shared*>(given);
            for (int i = work.number(); i < work.count; i += work.size()) work.task(i);
        };
        parallel(run, &shared, static_cast<unsigned>(count), 0);
    };
}

}  // namespace

void Recorder::use_threads(int threads, const std::string& openmp) {
    threads_wanted_ = threads;
    if (threads > 1 && !team_ && !openmp.empty()) team_ = openmp_team(openmp);
}

nb::object Recorder::take(std::int32_t process, std::int32_t rank, unsigned levels) {
    settle(!active);
    Table calls = rows_.call_table(), tensors = rows_.tensor_table();
    rows_.export_rows(texts_, process, rank, levels, calls, tensors);
    rows_.clear();
    forget_oldest(forward_, [](const Partner& owner) { return owner.index; });
    forget_oldest(forward_by_name_, [](std::int64_t index) { return index; });
    const auto batch = [](Table& table) -> nb::object {
        if (!table.rows()) return nb::none();
        auto made = std::make_unique<Batch>();
        export_schema(table.types(), &made->schema);
        table.export_to(&made->array);
        return nb::cast(made.release(), nb::rv_policy::take_ownership);
    };
    return nb::make_tuple(batch(calls), batch(tensors));
}

}  // namespace opscope

NB_MODULE(_recorder, module) {
    using namespace opscope;
    module.doc() = "Compiled bookkeeping of calls.";
    nb::set_leak_warnings(false);  // recorders live as long as the process they watch
    module.def("enter_room", &enter_room, "More frames before a RecursionError, and no tracing, for this thread until leave_room.");
    module.def("leave_room", &leave_room);
    nb::class_<Batch>(module, "Batch").def("__arrow_c_array__", [](Batch& batch, nb::object) {
        if (!batch.array.release) throw std::runtime_error("this batch was taken already");
        nb::object schema = capsule(batch.schema, "arrow_schema");
        return nb::make_tuple(schema, capsule(batch.array, "arrow_array"));
    }, nb::arg("requested_schema") = nb::none());
    nb::class_<Recorder>(module, "Recorder")
        .def(nb::init<nb::object, const std::string&, int, const std::string&, Types, Types>())
        .def("dispatch", [](Recorder& recorder, nb::handle mode, nb::handle func, nb::handle types, nb::handle args, nb::handle kwargs) {
            return recorder.dispatch(mode, func, types, args, kwargs);
        }, nb::arg("mode").none(), nb::arg("func"), nb::arg("types"), nb::arg("args"), nb::arg("kwargs").none() = nb::none())
        .def("enter_scope", &Recorder::enter_scope)
        .def("leave_scope", &Recorder::leave_scope, nb::arg("index"), nb::arg("tensors"), nb::arg("error").none() = nb::none())
        .def("push_phase", &Recorder::push_phase)
        .def("pop_phase", &Recorder::pop_phase)
        .def("again", &Recorder::again)
        .def("forget_nodes", &Recorder::forget_nodes)
        .def("claim", &Recorder::claim)
        .def("wrote", &Recorder::wrote)
        .def("next_step", &Recorder::next_step)
        .def("forget", &Recorder::forget)
        .def("close", &Recorder::close)
        .def("fetched", &Recorder::fetched)
        .def("label", &Recorder::label, nb::arg("tensor"), nb::arg("role"), nb::arg("name").none())
        .def("take", &Recorder::take)
        .def("open_calls", &Recorder::open_calls)
        .def("attach", &Recorder::attach, nb::arg("box").none())
        .def("use_threads", &Recorder::use_threads)
        .def("begin_wait", &Recorder::begin_wait)
        .def("end_wait", &Recorder::end_wait)
        .def("check_with", &Recorder::check_with, nb::arg("checker").none())
        .def_rw("active", &Recorder::active)
        .def_rw("paused", &Recorder::paused)
        .def_rw("backward_seen", &Recorder::backward_seen)
        .def_rw("overflowed", &Recorder::overflowed)
        .def_rw("step", &Recorder::step)
        .def_rw("offered_from", &Recorder::offered_from)
        .def_ro("watching", &Recorder::watching)
        .def_prop_ro("rested", &Recorder::rested)
        .def_prop_ro("gave_up", &Recorder::gave_up)
        .def_ro("pending", &Recorder::pending);
}


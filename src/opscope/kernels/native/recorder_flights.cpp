// SPDX-License-Identifier: Apache-2.0
// The outputs of collectives: read once, when the work has completed, before a call reads or writes them.
#include "recorder.hpp"

#include <algorithm>

namespace opscope {

namespace {

constexpr std::size_t most_flights = 64;  // a program may begin collectives for ever and wait for none
constexpr int most_steps = 2;

bool meets(const Flight& flight, const Storage* storage, const Extent& extent) {
    return std::any_of(flight.landings.begin(), flight.landings.end(),
                       [&](const Landing& landing) { return landing.storage.get() == storage && landing.extent.meets(extent); });
}

}  // namespace

// After the outputs were observed: takes their versions out of the storages until they arrive.
void Recorder::take_off(Running& running, PyObject* result) {
    if (!running.info->begins) return;
    Ref work = checked(PyObject_CallMethod(torch_.binding(), "work_of", "(O)", result));
    if (work.get() == Py_None) {
        if (!running.info->functional) return;
        work = Ref();
    }
    auto flight = std::make_shared<Flight>();
    flight->work = std::move(work);
    flight->step = step;
    const auto board = [&](const Seen& seen) {
        auto& storage = seen.row.storage;
        if (!storage) return;
        auto& versions = storage->versions;
        versions.erase(std::remove_if(versions.begin(), versions.end(), [&](const auto& entry) { return entry.second == seen.row.version; }),
                       versions.end());
        flight->landings.push_back({storage, seen.key, seen.row.version, Ref::borrow(seen.tensor), extent_of(seen.row)});
        ++storage->awaited;
    };
    for (const auto& seen : running.outputs) {
        const bool sent = std::any_of(running.inputs.begin(), running.inputs.end(),
                                      [&](const Seen& in) { return !in.written && in.row.storage == seen.row.storage && in.key == seen.key; });
        if (!sent) board(seen);
    }
    if (!running.selected)
        for (const auto& seen : running.inputs)
            if (seen.written) board(seen);
    if (flight->landings.empty()) return;
    running.flight = flight;
    flights_.push_back(std::move(flight));
    if (flights_.size() > most_flights) give_up(flights_.front());
}

// Keeps the rows of a collective until it is known what came.
void Recorder::park(Running& running) {
    Flight& flight = *running.flight;
    flight.row = true;
    flight.call = running.call;
    flight.args = std::move(running.args);
    flight.error = std::move(running.error);
    for (auto* side : {&running.inputs, &running.outputs}) {
        if (!(side == &running.inputs ? inputs_wanted_ : outputs_wanted_)) continue;
        for (auto& seen : *side) {
            seen.row.index = running.call.index;
            flight.tensors.push_back(std::move(seen.row));
        }
    }
}

// Whether what a tensor covers is still being filled by a collective; one that has completed lands.
bool Recorder::awaited(const std::shared_ptr<Storage>& storage, const Extent& extent) {
    bool found = false;
    for (const auto& flight : std::vector<std::shared_ptr<Flight>>(flights_)) {
        if (!meets(*flight, storage.get(), extent)) continue;
        if (completed(*flight)) land(flight);
        else found = true;
    }
    return found;
}

// A call wrote where a collective's result was to arrive: what that was will not be known.
void Recorder::overwrite(const Seen& seen) {
    if (!seen.row.storage->awaited) return;
    for (const auto& flight : std::vector<std::shared_ptr<Flight>>(flights_))
        if (meets(*flight, seen.row.storage.get(), extent_of(seen.row))) give_up(flight);
}

// On a device the program's own streams see to the order; what functional collectives began has arrived once it was waited for.
// A future is told of what arrived before its work is.
bool Recorder::completed(Flight& flight) {
    if (!flight.work) return false;
    for (const auto& landing : flight.landings) {
        Facts facts;
        torch_.facts(landing.tensor.get(), facts);
        if (facts.staged) return true;
    }
    const Ref answer(PyObject_CallMethod(flight.work.get(), "is_completed", nullptr));
    if (!answer) PyErr_Clear();
    if (answer && answer.get() == Py_True) return true;
    if (flight.futureless) return false;
    const Ref future(PyObject_CallMethod(flight.work.get(), "get_future", nullptr));
    const Ref done(future ? PyObject_CallMethod(future.get(), "done", nullptr) : nullptr);
    flight.futureless = !done;
    if (!done) PyErr_Clear();
    return done && done.get() == Py_True;
}

void Recorder::land(const std::shared_ptr<Flight>& flight) {
    if (!depart(flight)) return;
    for (auto& landing : flight->landings) {
        landing.storage->make(landing.extent);
        if (!landing.version || !truth(checked(PyObject_CallMethod(torch_.binding(), "whole", "(O)", landing.tensor.get())).get())) continue;
        Seen seen;
        Facts facts;
        torch_.facts(landing.tensor.get(), facts);
        seen.row.version = landing.version;
        seen.row.order = landing.version->order;
        seen.row.input = false;
        landing.storage->versions.emplace_back(landing.key, landing.version);
        read_version(seen, landing.tensor.get(), facts);
    }
    append(*flight);
}

void Recorder::give_up(std::shared_ptr<Flight> flight) {
    if (depart(flight)) append(*flight);
}

bool Recorder::depart(const std::shared_ptr<Flight>& flight) {
    const auto at = std::find(flights_.begin(), flights_.end(), flight);
    if (at == flights_.end()) return false;
    const std::shared_ptr<Flight> kept = flight;
    flights_.erase(at);
    for (auto& landing : kept->landings) --landing.storage->awaited;
    return true;
}

void Recorder::append(Flight& flight) {
    if (!flight.row) return;
    for (auto& row : flight.tensors) rows_.tensors.push_back(std::move(row));
    flight.call.args = rows_.text(flight.args);
    flight.call.error = rows_.text(flight.error);
    rows_.calls.push_back(std::move(flight.call));
}

// Before rows leave: what has completed meanwhile is read; nobody has touched it, or it would have landed.
void Recorder::settle(bool all) {
    for (const auto& flight : std::vector<std::shared_ptr<Flight>>(flights_)) {
        if (completed(*flight)) land(flight);
        else if (all || flight->step < step - most_steps) give_up(flight);
    }
}

// wait_tensor: what was begun on the storages of its arguments has arrived.
void Recorder::land_awaited(const Running& running) {
    for (const auto& seen : running.inputs) {
        if (!seen.row.storage || !seen.row.storage->awaited) continue;
        for (const auto& flight : std::vector<std::shared_ptr<Flight>>(flights_))
            if (!flight->work && meets(*flight, seen.row.storage.get(), extent_of(seen.row))) land(flight);
    }
}

std::shared_ptr<Flight> Recorder::flight_of(nb::handle work) const {
    for (const auto& flight : flights_)
        if (flight->work.get() == work.ptr()) return flight;
    return nullptr;
}

bool Recorder::begin_wait(nb::handle work) {
    if (!active || !flight_of(work)) return false;
    ++thread().waiting;
    ++waiting_;
    return true;
}

void Recorder::end_wait(nb::handle work, bool arrived) {
    --thread().waiting;
    --waiting_;
    if (const auto flight = flight_of(work); flight && arrived) land(flight);
}

}  // namespace opscope

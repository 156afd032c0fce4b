// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of calls: what kernels/bookkeeping.py defines in plain Python, without its cost.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "recorder_args.hpp"
#include "recorder_blackbox.hpp"
#include "recorder_checks.hpp"
#include "recorder_flights.hpp"
#include "recorder_python.hpp"
#include "recorder_rows.hpp"
#include "recorder_stacks.hpp"
#include "recorder_torch.hpp"

namespace opscope {

// What is known of an operator overload (Operator of bookkeeping.py), and how to call it.
struct OperatorInfo {
    std::int32_t op = 0, label = 0;
    std::uint64_t writes = 0;                 // positional arguments
    std::vector<std::string> keyword_writes;  // "kwargs.out"
    bool allocator = false, collective = false, watched = false, hidden = false, signal = false, random = false, checked = false, graph = false;
    bool begins = false, functional = false, awaits = false;  // collectives: their outputs arrive later; wait_tensor
    std::uint64_t filled = 0;                 // those of them whose content before the call cannot show in the result
    bool fills_keywords = false;
    bool workspace = false;                   // its uint8 outputs are a library's own memory, handed to the backward kernel
    int asks = -1;                            // position of the argument that says which outputs are wanted
    int unscaled = -1;                        // of the gradients that it writes to only where grad_scale is given
    bool computes = false;                    // can make what is not finite of what is
    Bound bound = Bound::Unknown;
    Ref function, target;
};

// A tensor of the call that is running.
struct Seen {
    TensorRow row;
    PyObject* tensor = nullptr;  // lives as long as the call's arguments and result
    std::int64_t counter = 0;
    std::uint64_t key = 0;  // which elements of the storage
    bool written = false, integer = false;
    bool arrived = false;  // NaN or +Inf that no recorded call made
    bool part = false;     // indices, sizes, scales of a composed tensor
    bool staged = false;   // its statistics come from a device, when the call is long over
};

// The forward call that owns an autograd node.
struct Partner {
    std::int64_t index;
    std::int32_t step, op, module, source, api;
};

// An operator call that is running.
struct Running {
    CallRow call;
    std::string args, error;
    const OperatorInfo* info = nullptr;
    const Site* site = nullptr;
    const Partner* partner = nullptr;
    bool selected = true, sampled = false, kept = false, plain = true;  // plain: args tells all that is no tensor
    std::uint64_t unasked = 0;  // outputs that nobody wants: a device may give memory that it has not written
    std::vector<Ref> parts;  // tensors that only this call holds
    Ref random;         // generator states before the call, as the binding gave them
    Ref accumulator;  // the AccumulateGrad node that runs
    std::vector<Seen> inputs, outputs;
    std::vector<double> scalars;
    std::int64_t sequence = 0;  // of a compiled graph: the first autograd node that it may have made
    std::shared_ptr<Flight> flight;  // a collective whose outputs have not arrived
    std::vector<std::pair<std::int32_t, Ref>> before;  // slot, copy of an argument that the call overwrites
};

// A call that was entered and not left: an operator, an API or a module.
struct Scope {
    std::int64_t index;
    std::int32_t module;
    std::uint64_t boxed;  // its number in the black box
    CallRow call;
    std::vector<TensorRow> inputs;
};

// Autograd numbers the nodes of each thread from 0: those of a graph that is executed again are kept apart from the program's, and
// from those of other graphs.
constexpr std::int64_t nodes_of_again(std::int64_t forward) { return (forward + 1) << 32; }

struct Thread {
    std::int64_t numbered(std::int64_t node) const { return again < 0 ? node : node + nodes_of_again(nodes); }
    std::vector<Scope> open;
    std::vector<Phase> phases;
    std::int64_t sequence = -1;
    std::int64_t again = -1;  // the call of a compiled graph that this thread executes again
    std::int64_t nodes = -1;  // the forward call that its autograd nodes are of
    int graphs = 0;   // compiled graphs that are running
    std::vector<Running*> running;  // their calls, innermost last
    Partner graph{};  // the one that ended last
    int waiting = 0;  // for collectives: what is called meanwhile is the backend's own work
};

class Recorder {
    static constexpr std::size_t most_waiting = 16384;  // tensor rows; then they are due whatever the time

  public:
    // sample: with values "sample", the tensors of every n-th call are kept.
    Recorder(nb::object binding, const std::string& values, int sample, const std::string& io, Types call_types, Types tensor_types);
    ~Recorder() = default;

    nb::object dispatch(nb::handle mode, nb::handle func, nb::handle types, nb::handle args, nb::handle kwargs);
    std::int64_t enter_scope(const std::string& level, const std::string& op, const std::string& module, nb::handle tensors);
    void leave_scope(std::int64_t index, nb::handle tensors, nb::object error);
    // Calls of this thread execute the graph's call of that index again, -1: they are the program's. forward: that call, or the
    // one of its forward pass, which autograd nodes are of.
    void again(std::int64_t index, std::int64_t forward);
    // No backward pass goes through the nodes of this call any more.
    void forget_nodes(std::int64_t forward);
    // The autograd node of that number is of the graph that ended last in this thread, whichever call inside of it saw the node first.
    void claim(std::int64_t node) { forward_[thread().numbered(node)] = thread().graph; }
    // The graph that is running in this thread has written to these of its inputs, which nobody had said.
    void wrote(const std::vector<std::string>& slots);
    void push_phase(const std::string& phase);
    void pop_phase();
    void next_step();
    void forget();
    void close();
    void label(nb::handle tensor, const std::string& role, nb::object name);
    // Calls and tensors since the last time as two objects with __arrow_c_array__, or None when there are none.
    nb::object take(std::int32_t process, std::int32_t rank, unsigned levels);
    // Statistics by ticket, records of kernels/reference.py or None: kernels/staged.py says what their arrival shows.
    void fetched(const std::vector<std::pair<std::int64_t, nb::object>>& found, nb::handle keep);
    // Bytes from which on the binding is offered what a call that computes reads and makes on a device; 0: nothing is.
    std::int64_t offered_from = 0;
    std::vector<std::pair<std::int64_t, std::string>> open_calls() const;
    // A BlackBox of run/store/blackbox.py, or None.
    void attach(nb::handle box);
    double gave_up() const { return box_.gave_up(); }
    void use_threads(int threads, const std::string& openmp);
    // A Checker of bookkeeping.py that makes the calls from now on, or None.
    void check_with(nb::handle checker) { checks_.use(checker); }
    std::int64_t rested() const { return checks_.rested; }
    // The program waits for a c10d Work: whether it is one of ours; then end_wait follows.
    bool begin_wait(nb::handle work);
    void end_wait(nb::handle work, bool arrived);

    bool active = false, paused = false, backward_seen = false, overflowed = false;
    std::int32_t step = 0;
    double watching = 0;       // seconds spent in observing, the calls themselves left out
    std::int64_t pending = 0;  // statistics that are still on a device

  private:
    enum class Values { None, Anomaly, Sample, Full };
    using Clock = std::chrono::steady_clock;

    template <class Write> void unless_unwritable(const Write& write);
    template <class Part> void attempt(PyObject* func, const Part& part);
    Ref target(PyObject* func);
    nb::object declined(PyObject* mode, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs);
    nb::object with_tensors(PyObject* func, nb::handle args);
    nb::object with_tensors(PyObject* func, nb::handle args, std::uint64_t numbers);
    const OperatorInfo& describe(PyObject* func);
    void enter(Running& running, PyObject* args, PyObject* kwargs);
    void leave(Running& running, PyObject* result, std::string error);
    void tell(Running& running, PyObject* result);
    void count_only(PyObject* func);
    Ref handles(PyObject* types);
    void miss(PyObject* func);
    void let_pass();
    Ref make(const Running& running, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs);
    std::uint64_t signature(const Running& running) const;
    void place(Running& running);
    void follow_backward(Running& running, PyObject* node);
    void own(Running& running, Thread& thread);
    void own_all(const Running& running, Thread& thread);
    void graph_runs(Running& running, Thread& thread, int by);
    bool hidden(const Seen& seen);
    void name(CallRow& call);
    Phase phase(const Thread& thread, const Site& site, bool backward) const;
    bool selects(const Running& running);

    std::shared_ptr<Storage> storage_of(PyObject* tensor, const Facts& facts, bool input);
    std::shared_ptr<Version> new_version(std::uint64_t order);
    void touch(Seen& seen, PyObject* tensor, Facts& facts, bool input, std::int32_t slot);
    static std::uint64_t unasked(const OperatorInfo& info, PyObject* args, PyObject* kwargs);
    Ref observe(Seen& seen, PyObject* tensor, bool input, std::int32_t slot, bool readable, bool workspace = false);
    void observe_parts(Running& running, std::vector<Seen>& side, Ref parts);
    void touch_all(std::vector<TensorRow>& rows, nb::handle tensors, bool input);
    void read(Seen& seen, PyObject* tensor, Facts& facts);
    void output(Running& running, PyObject* tensor, std::int32_t slot);
    void outputs_of(Running& running, PyObject* result, const std::string& slot);
    void read_version(Seen& seen, PyObject* tensor, Facts& facts);
    void void_all(const Running& running);
    void take_off(Running& running, PyObject* result);
    void park(Running& running);
    bool awaited(const std::shared_ptr<Storage>& storage, const Extent& extent);
    void overwrite(const Seen& seen);
    bool completed(Flight& flight);
    void land(const std::shared_ptr<Flight>& flight);
    void give_up(std::shared_ptr<Flight> flight);
    bool depart(const std::shared_ptr<Flight>& flight);
    void append(Flight& flight);
    void settle(bool all);
    void land_awaited(const Running& running);
    std::shared_ptr<Flight> flight_of(nb::handle work) const;
    void label_gradient(Running& running);
    void guard(Running& running);
    void offer(const Running& running, bool made);
    bool excluded(const Running& running) const;
    bool anomalous(const Running& running) const;
    bool makes(const Running& running) const;
    void judge(Running& running);
    void keep_all(Running& running);
    void keep_random(Running& running);
    void keep(Version& version, PyObject* tensor);
    void keep_operands(const std::unordered_set<const Version*>& unsound, nb::handle store);
    void keep(Seen& seen, PyObject* tensor);
    nb::object as_draft(Running& running);
    nb::object as_observed(const Seen& seen, bool input);
    void finish(Running& running);
    void after(Running& running);
    void fail();
    Thread& thread();
    void sweep();
    void push(Thread& here, const CallRow& call, std::vector<TensorRow> inputs, bool keep_row);
    void pop(Thread& here);

    Pages pages_;  // before all that lies there
    std::pmr::unsynchronized_pool_resource pool_{&pages_};
    Interner texts_;
    Torch torch_;
    Stacks stacks_;
    Arguments arguments_;
    Checks checks_;
    Rows rows_;
    Values values_;
    bool inputs_wanted_, outputs_wanted_, selective_;
    std::unordered_map<PyObject*, std::unique_ptr<OperatorInfo>> operators_;
    std::unordered_map<PyObject*, std::uint64_t> tensor_places_;  // arguments that cannot be numbers, by operator
    std::pmr::unordered_map<std::uintptr_t, std::shared_ptr<Storage>> storages_{&pool_};
    std::pmr::unordered_map<std::int64_t, std::shared_ptr<Version>> staged_{&pool_};  // by ticket
    std::unordered_map<unsigned long, Thread> threads_;
    std::vector<std::shared_ptr<Flight>> flights_;
    bool fresh_ = false;  // the call is one of compiled code: nothing that was read before holds
    int waiting_ = 0;  // threads that wait for collectives
    std::pmr::unordered_map<std::uint64_t, std::int32_t> counts_{&pool_};
    std::pmr::unordered_map<std::uint64_t, std::int64_t> forward_by_name_{&pool_};
    std::pmr::unordered_map<std::int64_t, Partner> forward_{&pool_};
    std::pmr::unordered_map<std::uint64_t, bool> selected_{&pool_};
    int unswept_ = 0;
    std::int64_t sample_ = 1, sampled_ = 0;
    std::int64_t next_index_ = 0, next_version_ = 0, next_storage_ = 0;
    int threads_wanted_ = 1;
    ParallelFor team_;
    Clock::time_point due_;
    std::size_t due_rows_ = most_waiting;
    BlackBox box_;
    nb::object box_owner_;
};

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// What is known of tensors and calls while they wait to be written.
#pragma once

#include <cstdint>
#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <Python.h>

#include <stdexcept>

#include "recorder_arrow.hpp"
#include "recorder_python.hpp"
#include "statistics.hpp"

namespace opscope {

// Text by number; numbers are dense and begin at 0. none stands for null.
class Interner {
  public:
    static constexpr std::int32_t none = -1;
    std::int32_t operator()(std::string_view text);
    const std::string& operator[](std::int32_t number) const { return texts_[static_cast<std::size_t>(number)]; }
    void clear() {
        numbers_.clear();
        texts_.clear();
    }

  private:
    std::deque<std::string> texts_;
    std::unordered_map<std::string_view, std::int32_t> numbers_;
};

inline bool non_finite(const Statistics& s) { return s.nan || s.pos_inf || s.neg_inf; }
constexpr unsigned nan_kind = 1, pos_inf_kind = 2, neg_inf_kind = 4;
inline unsigned kinds_of(const Statistics& s) { return (s.nan ? nan_kind : 0) | (s.pos_inf ? pos_inf_kind : 0) | (s.neg_inf ? neg_inf_kind : 0); }

// Where values were stored.
struct ValueAt {
    std::string shard, key;
};

// One state of some elements of a storage, and what was read of it.
struct Version {
    std::int64_t number = 0;
    std::uint64_t order = 0;
    bool unread = true, known = false;
    Statistics statistics;
    std::unique_ptr<ValueAt> value;
};

// Bytes of a storage, from the first to behind the last.
struct Extent {
    std::int64_t from = 0, to = std::numeric_limits<std::int64_t>::max();
    bool meets(const Extent& other) const { return from < other.to && other.from < to; }
};

constexpr std::size_t most_pieces = 64;  // of an uninitialised storage that are written apart; beyond that it counts as written

// A storage that is held weakly: its number in the run, how often it was written, its versions in the present state.
struct Storage {
    explicit Storage(std::pmr::memory_resource* memory) : versions(memory) {}

    std::int64_t number = 0;
    PyObject* reference = nullptr;  // the weak reference: a Python int, or an object for a tensor without storage
    std::int64_t counters[4] = {0, 0, 0, 0};
    int counter_count = 0;
    std::pmr::vector<std::pair<std::uint64_t, std::shared_ptr<Version>>> versions;
    bool uninitialised = false;
    std::vector<Extent> made;  // bytes of an uninitialised storage that were written since
    int awaited = 0;  // outputs of collectives that have not arrived
    int steady = 0;   // compiled graphs that are running, read it and do not write to it
    std::int32_t role = Interner::none, name = Interner::none;

    bool counts(std::int64_t counter) const {
        for (int i = 0; i < counter_count; ++i)
            if (counters[i] == counter) return true;
        return false;
    }
    void add_counter(std::int64_t counter) {
        if (!counts(counter)) counters[counter_count < 4 ? counter_count++ : 3] = counter;
    }
    // A call wrote these bytes: the others of an uninitialised storage hold what the memory held before.
    void make(Extent extent) {
        if (!uninitialised) return;
        std::vector<Extent> apart;
        for (const Extent& one : made) {
            if (one.to < extent.from || extent.to < one.from) apart.push_back(one);
            else extent = {std::min(one.from, extent.from), std::max(one.to, extent.to)};
        }
        apart.push_back(extent);
        made = std::move(apart);
        uninitialised = made.size() <= most_pieces;
    }
    // Whether some of these bytes were never written.
    bool blank(const Extent& extent) const {
        return uninitialised && std::none_of(made.begin(), made.end(), [&](const Extent& one) { return one.from <= extent.from && extent.to <= one.to; });
    }
    // What it holds is nobody's from now on.
    void blanked() {
        uninitialised = true;
        made.clear();
    }
    // Something wrote to it: what was read of it no longer holds.
    void written(std::int64_t counter) {
        versions.clear();
        counter_count = 0;
        add_counter(counter);
    }
};

constexpr int max_dims = 64;  // torch's own limit

// Shape, then stride; in its own place for up to four dimensions.
class Dims {
  public:
    void assign(const std::int64_t* shape, int ndim, const std::int64_t* stride, int stride_ndim) {
        if (ndim + stride_ndim > few) many_ = std::make_unique<std::int64_t[]>(static_cast<std::size_t>(ndim + stride_ndim));
        std::copy_n(shape, ndim, data());
        std::copy_n(stride, stride_ndim, data() + ndim);
    }
    const std::int64_t* data() const { return many_ ? many_.get() : own_; }

  private:
    static constexpr int few = 8;
    std::int64_t* data() { return many_ ? many_.get() : own_; }
    std::int64_t own_[few];
    std::unique_ptr<std::int64_t[]> many_;
};

// What is read of a tensor besides its memory.
struct Facts {
    std::uintptr_t address = 0;
    std::int64_t offset = 0;
    int ndim = 0, stride_ndim = 0;
    std::int64_t shape[max_dims], stride[max_dims];
    const void* data = nullptr;  // null: not asked for yet
    std::int32_t dtype = Interner::none, device = Interner::none, layout = Interner::none, tensor_class = Interner::none;
    int code = -1;  // DType when the kernels can read it
    bool requires_grad = false, readable = false, staged = false, lazy = false;
    std::int64_t counter = 0;
    bool uncounted = false;  // of inference mode: nobody counts what is written to it
    // A composed tensor (sparse, nested, quantised): all else is of its values, this is its own shape and what else it consists of.
    bool composed = false;
    int logical_ndim = 0;
    std::int64_t logical[max_dims];
    Ref parts;
};

// One row of table tensors in the making.
struct TensorRow {
    bool input = true;
    std::int64_t index = 0, copies = 1, offset = 0;
    std::uint64_t order = 0;
    std::int32_t slot = 0, dtype = 0, device = 0, layout = 0, tensor_class = Interner::none;
    Dims dims;
    std::uint8_t ndim = 0, stride_ndim = 0, item = 0;  // item: bytes of an element, 0 where not known
    bool requires_grad = false, composed = false;
    std::shared_ptr<Version> version;
    std::shared_ptr<Storage> storage;
    std::unique_ptr<ValueAt> value;
};

enum class Level : std::uint8_t { Operator, Api, Module, Graph };
enum class Phase : std::uint8_t { Forward, Backward, Optimizer, Recompute, Communication };

// One row of table calls in the making.
struct CallRow {
    std::int64_t index = 0, parent = -1, forward_index = -1, autograd = -1, status = 0, thread = 0, again = -1;
    std::int32_t step = 0, op = 0, label = 0, module = 0, k = 0, stack = -1, source = Interner::none, device = Interner::none;
    Level level = Level::Operator;
    Phase phase = Phase::Forward;
    bool has_status = false;
    std::string_view args, error;  // in Rows
};

// `module:operator~phase#k`, docs/schema.md section Names.
std::string call_name(const CallRow& row, const Interner& texts);

// Finished rows of both tables, until they leave as Arrow arrays.
class Rows {
    Pages pages_;  // before the vectors that lie there

  public:
    Rows(Types call_types, Types tensor_types);
    std::pmr::vector<CallRow> calls{&pages_};
    std::pmr::vector<TensorRow> tensors{&pages_};
    // A text that lives as long as the rows that wait now.
    std::string_view text(std::string_view text);

    void clear();
    // Appends all rows to the tables; levels is a bit set of Level.
    void export_rows(const Interner& texts, std::int32_t process, std::int32_t rank, unsigned levels, Table& call_table, Table& tensor_table);
    Table call_table() const { return Table(call_types_, calls.size(), batches_); }
    Table tensor_table() const { return Table(tensor_types_, tensors.size(), batches_); }

  private:
    void export_call(const CallRow& row, const Interner& texts, std::int32_t process, std::int32_t rank, Table& table);
    void export_tensor(const TensorRow& row, const Interner& texts, std::int32_t process, Table& table);
    void export_statistics(const TensorRow& row, Table& table);

    Types call_types_, tensor_types_;
    std::shared_ptr<KeptPages> batches_ = std::make_shared<KeptPages>();
    Arena texts_{std::size_t{1} << 18, batches_};
};

}  // namespace opscope

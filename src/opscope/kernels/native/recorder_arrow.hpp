// SPDX-License-Identifier: Apache-2.0
// Columns that grow row by row and leave as Arrow arrays (the Arrow C data interface, version 1.0).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recorder_memory.hpp"

struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    ArrowSchema** children;
    ArrowSchema* dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};

namespace opscope {

using Types = std::vector<std::pair<std::string, std::string>>;  // column name, type as run/schema.py names it

// Schema of a struct array with these columns.
void export_schema(const Types& types, ArrowSchema* out);

// One column of any type of run/schema.py; a string column takes text, a list column numbers.
class Column {
  public:
    Column(const std::string& type, Arena& arena, std::size_t rows);

    void null() { ++owed_; }
    void number(std::int64_t value) {
        begin();
        if (kind_ == Kind::Int64) data_.append(value);
        else if (kind_ == Kind::Int32) data_.append(static_cast<std::int32_t>(value));
        else data_.append_bit(static_cast<std::size_t>(rows_), value != 0);
        ++rows_;
    }
    void real(double value) {
        begin();
        data_.append(value);
        ++rows_;
    }
    void text(std::string_view value) {
        begin();
        data_.append(value.data(), value.size());
        offsets_.append(static_cast<std::int32_t>(data_.size()));
        ++rows_;
    }
    // Values of the width of the list's items, none of them null.
    template <class T>
    void list(const T* values, std::size_t count) {
        begin();
        Column& items = children_[0];
        if (count) items.data_.append(values, count * sizeof(T));
        items.rows_ += static_cast<std::int64_t>(count);
        offsets_.append(static_cast<std::int32_t>(items.rows_));
        ++rows_;
    }
    void pair(std::string_view first, std::string_view second);

    // Hands the rows over, once; the arena lives until out is released.
    void export_to(ArrowArray* out, const std::shared_ptr<Arena>& arena);

  private:
    enum class Kind { Int32, Int64, Float32, Float64, Bool, Text, List, Pair };
    // A row that is not null comes next. The bitmap begins with the first null; nulls are written when a value follows them, or at the end.
    void begin() {
        if (owed_) settle();
        if (nulls_) validity_.append_bit(static_cast<std::size_t>(rows_), true);
    }
    void settle();

    Kind kind_;
    std::int64_t rows_ = 0, nulls_ = 0, owed_ = 0;
    Bytes validity_, data_, offsets_;
    std::vector<Column> children_;
};

// A table in the making: columns by position, in the order of its types.
class Table {
  public:
    // rows: how many there will be, about.
    Table(Types types, std::size_t rows, std::shared_ptr<KeptPages> pages);
    Column& operator[](std::size_t column) { return columns_[column]; }
    void row() { ++rows_; }
    std::int64_t rows() const { return rows_; }
    const Types& types() const { return types_; }
    void export_to(ArrowArray* out);

  private:
    Types types_;
    std::shared_ptr<Arena> arena_;
    std::vector<Column> columns_;
    std::int64_t rows_ = 0;
};

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
#include "recorder_arrow.hpp"

namespace opscope {
namespace {

struct SchemaHolder {
    std::string format, name;
    std::vector<std::unique_ptr<ArrowSchema>> children;
    std::vector<ArrowSchema*> pointers;
};

void release_schema(ArrowSchema* schema) {
    auto* holder = static_cast<SchemaHolder*>(schema->private_data);
    for (auto& child : holder->children)
        if (child->release) child->release(child.get());
    delete holder;
    schema->release = nullptr;
}

void make_schema(std::string name, std::string format, const Types& children, ArrowSchema* out);

// "list<int64>" and "struct<shard:string,key:string>" have children, all other types are one letter.
void make_typed(const std::string& name, const std::string& type, ArrowSchema* out) {
    static const std::pair<const char*, const char*> formats[] = {
        {"int32", "i"}, {"int64", "l"}, {"uint64", "L"}, {"float64", "g"}, {"bool", "b"}, {"string", "u"}};
    for (const auto& [known, format] : formats)
        if (type == known) return make_schema(name, format, {}, out);
    if (type.rfind("list<", 0) == 0) return make_schema(name, "+l", {{"item", type.substr(5, type.size() - 6)}}, out);
    Types fields;
    std::string body = type.substr(7, type.size() - 8);
    for (std::size_t start = 0; start < body.size();) {
        std::size_t end = body.find(',', start);
        if (end == std::string::npos) end = body.size();
        std::size_t colon = body.find(':', start);
        fields.emplace_back(body.substr(start, colon - start), body.substr(colon + 1, end - colon - 1));
        start = end + 1;
    }
    make_schema(name, "+s", fields, out);
}

void make_schema(std::string name, std::string format, const Types& children, ArrowSchema* out) {
    auto* holder = new SchemaHolder{std::move(format), std::move(name), {}, {}};
    for (const auto& [child_name, child_type] : children) {
        holder->children.push_back(std::make_unique<ArrowSchema>());
        make_typed(child_name, child_type, holder->children.back().get());
        holder->pointers.push_back(holder->children.back().get());
    }
    constexpr std::int64_t nullable = 2;
    *out = ArrowSchema{holder->format.c_str(), holder->name.c_str(), nullptr, nullable, static_cast<std::int64_t>(holder->pointers.size()),
                       holder->pointers.empty() ? nullptr : holder->pointers.data(), nullptr, release_schema, holder};
}

struct ArrayHolder {
    std::vector<std::uint8_t> validity, data;
    std::vector<std::int32_t> offsets;
    std::vector<std::unique_ptr<ArrowArray>> children;
    std::vector<ArrowArray*> child_pointers;
    std::vector<const void*> buffers;
};

void release_array(ArrowArray* array) {
    auto* holder = static_cast<ArrayHolder*>(array->private_data);
    for (auto& child : holder->children)
        if (child->release) child->release(child.get());
    delete holder;
    array->release = nullptr;
}

void fill(ArrowArray* out, std::unique_ptr<ArrayHolder> holder, std::int64_t rows, std::int64_t nulls) {
    for (auto& child : holder->children) holder->child_pointers.push_back(child.get());
    ArrayHolder* kept = holder.release();
    *out = ArrowArray{rows, nulls, 0, static_cast<std::int64_t>(kept->buffers.size()), static_cast<std::int64_t>(kept->children.size()),
                      kept->buffers.data(), kept->child_pointers.empty() ? nullptr : kept->child_pointers.data(), nullptr, release_array, kept};
}

}  // namespace

void export_schema(const Types& types, ArrowSchema* out) { make_schema("", "+s", types, out); }

Column::Column(const std::string& type) {
    if (type == "int32") kind_ = Kind::Int32;
    else if (type == "int64" || type == "uint64") kind_ = Kind::Int64;
    else if (type == "float64") kind_ = Kind::Float64;
    else if (type == "bool") kind_ = Kind::Bool;
    else if (type == "string") kind_ = Kind::Text;
    else if (type.rfind("list<", 0) == 0) kind_ = Kind::List;
    else kind_ = Kind::Pair;
    if (kind_ == Kind::Text || kind_ == Kind::List) offsets_.push_back(0);
    if (kind_ == Kind::List) children_.emplace_back("int64");
    if (kind_ == Kind::Pair) {
        children_.emplace_back("string");
        children_.emplace_back("string");
    }
}

void Column::valid(bool is_valid) {
    if (rows_ % 8 == 0) validity_.push_back(0);
    if (is_valid) validity_.back() |= static_cast<std::uint8_t>(1u << (rows_ % 8));
    else ++nulls_;
    ++rows_;
}

template <class T>
void Column::append(T value) {
    const auto at = data_.size();
    data_.resize(at + sizeof(T));
    std::memcpy(data_.data() + at, &value, sizeof(T));
}

void Column::null() {
    switch (kind_) {
        case Kind::Int32: append<std::int32_t>(0); break;
        case Kind::Int64: append<std::int64_t>(0); break;
        case Kind::Float64: append<double>(0); break;
        case Kind::Bool: if (rows_ % 8 == 0) data_.push_back(0); break;
        case Kind::Text:
        case Kind::List: offsets_.push_back(offsets_.back()); break;
        case Kind::Pair: for (auto& child : children_) child.null(); break;
    }
    valid(false);
}

void Column::number(std::int64_t value) {
    if (kind_ == Kind::Int32) append(static_cast<std::int32_t>(value));
    else if (kind_ == Kind::Bool) {
        if (rows_ % 8 == 0) data_.push_back(0);
        if (value) data_.back() |= static_cast<std::uint8_t>(1u << (rows_ % 8));
    } else append(value);
    valid(true);
}

void Column::real(double value) {
    append(value);
    valid(true);
}

void Column::text(std::string_view value) {
    data_.insert(data_.end(), value.begin(), value.end());
    offsets_.push_back(static_cast<std::int32_t>(data_.size()));
    valid(true);
}

void Column::list(const std::int64_t* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) children_[0].number(values[i]);
    offsets_.push_back(static_cast<std::int32_t>(children_[0].rows_));
    valid(true);
}

void Column::pair(std::string_view first, std::string_view second) {
    children_[0].text(first);
    children_[1].text(second);
    valid(true);
}

void Column::export_to(ArrowArray* out) {
    auto holder = std::make_unique<ArrayHolder>();
    holder->validity = std::exchange(validity_, {});
    holder->data = std::exchange(data_, {});
    holder->offsets = std::exchange(offsets_, {});
    for (auto& child : children_) {
        holder->children.push_back(std::make_unique<ArrowArray>());
        child.export_to(holder->children.back().get());
    }
    // A consumer may not be given a null data buffer, even for no rows.
    holder->data.reserve(8);
    holder->buffers.push_back(nulls_ ? holder->validity.data() : nullptr);
    if (kind_ == Kind::Text || kind_ == Kind::List) {
        holder->buffers.push_back(holder->offsets.data());
        offsets_.push_back(0);
    }
    if (kind_ != Kind::List && kind_ != Kind::Pair) holder->buffers.push_back(holder->data.data());
    fill(out, std::move(holder), rows_, nulls_);
    rows_ = nulls_ = 0;
}

Table::Table(Types types) : types_(std::move(types)) {
    for (const auto& [name, type] : types_) columns_.emplace_back(type);
}

void Table::export_to(ArrowArray* out) {
    auto holder = std::make_unique<ArrayHolder>();
    for (auto& column : columns_) {
        holder->children.push_back(std::make_unique<ArrowArray>());
        column.export_to(holder->children.back().get());
    }
    holder->buffers.push_back(nullptr);
    fill(out, std::move(holder), rows_, 0);
    rows_ = 0;
}

}  // namespace opscope

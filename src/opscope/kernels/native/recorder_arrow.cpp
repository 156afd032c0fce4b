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
        {"int32", "i"}, {"int64", "l"}, {"uint64", "L"}, {"float64", "g"}, {"float32", "f"}, {"bool", "b"}, {"string", "u"}};
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
    std::shared_ptr<Arena> arena;
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

constexpr std::size_t bytes_a_row = 512;  // of both tables, about

}  // namespace

void export_schema(const Types& types, ArrowSchema* out) { make_schema("", "+s", types, out); }

Column::Column(const std::string& type, Arena& arena, std::size_t rows) : validity_(arena), data_(arena), offsets_(arena) {
    std::size_t width = 0;
    if (type == "int32") kind_ = Kind::Int32, width = 4;
    else if (type == "int64" || type == "uint64") kind_ = Kind::Int64, width = 8;
    else if (type == "float64") kind_ = Kind::Float64, width = 8;
    else if (type == "float32") kind_ = Kind::Float32, width = 4;
    else if (type == "bool") kind_ = Kind::Bool, width = 1;
    else if (type == "string") kind_ = Kind::Text;
    else if (type.rfind("list<", 0) == 0) kind_ = Kind::List;
    else kind_ = Kind::Pair;
    validity_.reserve(rows / 8 + 1);
    data_.reserve(std::max<std::size_t>(rows * width, 8));  // a consumer may not be given a null buffer, even for no rows
    if (kind_ == Kind::Text || kind_ == Kind::List) {
        offsets_.reserve(4 * rows + 4);
        offsets_.append(std::int32_t{0});
    }
    if (kind_ == Kind::List) children_.emplace_back(type.substr(5, type.size() - 6), arena, 4 * rows);
    if (kind_ == Kind::Pair) {
        children_.emplace_back("string", arena, 0);
        children_.emplace_back("string", arena, 0);
    }
}

void Column::settle() {
    const auto rows = static_cast<std::size_t>(rows_), owed = static_cast<std::size_t>(owed_);
    if (!nulls_) validity_.append_bits(0, rows, true);
    validity_.append_bits(rows, owed, false);
    switch (kind_) {
        case Kind::Int32: case Kind::Float32: data_.append_zeros(4 * owed); break;
        case Kind::Int64: case Kind::Float64: data_.append_zeros(8 * owed); break;
        case Kind::Bool: data_.append_bits(rows, owed, false); break;
        case Kind::Text: case Kind::List: {
            const auto end = static_cast<std::int32_t>(kind_ == Kind::Text ? data_.size() : static_cast<std::size_t>(children_[0].rows_));
            for (std::size_t i = 0; i < owed; ++i) offsets_.append(end);
            break;
        }
        case Kind::Pair: for (auto& child : children_) child.owed_ += owed_; break;
    }
    rows_ += owed_;
    nulls_ += owed_;
    owed_ = 0;
}

void Column::pair(std::string_view first, std::string_view second) {
    begin();
    children_[0].text(first);
    children_[1].text(second);
    ++rows_;
}

void Column::export_to(ArrowArray* out, const std::shared_ptr<Arena>& arena) {
    if (owed_) settle();
    auto holder = std::make_unique<ArrayHolder>();
    holder->arena = arena;
    for (auto& child : children_) {
        holder->children.push_back(std::make_unique<ArrowArray>());
        child.export_to(holder->children.back().get(), arena);
    }
    holder->buffers.push_back(nulls_ ? validity_.data() : nullptr);
    if (kind_ == Kind::Text || kind_ == Kind::List) holder->buffers.push_back(offsets_.data());
    if (kind_ != Kind::List && kind_ != Kind::Pair) holder->buffers.push_back(data_.data());
    fill(out, std::move(holder), rows_, nulls_);
}

Table::Table(Types types, std::size_t rows, std::shared_ptr<KeptPages> pages)
    : types_(std::move(types)), arena_(std::make_shared<Arena>(4096 + rows * bytes_a_row, std::move(pages))) {
    for (const auto& [name, type] : types_) columns_.emplace_back(type, *arena_, rows);
}

void Table::export_to(ArrowArray* out) {
    auto holder = std::make_unique<ArrayHolder>();
    for (auto& column : columns_) {
        holder->children.push_back(std::make_unique<ArrowArray>());
        column.export_to(holder->children.back().get(), arena_);
    }
    holder->buffers.push_back(nullptr);
    fill(out, std::move(holder), rows_, 0);
}

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
#include "recorder_rows.hpp"

#include <cmath>

namespace opscope {
namespace {

const char* const level_names[] = {"operator", "api", "module", "graph"};
const char* const phase_names[] = {"forward", "backward", "optimizer", "recompute", "communication"};
const char* const suffixes[] = {"", "~bwd", "~opt", "~re", "~comm"};

// Columns of table calls and table tensors by position: the order of run/schema.py, which the constructor's types repeat.
enum CallColumn {
    c_process, c_rank, c_step, c_index, c_level, c_parent, c_phase, c_op, c_module, c_name, c_forward_index, c_autograd_thread,
    c_autograd_sequence, c_stack, c_source, c_args, c_task, c_stream, c_context, c_thread, c_device, c_status, c_error, c_again, c_count
};
enum TensorColumn {
    t_process, t_index, t_io, t_slot, t_version, t_storage, t_offset, t_dtype, t_shape, t_stride, t_device, t_layout, t_tensor_class,
    t_role, t_tensor_name, t_requires_grad, t_partial, t_size, t_nan, t_pos_inf, t_neg_inf, t_zero, t_neg, t_pos, t_near_limit, t_min,
    t_max, t_mean, t_l2norm, t_min_int, t_max_int, t_digest, t_sample, t_value, t_count
};

void text_or_null(Column& column, const Interner& texts, std::int32_t number) {
    if (number == Interner::none) column.null();
    else column.text(texts[number]);
}

void number_or_null(Column& column, std::int64_t number) {
    if (number < 0) column.null();
    else column.number(number);
}

void text_or_null(Column& column, std::string_view text) {
    if (text.empty()) column.null();
    else column.text(text);
}

}  // namespace

std::int32_t Interner::operator()(std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    texts_.emplace_back(text);
    const auto number = static_cast<std::int32_t>(texts_.size() - 1);
    numbers_.emplace(texts_.back(), number);
    return number;
}

std::string call_name(const CallRow& row, const Interner& texts) {
    std::string name = texts[row.module].empty() ? "<root>" : texts[row.module];
    name += ':';
    name += texts[row.label];
    name += suffixes[static_cast<int>(row.phase)];
    name += '#';
    name += std::to_string(row.k);
    return name;
}

Rows::Rows(Types call_types, Types tensor_types) : call_types_(std::move(call_types)), tensor_types_(std::move(tensor_types)) {
    if (call_types_.size() != c_count || tensor_types_.size() != t_count)
        throw std::runtime_error("the compiled recorder and run/schema.py disagree on the columns: build opscope again");
}

std::string_view Rows::text(std::string_view text) {
    if (text.empty()) return {};
    auto* copy = static_cast<char*>(texts_.memory.allocate(text.size(), 1));
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
}

void Rows::clear() {
    calls.clear();
    tensors.clear();
    texts_.memory.release();
}

void Rows::export_rows(const Interner& texts, std::int32_t process, std::int32_t rank, unsigned levels, Table& call_table,
                       Table& tensor_table) {
    std::unordered_map<std::int64_t, bool> dropped;
    for (const auto& row : calls) {
        if (levels >> static_cast<unsigned>(row.level) & 1u) export_call(row, texts, process, rank, call_table);
        else dropped.emplace(row.index, true);
    }
    for (const auto& row : tensors)
        if (dropped.empty() || !dropped.count(row.index)) export_tensor(row, texts, process, tensor_table);
}

void Rows::export_call(const CallRow& row, const Interner& texts, std::int32_t process, std::int32_t rank, Table& table) {
    table.row();
    table[c_process].number(process);
    table[c_rank].number(rank);
    table[c_step].number(row.step);
    table[c_index].number(row.index);
    table[c_level].text(level_names[static_cast<int>(row.level)]);
    number_or_null(table[c_parent], row.parent);
    table[c_phase].text(phase_names[static_cast<int>(row.phase)]);
    table[c_op].text(texts[row.op]);
    table[c_module].text(texts[row.module]);
    table[c_name].text(call_name(row, texts));
    number_or_null(table[c_forward_index], row.forward_index);
    number_or_null(table[c_autograd_thread], row.autograd < 0 ? -1 : row.thread);
    number_or_null(table[c_autograd_sequence], row.autograd);
    number_or_null(table[c_stack], row.stack);
    text_or_null(table[c_source], texts, row.source);
    text_or_null(table[c_args], row.args);
    table[c_task].null();
    table[c_stream].null();
    table[c_context].null();
    table[c_thread].number(row.thread);
    text_or_null(table[c_device], texts, row.device);
    if (row.has_status) table[c_status].number(row.status);
    else table[c_status].null();
    text_or_null(table[c_error], row.error);
    number_or_null(table[c_again], row.again);
}

void Rows::export_tensor(const TensorRow& row, const Interner& texts, std::int32_t process, Table& table) {
    table.row();
    table[t_process].number(process);
    table[t_index].number(row.index);
    table[t_io].text(row.input ? "input" : "output");
    table[t_slot].text(texts[row.slot]);
    number_or_null(table[t_version], row.version ? row.version->number : -1);
    number_or_null(table[t_storage], row.storage ? row.storage->number : -1);
    table[t_offset].number(row.offset);
    table[t_dtype].text(texts[row.dtype]);
    table[t_shape].list(row.dims.data(), row.ndim);
    table[t_stride].list(row.dims.data() + row.ndim, row.stride_ndim);
    text_or_null(table[t_device], texts, row.device);
    text_or_null(table[t_layout], texts, row.layout);
    text_or_null(table[t_tensor_class], texts, row.tensor_class);
    text_or_null(table[t_role], texts, row.storage ? row.storage->role : Interner::none);
    text_or_null(table[t_tensor_name], texts, row.storage ? row.storage->name : Interner::none);
    table[t_requires_grad].number(row.requires_grad);
    table[t_partial].null();
    export_statistics(row, table);
    // The values that a composed tensor shares are not the tensor.
    const ValueAt* value = row.value ? row.value.get() : row.version && !row.composed ? row.version->value.get() : nullptr;
    if (value) table[t_value].pair(value->shard, value->key);
    else table[t_value].null();
}

// Statistics of the logical elements: those of the version, times how often an expanded tensor repeats them.
void Rows::export_statistics(const TensorRow& row, Table& table) {
    if (!row.version || !row.version->known) {
        for (int column = t_size; column <= t_sample; ++column) table[column].null();
        return;
    }
    const Statistics& s = row.version->statistics;
    const std::int64_t counts[] = {s.size, s.nan, s.pos_inf, s.neg_inf, s.zero, s.neg, s.pos, s.near_limit};
    for (int i = 0; i < 8; ++i) {
        if (counts[i] == Statistics::unknown) table[t_size + i].null();
        else table[t_size + i].number(counts[i] * row.copies);
    }
    if (s.has_range) {
        table[t_min].real(s.min);
        table[t_max].real(s.max);
        table[t_mean].real(s.mean);
        if (std::isnan(s.l2norm)) table[t_l2norm].null();
        else table[t_l2norm].real(row.copies == 1 ? s.l2norm : s.l2norm * std::sqrt(static_cast<double>(row.copies)));
    } else {
        for (int column = t_min; column <= t_l2norm; ++column) table[column].null();
    }
    for (int column : {t_min_int, t_max_int}) {
        if (s.has_int) table[column].number(column == t_min_int ? s.min_int : s.max_int);
        else table[column].null();
    }
    if (s.has_digest && row.copies == 1 && row.order == row.version->order) table[t_digest].number(static_cast<std::int64_t>(s.digest));
    else table[t_digest].null();
    if (s.has_sample) table[t_sample].list(s.sample, SAMPLE);
    else table[t_sample].null();
}

}  // namespace opscope

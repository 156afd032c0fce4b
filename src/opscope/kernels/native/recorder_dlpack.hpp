// SPDX-License-Identifier: Apache-2.0
// The part of DLPack's C exchange interface that is used here (dlpack.h 1.3, DLPackExchangeAPI): shape, strides and memory of a
// tensor in one call, without a Python object for each number. torch has it since 2.10.
#pragma once

#include "recorder_python.hpp"

namespace opscope {

struct DLTensor {
    void* data;
    struct {
        std::int32_t type, id;
    } device;
    std::int32_t ndim;
    struct {
        std::uint8_t code, bits;
        std::uint16_t lanes;
    } dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};

constexpr std::int32_t dlpack_cpu = 1;

// Fills a DLTensor that borrows from the object; -1 with a Python error set when it has no such memory.
using DLTensorOf = int (*)(void* object, DLTensor* out);

// The function of a tensor class, null where the class has none of a version that is known.
inline DLTensorOf dltensor_of(PyObject* tensor_type) {
    struct Exchange {
        std::uint32_t major, minor;
        Exchange* older;
        void* managed[3];
        DLTensorOf borrow;
    };
    const Ref capsule(PyObject_GetAttrString(tensor_type, "__dlpack_c_exchange_api__"));
    auto* found = capsule ? static_cast<Exchange*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api")) : nullptr;
    PyErr_Clear();
    while (found && found->major > 1) found = found->older;
    return found && found->major == 1 ? found->borrow : nullptr;
}

}  // namespace opscope

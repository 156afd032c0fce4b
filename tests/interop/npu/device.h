// SPDX-License-Identifier: Apache-2.0
// What runtime.cpp (memory, streams, copies) and operators.cpp (aclnn operators) share: handles as CANN's C interface passes them, and launching.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct TensorHandle {
  std::vector<int64_t> sizes, strides;
  int type;  // aclDataType
  int64_t offset;  // in elements
  void* data;
};
struct ScalarHandle {
  int type;
  char bytes[16];
};
template <class Element>
struct ArrayHandle {
  std::vector<Element> elements;
};
struct Launch {  // between the two calls that every aclnn operator takes
  const char* name;
  std::function<void()> run;
};

namespace device {
// GetWorkspaceSize: a launch of this operator, or an error code where it takes no tensor that was created for it.
int prepare(const char* name, std::function<void()> run, uint64_t* workspace, Launch** out);
// Runs at once, or after all that was launched before where NPU_DELAY_US is set.
int launch(Launch* launch);
bool saturates();
void overflowed();
bool breaks(const char* mode);  // whether NPU_BREAK names the operator that runs on this thread, and this way
void isolated(const std::function<void()>& run);  // operators.cpp: without what the program's thread has set in torch
}  // namespace device

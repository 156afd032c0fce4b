// SPDX-License-Identifier: Apache-2.0
// A stand-in of the Ascend runtime on the host: one device "Ascend910B1" whose memory is the host's, one order of work for all its streams.
//
// By environment:
//   NPU_COUNTS=FILE           counts as JSON at the end of the process (%p: its number)
//   NPU_DELAY_US=N            work runs on a thread, N us a kernel; without it each kernel runs as it is launched
//   NPU_SATURATE=1            float16 results end at 65504, NaN becomes 0, the overflow status is set
//   NPU_BREAK=operator:mode   scale (x 1.01), lastrow (zeros), error (an AI Core error, told by the next synchronisation and by all after it)
#include "device.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace {

constexpr int AI_CORE_ERROR = 507015, NO_MEMORY = 207001, NO_SUCH_TYPE = 161002, NO_SUCH_OPERATOR = 500002;
constexpr int DOUBLE = 11;
enum CopyKind { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

std::string setting(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

class Counts {
 public:
  void kernel(const char* name) { std::lock_guard<std::mutex> held(mutex_); kernels_[name]++; }
  void waited() { waits_++; }
  void copied(int kind, size_t bytes) {
    if (kind == HOST_TO_DEVICE) { to_device_++; to_device_bytes_ += bytes; }
    if (kind == DEVICE_TO_HOST) { to_host_++; to_host_bytes_ += bytes; }
  }
  ~Counts() {
    std::string path = setting("NPU_COUNTS");
    if (path.empty() || kernels_.empty()) return;
    size_t at = path.find("%p");
    if (at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
    FILE* file = fopen(path.c_str(), "w");
    if (!file) return;
    long total = 0;
    std::string names;
    for (auto& [name, times] : kernels_) {
      names += (names.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(times);
      total += times;
    }
    fprintf(file, "{\"launches\": {%s}, \"kernels\": %ld, \"synchronisations\": %ld, ", names.c_str(), total, waits_.load());
    fprintf(file, "\"h2d\": %ld, \"h2d_bytes\": %ld, ", to_device_.load(), to_device_bytes_.load());
    fprintf(file, "\"d2h\": %ld, \"d2h_bytes\": %ld}\n", to_host_.load(), to_host_bytes_.load());
    fclose(file);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, long> kernels_;
  std::atomic<long> waits_{0}, to_device_{0}, to_device_bytes_{0}, to_host_{0}, to_host_bytes_{0};
};
Counts counts;

// All that was launched, in order: on a thread of its own where a delay is asked for.
class Queue {
 public:
  bool asynchronous() const { return delay_ >= 0; }
  long push(std::function<void()> work, bool kernel = false) {
    if (!asynchronous()) { work(); return 0; }
    std::lock_guard<std::mutex> held(mutex_);
    if (!begun_) { begun_ = true; std::thread([this] { serve(); }).detach(); }
    waiting_.emplace_back(std::move(work), kernel);
    changed_.notify_all();
    return ++pushed_;
  }
  void wait_for(long ticket) {
    std::unique_lock<std::mutex> held(mutex_);
    changed_.wait(held, [&] { return done_ >= ticket; });
  }
  void wait() { wait_for(last()); }
  long last() { std::lock_guard<std::mutex> held(mutex_); return pushed_; }
  bool idle() { std::lock_guard<std::mutex> held(mutex_); return done_ == pushed_; }

 private:
  void serve() {
    for (;;) {
      std::unique_lock<std::mutex> held(mutex_);
      changed_.wait(held, [&] { return !waiting_.empty(); });
      auto [work, kernel] = std::move(waiting_.front());
      waiting_.pop_front();
      held.unlock();
      if (kernel && delay_ > 0) usleep(delay_);
      work();
      held.lock();
      done_++;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, bool>> waiting_;
  long pushed_ = 0, done_ = 0;
  long delay_ = setting("NPU_DELAY_US").empty() ? -1 : atol(setting("NPU_DELAY_US").c_str());
  bool begun_ = false;
};
Queue& queue() { static auto* one = new Queue; return *one; }  // never destroyed: its thread outlives main

std::atomic<int> fault{0};
std::atomic<bool> saturating{setting("NPU_SATURATE") == "1"}, overflow_seen{false};
std::mutex message_mutex;
std::string message;
thread_local const char* running = "";
thread_local std::vector<TensorHandle*> created;  // since the last prepare of this thread
const std::string broken = setting("NPU_BREAK");

void say(std::string words) { std::lock_guard<std::mutex> held(message_mutex); message = std::move(words); }

// As CANN tells of a kernel of the operator's name, without aclnn.
void fail(const char* operation) {
  const std::string kernel = std::string(operation + strlen("aclnn")) + "_5881aeec01e51adb01fb1db8be1c04f0_10000000000022420943";
  say("EZ9999: Inner Error!\nEZ9999: The error from device(chipId:0, dieId:0), serial number is 1, there is an aicore error exception, core id is 3, "
      "error code = 0x800000, dump info: pc start: 0x1240c0000000, current: 0x1240c0000a48.[FUNC:ProcessStarsCoreErrorInfo]\n        Aicore kernel "
      "execute failed, device_id=0, stream_id=2, report_stream_id=2, task_id=1, flip_num=0, fault kernel_name=" + kernel +
      ", fault kernel info ext=none, program id=1, hash=15.[FUNC:GetError][FILE:stream.cc][LINE:1078]");
  fault = AI_CORE_ERROR;
}

void perform(const Launch& launch) {
  running = launch.name;
  try {
    device::isolated(launch.run);
    if (device::breaks("error")) fail(launch.name);
  } catch (const std::exception& error) {
    say(std::string("EZ9999: Inner Error! ") + error.what());
    fault = AI_CORE_ERROR;
  }
  running = "";
}
int synchronised() { counts.waited(); queue().wait(); return fault; }

}  // namespace

namespace device {

bool saturates() { return saturating; }
void overflowed() { overflow_seen = true; }
bool breaks(const char* mode) { return broken == std::string(running) + ":" + mode; }

int prepare(const char* name, std::function<void()> run, uint64_t* workspace, Launch** out) {
  // Stricter than hardware, which takes more on its AI CPU: only what moves or fills takes DT_DOUBLE.
  static const char* const MOVES[] = {"aclnnCast", "aclnnInplaceCopy", "aclnnInplaceZero", "aclnnInplaceOne", "aclnnInplaceFillScalar", "aclnnCat", "aclnnStack"};
  bool wide = false;
  for (auto* tensor : created) wide |= tensor->type == DOUBLE;
  created.clear();
  *workspace = 0;
  for (auto* moves : MOVES) wide &= strcmp(moves, name) != 0;
  if (wide) {
    say(std::string("EZ1001: ") + name + ": Tensor not implemented for DT_DOUBLE, should be in dtype support list [DT_FLOAT,DT_FLOAT16,DT_BFLOAT16,].");
    return NO_SUCH_TYPE;
  }
  *out = new Launch{name, std::move(run)};
  return 0;
}
int launch(Launch* launch) {
  counts.kernel(launch->name);
  queue().push([launch] { perform(*launch); delete launch; }, true);
  return 0;
}

}  // namespace device

// ---- the device, its memory and copies
EXPORTED int aclrtGetDeviceCount(uint32_t* count) { *count = 1; return 0; }
EXPORTED int aclrtGetDevice(int32_t* number) { *number = 0; return 0; }
EXPORTED const char* aclrtGetSocName() { return "Ascend910B1"; }
EXPORTED int aclrtGetCurrentContext(void** context) { static int one; *context = &one; return 0; }
EXPORTED int aclrtGetMemInfo(int, size_t* free_bytes, size_t* total) { *free_bytes = size_t(8) << 30; *total = size_t(16) << 30; return 0; }
EXPORTED int aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) { *can = 0; return 0; }
EXPORTED int aclGetDeviceCapability(uint32_t, int, int64_t* value) { *value = 20; return 0; }
EXPORTED int aclrtSetDeviceSatMode(int mode) { saturating = saturating || mode == 0; return 0; }
EXPORTED const char* aclGetRecentErrMsg() {
  static thread_local std::string told;
  std::lock_guard<std::mutex> held(message_mutex);
  told = std::move(message);
  message.clear();
  return told.c_str();
}

static void* memory(size_t bytes) { return aligned_alloc(512, (bytes / 512 + 1) * 512); }
EXPORTED int aclrtMalloc(void** out, size_t bytes, int) {
  if (!(*out = memory(bytes))) return NO_MEMORY;
  memset(*out, 0x7f, bytes);  // what nobody wrote is 3.4e38 in float32 and NaN in float16
  return 0;
}
EXPORTED int aclrtMallocAlign32(void** out, size_t bytes, int policy, void*) { return aclrtMalloc(out, bytes, policy); }
EXPORTED int aclrtFree(void* data) { queue().wait(); free(data); return 0; }

static std::mutex pinned_mutex;
static std::map<char*, size_t> pinned;
EXPORTED int aclrtMallocHost(void** out, size_t bytes) {
  if (!(*out = memory(bytes))) return NO_MEMORY;
  std::lock_guard<std::mutex> held(pinned_mutex);
  pinned[static_cast<char*>(*out)] = bytes;
  return 0;
}
EXPORTED int aclrtMallocHostWithCfg(void** out, size_t bytes, void*) { return aclrtMallocHost(out, bytes); }
EXPORTED int aclrtFreeHost(void* data) {
  queue().wait();
  std::lock_guard<std::mutex> held(pinned_mutex);
  pinned.erase(static_cast<char*>(data));
  free(data);
  return 0;
}
static bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> held(pinned_mutex);
  auto after = pinned.upper_bound(static_cast<char*>(const_cast<void*>(data)));
  if (after == pinned.begin()) return false;
  auto& [start, bytes] = *--after;
  return static_cast<const char*>(data) < start + bytes;
}
EXPORTED int aclrtPointerGetAttributes(const void*, void* out) { memset(out, 0, 32); return 0; }  // on the host

EXPORTED int aclrtMemcpy(void* to, size_t, const void* from, size_t bytes, int kind) {
  counts.copied(kind, bytes);
  memcpy(to, from, bytes);
  return fault;
}
EXPORTED int aclrtMemcpyAsync(void* to, size_t, const void* from, size_t bytes, int kind, void*) {
  counts.copied(kind, bytes);
  long ticket = queue().push([=] { memcpy(to, from, bytes); });
  const void* host = kind == HOST_TO_DEVICE ? from : kind == DEVICE_TO_HOST ? to : nullptr;
  if (host && !is_pinned(host)) queue().wait_for(ticket);  // pageable memory is copied before the call returns
  return 0;
}
EXPORTED int aclrtMemcpyAsyncWithCondition(void* to, size_t room, const void* from, size_t bytes, int kind, void* stream) {
  return aclrtMemcpyAsync(to, room, from, bytes, kind, stream);
}
EXPORTED int aclrtMemset(void* data, size_t, int32_t value, size_t bytes) { memset(data, value, bytes); return 0; }
EXPORTED int aclrtMemsetAsync(void* data, size_t, int32_t value, size_t bytes, void*) { queue().push([=] { memset(data, value, bytes); }); return 0; }

// ---- streams and events
static std::atomic<uintptr_t> streams{64};
EXPORTED int aclrtCreateStream(void** out) { *out = reinterpret_cast<void*>(streams += 64); return 0; }
EXPORTED int aclrtCreateStreamWithConfig(void** out, uint32_t, uint32_t) { return aclrtCreateStream(out); }
EXPORTED int aclrtSynchronizeStream(void*) { return synchronised(); }
EXPORTED int aclrtSynchronizeStreamWithTimeout(void*, int32_t) { return synchronised(); }
EXPORTED int aclrtSynchronizeDevice() { return synchronised(); }
EXPORTED int aclrtSynchronizeDeviceWithTimeout(int32_t) { return synchronised(); }
EXPORTED int aclrtStreamQuery(void*, int* status) { *status = !queue().idle(); return 0; }

struct Event { std::atomic<long> ticket{0}; std::atomic<bool> passed{true}; };
EXPORTED int aclrtCreateEventExWithFlag(void** out, uint32_t) { *out = new Event; return 0; }
EXPORTED int aclrtDestroyEvent(void* event) { queue().push([=] { delete static_cast<Event*>(event); }); return 0; }
EXPORTED int aclrtRecordEvent(void* given, void*) {
  auto* event = static_cast<Event*>(given);
  event->passed = false;
  event->ticket = queue().push([event] { event->passed = true; });
  return 0;
}
EXPORTED int aclrtQueryEventStatus(void* event, int* passed) { *passed = static_cast<Event*>(event)->passed; return 0; }
EXPORTED int aclrtQueryEventWaitStatus(void*, int* status) { *status = 0; return 0; }
EXPORTED int aclrtSynchronizeEvent(void* event) { queue().wait_for(static_cast<Event*>(event)->ticket); return fault; }
EXPORTED int aclrtEventElapsedTime(float* milliseconds, void*, void*) { *milliseconds = 0; return 0; }

// ---- what operators are given
EXPORTED TensorHandle* aclCreateTensor(const int64_t* sizes, uint64_t dims, int type, const int64_t* strides, int64_t offset, int, const int64_t*, uint64_t, void* data) {
  auto* tensor = new TensorHandle{{sizes, sizes + dims}, {strides, strides + dims}, type, offset, data};
  created.push_back(tensor);
  return tensor;
}
EXPORTED ScalarHandle* aclCreateScalar(void* value, int type) {
  auto* scalar = new ScalarHandle{type, {}};
  static const std::map<int, int> SIZES{{0, 4}, {1, 2}, {3, 4}, {12, 1}, {16, 8}, {17, 16}, {27, 2}};
  memcpy(scalar->bytes, value, SIZES.count(type) ? SIZES.at(type) : 8);
  return scalar;
}
#define ARRAY(Name, Element)                                                                          \
  EXPORTED ArrayHandle<Element>* aclCreate##Name(Element const* elements, uint64_t count) {             \
    return new ArrayHandle<Element>{{elements, elements + count}};                                    \
  }                                                                                                   \
  EXPORTED int aclDestroy##Name(ArrayHandle<Element>* array) { queue().push([=] { delete array; }); return 0; }
ARRAY(IntArray, int64_t)
ARRAY(FloatArray, float)
ARRAY(ScalarList, ScalarHandle*)
EXPORTED ArrayHandle<char>* aclCreateBoolArray(const bool* elements, uint64_t count) { return new ArrayHandle<char>{{elements, elements + count}}; }
EXPORTED int aclDestroyBoolArray(ArrayHandle<char>* array) { queue().push([=] { delete array; }); return 0; }
EXPORTED ArrayHandle<TensorHandle*>* aclCreateTensorList(TensorHandle* const* elements, uint64_t count) { return new ArrayHandle<TensorHandle*>{{elements, elements + count}}; }
EXPORTED int aclDestroyTensorList(ArrayHandle<TensorHandle*>* list) {
  queue().push([=] { for (auto* tensor : list->elements) delete tensor; delete list; });
  return 0;
}
EXPORTED int aclDestroyTensor(TensorHandle* tensor) { queue().push([=] { delete tensor; }); return 0; }
EXPORTED int aclDestroyScalar(ScalarHandle* scalar) { queue().push([=] { delete scalar; }); return 0; }

// ---- the older operators: the overflow status alone
struct Buffer { void* data; size_t bytes; };
EXPORTED Buffer* aclCreateDataBuffer(void* data, size_t bytes) { return new Buffer{data, bytes}; }
EXPORTED int aclDestroyDataBuffer(const Buffer* buffer) { delete buffer; return 0; }
EXPORTED int aclopCompileAndExecute(const char* given, int, void**, Buffer**, int outputs, void**, Buffer** out, void*, int, int, const char*, void*) {
  const std::string name = given;
  if (name.find("FloatStatus") == std::string::npos) {
    say("EZ3002: Optype [" + name + "] of Ops kernel [AIcoreEngine] is unsupported.");
    return NO_SUCH_OPERATOR;
  }
  const bool reads = name.rfind("NPUGet", 0) == 0;
  for (int i = 0; i < outputs; i++) {
    Buffer status = *out[i];
    counts.kernel("FloatStatus");
    queue().push([=] {
      memset(status.data, 0, status.bytes);
      if (reads) *static_cast<int*>(status.data) = overflow_seen;
    });
  }
  if (!reads) queue().push([] { overflow_seen = false; });
  return 0;
}
EXPORTED int aclopCompileAndExecuteV2(const char* name, int inputs, void** in_kinds, Buffer** in, int outputs, void** out_kinds, Buffer** out, void* attributes, int engine, int flags, const char* path, void* stream) {
  return aclopCompileAndExecute(name, inputs, in_kinds, in, outputs, out_kinds, out, attributes, engine, flags, path, stream);
}
EXPORTED size_t aclGetCompileoptSize(int) { return 16; }
EXPORTED int aclGetCompileopt(int, char* value, size_t room) { snprintf(value, room, "disable"); return 0; }
EXPORTED int aclGetCannAttribute(int, int32_t* value) { *value = 1; return 0; }

// The one interface of kernels/: a batch and a spec in, outputs and sums out.
#ifndef COUNTERWEIGHT_KERNELS_CORRECTOR_H_
#define COUNTERWEIGHT_KERNELS_CORRECTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/batch.h"
#include "kernels/partial_sums.h"
#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// Incremented by every change of any bit of any answer.
inline constexpr uint32_t kNumericsVersion = 3;

// The first number that policy REJECT refused.
struct NonFinite {
  InputRole role;
  int64_t sequence;
  int64_t token;  // position in the row
  // False: all inputs there are finite, but their difference is not; `role` is
  // then the numerator.
  bool input;
};

// The first version that no token of the batch can have.
struct BadVersion {
  int64_t sequence;
  int64_t token;  // position in the row
  int64_t version;
  int64_t trained;  // the trained policy's
  bool by_span;     // from a version span
};

// The first byte of response_mask that is neither 0 nor 1, of a mask on the
// device; the host checks its own before.
struct BadMask {
  int64_t position;  // in the batch
  int value;
};

enum class CorrectStatus : uint8_t {
  kOk,
  kNonFinite,  // policy REJECT; see CorrectResult::non_finite
  // See CorrectResult::device_error. This correction failed; the device works.
  kDeviceError,
  kDeviceLost,  // the same, and every later call to the device fails
  kDeviceFull,  // the batch needs more device memory than there is
  kStopped,     // the run's StopRequest returned true
  kBadVersion,  // MeasureStaleness; see CorrectResult::bad_version
  kBadMask,     // of a mask on the device; see CorrectResult::bad_mask
};

struct CorrectResult {
  CorrectStatus status = CorrectStatus::kOk;
  NonFinite non_finite{};
  BadVersion bad_version{};
  BadMask bad_mask{};
  std::string device_error;
  // Compute time of the device, seconds, without transfers; 0 on the CPU.
  double device_seconds = 0.0;
  // DeviceInfo::index of the device that computed; -1 if none was reported.
  int device = -1;
  BatchSums sums{};
  // Empty unless Outputs::partial_sums.
  PartialSums partial;
  // Metrics that a caller's run computes beside the sums; backends have none.
  std::map<std::string, double> token_metrics;

  void SetLossCount(double count);
};

// Identifies a device in every process, unlike an index.
using DeviceUuid = std::array<uint8_t, 16>;

// CUDA's handle of an allocation for other processes of the machine.
using IpcHandle = std::array<uint8_t, 64>;

struct DeviceInfo {
  int index;
  std::string name;
  uint64_t memory_bytes;
  DeviceUuid uuid{};
};

struct BackendInfo {
  std::string name;             // "cpu" or "cuda"
  std::string instruction_set;  // "x86-64-v3", "x86-64-v4", "generic"
  int threads;
  std::vector<DeviceInfo> devices;
};

// Called between blocks of rows, by any thread: true ends the run with
// kStopped.
using StopRequest = std::function<bool()>;

// A run's turn on a device that others use too.
enum class Turn : uint8_t {
  kNow,    // Finish does not wait for other runs
  kLater,  // it would
  kNever,  // Finish is to report that the device is full
};

// One correction of a batch with rows that arrive one after the other. The
// answer's bits are Corrector::Correct's. Used by one thread at a time.
class CorrectRun {
 public:
  virtual ~CorrectRun() = default;

  // Reports that rows [0, rows) of every tensor have arrived, and if `has_mask`
  // all of response_mask. Computes the rows that are complete. Optional.
  virtual void Advance(int64_t rows, bool has_mask) = 0;

  // Reserves the part of a shared device that Finish needs, so that no thread
  // has to wait for it. After kLater `wake` is called once, from any thread,
  // when it is time for another call, unless the run has ended; it must not
  // call the run. Optional: Finish waits. REQUIRES: everything has arrived.
  virtual Turn TakeTurn(std::function<void()> wake);

  // Computes the rest. REQUIRES: everything has arrived; called once, and not
  // while TakeTurn's last result is kLater.
  virtual CorrectResult Finish() = 0;
};

// Where memory of this process lies.
enum class MemoryPlace : uint8_t {
  kHost,        // or in memory that device and host share
  kDevice,      // on the device that computes
  kOtherDevice  // on another one
};

// Thread-safe; concurrent calls share the backend's threads or devices.
class Corrector {
 public:
  virtual ~Corrector() = default;

  // REQUIRES: Validate(spec) is empty; every tensor that RequiredTensors(spec)
  // names is present. Outputs are unspecified unless the status is kOk.
  virtual CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                                const Outputs& outputs) = 0;

  // Begin and Finish of a batch that is complete.
  virtual CorrectResult CorrectUnlessStopped(const CorrectionSpec& spec,
                                             const Batch& batch,
                                             const Outputs& outputs,
                                             const StopRequest& stop);

  // Stores CorrectResult::partial of each part: that of Correct of its rows
  // alone. The result has the status; sums are undefined unless it is kOk.
  // Nothing if the backend has to have a call for each part: this one does not
  // add parts, or versions and tokens that are not finite need another pass.
  // REQUIRES: as Correct; the spec has no loss.
  virtual std::optional<CorrectResult> SumParts(const CorrectionSpec&,
                                                const Batch&, const RowParts&,
                                                const StopRequest&,
                                                std::vector<PartialSums>*) {
    return std::nullopt;
  }

  // Begins a correction of a batch with rows that are still arriving. The
  // memory that the views point to must outlive the run; `stop` may be empty.
  virtual std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                            const Batch& batch,
                                            const Outputs& outputs,
                                            StopRequest stop);

  // Begins a correction of a batch that lies on the device with all of its
  // outputs, the mask included and aligned to their elements, as a part of the
  // work of `stream`: a cudaStream_t of the device, null for the default one.
  // Tensors are read after the work that it holds when Finish is called. Later
  // work in it waits for the outputs, so Finish need not wait. Null: the
  // backend does not compute on one device.
  virtual std::unique_ptr<CorrectRun> BeginInStream(const CorrectionSpec& spec,
                                                    const Batch& batch,
                                                    const Outputs& outputs,
                                                    StopRequest stop,
                                                    void* stream);
  virtual MemoryPlace PlaceOf(const void* memory) const;

  // Returns the bytes of host memory that a correction allocates beside the
  // batch and the outputs; reads the batch's shape alone.
  virtual int64_t ScratchBytes(const CorrectionSpec& spec,
                               const Batch& batch) const;

  // Allocates host memory from which transfers are fast. Null if any memory is
  // as good.
  virtual void* AllocateHost(size_t bytes);
  virtual void FreeHost(void* memory);

  // Makes transfers of host memory that many batches will use as fast as those
  // of AllocateHost. `memory` begins a page; `is_read_only`: this process may
  // not write there. Returns false if transfers stay as they are.
  virtual bool PinHost(void* memory, size_t bytes, bool is_read_only);
  // REQUIRES: PinHost returned true; no run reads or writes `memory` any more.
  virtual void UnpinHost(void* memory);

  // Opens device memory of another process of this machine: the whole
  // allocation that `handle` names, on the device `uuid`; stores its size in
  // *bytes. Tensors of a batch, its mask and outputs may lie there. Returns
  // null and an error sentence in *error if there is no such memory.
  virtual void* OpenDeviceMemory(const IpcHandle& handle,
                                 const DeviceUuid& uuid, int64_t* bytes,
                                 std::string* error);
  // The same for memory of several allocations, one behind another: `parts` are
  // their POSIX file descriptors, which stay the caller's, in the order of
  // addresses. The first `part_bytes` of each are opened; an allocation with
  // fewer is an error. Memory that is opened twice has two addresses.
  virtual void* OpenDeviceParts(std::span<const int> parts, int64_t part_bytes,
                                const DeviceUuid& uuid, std::string* error);
  // REQUIRES: no run reads or writes `memory` any more.
  virtual void CloseDeviceMemory(void* memory);
  // Copies from memory that was opened so to host memory. Returns false and an
  // error sentence in *error if the device failed.
  virtual bool CopyFromDevice(void* to, const void* from, size_t bytes,
                              std::string* error);

  // Gives back device memory that is kept for later batches and that none
  // needed since the call before the last one. Its caller calls it every few
  // seconds; it waits for no batch.
  virtual void ReturnUnused() {}

  // Checks whether the devices work; false if none does. A lost one stays lost
  // while the process lives. True for a backend without devices.
  virtual bool IsAlive() { return true; }

  virtual BackendInfo Info() const = 0;
};

// Instruction set of the CPU backend; kBest takes the best the machine has.
enum class CpuIsa : uint8_t { kBest, kV3, kV4, kGeneric };

// REQUIRES: threads >= 1. Returns null if the machine lacks the instruction
// set.
std::unique_ptr<Corrector> MakeCpuCorrector(int threads,
                                            CpuIsa isa = CpuIsa::kBest);

// Batches take `memory_bytes` of the device at most; 0: nine tenths of what is
// free now. Returns null and an error sentence in *error if this build or
// machine has no CUDA.
std::unique_ptr<Corrector> MakeCudaCorrector(int device, int64_t memory_bytes,
                                             std::string* error);

// Bit InputRole is set for each tensor that `spec` reads.
uint32_t RequiredTensors(const CorrectionSpec& spec);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CORRECTOR_H_

// The same batch for a handle on the CPU and for one on a fake device.
#ifndef COUNTERWEIGHT_TESTS_EMBEDDED_DEVICE_BATCH_H_
#define COUNTERWEIGHT_TESTS_EMBEDDED_DEVICE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "counterweight.h"
#include "tests/kernels/cuda_on_cpu/trainer.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::embedded {

// An answer, without times and names of backends.
struct Answered {
  int code = CW_OK;
  std::string message;                 // JSON, or the error
  std::string sums;                    // JSON
  std::map<int, std::string> outputs;  // bytes by role

  bool operator==(const Answered&) const = default;
};

// For a failed comparison.
std::ostream& operator<<(std::ostream& out, const Answered& answered);

class DeviceBatch {
 public:
  explicit DeviceBatch(const kernels::OwnedBatch& batch);

  // A request for `method` ("{\"preset\": ...}"); `outputs` are roles, none:
  // the method's own. `more` are further members (", \"seed\": 1").
  std::string Message(const std::string& method,
                      const std::vector<int>& outputs = {},
                      const std::string& more = "") const;

  // In memory of the host.
  Answered OnHost(cw_handle* handle, const std::string& message) const;

  // In a trainer's stream: the inputs are sent by it and overwritten by it
  // after the call, the outputs are received by it, without another wait.
  Answered OnDevice(cw_handle* handle, const std::string& message,
                    kernels::Trainer* trainer) const;

  // The same by a plan, in memory of the host, or with a trainer in its stream.
  // The message is that of cw_describe; there are no sums.
  Answered Prepared(cw_handle* handle, const std::string& message,
                    kernels::Trainer* trainer = nullptr,
                    bool knows_places = false) const;

  // The request's tensors, in its order.
  const std::vector<cw_bytes>& tensors() const { return tensors_; }
  static cw_request Request(const std::string& message,
                            const std::vector<cw_bytes>& tensors);

 private:
  std::vector<int64_t> lengths_;
  std::string layout_;
  std::string heads_;
  std::vector<std::string> memory_;
  std::vector<cw_bytes> tensors_;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_TESTS_EMBEDDED_DEVICE_BATCH_H_

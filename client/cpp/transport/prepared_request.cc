#include "client/cpp/transport/prepared_request.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/device/driver.h"
#include "client/cpp/transport/identity.h"

namespace counterweight::client {
namespace {

bool IsPerSequence(v1::TensorRole role) {
  return role == v1::TENSOR_ROLE_REWARDS ||
         role == v1::TENSOR_ROLE_SEQUENCE_REASONS;
}

// Byte counts cannot overflow below this number, and no machine has the memory.
constexpr int64_t kMostPositions = int64_t{1} << 48;

std::string Indexed(const char* name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

std::string WrongSize(uint64_t want, uint64_t have) {
  return "must have " + std::to_string(want) + " bytes in this layout, not " +
         std::to_string(have);
}

void CheckInputs(PreparedRequest* prepared,
                 std::vector<FieldViolation>* violations) {
  for (size_t i = 0; i < prepared->inputs.size(); ++i) {
    const Input& input = prepared->inputs[i];
    const std::string field = Indexed("inputs", i);
    const uint64_t want = TensorBytes(input.role, input.dtype, *prepared);
    if (ElementBytes(input.dtype) == 0) {
      violations->push_back(
          {field + ".dtype", "is not an element type of the contract"});
    } else if (input.bytes != want) {
      violations->push_back({field + ".bytes", WrongSize(want, input.bytes)});
    } else if (input.data == nullptr && want > 0) {
      violations->push_back({field + ".data", "is null"});
    }
    prepared->input_bytes += input.bytes;
  }
}

void CheckOutputs(const PreparedRequest& prepared,
                  std::vector<FieldViolation>* violations) {
  for (size_t i = 0; i < prepared.outputs.size(); ++i) {
    const Output& output = prepared.outputs[i];
    const std::string field = Indexed("outputs", i);
    for (size_t j = 0; j < i; ++j) {
      if (prepared.outputs[j].role == output.role) {
        violations->push_back({field, "is asked for twice"});
        break;
      }
    }
    if (OutputDType(output.role) == v1::D_TYPE_UNSPECIFIED) {
      violations->push_back(
          {field + ".role",
           "is not an output: WEIGHTS, KEEP_MASK, TOKEN_REASONS, "
           "SEQUENCE_REASONS or GRADIENT"});
      continue;
    }
    const uint64_t want =
        output.data == nullptr ? 0 : OutputBytes(output.role, prepared);
    if (output.data == nullptr && output.location != Location::kHost) {
      violations->push_back({field + ".data", "is null"});
    } else if (output.bytes != want) {
      violations->push_back(
          {field + ".bytes", output.data == nullptr
                                 ? "must be 0 where data is null"
                                 : WrongSize(want, output.bytes)});
    }
  }
}

// Finds the device of the tensors in device memory.
class DeviceCheck {
 public:
  DeviceCheck(PreparedRequest* prepared,
              std::vector<FieldViolation>* violations)
      : device_(prepared->device), violations_(*violations) {}

  void Look(const std::string& field, Location location, const void* data,
            size_t bytes) {
    if (location != Location::kCuda || !driver_.ok()) return;
    if (device_.driver == nullptr) driver_ = CudaDriver::Get(&device_.driver);
    if (!driver_.ok() || bytes == 0) return;
    int index = 0;
    const Status found = device_.driver->DeviceOf(data, &index);
    if (!found.ok()) {
      violations_.push_back(
          {field, "is not memory of a CUDA device: " + found.message});
    } else if (first_.empty()) {
      first_ = field;
      device_.index = index;
    } else if (index != device_.index) {
      violations_.push_back(
          {field, "is on CUDA device " + std::to_string(index) + ", but " +
                      first_ + " on device " + std::to_string(device_.index)});
    }
  }
  // Whether this process has a driver, if it needs one.
  const Status& driver() const { return driver_; }

 private:
  DeviceOfRequest& device_;
  std::vector<FieldViolation>& violations_;
  Status driver_;
  std::string first_;
};

Status FindDevice(PreparedRequest* prepared,
                  std::vector<FieldViolation>* violations) {
  DeviceCheck check(prepared, violations);
  for (size_t i = 0; i < prepared->inputs.size(); ++i) {
    const Input& input = prepared->inputs[i];
    check.Look(Indexed("inputs", i) + ".data", input.location, input.data,
               input.bytes);
  }
  for (size_t i = 0; i < prepared->outputs.size(); ++i) {
    const Output& output = prepared->outputs[i];
    check.Look(Indexed("outputs", i) + ".data", output.location, output.data,
               output.bytes);
  }
  return check.driver();
}

}  // namespace

size_t ElementBytes(v1::DType dtype) {
  switch (static_cast<int>(dtype)) {
    case v1::D_TYPE_U8:
      return 1;
    case v1::D_TYPE_BF16:
    case v1::D_TYPE_F16:
    case v1::D_TYPE_U16:
      return 2;
    case v1::D_TYPE_F32:
    case v1::D_TYPE_I32:
      return 4;
    default:
      return 0;
  }
}

v1::DType OutputDType(v1::TensorRole role) {
  switch (static_cast<int>(role)) {
    case v1::TENSOR_ROLE_WEIGHTS:
    case v1::TENSOR_ROLE_GRADIENT:
      return v1::D_TYPE_F32;
    case v1::TENSOR_ROLE_KEEP_MASK:
      return v1::D_TYPE_U8;
    case v1::TENSOR_ROLE_TOKEN_REASONS:
    case v1::TENSOR_ROLE_SEQUENCE_REASONS:
      return v1::D_TYPE_U16;
    default:
      return v1::D_TYPE_UNSPECIFIED;
  }
}

bool ReadLayout(const v1::Layout& layout, PreparedRequest* request) {
  if (layout.has_padded()) {
    const int64_t rows = layout.padded().num_sequences();
    const int64_t length = layout.padded().length();
    if (rows < 0 || length < 0 ||
        (length > 0 && rows > kMostPositions / length)) {
      return false;
    }
    request->num_sequences = static_cast<uint64_t>(rows);
    request->num_positions = static_cast<uint64_t>(rows * length);
    return true;
  }
  if (!layout.has_packed()) return false;
  int64_t positions = 0;
  for (const int64_t length : layout.packed().sequence_lengths()) {
    if (length < 0 || length > kMostPositions - positions) return false;
    positions += length;
  }
  request->num_sequences =
      static_cast<uint64_t>(layout.packed().sequence_lengths_size());
  request->num_positions = static_cast<uint64_t>(positions);
  return true;
}

uint64_t TensorBytes(v1::TensorRole role, v1::DType dtype,
                     const PreparedRequest& request) {
  const uint64_t elements =
      IsPerSequence(role) ? request.num_sequences : request.num_positions;
  return elements * ElementBytes(dtype);
}

uint64_t OutputBytes(v1::TensorRole role, const PreparedRequest& request) {
  return TensorBytes(role, OutputDType(role), request);
}

std::vector<ChunkedTensor> PreparedRequest::Chunked() const {
  std::vector<ChunkedTensor> tensors;
  for (const Input& input : inputs) {
    tensors.push_back({.bytes = input.bytes,
                       .bytes_per_position = IsPerSequence(input.role)
                                                 ? 0
                                                 : ElementBytes(input.dtype),
                       .first = input.role == v1::TENSOR_ROLE_RESPONSE_MASK});
  }
  return tensors;
}

Status Prepare(const Request& request, PreparedRequest* prepared) {
  std::vector<FieldViolation> violations;
  if (request.header.tensors_size() > 0) {
    violations.push_back({"header.tensors", "must be empty; use inputs"});
  }
  if (request.header.outputs_size() > 0) {
    violations.push_back({"header.outputs", "must be empty; use outputs"});
  }
  if (request.header.destinations_size() > 0) {
    violations.push_back({"header.destinations", "must be empty; use outputs"});
  }
  prepared->inputs = request.inputs;
  prepared->outputs = request.outputs;
  if (ReadLayout(request.header.layout(), prepared)) {
    CheckInputs(prepared, &violations);
    CheckOutputs(*prepared, &violations);
  } else {
    violations.push_back(
        {"header.layout",
         "must be padded or packed, with lengths of at least 0 and at most "
         "2^48 positions in all"});
  }
  prepared->device.stream = request.cuda_stream;
  if (violations.empty()) {
    Status status = FindDevice(prepared, &violations);
    if (!status.ok()) return status;
  }
  if (!violations.empty()) return InvalidArgument(std::move(violations));
  prepared->header = request.header;
  for (const Output& output : request.outputs) {
    prepared->header.add_outputs(output.role);
  }
  if (prepared->header.request_id().empty()) {
    prepared->header.set_request_id(NewId());
  }
  return {};
}

}  // namespace counterweight::client

// Between proto and kernel types: the only place where both are known.
#ifndef COUNTERWEIGHT_SERVER_CODEC_H_
#define COUNTERWEIGHT_SERVER_CODEC_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"
#include "server/dialects/dialect.h"
#include "server/violation.h"

namespace counterweight::server {

// Largest request that is computed; all inclusive.
struct RequestLimits {
  int64_t max_tokens = int64_t{64} << 20;
  int64_t max_sequences = int64_t{1} << 20;
};

// A valid request in kernel types. Views point into the CorrectRequest that it
// was decoded from, which must outlive it.
struct DecodedRequest {
  kernels::CorrectionSpec spec;
  kernels::Batch batch;
  std::vector<int64_t> offsets;  // owned: Batch::offsets
  std::vector<int32_t> groups;   // owned: Batch::groups
  // Roles to return, in order.
  std::vector<v1::TensorRole> outputs;
  std::vector<std::string> rule_names;
  std::vector<std::string> warnings;
  // Makes the answer's metrics; may find violations. See Translation::report.
  std::function<void(const kernels::BatchSums&, MetricMap*, Violations*)>
      report;
  // "token_tis", "config", "verl": for the log line.
  std::string method_name;
  int64_t num_positions = 0;
  // The answer's loss is NaN where there is nothing to average.
  bool empty_loss_is_nan = false;
  // Groups are those of CorrectRequest.group_ids.
  bool uses_group_ids = false;
};

// All violations at once, or an empty list and a complete *decoded.
Violations Decode(const v1::CorrectRequest& request,
                  const RequestLimits& limits, DecodedRequest* decoded);

// Sizes the response's tensors for `decoded` and returns pointers into them.
kernels::Outputs AllocateOutputs(const DecodedRequest& decoded,
                                 v1::CorrectResponse* response);

// Writes what is not a tensor. Returns violations that `report` found; the
// response is then not to be sent.
Violations Encode(const DecodedRequest& decoded, const kernels::BatchSums& sums,
                  v1::CorrectResponse* response);

// The violation that a refused non-finite number is.
Violation ToViolation(const kernels::NonFinite& non_finite);

// The methods table as ListMethods answers it.
void EncodeMethods(v1::ListMethodsResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CODEC_H_

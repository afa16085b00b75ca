#include "client/cpp/bench/measurement.h"

#include <algorithm>
#include <cmath>

namespace counterweight::bench {

void Measurement::Add(double wait, double duration,
                      const client::Response& response) {
  ++requests;
  input_bytes += response.input_bytes;
  output_bytes += response.output_bytes;
  transport = response.transport;
  latencies.push_back(wait + duration);
  const v1::Timing& timing = response.message.timing();
  stages.wait += wait;
  stages.queue += timing.queue_seconds();
  stages.decode += timing.decode_seconds();
  stages.compute += timing.compute_seconds();
  stages.encode += timing.encode_seconds();
  stages.transport += std::max(
      0.0, duration - timing.queue_seconds() - timing.decode_seconds() -
               timing.compute_seconds() - timing.encode_seconds());
}

void Measurement::AddError(const client::Status& status) {
  ++errors[status.code];
  if (first_error.empty()) first_error = status.ToString();
}

void Measurement::Merge(const Measurement& other) {
  requests += other.requests;
  input_bytes += other.input_bytes;
  output_bytes += other.output_bytes;
  stages.wait += other.stages.wait;
  stages.queue += other.stages.queue;
  stages.decode += other.stages.decode;
  stages.compute += other.stages.compute;
  stages.encode += other.stages.encode;
  stages.transport += other.stages.transport;
  latencies.insert(latencies.end(), other.latencies.begin(),
                   other.latencies.end());
  std::sort(latencies.begin(), latencies.end());
  for (const auto& [code, count] : other.errors) errors[code] += count;
  if (first_error.empty()) first_error = other.first_error;
  if (other.requests > 0) transport = other.transport;
}

double Measurement::Quantile(double share) const {
  if (latencies.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(latencies.size()));
  const auto index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  return latencies[std::min(index, latencies.size() - 1)];
}

}  // namespace counterweight::bench

// Corrects six tokens at once and in two parts, which have one answer: `step
// localhost:50051`.
#include <counterweight/client.h>

#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace {

namespace cw = counterweight;

cw::Request Rows(const cw::Method& method, size_t first, size_t rows) {
  static const std::vector<float> kRollout = {-1.0F,  -2.0F, -0.5F,
                                              -0.25F, -3.0F, -1.0F};
  static const std::vector<float> kOld = {-0.9F,  -2.1F, -0.5F,
                                          -0.25F, -2.5F, -4.0F};
  static const std::vector<uint8_t> kMask = {1, 1, 0, 1, 1, 1};
  const auto part = [&](const auto& values) {
    return std::span(values).subspan(3 * first, 3 * rows);
  };
  cw::Request request;
  request.num_sequences = static_cast<int64_t>(rows);
  request.length = 3;
  request.method = method;
  request.partial_sums = true;
  request.omit_loss = true;
  request.inputs = {cw::Float32(cw::Role::kRolloutLogProbs, part(kRollout)),
                    cw::Float32(cw::Role::kOldLogProbs, part(kOld)),
                    cw::ResponseMask(part(kMask))};
  return request;
}

// The violations of labels and counts that cannot be.
std::string Refused(cw::Client* client, const cw::Method& method) {
  cw::Request request = Rows(method, 0, 2);
  request.step = -1;
  request.global_counts.weight_sum = 1.0;
  request.global_counts.weight_mean = 1.0;
  cw::Result result;
  std::string fields;
  for (const auto& violation : client->Correct(request, &result).violations) {
    fields += violation.field + "\n";
  }
  return fields;
}

bool SameBits(const std::map<std::string, double>& a,
              const std::map<std::string, double>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a) {
    const auto found = b.find(name);
    if (found == b.end() ||
        std::memcmp(&found->second, &value, sizeof(value)) != 0) {
      return false;
    }
  }
  return true;
}

int Run(const char* target) {
  cw::Client client(target);
  const cw::Method method = cw::Method::Preset("token_tis_ppo_clip");
  cw::Result whole;
  std::vector<cw::PartialSums> parts;
  cw::Status status = client.Correct(Rows(method, 0, 2), &whole);
  for (const size_t row : {1, 0}) {
    cw::Result part;
    if (status.ok()) status = client.Correct(Rows(method, row, 1), &part);
    if (status.ok()) parts.push_back(part.sums.value());
  }
  cw::PartialSums sums;
  cw::StepTotals totals;
  if (status.ok()) status = client.MergeSums(parts, &sums);
  if (status.ok()) status = client.MetricsOf(sums, method, &totals);
  if (!status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  // A vector that is no part is refused by name.
  parts[1].sums[1] = -1.0;
  const cw::Status refused = client.MergeSums(parts, &sums);
  std::cout << (SameBits(totals.metrics, whole.metrics) ? "same" : "other")
            << "\n"
            << totals.metrics["tokens"] << "\n"
            << totals.counts.value().num_tokens.value() << "\n"
            << totals.sums.sums[1] << "\n"
            << refused.violations.at(0).field << "\n"
            << Refused(&client, method);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Run(argc > 1 ? argv[1] : "localhost:50051");
}

#include "server/engine/codec_labels.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace counterweight::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

}  // namespace

bool IsLabel(const std::string& text) {
  constexpr size_t kMaxLength = 64;
  return !text.empty() && text.size() <= kMaxLength &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

void CheckLabels(const std::string& request_id, const v1::Labels& labels,
                 Violations* violations) {
  const bool printable =
      std::all_of(request_id.begin(), request_id.end(),
                  [](unsigned char c) { return c > 31 && c < 127; });
  if (request_id.size() > kMaxRequestIdBytes || !printable) {
    violations->push_back(
        {"request_id", "must be at most 128 bytes of printable ASCII"});
  }
  if (!labels.run().empty() && !IsLabel(labels.run())) {
    violations->push_back({"labels.run", kLabelPattern});
  }
  if (!labels.replica().empty() && !IsLabel(labels.replica())) {
    violations->push_back({"labels.replica", kLabelPattern});
  }
  if (labels.has_policy_version() && labels.policy_version() < 0) {
    violations->push_back({"labels.policy_version", "must be >= 0"});
  }
  if (labels.has_step() && labels.step() < 0) {
    violations->push_back({"labels.step", "must be >= 0"});
  }
}

}  // namespace counterweight::server

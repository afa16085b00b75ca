#include <string>
#include <string_view>

#include "kernels/doctor/digits.h"
#include "kernels/doctor/finding.h"

namespace counterweight::kernels::doctor {
namespace {

std::string Number(double value) {
  return value != value ? "unknown" : Digits(value, 4);
}

std::string Percent(double share) { return Number(100.0 * share) + " %"; }

std::string Value(const Finding& finding, std::string_view key) {
  if (key == "stream") return NameOf(finding.stream);
  if (key == "detail") return finding.detail;
  if (key == "observed") return Number(finding.observed);
  if (key == "repaired") return Number(finding.repaired);
  if (key == "sequence") return std::to_string(finding.sequence);
  for (const Evidence& evidence : finding.evidence) {
    if (key != evidence.name) continue;
    if (key == "share" || key == "kept_mass") return Percent(evidence.value);
    // Counts and indices, which four digits would round.
    const auto whole = static_cast<int64_t>(evidence.value);
    const bool is_count = key == "tokens" || key == "rows" || key == "groups" ||
                          key == "outside" || key == "other";
    return is_count ? std::to_string(whole) : Number(evidence.value);
  }
  return "unknown";
}

}  // namespace

std::string Sentence(const Finding& finding) {
  const Description& row = Describe(finding.name);
  std::string sentence;
  std::string_view rest = row.sentence;
  for (size_t open = rest.find('{'); open != rest.npos; open = rest.find('{')) {
    const size_t close = rest.find('}', open);
    sentence += rest.substr(0, open);
    sentence += Value(finding, rest.substr(open + 1, close - open - 1));
    rest = rest.substr(close + 1);
  }
  sentence += rest;
  if (finding.sequence >= 0) {
    sentence += "; first in row " + std::to_string(finding.sequence);
    if (finding.position >= 0) {
      sentence += " at position " + std::to_string(finding.position);
    }
  }
  return sentence + ". Way out: " + row.way_out + ".";
}

}  // namespace counterweight::kernels::doctor

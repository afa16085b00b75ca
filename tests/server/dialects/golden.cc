#include "tests/server/dialects/golden.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "tests/testing/sanitized.h"

namespace counterweight::server {
namespace {

using nlohmann::json;

// Tolerances of the goldens: relative, and absolute beside it.
constexpr double kWeightRelative = 1e-5;
constexpr double kWeightAbsolute = 1e-8;
constexpr double kMetricRelative = 2e-5;
constexpr double kMetricAbsolute = 2e-6;
constexpr double kLossRelative = 2e-5;
constexpr double kLossAbsolute = 1e-7;
constexpr double kGradientRelative = 2e-5;
// Share of the gradient's largest entry.
constexpr double kGradientOfLargest = 1e-6;

double ToNumber(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument("not a number: " + text);
}

template <typename T>
std::vector<T> ToVector(const json& rows) {
  std::vector<T> values;
  for (const json& row : rows) {
    for (const json& value : row) {
      values.push_back(static_cast<T>(ToNumber(value)));
    }
  }
  return values;
}

template <typename T>
GoldenTensor<T> Find(const json& tensors, const std::string& key) {
  const auto found = tensors.find(key);
  if (found == tensors.end()) return std::nullopt;
  return ToVector<T>(*found);
}

json ParseFile(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return json::parse(stream);
}

// tests/golden/README.md explains these two.
const json& BlamedFields() {
  static const json& fields = *new json(ParseFile(
      std::filesystem::path(COUNTERWEIGHT_GOLDEN_DIR) / "blamed_fields.json"));
  return fields;
}

const json& Refused() {
  static const json& refused = *new json(ParseFile(
      std::filesystem::path(COUNTERWEIGHT_GOLDEN_DIR) / "refused.json"));
  return refused;
}

// Returns the file's release, "verl==0.9.1", or the release that equals files
// without one; nothing for a system without releases.
std::string ReleaseOf(const json& file, const std::string& dialect) {
  if (const auto release = file.find("release"); release != file.end()) {
    const auto text = release->get<std::string>();
    return text.substr(text.rfind('=') + 1);
  }
  if (dialect == "verl") return "0.9.0";
  if (dialect == "trl") return "1.9.0";
  for (const char* unnumbered : {"slime", "miles", "ms_swift", "nemo_rl",
                                 "prime_rl", "areal", "roll", "tinker"}) {
    if (dialect == unnumbered) return "";
  }
  return dialect == "openrlhf" ? "0.11.0" : "0.4.0";
}

Golden Parse(const json& file, const std::string& name) {
  Golden golden;
  golden.name = name;
  golden.dialect = file.at("dialect").get<std::string>();
  golden.release = ReleaseOf(file, golden.dialect);
  golden.source = file.at("source").get<std::string>();
  const auto status = google::protobuf::util::JsonStringToMessage(
      file.at("params").dump(), &golden.block);
  if (!status.ok()) throw std::invalid_argument(status.ToString());

  const json& inputs = file.at("inputs");
  const json& mask = inputs.at("response_mask");
  golden.num_sequences = static_cast<int64_t>(mask.size());
  golden.length = mask.empty() ? 0 : static_cast<int64_t>(mask[0].size());
  golden.response_mask = ToVector<uint8_t>(mask);
  golden.rollout_log_probs = Find<float>(inputs, "rollout_log_probs");
  golden.old_log_probs = Find<float>(inputs, "old_log_probs");
  golden.current_log_probs = Find<float>(inputs, "current_log_probs");
  golden.ref_log_probs = Find<float>(inputs, "ref_log_probs");
  golden.advantages = Find<float>(inputs, "advantages");

  const std::string key = golden.dialect + "/" + name;
  if (const auto refused = Refused().find(key); refused != Refused().end()) {
    golden.error = refused->at("reason").get<std::string>();
    golden.is_refused = true;
    golden.blamed = refused->at("blamed").get<std::vector<std::string>>();
    return golden;
  }
  const json& expect = file.at("expect");
  golden.weights = Find<double>(expect, "weights");
  golden.mask = Find<uint8_t>(expect, "mask");
  golden.gradient = Find<double>(expect, "grad");
  if (expect.contains("loss")) golden.loss = ToNumber(expect.at("loss"));
  if (expect.contains("metrics")) {
    for (const auto& [metric, value] : expect.at("metrics").items()) {
      golden.metrics[metric] = ToNumber(value);
    }
  }
  if (expect.contains("error")) {
    golden.error = expect.at("error").at("message").get<std::string>();
    golden.blamed = BlamedFields().at(key).get<std::vector<std::string>>();
  }
  return golden;
}

bool Near(double actual, double expected, double relative, double absolute) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <=
         relative * std::abs(expected) + absolute;
}

// Collects sentences about numbers that differ.
class Differ {
 public:
  explicit Differ(const Golden& golden) : golden_(golden) {}

  void Missing(const std::string& what) {
    differences_.push_back("no " + what);
  }

  void Compare(const std::string& what, double actual, double expected,
               double relative, double absolute) {
    if (Near(actual, expected, relative, absolute)) return;
    std::ostringstream text;
    text.precision(12);
    text << what << ": " << actual << ", expected " << expected;
    differences_.push_back(text.str());
  }

  // Entries with response_mask 0 must be exactly 0, whatever the file has
  // there.
  void CompareTensor(const std::string& what,
                     const GoldenTensor<double>& actual,
                     const GoldenTensor<double>& expected, double relative,
                     double absolute) {
    if (!expected) return;
    if (!actual) return Missing(what);
    for (size_t i = 0; i < expected->size(); ++i) {
      const bool counts = golden_.response_mask[i] != 0;
      Compare(what + " at " + std::to_string(i), actual->at(i),
              counts ? (*expected)[i] : 0.0, counts ? relative : 0.0,
              counts ? absolute : 0.0);
    }
  }

  std::vector<std::string> Take() { return std::move(differences_); }

 private:
  const Golden& golden_;
  std::vector<std::string> differences_;
};

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values)
    largest = std::max(largest, std::abs(value));
  return largest;
}

// Returns the names in a path, in lower case: "tensors[OLD_LOG_PROBS]" has
// tensors and old_log_probs.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names(1);
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '_') {
      names.back() += static_cast<char>(std::tolower(byte));
    } else if (!names.back().empty()) {
      names.emplace_back();
    }
  }
  return names;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Golden& golden) {
  return out << golden.dialect << "/" << golden.name;
}

std::vector<Golden> ReadGoldens(const std::string& folder) {
  const std::filesystem::path path =
      std::filesystem::path(COUNTERWEIGHT_GOLDEN_DIR) / folder;
  std::vector<Golden> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".json") continue;
    try {
      goldens.push_back(Parse(ParseFile(entry.path()), entry.path().stem()));
    } catch (const std::exception& error) {
      std::cerr << entry.path() << ": " << error.what() << std::endl;
      std::abort();
    }
  }
  std::sort(goldens.begin(), goldens.end(),
            [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return goldens;
}

std::vector<Golden> SampleGoldens(const std::string& dialect) {
  std::vector<Golden> all = ReadGoldens(dialect);
  if (!kernels::kSanitized) return all;
  constexpr size_t kEach = 8;
  std::vector<Golden> sample;
  for (size_t i = 0; i < all.size(); i += kEach) sample.push_back(all[i]);
  return sample;
}

bool AsksForLoss(const Golden& golden) {
  return golden.loss || golden.gradient ||
         (golden.error && (golden.current_log_probs || golden.advantages));
}

RequestFacts FactsOf(const Golden& golden) {
  RequestFacts facts;
  facts.has_rollout_log_probs = golden.rollout_log_probs.has_value();
  facts.has_old_log_probs = golden.old_log_probs.has_value();
  facts.has_current_log_probs = golden.current_log_probs.has_value();
  facts.has_ref_log_probs = golden.ref_log_probs.has_value();
  facts.has_advantages = golden.advantages.has_value();
  facts.wants_loss = AsksForLoss(golden);
  facts.num_sequences = golden.num_sequences;
  facts.padded_length = golden.length;
  if (const auto release = ParseRelease(golden.release)) {
    facts.asked = {.release = *release, .is_named = true};
  }
  return facts;
}

std::vector<std::string> Differences(const Golden& golden,
                                     const GoldenAnswer& answer) {
  Differ differ(golden);
  differ.CompareTensor("weight", answer.weights, golden.weights,
                       kWeightRelative, kWeightAbsolute);
  if (golden.mask) {
    for (size_t i = 0; i < golden.mask->size(); ++i) {
      differ.Compare("mask at " + std::to_string(i), answer.keep_mask.at(i),
                     (*golden.mask)[i], 0.0, 0.0);
    }
  }
  if (golden.loss && !answer.loss) differ.Missing("loss");
  if (golden.loss && answer.loss) {
    differ.Compare("loss", *answer.loss, *golden.loss, kLossRelative,
                   kLossAbsolute);
  }
  if (golden.gradient) {
    differ.CompareTensor(
        "gradient", answer.gradient, golden.gradient, kGradientRelative,
        kGradientOfLargest * LargestMagnitude(*golden.gradient));
  }
  for (const auto& [key, expected] : golden.metrics) {
    const auto actual = answer.metrics.find(key);
    if (actual == answer.metrics.end()) {
      differ.Missing("metric " + key);
    } else {
      differ.Compare(key, actual->second, expected, kMetricRelative,
                     kMetricAbsolute);
    }
  }
  return differ.Take();
}

bool Blames(const Violations& violations, const Golden& golden) {
  return std::any_of(
      violations.begin(), violations.end(), [&](const Violation& violation) {
        const std::vector<std::string> names = NamesIn(violation.field);
        return std::find_first_of(names.begin(), names.end(),
                                  golden.blamed.begin(),
                                  golden.blamed.end()) != names.end();
      });
}

}  // namespace counterweight::server

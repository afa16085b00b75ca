#include "tests/server/dialects/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace counterweight::server {
namespace {

using nlohmann::json;

// Tolerances of the goldens: relative, and absolute beside it.
constexpr double kWeightRelative = 1e-5;
constexpr double kWeightAbsolute = 1e-8;
constexpr double kMetricRelative = 2e-5;
constexpr double kMetricAbsolute = 2e-6;

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

Golden Parse(const json& file, const std::string& name) {
  Golden golden;
  golden.name = name;
  golden.dialect = file.at("dialect").get<std::string>();
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
  golden.advantages = Find<float>(inputs, "advantages");

  const json& expect = file.at("expect");
  golden.weights = Find<double>(expect, "weights");
  golden.mask = Find<uint8_t>(expect, "mask");
  if (expect.contains("metrics")) {
    for (const auto& [key, value] : expect.at("metrics").items()) {
      golden.metrics[key] = ToNumber(value);
    }
  }
  if (expect.contains("error")) {
    golden.error = expect.at("error").at("message").get<std::string>();
  }
  return golden;
}

bool Near(double actual, double expected, double relative, double absolute) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <=
         relative * std::abs(expected) + absolute;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Golden& golden) {
  return out << golden.dialect << "/" << golden.name;
}

std::vector<Golden> ReadGoldens(const std::string& dialect) {
  const std::filesystem::path folder =
      std::filesystem::path(COUNTERWEIGHT_GOLDEN_DIR) / dialect;
  std::vector<Golden> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    try {
      std::ifstream stream(entry.path());
      goldens.push_back(Parse(json::parse(stream), entry.path().stem()));
    } catch (const std::exception& error) {
      std::cerr << entry.path() << ": " << error.what() << std::endl;
      std::abort();
    }
  }
  std::sort(goldens.begin(), goldens.end(),
            [](const Golden& a, const Golden& b) { return a.name < b.name; });
  return goldens;
}

RequestFacts FactsOf(const Golden& golden) {
  RequestFacts facts;
  facts.has_rollout_log_probs = golden.rollout_log_probs.has_value();
  facts.has_old_log_probs = golden.old_log_probs.has_value();
  facts.has_current_log_probs = golden.current_log_probs.has_value();
  facts.has_advantages = golden.advantages.has_value();
  facts.num_sequences = golden.num_sequences;
  facts.padded_length = golden.length;
  return facts;
}

std::string BlamedField(const Golden& golden) {
  const std::string& message = golden.error.value();
  for (const char* input : {"response_mask must", "key \"old_log_probs\"",
                            "key \"rollout_log_probs\""}) {
    if (!Contains(message, input)) continue;
    return Contains(input, "mask")  ? "response_mask"
           : Contains(input, "old") ? "old_log_probs"
                                    : "rollout_log_probs";
  }
  const std::string keyword = "unexpected keyword argument '";
  if (Contains(message, keyword)) {
    const size_t begin = message.find(keyword) + keyword.size();
    return message.substr(begin, message.find('\'', begin) - begin);
  }
  for (const char* field : {"rollout_is_threshold", "rollout_rs_threshold"}) {
    if (Contains(message, field)) return field;
  }
  if (Contains(message, "Invalid rollout_is")) return "rollout_is";
  if (Contains(message, "rollout_rs option") ||
      Contains(message, "rollout_rs must")) {
    return "rollout_rs";
  }
  // The rest names no field: a bound of k1 that is 0 or no number, or weights
  // that are all 0.
  return golden.block.fields().contains("rollout_rs") ? "rollout_rs_threshold"
                                                      : "rollout_is_threshold";
}

std::vector<std::string> Differences(const Golden& golden,
                                     const std::vector<double>* weights,
                                     const std::vector<uint8_t>& keep_mask,
                                     const MetricMap& metrics) {
  std::vector<std::string> differences;
  const auto differ = [&](const std::string& what, double actual,
                          double expected) {
    std::ostringstream text;
    text.precision(12);
    text << what << ": " << actual << ", expected " << expected;
    differences.push_back(text.str());
  };
  if (golden.weights && weights == nullptr) {
    differences.push_back("no weights");
  } else if (golden.weights) {
    for (size_t i = 0; i < weights->size(); ++i) {
      const bool counts = golden.response_mask[i] != 0;
      const double expected = counts ? (*golden.weights)[i] : 0.0;
      if (!Near((*weights)[i], expected, counts ? kWeightRelative : 0.0,
                counts ? kWeightAbsolute : 0.0)) {
        differ("weight at " + std::to_string(i), (*weights)[i], expected);
      }
    }
  }
  for (size_t i = 0; i < keep_mask.size(); ++i) {
    if (golden.mask && keep_mask[i] != (*golden.mask)[i]) {
      differ("mask at " + std::to_string(i), keep_mask[i], (*golden.mask)[i]);
    }
  }
  for (const auto& [key, expected] : golden.metrics) {
    const auto actual = metrics.find(key);
    if (actual == metrics.end()) {
      differences.push_back("no metric " + key);
    } else if (!Near(actual->second, expected, kMetricRelative,
                     kMetricAbsolute)) {
      differ(key, actual->second, expected);
    }
  }
  return differences;
}

bool Blames(const Violations& violations, const Golden& golden) {
  const std::string blamed = BlamedField(golden);
  return std::any_of(
      violations.begin(), violations.end(), [&](const Violation& violation) {
        return violation.field == "method.dialect.block." + blamed ||
               (violation.field.starts_with("tensors[") &&
                Contains(violation.description, blamed));
      });
}

}  // namespace counterweight::server

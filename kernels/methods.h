// The methods table: every named method is a row. METHODS.md is generated from
// it.
#ifndef COUNTERWEIGHT_KERNELS_METHODS_H_
#define COUNTERWEIGHT_KERNELS_METHODS_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"

namespace counterweight::kernels {

// A number of a method that a caller may set.
struct MethodParameter {
  std::string_view name;
  // "ratio", "nats", "probability", "fraction", one made of "advantage" and
  // "nat", or empty: a pure number.
  std::string_view unit;
  double default_value;
  std::string_view description;  // meaning and range
};

struct Method {
  std::string_view name;         // "geo_rs_token_tis"
  std::string_view origin;       // "verl", "trl", "skyrl", "openrlhf", ...
  std::string_view origin_name;  // "decoupled_geo_rs_token_tis"; may be empty
  std::string_view summary;      // one sentence
  std::string_view formula;      // clauses with "; " between them
  std::string_view when_to_use;  // one sentence
  std::string_view reference;    // paper or document
  std::vector<MethodParameter> parameters;
  // Makes the spec from parameter values in the order of `parameters`.
  CorrectionSpec (*make)(std::span<const double> values);
};

// All rows, in the order of the reference.
const std::vector<Method>& Methods();

// Null if there is none of that name.
const Method* FindMethod(std::string_view name);

struct ParameterViolation {
  std::string parameter;
  std::string reason;
};

// The row's spec with `overrides` by parameter name. Unknown names and NaN go
// to *violations.
CorrectionSpec MakeSpec(const Method& method,
                        const std::map<std::string, double>& overrides,
                        std::vector<ParameterViolation>* violations);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_METHODS_H_

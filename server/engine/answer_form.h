// The numbers of an answer in an order that its method determines.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_ANSWER_FORM_H_
#define COUNTERWEIGHT_SERVER_ENGINE_ANSWER_FORM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "server/engine/codec.h"

namespace counterweight::server {

// Stands for a number that the batch does not have; a NaN that no computation
// makes.
double Absent();
bool IsAbsent(double number);

// Names the metrics of a method, and writes an answer's numbers: loss, tokens,
// non-finite tokens, tokens with a log-prob above 0, two for each rule, the
// metrics. Immutable.
class AnswerForm {
 public:
  static constexpr size_t kLoss = 0;
  static constexpr size_t kTokens = 1;
  static constexpr size_t kNonFiniteTokens = 2;
  static constexpr size_t kPositiveLogProbs = 3;
  // Seconds of stages, which the caller writes.
  static constexpr size_t kSeconds = 4;
  static constexpr size_t kFirstRule = 7;

  AnswerForm() = default;
  // `decoded` is of any batch of the method.
  explicit AnswerForm(const Decoded& decoded);

  // Ascending.
  const std::vector<std::string>& metrics() const { return metrics_; }
  size_t num_numbers() const { return first_metric_ + metrics_.size(); }

  // Writes [num_numbers()] but the seconds. Returns the violations that only
  // the sums show; the numbers are undefined then. REQUIRES: decoded is of the
  // method.
  Violations Write(const Decoded& decoded, const kernels::CorrectResult& result,
                   double* numbers) const;

  // Writes what Encode writes, but staleness, from an answer's numbers.
  void Describe(const Decoded& decoded, const double* numbers,
                v1::CorrectResponse* response) const;

 private:
  size_t first_metric_ = kFirstRule;
  std::vector<std::string> metrics_;
  // The place of each metric in the order of kernels::WriteMetrics.
  std::vector<size_t> places_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_ANSWER_FORM_H_

// Violations of a request, field by field.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_VIOLATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_VIOLATION_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace counterweight::server {

// One invalid field, as in google.rpc.BadRequest.FieldViolation. `field` is a
// path in the request, such as "method.dialect.block.rollout_is_threshold";
// `description` states the problem and the accepted values.
struct Violation {
  std::string field;
  std::string description;
};

// Largest number of violations that the client receives.
inline constexpr size_t kMaxReportedViolations = 16;

// All violations of a request. Counts every one, and keeps as many as are
// reported and one more, so that mistakes do not cost memory.
class Violations {
 public:
  static constexpr size_t kMaxKept = kMaxReportedViolations + 1;

  using value_type = Violation;
  using const_iterator = std::vector<Violation>::const_iterator;
  using iterator = const_iterator;

  Violations() = default;
  Violations(std::initializer_list<Violation> violations) {
    for (const Violation& each : violations) push_back(each);
  }

  void push_back(Violation violation) {
    ++count_;
    if (kept_.size() < kMaxKept) kept_.push_back(std::move(violation));
  }
  void Append(const Violations& others) {
    for (const Violation& each : others) push_back(each);
    count_ += others.count_ - others.kept_.size();
  }

  // Number of all violations.
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

  // The first kMaxKept of them.
  const_iterator begin() const { return kept_.begin(); }
  const_iterator end() const { return kept_.end(); }
  const Violation& front() const { return kept_.front(); }
  const Violation& operator[](size_t i) const { return kept_[i]; }

 private:
  std::vector<Violation> kept_;
  size_t count_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_VIOLATION_H_

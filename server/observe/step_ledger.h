// The books of a run's newest optimizer steps: what they received, and what
// their losses used.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_STEP_LEDGER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_STEP_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/receipt.h"

namespace counterweight::server {

// Adds the reports of each step until all have been received. Not thread-safe.
class StepLedger {
 public:
  static constexpr size_t kMaxSteps = 2;

  // A step that needs no further report.
  struct ClosedStep {
    // False: newer steps displaced it while reports were missing.
    bool is_complete = true;
    std::optional<Receipt> issued;
    std::optional<Receipt> applied;
    bool ratio_all_one = true;

    // UNSPECIFIED if it is not complete or has one side only.
    v1::ReceiptState State() const;
    // In metrics and on the page: "used", "unused", "rounded", "replaced",
    // "not_issued", "not_applied", "incomplete".
    std::string StateName() const;
  };

  // Adds a report; returns the steps that closed by it, its own last. A report
  // of a step that is closed opens it anew.
  std::vector<ClosedStep> Add(const StepReport& report);

  // The state of a step that is open or one of the last kMaxSteps.
  v1::ReceiptState StateOf(int64_t step) const;

  // The StateName of the step that closed last; empty before the first.
  const std::string& LastState() const { return last_state_; }

 private:
  struct Entry {
    int64_t step = 0;
    int64_t reports = 0;
    bool is_open = true;
    ClosedStep sums;
  };

  Entry& Open(int64_t step, std::vector<ClosedStep>* closed);

  std::vector<Entry> entries_;  // oldest first by their first report
  std::string last_state_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_STEP_LEDGER_H_

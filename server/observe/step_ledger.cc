#include "server/observe/step_ledger.h"

#include <algorithm>

namespace counterweight::server {

v1::ReceiptState StepLedger::ClosedStep::State() const {
  return is_complete ? Judge(issued, applied) : v1::RECEIPT_STATE_UNSPECIFIED;
}

std::string StepLedger::ClosedStep::StateName() const {
  if (!is_complete) return "incomplete";
  const v1::ReceiptState state = State();
  if (state == v1::RECEIPT_STATE_USED) return "used";
  if (state == v1::RECEIPT_STATE_UNUSED) return "unused";
  if (state == v1::RECEIPT_STATE_ROUNDED) return "rounded";
  if (state == v1::RECEIPT_STATE_REPLACED) return "replaced";
  return issued ? "not_applied" : "not_issued";
}

std::vector<StepLedger::ClosedStep> StepLedger::Add(const StepReport& report) {
  std::vector<ClosedStep> closed;
  Entry& entry = Open(report.step, &closed);
  ClosedStep& sums = entry.sums;
  server::Add(report.issued, &sums.issued);
  server::Add(report.applied, &sums.applied);
  sums.ratio_all_one = sums.ratio_all_one && report.ratio_all_one;
  if (++entry.reports >= report.num_reports) {
    entry.is_open = false;
    closed.push_back(sums);
  }
  if (!closed.empty()) last_state_ = closed.back().StateName();
  return closed;
}

v1::ReceiptState StepLedger::StateOf(int64_t step) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& each) { return each.step == step; });
  if (found == entries_.end() || found->is_open) {
    return v1::RECEIPT_STATE_UNSPECIFIED;
  }
  return found->sums.State();
}

StepLedger::Entry& StepLedger::Open(int64_t step,
                                    std::vector<ClosedStep>* closed) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& each) { return each.step == step; });
  if (found != entries_.end()) {
    if (!found->is_open) *found = {.step = step};
    return *found;
  }
  if (entries_.size() == kMaxSteps) {
    if (entries_.front().is_open) {
      closed->push_back(entries_.front().sums);
      closed->back().is_complete = false;
    }
    entries_.erase(entries_.begin());
  }
  return entries_.emplace_back(Entry{.step = step});
}

}  // namespace counterweight::server

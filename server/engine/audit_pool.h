// The audited rows of a run.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_AUDIT_POOL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_AUDIT_POOL_H_

#include <span>

#include "kernels/doctor/audit.h"

namespace counterweight::server {

// Adds up rows while the drift stays as it is. Not thread-safe.
class AuditPool {
 public:
  // Adds a batch's own AuditSummary.sums. If its interval and that of all
  // before have nothing in common, the drift has changed, and the pool begins
  // anew.
  void Add(std::span<const double> sums);

  kernels::doctor::AuditedDrift Drift() const {
    return kernels::doctor::DriftOf(sums_);
  }

 private:
  kernels::doctor::AuditSums sums_ =
      kernels::doctor::AuditSums(kernels::doctor::kAuditNumbers);
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_AUDIT_POOL_H_

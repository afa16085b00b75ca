#include "server/engine/audit_pool.h"

namespace counterweight::server {

void AuditPool::Add(std::span<const double> sums) {
  const auto before = Drift().interval;
  const auto own = kernels::doctor::DriftOf(sums).interval;
  if (before && own && (own->low > before->high || own->high < before->low)) {
    sums_.assign(sums_.size(), 0.0);
  }
  kernels::doctor::AddAuditSums(sums, &sums_);
}

}  // namespace counterweight::server

#include "server/engine/codec_dialect.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

Violation UnknownSystem(std::string_view system,
                        std::span<const Dialect> dialects) {
  std::vector<std::string_view> known;
  for (const Dialect& each : dialects) known.push_back(each.system);
  return {
      "method.dialect.system",
      Concat(Quote(system), " is not a dialect of this server. ",
             DidYouMean(system, known), "It speaks ", JoinNames(known), ".")};
}

}  // namespace

Result<Method> ReadDialect(const v1::Dialect& block, RequestFacts facts,
                           std::span<const Dialect> dialects) {
  const Dialect* const dialect = FindDialect(block.system(), dialects);
  if (dialect == nullptr) {
    return {{}, {UnknownSystem(block.system(), dialects)}};
  }
  Result<Method> result;
  Method& method = result.value;
  facts.asked = ReadRelease(dialect->system, dialect->releases, block.release(),
                            &method.warnings, &result.violations);
  if (!result.ok()) return {{}, std::move(result.violations)};
  Translation translation =
      dialect->translate(block.block(), block.ignore_unknown_fields(), facts);
  if (!translation.violations.empty()) {
    return {{}, std::move(translation.violations)};
  }
  method.name = block.system();
  method.spec = translation.spec;
  method.rule_names = std::move(translation.rule_names);
  std::move(translation.warnings.begin(), translation.warnings.end(),
            std::back_inserter(method.warnings));
  method.report = std::move(translation.report);
  method.token_metrics = std::move(translation.token_metrics);
  method.token_metric_memory = translation.token_metric_memory;
  method.last_rule_spares_weights = translation.last_rule_spares_weights;
  method.row_filter = std::move(translation.row_filter);
  method.derived = std::move(translation.derived);
  method.report_judges = translation.report_judges;
  method.empty_loss_is_nan = translation.empty_loss_is_nan;
  method.uses_group_ids = translation.uses_group_ids;
  method.counts_use = std::move(translation.counts_use);
  method.counts_use.is_dialect = true;
  method.groups = {std::move(translation.groups), translation.num_groups};
  method.row_divisors = std::move(translation.row_divisors);
  return result;
}

}  // namespace counterweight::server

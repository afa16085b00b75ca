// Requests and checks for tests of dialects.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TRANSLATIONS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TRANSLATIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialect.h"

namespace counterweight::server {

// A request of every tensor, 5 rows in a batch of width 4, that wants a loss.
inline RequestFacts AllTensors() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.has_ref_log_probs = true;
  facts.has_advantages = true;
  facts.wants_loss = true;
  facts.num_sequences = 5;
  facts.padded_length = 4;
  return facts;
}

// Returns the violations' fields; those of the block without its path.
inline std::vector<std::string> Fields(const Translation& translation) {
  constexpr std::string_view kBlock = "method.dialect.block.";
  std::vector<std::string> fields;
  for (const Violation& violation : translation.violations) {
    fields.push_back(violation.field.starts_with(kBlock)
                         ? violation.field.substr(kBlock.size())
                         : violation.field);
  }
  return fields;
}

// A block that is refused for one field.
struct Refusal {
  const char* json;
  const char* field;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TRANSLATIONS_H_

// Use of CorrectRequest.global_counts and row_divisors by a method.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_COUNTS_USE_H_
#define COUNTERWEIGHT_SERVER_ENGINE_COUNTS_USE_H_

#include <string>

namespace counterweight::server {

struct CountsUse {
  // Denominator GLOBAL: the counts must be there, and a count of kept tokens
  // (sequences) replaces that of all.
  bool is_global = false;
  // A dialect: the request's divisors of rows are refused, and where no rule
  // drops a token, the count of all tokens (sequences) is the kept ones' too.
  bool is_dialect = false;
  bool omits_loss = false;  // CorrectRequest.omit_loss
  // Why the loss reads no counts; empty: it reads them.
  std::string refusal;
  // The method's own fields that already give a count, and the number of ranks;
  // empty: none does.
  std::string given_count;
  std::string given_ranks;
  // The field that would replace the padded width, by which the loss divides
  // for want of it; empty: the loss does not.
  std::string width_field;
  // The dialect's own field for divisors of rows; empty: it has none.
  std::string divisors_field;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_COUNTS_USE_H_

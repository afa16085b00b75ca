// Prints kernels/METHODS.md, the reference of the methods table. `make docs`
// runs it.
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/methods.h"
#include "kernels/surrogates/list.h"
#include "server/engine/equivalents.h"
#include "server/engine/groups_reference.h"

namespace counterweight::server {
namespace {

using kernels::CorrectionSpec;
using kernels::Effect;
using kernels::InfoOf;
using kernels::Level;
using kernels::LossParameterInfo;
using kernels::LossSpec;
using kernels::Method;
using kernels::MethodParameter;
using kernels::Methods;
using kernels::NumberRange;
using kernels::ParameterViolation;
using kernels::Surrogate;
using kernels::SurrogateInfo;

constexpr std::string_view kIntroduction =
    R"(<!-- Made by `make docs` from kernels/methods, kernels/surrogates and server/engine/equivalents.h. Edits here are lost. -->

# Methods

[CHOOSING.md](CHOOSING.md) has a table of cases with a method, start values and the metric to watch.

What `Preset.name` takes on the wire and `method=` in the clients; `ListMethods` and `client.list_methods()` answer the
same. A method's parameters may be set one by one, a preset may also bring a `policy_loss` or a `kl_penalty`. Anything
between these methods is a `CorrectionConfig`.

| symbol | meaning |
|---|---|
| rollout, old, current | log-probs under the policy that sampled, the trainer's at the start of the step, the one being trained |
| `i`, `t` | row (sequence), token |
| `l_t` | log ratio in nats, the difference that the formula names; `r_t`, where there is one, is its ratio |
| `c_20(x)` | x clamped to [-20, 20] |
| `n_i`, `n` | tokens of row i, of the batch, where `response_mask` is 1; sums go over these, a mean over rows over those with n_i > 0 |
| `w_t`, `w_i` | importance weight of a token, of all tokens of a row |
| stays | a token or row that does not is dropped from the keep mask |
| `A_t`, `lp_t` | advantage, current log-prob |
| `clip(r, a, b)` | r clamped to [a, b] |
| detached | a constant to the gradient, which is that by current log-probs |

**Elsewhere** are other systems' blocks that compute a method with its default parameters (`Dialect` on the wire): the
same weights, mask, loss and gradient, byte for byte and for every batch, unless a difference is named. Batches whose
rows all have tokens and one advantage each, and whose log ratios and sums of them stay within 20 nats, show none of
these differences but rounding. A system that is not listed has no such block. Metrics have that system's names, and
where no token counts verl and OpenRLHF have a loss of NaN, Counterweight one of 0.
`tests/server/method_equivalents_test.cc` compares them all.
)";

constexpr size_t kWidth = 120;

enum class Group { kDrift, kWeights, kRejection, kLosses };

struct Section {
  Group group;
  std::string_view title;
  std::string_view introduction;
};

constexpr Section kSections[] = {
    {Group::kWeights, "Importance weights",
     "Nothing leaves the keep mask; a weight of 0 stays in every "
     "denominator."},
    {Group::kRejection, "Rejection",
     "Rules that drop tokens or rows from the keep mask, some with weights "
     "beside them."},
    {Group::kLosses, "Losses",
     "Each answers the loss and its gradient. What rules drop is left out of "
     "sums, not of n; the keep mask and the weights are answered too."},
    {Group::kDrift, "Drift only", "Metrics, and the mask as it came."},
};

Group GroupOf(const Method& method) {
  std::vector<ParameterViolation> none;
  const CorrectionSpec spec = MakeSpec(method, {}, &none);
  if (spec.loss.surrogate != Surrogate::kNone) return Group::kLosses;
  for (int r = 0; r < spec.num_rules; ++r) {
    if (spec.rules[r].effect == Effect::kDrop) return Group::kRejection;
  }
  return spec.weight.level == Level::kNone ? Group::kDrift : Group::kWeights;
}

// Wraps `text` into lines of at most kWidth; later lines begin with `indent`.
std::string Wrap(std::string_view text, std::string_view indent) {
  std::string wrapped;
  size_t column = 0;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (column > 0 && column + 1 + word.size() > kWidth) {
      wrapped += '\n';
      wrapped += indent;
      column = indent.size();
    } else if (column > 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
  }
  return wrapped + '\n';
}

// Puts each clause of a formula on its own lines.
std::string Clauses(std::string_view formula) {
  constexpr std::string_view kSeparator = "; ";
  std::string text;
  while (true) {
    const size_t end = formula.find(kSeparator);
    text += Wrap(formula.substr(0, end), "    ");
    if (end == std::string_view::npos) return text;
    formula.remove_prefix(end + kSeparator.size());
  }
}

std::string Code(std::string_view text) {
  std::string code = "`";
  code += text;
  return code + '`';
}

std::string Number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", number);
  return text;
}

std::string Origin(const Method& method) {
  std::string origin(method.origin);
  if (!method.origin_name.empty()) origin += ' ' + Code(method.origin_name);
  return origin;
}

// Lists a section's methods, one per line.
std::string Overview(const Section& section) {
  std::string text = "| method | what it does | from |\n|---|---|---|\n";
  for (const Method& method : Methods()) {
    if (GroupOf(method) != section.group) continue;
    std::string name(method.name);
    text += "| [" + Code(name) + "](#" + name + ") | ";
    text += method.summary.substr(0, method.summary.size() - 1);
    text += " | " + Origin(method) + " |\n";
  }
  return text;
}

std::string Parameters(const Method& method) {
  if (method.parameters.empty()) return {};
  std::string text =
      "\n| parameter | unit | default | meaning |\n|---|---|---|---|\n";
  for (const MethodParameter& parameter : method.parameters) {
    text += "| " + Code(parameter.name) + " | ";
    text += parameter.unit;
    text += " | " + Number(parameter.default_value) + " | ";
    text += parameter.description;
    text += " |\n";
  }
  return text;
}

std::string Elsewhere(const Method& method) {
  std::string text = "\n**Elsewhere**\n\n";
  const std::vector<Equivalent> equivalents = EquivalentsOf(method.name);
  for (const Equivalent& equivalent : equivalents) {
    std::string item = "- " + std::string(equivalent.system);
    for (const std::string_view difference : equivalent.differences) {
      item += difference == equivalent.differences.front() ? ", but " : "; ";
      item += difference;
    }
    text += Wrap(item + ": " + Code(equivalent.block), "  ");
  }
  return equivalents.empty() ? std::string() : text;
}

std::string Describe(const Method& method) {
  std::string text = "\n### " + std::string(method.name) + "\n\n";
  text += "```\n" + Clauses(method.formula) + "```\n\n";
  text += Wrap("**When** " + std::string(method.when_to_use), "");
  text += '\n' + Wrap("**Source** " + std::string(method.reference) + ".", "");
  return text + Parameters(method) + Elsewhere(method);
}

std::string Range(const NumberRange& range) {
  const auto end = [](double x) {
    return std::isinf(x) ? std::string(x > 0.0 ? "∞" : "-∞") : Number(x);
  };
  const bool open_low = range.open_low || std::isinf(range.low);
  const bool open_high = range.open_high || std::isinf(range.high);
  return (open_low ? "(" : "[") + end(range.low) + ", " + end(range.high) +
         (open_high ? ")" : "]");
}

std::string LossParameters(const SurrogateInfo& info) {
  std::string text;
  for (const LossParameterInfo& row : kernels::kLossParameters) {
    if (!info.Reads(row.parameter)) continue;
    text += text.empty() ? "" : ", ";
    text += Code(row.name);
  }
  return text.empty() ? "none" : text;
}

std::string Needs(const SurrogateInfo& info) {
  std::string text =
      info.Has(kernels::kTraitRatio) ? "token" : "token, no ratio";
  if (info.Has(kernels::kTraitLevels)) text += " or sequence";
  if (info.Has(kernels::kTraitRow)) text += ", row";
  if (info.Has(kernels::kTraitSelection)) text += ", batch (selects tokens)";
  return text;
}

std::string SurrogateTables() {
  std::string text = R"(
## Surrogates

What `PolicyLoss.surrogate` can be, what its value is made of, and which numbers of the `PolicyLoss` it reads; others are
refused. Formulas and papers: [Losses](#losses); gradients and factors: [README](README.md#policy-losses).

| surrogate | ratio of | numbers |
|---|---|---|
)";
  for (int s = 1; s < kernels::kNumSurrogates; ++s) {
    const SurrogateInfo info = InfoOf(static_cast<Surrogate>(s));
    text += "| " + Code(info.name) + " | " + Needs(info) + " | " +
            LossParameters(info) + " |\n";
  }
  text += R"(
| number | range | default |
|---|---|---|
)";
  const LossSpec defaults;
  for (const LossParameterInfo& row : kernels::kLossParameters) {
    const double value = defaults.*row.member;
    const bool is_required = row.is_required || !row.range.Contains(value);
    const std::string absent = std::isinf(value) ? "absent" : Number(value);
    text += "| " + Code(row.name) + " | " + Range(row.range) + " | " +
            (is_required ? "required" : absent) + " |\n";
  }
  return text;
}

std::string Reference() {
  std::string text(kIntroduction);
  for (const Section& section : kSections) {
    text += "\n## " + std::string(section.title) + "\n\n";
    text += Wrap(section.introduction, "") + '\n' + Overview(section);
    for (const Method& method : Methods()) {
      if (GroupOf(method) == section.group) text += Describe(method);
    }
  }
  return text + SurrogateTables() + GroupBaselines();
}

}  // namespace
}  // namespace counterweight::server

int main() {
  const std::string text = counterweight::server::Reference();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

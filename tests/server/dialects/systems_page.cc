#include "tests/server/dialects/systems_page.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/spec.h"
#include "kernels/surrogates/list.h"
#include "server/engine/dialect.h"
#include "server/engine/names.h"
#include "tests/server/dialects/golden.h"
#include "tests/server/dialects/system_blocks.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::Estimator;
using kernels::KlEstimator;
using kernels::Level;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RejectionRule;
using kernels::RowCount;
using kernels::Surrogate;

using Has = std::function<bool(const CorrectionSpec&)>;

struct Part {
  std::string name;
  Has has;
};

// Parts of methods of one kind.
struct Kind {
  std::string_view name;
  std::vector<Part> parts;
};

Has Weight(Level level, Bound bound) {
  return [=](const CorrectionSpec& spec) {
    const kernels::WeightSpec& weight = spec.weight;
    // Bounds of 1 make a weight that only carries zeros.
    return weight.level == level && weight.bound == bound &&
           !(weight.lower == 1.0 && weight.upper == 1.0);
  };
}

Has Rule(const std::function<bool(const RejectionRule&)>& is) {
  return [=](const CorrectionSpec& spec) {
    return std::any_of(spec.rules, spec.rules + spec.num_rules, is);
  };
}

Has Ratio(Aggregation aggregation) {
  return Rule([=](const RejectionRule& rule) {
    return rule.estimator == Estimator::kRatio &&
           rule.aggregation == aggregation;
  });
}

Has Divergence(Estimator estimator) {
  return Rule(
      [=](const RejectionRule& rule) { return rule.estimator == estimator; });
}

Has LossOf(const std::function<bool(const LossSpec&)>& is) {
  return [=](const CorrectionSpec& spec) {
    return spec.loss.surrogate != Surrogate::kNone && is(spec.loss);
  };
}

std::vector<Part> Weights() {
  std::vector<Part> parts;
  for (const auto& [level, of] :
       {std::pair{Level::kToken, "of a token"},
        std::pair{Level::kSequence, "of a row's product"},
        std::pair{Level::kGeometric, "of a row's geometric mean"}}) {
    for (const auto& [bound, how] : {std::pair{Bound::kNone, "without bounds"},
                                     std::pair{Bound::kTruncate, "truncated"},
                                     std::pair{Bound::kMask, "0 outside"}}) {
      parts.push_back({Concat(of, ", ", how), Weight(level, bound)});
    }
  }
  parts.push_back({"divided by their mean", [](const CorrectionSpec& spec) {
                     return spec.weight.normalize;
                   }});
  return parts;
}

std::vector<Part> Rules() {
  return {
      {"ratio of a token", Ratio(Aggregation::kToken)},
      {"a row's product", Ratio(Aggregation::kSum)},
      {"a row's geometric mean", Ratio(Aggregation::kMean)},
      {"a row's largest ratio", Ratio(Aggregation::kMax)},
      {"every ratio of a row", Ratio(Aggregation::kAll)},
      {"k2", Divergence(Estimator::kK2)},
      {"k3", Divergence(Estimator::kK3)},
      {"k3 of the exchanged ratio", Divergence(Estimator::kReverseK3)},
      {"binary KL", Divergence(Estimator::kBinaryKl)},
      {"total variation", Divergence(Estimator::kTotalVariation)},
      {"signed difference of probabilities",
       Divergence(Estimator::kDifference)},
      {"by the sign of the advantage", Rule([](const RejectionRule& rule) {
         return rule.condition != kernels::Condition::kAlways;
       })},
      {"a weight of 0 instead of the mask", Rule([](const RejectionRule& rule) {
         return rule.effect == kernels::Effect::kZeroWeight;
       })},
  };
}

std::vector<Part> Losses() {
  std::vector<Part> parts;
  for (int i = 1; i <= static_cast<int>(Surrogate::kLast); ++i) {
    const auto surrogate = static_cast<Surrogate>(i);
    parts.push_back({Concat("`", kernels::InfoOf(surrogate).name, "`"),
                     LossOf([=](const LossSpec& loss) {
                       return loss.surrogate == surrogate;
                     })});
  }
  parts.push_back({"dual clip", LossOf([](const LossSpec& loss) {
                     return loss.dual_clip < LossSpec::kNoBound;
                   })});
  parts.push_back({"ratio of a row", LossOf([](const LossSpec& loss) {
                     return loss.level == LossLevel::kSequence;
                   })});
  parts.push_back({"ratio of a row, by token", LossOf([](const LossSpec& loss) {
                     return loss.level == LossLevel::kSequenceToken;
                   })});
  return parts;
}

std::vector<Part> Penalties() {
  std::vector<Part> parts;
  for (const auto& [estimator, name] :
       {std::pair{KlEstimator::kK1, "k1"}, std::pair{KlEstimator::kK2, "k2"},
        std::pair{KlEstimator::kK3, "k3"},
        std::pair{KlEstimator::kAbs, "absolute value"}}) {
    parts.push_back({name, LossOf([value = estimator](const LossSpec& loss) {
                       return loss.kl.estimator == value;
                     })});
  }
  parts.push_back({"times the policy's ratio", LossOf([](const LossSpec& loss) {
                     return loss.kl.importance_weighted;
                   })});
  parts.push_back({"times the weight", LossOf([](const LossSpec& loss) {
                     return loss.kl.has_weight;
                   })});
  return parts;
}

std::vector<Part> Divisors() {
  std::vector<Part> parts;
  for (const auto& [count, name] :
       {std::pair{BatchCount::kTokens, "tokens"},
        std::pair{BatchCount::kRowTokens, "tokens, 1 for an empty row"},
        std::pair{BatchCount::kKeptTokens, "kept tokens"},
        std::pair{BatchCount::kRows, "rows"},
        std::pair{BatchCount::kNonemptyRows, "rows with a token"},
        std::pair{BatchCount::kKeptRows, "rows with a kept token"},
        std::pair{BatchCount::kGroups, "prompts"},
        std::pair{BatchCount::kOne, "a count of the block"}}) {
    parts.push_back({name, LossOf([value = count](const LossSpec& loss) {
                       return loss.reduction.count == value;
                     })});
  }
  for (const auto& [row, name] :
       {std::pair{RowCount::kTokens, "and a row's tokens"},
        std::pair{RowCount::kKeptTokens, "and a row's kept tokens"},
        std::pair{RowCount::kGroupTokens, "and a prompt's tokens"},
        std::pair{RowCount::kGiven, "and a row's number from the block"}}) {
    parts.push_back({name, LossOf([value = row](const LossSpec& loss) {
                       return loss.reduction.row == value;
                     })});
  }
  return parts;
}

// A dialect's goldens.
struct System {
  std::string_view name;
  std::string code;
  int answered = 0;
  int refused = 0;
  int errors = 0;
  std::vector<CorrectionSpec> specs;
};

System Measure(const Dialect& dialect) {
  System system;
  system.name = dialect.system;
  std::vector<Golden> goldens = ReadGoldens(std::string(dialect.system));
  for (const std::string_view dated : {"verl", "trl", "openrlhf"}) {
    if (dated != dialect.system) continue;
    const std::vector<Golden> more = ReadGoldens(Concat("dated/", dated));
    goldens.insert(goldens.end(), more.begin(), more.end());
  }
  const Release& oldest = dialect.releases.front().release;
  const Release& newest = dialect.releases.back().release;
  if (newest == Release{}) {
    system.code = goldens.front().source;
  } else {
    system.code = ToString(oldest);
    if (newest != oldest) system.code += " to " + ToString(newest);
  }
  for (const Golden& golden : goldens) {
    if (golden.is_refused) {
      ++system.refused;
    } else if (golden.error) {
      ++system.errors;
    } else {
      ++system.answered;
      system.specs.push_back(
          dialect.translate(golden.block, false, FactsOf(golden)).spec);
    }
  }
  return system;
}

constexpr std::string_view kHead =
    R"(# Systems and what their blocks compute

<!-- Written by systems_page_test; do not edit. -->

`refused`: answers of the system that the server refuses by name, with the reasons of
[`refused.json`](../../../tests/golden/refused.json). [README.md](README.md) has the quirks and decisions.

)";

constexpr std::string_view kMeanings = R"(
## One name, several meanings

| name | meanings |
|---|---|
| a weight of the "sequence" | the product of the row's ratios: slime, miles, ROLL; their geometric mean: ms-swift, AReaL; NeMo-RL, under one flag: the product in the weight, the geometric mean in the policy's ratio |
| `chi2_seq` | of the product: slime, miles; of the geometric mean: ms-swift |
| k3 of a rejection rule, of one log ratio l | exp(-l) - 1 + l: AReaL; exp(l) - 1 - l: verl |
| k1 of a rejection rule | -l, with bounds of ratios: verl; l: AReaL |
| no lower bound given | 1 / upper: MIS of slime and miles; 0: NeMo-RL's tis; no bound: ms-swift |
| the KL penalty by default | k1: slime, miles; k3: ROLL; k3 times the weight: ms-swift; k3 with the score function's gradient, 0.01: NeMo-RL; the squared log ratio to the sampler, always on: prime-rl |
| `epsilon_high`, a high threshold | the distance from 1; the ratio itself: ms-swift's cispo, Tinker |
| a token that a rule rejects | weight and divisor stay: slime, miles, SkyRL, prime-rl; weight 0, the divisor stays: NeMo-RL, AReaL, OpenRLHF; it leaves the divisor: verl, ms-swift's OPSM, a row's mean in ROLL |
)";

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += Concat(" ", cell, " |");
  return row + "\n";
}

std::string Counts(const std::vector<System>& systems) {
  std::string page = Row({"system", "code or releases", "goldens answered",
                          "refused", "errors"}) +
                     "|---|---|--:|--:|--:|\n";
  for (const System& system : systems) {
    page +=
        Row({Concat("`", system.name, "`"), system.code,
             std::to_string(system.answered), std::to_string(system.refused),
             std::to_string(system.errors)});
  }
  return page;
}

// A row for each part that a system has.
std::string Table(const Kind& kind, const std::vector<System>& systems) {
  std::vector<std::string> head = {""};
  std::string line = "|---|";
  for (const System& system : systems) {
    head.emplace_back(system.name);
    line += ":-:|";
  }
  std::string page = Concat("\n## ", kind.name, "\n\n", Row(head), line, "\n");
  for (const Part& part : kind.parts) {
    std::vector<std::string> cells = {part.name};
    for (const System& system : systems) {
      const bool has =
          std::any_of(system.specs.begin(), system.specs.end(), part.has);
      cells.emplace_back(has ? "x" : "");
    }
    if (std::count(cells.begin(), cells.end(), "x") > 0) page += Row(cells);
  }
  return page;
}

}  // namespace

std::string SystemsPage() {
  std::vector<System> systems;
  for (const Dialect& dialect : Dialects()) {
    systems.push_back(Measure(dialect));
  }
  std::string page = std::string(kHead) + Counts(systems);
  for (const Kind& kind :
       {Kind{"Weights", Weights()}, Kind{"Rejection rules", Rules()},
        Kind{"Policy losses", Losses()}, Kind{"KL penalty", Penalties()},
        Kind{"Divisors of the loss", Divisors()}}) {
    page += Table(kind, systems);
  }
  return page + std::string(kMeanings) + SystemSections();
}

}  // namespace counterweight::server

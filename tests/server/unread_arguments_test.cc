// The law of unread arguments, over every method and dialect and every optional
// argument of the contract: some value of it changes the answer, or the request
// is refused by its name, or, for a tensor, the answer warns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/methods.h"
#include "server/engine/names.h"
#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"
#include "tests/testing/random_rows.h"

namespace counterweight::server {
namespace {

using google::protobuf::Descriptor;
using kernels::Random;

constexpr int kRows = 4;
constexpr int kLength = 6;

// The exceptions, which a method may leave unread without a word. Labels and
// the caller's id are for log, metrics and retries. Methods without random
// choices give the same answer for every seed. The layout describes the batch;
// its padded_length is what the width of a padded layout is.
const std::set<std::string_view> kUnread = {"request_id", "labels", "seed",
                                            "layout"};

// Every loss requires advantages and refuses those that are not finite;
// cross-entropy does not multiply by them.
bool IsException(const std::string& method, const std::string& argument) {
  return method == "cross_entropy" && argument == "ADVANTAGES";
}

using Change = std::function<void(v1::CorrectRequest*)>;

std::vector<float> Numbers(Random* random, double mean, double spread) {
  std::vector<float> numbers;
  for (int i = 0; i < kRows * kLength; ++i) {
    numbers.push_back(static_cast<float>(mean + spread * random->Normal()));
  }
  return numbers;
}

v1::CorrectRequest Request() {
  Random random(1);
  v1::CorrectRequest request;
  v1::PackedLayout* layout = request.mutable_layout()->mutable_packed();
  for (int i = 0; i < kRows; ++i) layout->add_sequence_lengths(kLength);
  const std::vector<float> old = Numbers(&random, -3.0, 0.5);
  const auto near = [&](double spread) {
    std::vector<float> numbers = Numbers(&random, 0.0, spread);
    for (size_t i = 0; i < old.size(); ++i) numbers[i] += old[i];
    return numbers;
  };
  // Rules of whole sequences drop the first two.
  std::vector<float> rollout = near(0.5);
  for (int i = 0; i < kLength; ++i) {
    rollout[static_cast<size_t>(i)] -= 2.0f;
    rollout[static_cast<size_t>(kLength + i)] += 2.0f;
  }
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, old, &request);
  AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, near(0.3), &request);
  AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, Numbers(&random, 0.0, 1.0), &request);
  AddMask(std::string(kRows * kLength, '\1'), &request);
  request.mutable_labels()->set_policy_version(9);
  return request;
}

v1::Tensor* Find(v1::TensorRole role, v1::CorrectRequest* request) {
  for (v1::Tensor& tensor : *request->mutable_tensors()) {
    if (tensor.role() == role) return &tensor;
  }
  return nullptr;
}

// An argument and values of it.
struct Argument {
  std::string name;
  std::vector<Change> values;
  bool is_tensor = false;
};

Argument TensorArgument(v1::TensorRole role, double mean, double spread) {
  const auto value = [=](uint64_t seed, double scale) {
    return [=](v1::CorrectRequest* request) {
      Random random(seed);
      const std::vector<float> numbers = Numbers(&random, mean, scale);
      v1::Tensor* const tensor = Find(role, request);
      if (tensor == nullptr) return AddNumbers(role, numbers, request);
      tensor->set_data(numbers.data(), numbers.size() * sizeof(float));
    };
  };
  return {v1::TensorRole_Name(role).substr(std::string("TENSOR_ROLE_").size()),
          {value(2, spread), value(3, spread), value(2, -spread)},
          /*is_tensor=*/true};
}

v1::GlobalCounts* Counts(v1::CorrectRequest* request) {
  return request->mutable_global_counts();
}

// One for each field of GlobalCounts, by itself and beside counts of tokens and
// sequences.
std::vector<Argument> CountArguments() {
  const auto beside = [](const Change& change) {
    return std::vector<Change>{change, [=](v1::CorrectRequest* request) {
                                 Counts(request)->set_num_tokens(50);
                                 Counts(request)->set_num_sequences(9);
                                 change(request);
                               }};
  };
  return {
      {"num_tokens",
       {[](auto* request) { Counts(request)->set_num_tokens(90); },
        [](auto* request) {
          Counts(request)->set_num_sequences(9);
          Counts(request)->set_num_tokens(1);
        }}},
      {"num_sequences",
       {[](auto* request) { Counts(request)->set_num_sequences(9); },
        [](auto* request) {
          Counts(request)->set_num_tokens(90);
          Counts(request)->set_num_sequences(1);
        }}},
      {"num_kept_tokens",
       beside([](auto* request) { Counts(request)->set_num_kept_tokens(40); })},
      {"num_kept_sequences", beside([](auto* request) {
         Counts(request)->set_num_kept_sequences(7);
       })},
      {"num_ranks",
       beside([](auto* request) { Counts(request)->set_num_ranks(2); })},
      {"weight_sum",
       beside([](auto* request) { Counts(request)->set_weight_sum(33.0); })},
      {"weight_mean",
       beside([](auto* request) { Counts(request)->set_weight_mean(0.7); })},
      {"selection_scope", beside([](auto* request) {
         Counts(request)->set_selection_scope(v1::SELECTION_SCOPE_CALL);
       })},
  };
}

std::vector<Argument> RequestArguments() {
  std::vector<Argument> arguments = {
      TensorArgument(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, -3.0, 0.5),
      TensorArgument(v1::TENSOR_ROLE_OLD_LOG_PROBS, -3.0, 0.5),
      TensorArgument(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, -3.0, 0.5),
      TensorArgument(v1::TENSOR_ROLE_REF_LOG_PROBS, -3.0, 0.5),
      TensorArgument(v1::TENSOR_ROLE_ADVANTAGES, 0.0, 1.0),
      TensorArgument(v1::TENSOR_ROLE_ENTROPIES, 1.0, 0.1),
      TensorArgument(v1::TENSOR_ROLE_REWARDS, 0.0, 1.0),
      TensorArgument(v1::TENSOR_ROLE_TEACHER_LOG_PROBS, -3.0, 0.5),
      {"outputs", {[](auto* request) {
         request->add_outputs(v1::TENSOR_ROLE_TOKEN_REASONS);
       }}},
      {"non_finite_policy", {[](auto* request) {
         request->set_non_finite_policy(v1::NON_FINITE_POLICY_DROP);
       }}},
      {"group_ids",
       {[](auto* request) {
          for (const int id : {0, 0, 1, 1}) request->add_group_ids(id);
        },
        [](auto* request) {
          for (const int id : {0, 0, 0, 1}) request->add_group_ids(id);
        }}},
      {"trajectory_ids", {[](auto* request) {
         for (const int id : {0, 0, 1, 1}) request->add_trajectory_ids(id);
       }}},
      {"version_spans", {[](auto* request) {
         v1::VersionSpan* const span = request->add_version_spans();
         span->set_end(kLength);
         span->set_policy_version(7);
       }}},
      {"audit", {[](auto* request) { request->mutable_audit(); }}},
      {"shadows", {[](auto* request) { request->add_shadows(); }}},
      {"compute_loss",
       {[](auto* request) { request->set_compute_loss(true); }}},
      {"omit_metrics",
       {[](auto* request) { request->set_omit_metrics(true); }}},
      {"partial_sums",
       {[](auto* request) { request->set_partial_sums(true); }}},
      // A method that needs counts needs none without its loss.
      {"omit_loss",
       {[](auto* request) { request->set_omit_loss(true); },
        [](auto* request) {
          request->set_omit_loss(true);
          request->clear_global_counts();
        }}},
      {"row_divisors", {[](auto* request) {
         for (const int divisor : {9, 8, 7, 6}) {
           request->add_row_divisors(divisor);
         }
       }}},
  };
  for (Argument& each : CountArguments()) {
    each.name = "global_counts." + each.name;
    arguments.push_back(std::move(each));
  }
  return arguments;
}

// Log-probs of the first token are not finite, so that a policy for it shows.
void BreakOneToken(v1::CorrectRequest* request) {
  const float bad = std::numeric_limits<float>::quiet_NaN();
  for (v1::Tensor& tensor : *request->mutable_tensors()) {
    if (tensor.dtype() != v1::D_TYPE_F32) continue;
    std::string data = tensor.data();
    std::memcpy(data.data(), &bad, sizeof(bad));
    tensor.set_data(data);
  }
}

bool Names(const Answer& answer, const Argument& argument) {
  const std::string& name = argument.name;
  const std::string root = name.substr(0, name.find('.'));
  return std::any_of(
      answer.violations.begin(), answer.violations.end(),
      [&](const Violation& violation) {
        const std::string text = violation.field + " " + violation.description;
        // A tensor that the server reserves is named by its place.
        return text.find(root) != std::string::npos ||
               (argument.is_tensor && violation.field.find("tensors") == 0);
      });
}

bool Warns(const Answer& answer, const Argument& argument) {
  std::string lower(argument.name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(answer.warnings.begin(), answer.warnings.end(),
                     [&](const std::string& warning) {
                       return warning.find(lower) != std::string::npos;
                     });
}

std::string Text(const Answer& answer) {
  std::string text = Concat(answer.violations.size(), " ");
  for (const std::string& field : answer.fields()) text += field + " ";
  v1::CorrectResponse response = answer.response;
  response.clear_warnings();
  // Maps have no order.
  const std::map<std::string, double> metrics(response.metrics().begin(),
                                              response.metrics().end());
  response.clear_metrics();
  for (const auto& [name, number] : metrics) {
    text += Concat(name, "=", std::to_string(number), " ");
  }
  return text + response.SerializeAsString();
}

// Tensors are one field, and each role of theirs an argument.
TEST(UnreadArguments, EveryFieldOfTheContractIsTried) {
  std::set<std::string> tried = {"tensors", "method", "destinations",
                                 "global_counts"};
  for (const Argument& argument : RequestArguments()) {
    tried.insert(argument.name.substr(0, argument.name.find('.')));
  }
  for (const std::string_view name : kUnread) tried.emplace(name);
  const Descriptor* const request = v1::CorrectRequest::descriptor();
  for (int i = 0; i < request->field_count(); ++i) {
    EXPECT_TRUE(tried.contains(std::string(request->field(i)->name())))
        << request->field(i)->name();
  }
  std::set<std::string> counts;
  for (const Argument& argument : CountArguments())
    counts.insert(argument.name);
  const Descriptor* const global = v1::GlobalCounts::descriptor();
  for (int i = 0; i < global->field_count(); ++i) {
    EXPECT_TRUE(counts.contains(std::string(global->field(i)->name())))
        << global->field(i)->name();
  }
}

void ExpectTheLaw(const std::string& method, const Change& choose) {
  v1::CorrectRequest valid = Request();
  choose(&valid);
  ASSERT_THAT(AnswerOf(valid).fields(), testing::IsEmpty()) << method;
  for (const Argument& argument : RequestArguments()) {
    v1::CorrectRequest base = Request();
    choose(&base);
    if (argument.name == "non_finite_policy") BreakOneToken(&base);
    const std::string before = Text(AnswerOf(base));
    bool is_read = false;
    for (const Change& change : argument.values) {
      v1::CorrectRequest changed = base;
      change(&changed);
      const Answer answer = AnswerOf(changed);
      is_read = is_read || Names(answer, argument) ||
                (answer.violations.empty() && Text(answer) != before) ||
                (argument.is_tensor && Warns(answer, argument));
    }
    const v1::CorrectResponse answer = AnswerOf(base).response;
    // The loss is there, and metrics or the loss are absent, without the
    // argument too.
    is_read = is_read ||
              (argument.name == "compute_loss" && answer.has_loss()) ||
              (argument.name == "omit_metrics" && answer.metrics().empty()) ||
              (argument.name == "omit_loss" && !answer.has_loss());
    EXPECT_TRUE(is_read || IsException(method, argument.name))
        << method << ": " << argument.name;
  }
}

TEST(UnreadArguments, AreRefusedOrMentionedByEveryPreset) {
  for (const kernels::Method& method : kernels::Methods()) {
    ExpectTheLaw(std::string(method.name), [&](v1::CorrectRequest* request) {
      request->mutable_method()->mutable_preset()->set_name(
          std::string(method.name));
    });
  }
}

TEST(UnreadArguments, AreRefusedOrMentionedByEveryAggregation) {
  for (int a = 1; a < v1::LossAggregation_ARRAYSIZE; ++a) {
    for (int d = 1; d < v1::LossDenominator_ARRAYSIZE; ++d) {
      for (const bool normalize : {false, true}) {
        ExpectTheLaw(
            Concat("config ", a, " ", d, normalize ? " normalize" : ""),
            [&](v1::CorrectRequest* request) {
              v1::CorrectionConfig* const config =
                  request->mutable_method()->mutable_config();
              v1::PolicyLoss* const loss = config->mutable_policy_loss();
              loss->set_surrogate(v1::SURROGATE_PPO_CLIP);
              loss->set_aggregation(static_cast<v1::LossAggregation>(a));
              loss->set_denominator(static_cast<v1::LossDenominator>(d));
              const bool is_sum = a == v1::LOSS_AGGREGATION_TOKEN_SUM;
              if (d == v1::LOSS_DENOMINATOR_GLOBAL && is_sum) {
                Counts(request)->set_num_ranks(3);
                if (normalize) Counts(request)->set_weight_sum(70.0);
                if (normalize) Counts(request)->set_num_tokens(70);
              } else if (d == v1::LOSS_DENOMINATOR_GLOBAL) {
                Counts(request)->set_num_tokens(70);
                Counts(request)->set_num_sequences(8);
                Counts(request)->set_num_ranks(3);
                if (normalize) Counts(request)->set_weight_sum(70.0);
              }
              if (a == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM) {
                loss->set_norm_length(9.0);
              }
              loss->set_clip_low(0.2);
              loss->set_clip_high(0.2);
              if (!normalize) return;
              v1::ImportanceWeight* const weight =
                  config->mutable_importance_weight();
              weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
              weight->set_level(v1::LEVEL_TOKEN);
              weight->set_bound(v1::BOUND_NONE);
              weight->set_normalize(true);
            });
      }
    }
  }
}

TEST(UnreadArguments, AreRefusedOrMentionedByEveryDialect) {
  const std::pair<std::string, std::string> kBlocks[] = {
      {"verl", "{}"},
      {"verl", R"({"rollout_is": "token", "rollout_is_threshold": 2.0})"},
      {"verl", R"({"rollout_is": "sequence", "rollout_is_threshold": 2.0,
                   "rollout_is_batch_normalize": true})"},
      {"verl", R"({"bypass_mode": true, "loss_type": "reinforce"})"},
      {"verl", R"({"policy_loss": {"loss_mode": "gspo"}})"},
      {"verl", R"({"policy_loss": {"loss_mode": "geo_mean"}})"},
      {"verl", R"({"policy_loss": {"loss_mode": "kl_cov"}})"},
      {"verl", R"({"policy_loss": {"loss_agg_mode": "token-sum"}})"},
      {"verl", R"({"policy_loss": {"global_batch_info":
                   {"batch_num_tokens": 99, "dp_size": 2}}})"},
      {"trl", "{}"},
      {"trl", R"({"loss_type": "grpo"})"},
      {"trl", R"({"loss_type": "cispo"})"},
      {"trl", R"({"loss_type": "dapo", "num_items_in_batch": 99})"},
      {"skyrl", "{}"},
      {"skyrl", R"({"loss_reduction": "sequence_mean"})"},
      {"skyrl", R"({"loss_reduction": "prompt_mean",
                    "prompt_boundaries": [[0, 1], [1, 4]]})"},
      {"openrlhf", "{}"},
      {"openrlhf", R"({"token_level_loss": false, "dp_size": 2})"},
      {"openrlhf", R"({"is_correction_level": "token"})"},
      {"slime", "{}"},
      {"slime", R"({"use_tis": true})"},
      {"slime", R"({"use_tis": true, "use_rs": true, "custom_tis_function_path":
          "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
          })"},
      {"slime", R"({"advantage_estimator": "gspo"})"},
      {"slime", R"({"calculate_per_token_loss": true})"},
      {"slime", R"({"rollout_mask_sums": [9, 8, 7, 6],
                    "step_global_batch_size": 5})"},
      {"slime", R"({"use_opsm": true})"},
      {"miles", "{}"},
      {"miles", R"({"use_tis": true})"},
      {"miles", R"({"skip_actor_forward_only": true, "use_tis": true})"},
      {"nemo_rl", "{}"},
      {"nemo_rl", R"({"reference_policy_kl_penalty": 0})"},
      {"nemo_rl", R"({"use_importance_sampling_correction": true,
                      "truncated_importance_sampling_type": "seq-mask-tis",
                      "truncated_importance_sampling_ratio": 2,
                      "truncated_importance_sampling_ratio_min": 0.5})"},
      {"nemo_rl", R"({"token_level_loss": false,
                      "sequence_level_importance_ratios": true,
                      "use_importance_sampling_correction": true})"},
      {"nemo_rl", R"({"force_on_policy_ratio": true,
                      "reference_policy_kl_penalty": 0})"},
      {"nemo_rl", R"({"disable_ppo_ratio": true,
                      "use_on_policy_kl_approximation": true})"},
      {"nemo_rl", R"({"global_valid_toks": 99})"},
      {"ms_swift", "{}"},
      {"ms_swift", R"({"beta": 0, "rollout_importance_sampling_mode":
                       "token_truncate"})"},
      {"ms_swift", R"({"rollout_importance_sampling_mode": "sequence_mask",
                       "log_rollout_offpolicy_metrics": true})"},
      {"ms_swift", R"({"loss_type": "bnpo",
                       "importance_sampling_level": "sequence"})"},
      {"ms_swift", R"({"loss_type": "dapo", "num_items_in_batch": 99})"},
      {"ms_swift", R"({"loss_type": "cispo", "epsilon_high": 4.0})"},
      {"ms_swift", R"({"loss_type": "sapo", "beta": 0})"},
      {"prime_rl", "{}"},
      {"prime_rl", R"({"type": "ipo", "rl_scale": 99})"},
      {"prime_rl", R"({"kl_tau": 0})"},
      {"prime_rl", R"({"type": "ref_kl"})"},
      {"areal", "{}"},
      {"areal", R"({"use_decoupled_loss": true})"},
      {"areal", R"({"use_decoupled_loss": true, "rejection_sampling": {}})"},
      {"areal", R"({"use_decoupled_loss": true,
                    "prox_logp_method": "reuse_train_logp",
                    "rejection_sampling": {"metric": "kl_k3", "upper": 0.1}})"},
      {"areal", R"({"recompute_logprob": true, "c_clip": 3})"},
      {"areal", R"({"rejection_sampling": {"upper": 2}})"},
      {"areal", R"({"use_sapo_loss": true})"},
      {"areal", R"({"use_cispo_loss": true, "eps_clip_higher": 4})"},
      {"roll", "{}"},
      {"roll", R"({"loss_agg_mode": "token-mean", "use_kl_loss": true,
                   "kl_loss_coef": 0.1})"},
      {"roll", R"({"pg_variant": "kimi15",
                   "loss_agg_mode": "seq-mean-token-sum"})"},
      {"roll", R"({"pg_variant": "tis",
                   "loss_agg_mode": "seq-mean-token-sum-norm"})"},
      {"roll", R"({"importance_sampling": "seq", "train_infer_correction": {
                   "is_weight": {"enabled": true, "weight_type": "geometric"},
                   "filters": [{"enabled": true, "diff_enabled": true}]}})"},
      {"tinker", R"({"loss_fn": "importance_sampling"})"},
      {"tinker", R"({"loss_fn": "ppo"})"},
      {"tinker", R"({"loss_fn": "gspo"})"},
      {"tinker", R"({"loss_fn": "dro", "loss_fn_config": {"beta": 0.1}})"},
  };
  for (const auto& [system, json] : kBlocks) {
    for (const bool has_loss : {false, true}) {
      ExpectTheLaw(
          Concat(system, " ", json, has_loss ? " with its loss" : ""),
          [&, &system = system, &json = json](v1::CorrectRequest* request) {
            v1::Dialect* const dialect =
                request->mutable_method()->mutable_dialect();
            dialect->set_system(system);
            *dialect->mutable_block() = Block(json);
            // Some systems' losses have a KL penalty by default.
            v1::CorrectRequest with_loss = *request;
            with_loss.set_compute_loss(true);
            if (AnswerOf(with_loss).fields() ==
                std::vector<std::string>{"tensors[REF_LOG_PROBS]"}) {
              Random random(7);
              AddNumbers(v1::TENSOR_ROLE_REF_LOG_PROBS,
                         Numbers(&random, -3.0, 0.5), request);
            }
            if (has_loss) request->add_outputs(v1::TENSOR_ROLE_GRADIENT);
          });
    }
  }
}

}  // namespace
}  // namespace counterweight::server

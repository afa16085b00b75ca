// The checks of GroupAdvantages, and its answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "server/engine/codec_group_baseline.h"
#include "server/engine/codec_group_systems.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

v1::GroupAdvantagesRequest Request(const std::vector<float>& rewards,
                                   const std::vector<int64_t>& group_ids) {
  v1::GroupAdvantagesRequest request;
  request.mutable_baseline()->set_estimator(v1::GROUP_ESTIMATOR_DR_GRPO);
  request.mutable_rewards()->Add(rewards.begin(), rewards.end());
  request.mutable_group_ids()->Add(group_ids.begin(), group_ids.end());
  return request;
}

struct Refusal {
  std::function<void(v1::GroupAdvantagesRequest*)> change;
  std::string field;
  std::string reason;
};

TEST(GroupAdvantagesTest, NamesWhatIsWrong) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Wire = v1::GroupAdvantagesRequest;
  const auto baseline = [](auto change) {
    return [change](Wire* request) { change(*request->mutable_baseline()); };
  };
  const Refusal refusals[] = {
      {[](Wire* r) { r->clear_baseline(); }, "baseline.estimator",
       "is required: GRPO, DR_GRPO, RLOO or REINFORCE_PP_BASELINE"},
      {baseline([](auto& b) { b.set_estimator(v1::GroupEstimator(77)); }),
       "baseline.estimator", "is required"},
      {baseline([](auto& b) { b.set_estimator(v1::GROUP_ESTIMATOR_GRPO); }),
       "baseline.epsilon", "is required where std divides: verl"},
      {baseline([](auto& b) { b.set_std(v1::REWARD_STD_BATCH); }),
       "baseline.epsilon", "is required where std divides"},
      {baseline([](auto& b) { b.set_epsilon(1e-6); }), "baseline.epsilon",
       "is not read: std is NONE"},
      {baseline([](auto& b) {
         b.set_std(v1::REWARD_STD_GROUP);
         b.set_epsilon(-1.0);
       }),
       "baseline.epsilon", "must be finite and >= 0"},
      {baseline([](auto& b) { b.set_voters(v1::GroupVoters(9)); }),
       "baseline.voters", "is unknown: ALL, KEPT_ROWS or FULLY_KEPT_ROWS"},
      {baseline([](auto& b) { b.set_lonely(v1::LonelyGroup(9)); }),
       "baseline.lonely", "is unknown: ZERO or RAW"},
      {baseline([](auto& b) { b.set_whitening(v1::Whitening(9)); }),
       "baseline.whitening", "is unknown: NONE, SAMPLE or POPULATION"},
      {baseline([](auto& b) { b.set_fewest_voters(0); }),
       "baseline.fewest_voters", "must be >= 1"},
      {baseline([](auto& b) {
         b.set_estimator(v1::GROUP_ESTIMATOR_RLOO);
         b.set_fewest_voters(1);
       }),
       "baseline.fewest_voters", "must be >= 2"},
      {baseline([](auto& b) { b.set_clip(0.0); }), "baseline.clip",
       "must be finite and > 0"},
      {baseline([&](auto& b) { b.set_clip(kInfinity); }), "baseline.clip",
       "must be finite and > 0"},
      {baseline([](auto& b) { b.set_system("verl.grpo"); }),
       "baseline.estimator", "is one of the settings that system has"},
      {baseline([](auto& b) {
         b.Clear();
         b.set_system("verl.gpro");
       }),
       "baseline.system", "Did you mean 'verl.grpo'? There are: nemo_rl.grpo"},
      {[](Wire* r) { r->clear_rewards(); }, "rewards", "is required"},
      {[](Wire* r) { r->add_group_ids(1); }, "group_ids",
       "has 3 rows, rewards 2"},
      {[](Wire* r) { r->clear_group_ids(); }, "group_ids",
       "has 0 rows, rewards 2"},
      {[](Wire* r) { r->add_tokens(1); }, "tokens", "has 1 rows, rewards 2"},
      {[](Wire* r) { r->add_kept_tokens(1); }, "kept_tokens",
       "has 1 rows, rewards 2"},
      {[&](Wire* r) { r->set_rewards(1, static_cast<float>(kInfinity)); },
       "rewards[1]", "must not be infinite"},
      {[](Wire* r) {
         r->add_tokens(1);
         r->add_tokens(-1);
       },
       "tokens[1]", "must be from 0 to 2^31 - 1"},
      {[](Wire* r) {
         for (const int64_t tokens : {1, 1}) r->add_tokens(tokens);
         for (const int64_t tokens : {2, 1}) r->add_kept_tokens(tokens);
       },
       "kept_tokens[0]", "must be from 0 to the row's tokens, 1"},
      {[](Wire* r) {
         for (const int64_t tokens : {2, -1}) r->add_kept_tokens(tokens);
       },
       "kept_tokens[1]", "must be from 0 to 2^31 - 1"},
      {[](Wire* r) {
         r->mutable_baseline()->set_voters(v1::GROUP_VOTERS_FULLY_KEPT_ROWS);
         for (const int64_t tokens : {2, 1}) r->add_kept_tokens(tokens);
       },
       "tokens", "is required: FULLY_KEPT_ROWS compares"},
      {[](Wire* r) { r->set_request_id("\n"); }, "request_id",
       "printable ASCII"},
  };
  for (const Refusal& refusal : refusals) {
    v1::GroupAdvantagesRequest request = Request({1, 2}, {0, 0});
    refusal.change(&request);
    v1::GroupAdvantagesResponse response;
    const Violations violations = GroupAdvantages(request, &response);
    ASSERT_THAT(violations, SizeIs(testing::Ge(1))) << refusal.reason;
    EXPECT_EQ(violations.begin()->field, refusal.field);
    EXPECT_THAT(violations.begin()->description, HasSubstr(refusal.reason));
    EXPECT_THAT(response.advantages(), IsEmpty());
  }
}

TEST(GroupAdvantagesTest, AnswersWithMetrics) {
  v1::GroupAdvantagesRequest request = Request({1, 3, 9, 4}, {1, 1, 1, 2});
  request.set_request_id("a");
  for (const int64_t tokens : {2, 2, 5, 3}) request.add_tokens(tokens);
  for (const int64_t tokens : {2, 1, 0, 3}) request.add_kept_tokens(tokens);
  v1::GroupAdvantagesResponse response;
  ASSERT_TRUE(GroupAdvantages(request, &response).empty());
  EXPECT_EQ(response.request_id(), "a");
  EXPECT_THAT(response.advantages(), ElementsAre(-1, 1, 0, 0));
  EXPECT_THAT(response.baselines(), ElementsAre(2, 2, 0, 0));
  EXPECT_THAT(response.warnings(), IsEmpty());
  const std::pair<const char*, double> expected[] = {
      {"groups", 2},
      {"lonely_groups", 1},
      {"voters", 3},
      {"groups_without_signal", 1},
      {"voters_dropped", 1},
      {"missing_rewards", 0},
      {"reward_bias", 19 / 3.0},
      {"length_bias", 8 / 3.0},
  };
  for (const auto& [name, value] : expected) {
    EXPECT_DOUBLE_EQ(response.metrics().at(name), value) << name;
  }
}

TEST(GroupAdvantagesTest, KeptTokensAloneAreEnough) {
  v1::GroupAdvantagesRequest request = Request({1, 9, 3}, {1, 1, 1});
  for (const int64_t tokens : {2, 0, 5}) request.add_kept_tokens(tokens);
  v1::GroupAdvantagesResponse response;
  ASSERT_TRUE(GroupAdvantages(request, &response).empty());
  EXPECT_THAT(response.advantages(), ElementsAre(-1, 0, 1));
  EXPECT_EQ(response.metrics().at("voters_dropped"), 1);
  EXPECT_EQ(response.metrics().count("length_bias"), 0U);
}

TEST(GroupAdvantagesTest, WarnsOfGroupsWithoutSignalAndOfMissingRewards) {
  v1::GroupAdvantagesResponse response;
  ASSERT_TRUE(
      GroupAdvantages(Request({1, 1, std::nanf("")}, {0, 0, 1}), &response)
          .empty());
  EXPECT_THAT(response.warnings(),
              ElementsAre(HasSubstr("2 of 2 groups have no signal"),
                          HasSubstr("1 rows have no reward")));
}

TEST(GroupAdvantagesTest, SlimeTakesRaggedGroupsForOne) {
  v1::GroupAdvantagesRequest request =
      Request({1, 1, 1, 0, 1}, {0, 0, 0, 1, 1});
  request.mutable_baseline()->clear_estimator();
  request.mutable_baseline()->set_system("slime.grpo_without_std");
  v1::GroupAdvantagesResponse response;
  ASSERT_TRUE(GroupAdvantages(request, &response).empty());
  EXPECT_FLOAT_EQ(response.advantages(0), 0.2F);
  EXPECT_FLOAT_EQ(response.advantages(3), -0.8F);
  EXPECT_THAT(response.warnings(),
              ElementsAre(HasSubstr("groups have different sizes")));
  request.mutable_rewards()->Add(0.0F);
  request.add_group_ids(1);
  response.Clear();
  ASSERT_TRUE(GroupAdvantages(request, &response).empty());
  EXPECT_THAT(response.warnings(), IsEmpty());
  EXPECT_FLOAT_EQ(response.advantages(0), 0.0F);
}

TEST(GroupAdvantagesTest, NamesOfSystemsAscend) {
  std::string_view before;
  for (const GroupSystem& system : GroupSystems()) {
    EXPECT_LT(before, system.name);
    before = system.name;
    v1::GroupAdvantagesRequest request = Request({1, 2, 3, 5}, {0, 0, 1, 1});
    request.mutable_baseline()->clear_estimator();
    request.mutable_baseline()->set_system(std::string(system.name));
    v1::GroupAdvantagesResponse response;
    EXPECT_TRUE(GroupAdvantages(request, &response).empty());
    EXPECT_EQ(response.advantages_size(), 4);
  }
}

}  // namespace
}  // namespace counterweight::server

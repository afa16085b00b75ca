// Declarations of runs and advantages of groups by the C++ client.
#include <vector>

#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

using ::testing::ElementsAre;

TEST(DeclareRun, AnswersTheNameAndWhatIsWrong) {
  server::RunningServer running(server::TestConfig());
  Client client(running.server().addresses().front());
  v1::DeclareRunRequest request;
  request.mutable_labels()->set_run("cpp");
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  v1::DeclareRunResponse response;
  ASSERT_TRUE(client.DeclareRun(request, &response).ok());
  EXPECT_EQ(response.method(), "token_tis");
  EXPECT_EQ(response.warnings_size(), 0);
  request.mutable_method()->mutable_preset()->set_name("icepop");
  ASSERT_TRUE(client.DeclareRun(request, &response).ok());
  EXPECT_THAT(response.warnings(),
              ElementsAre("run 'cpp' declared token_tis before, which this "
                          "declaration replaces by icepop"));
  const Status status = client.DeclareRun({}, &response);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.violations.size(), 2U);
}

TEST(GroupAdvantages, AnswersRowsAndWhatIsWrong) {
  server::RunningServer running(server::TestConfig());
  Client client(running.server().addresses().front());
  v1::GroupAdvantagesRequest request;
  request.mutable_baseline()->set_estimator(v1::GROUP_ESTIMATOR_RLOO);
  for (const float reward : {100.0F, 1.0F, 3.0F}) {
    request.add_rewards(reward);
    request.add_group_ids(7);
    request.add_kept_tokens(reward < 50.0F ? 1 : 0);
  }
  v1::GroupAdvantagesResponse response;
  ASSERT_TRUE(client.GroupAdvantages(request, &response).ok());
  EXPECT_THAT(response.advantages(), ElementsAre(0, -2, 2));
  request.mutable_baseline()->set_system("verl.rloo");
  const Status status = client.GroupAdvantages(request, &response);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.violations.at(0).field, "baseline.estimator");
}

}  // namespace
}  // namespace counterweight::client

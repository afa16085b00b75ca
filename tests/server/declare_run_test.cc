// Runs that declare their method, and batches that another method corrected.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "nlohmann/json.hpp"
#include "server/engine/codec_config.h"
#include "server/engine/equivalents.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/publications.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::Method Preset(const std::string& name) {
  v1::Method method;
  method.mutable_preset()->set_name(name);
  return method;
}

v1::Method Preset(const std::string& name, const std::string& parameter,
                  double value) {
  v1::Method method = Preset(name);
  (*method.mutable_preset()->mutable_parameters())[parameter] = value;
  return method;
}

// The preset with its defaults, spelled out.
v1::Method ConfigOf(const std::string& name) {
  std::vector<kernels::ParameterViolation> found;
  v1::Method method;
  *method.mutable_config() =
      EncodeConfig(kernels::MakeSpec(*kernels::FindMethod(name), {}, &found))
          .value();
  return method;
}

v1::Method BlockOf(const std::string& system, std::string_view json) {
  v1::Method method;
  method.mutable_dialect()->set_system(system);
  *method.mutable_dialect()->mutable_block() = Block(std::string(json));
  return method;
}

class DeclareRunTest : public testing::Test {
 protected:
  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    config.max_runs_per_client = 2;
    return config;
  }

  grpc::Status Declare(const v1::DeclareRunRequest& request) {
    grpc::ClientContext context;
    answer_.Clear();
    return v1::CorrectionService::NewStub(running_.channel())
        ->DeclareRun(&context, request, &answer_);
  }

  void Declare(const std::string& run, const v1::Method& method) {
    v1::DeclareRunRequest request;
    request.mutable_labels()->set_run(run);
    *request.mutable_method() = method;
    const grpc::Status status = Declare(request);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  std::vector<std::string> FieldsOf(const v1::DeclareRunRequest& request) {
    const grpc::Status status = Declare(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    std::vector<std::string> names;
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    for (const auto& each : detail.field_violations()) {
      names.push_back(each.field());
    }
    return names;
  }

  v1::CorrectResponse Correct(const v1::CorrectRequest& request) {
    v1::CorrectResponse response;
    const grpc::Status status = running_.Correct(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  std::vector<std::string> Warnings(const v1::Method& method,
                                    const std::string& run = "r",
                                    const std::string& id = "") {
    v1::CorrectRequest request = SmallRequest(id, run);
    *request.mutable_method() = method;
    const auto found = Correct(request).warnings();
    return {found.begin(), found.end()};
  }

  std::vector<std::string> Published(const v1::PublishRequest& request) {
    grpc::ClientContext context;
    v1::PublishResponse response;
    const grpc::Status status =
        v1::CorrectionService::NewStub(running_.channel())
            ->Publish(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.warnings().begin(), response.warnings().end()};
  }

  testing::Matcher<const std::string&> Counted(int batches) {
    return HasSubstr("counterweight_run_other_method_total{run=\"r\"} " +
                     std::to_string(batches) + "\n");
  }

  RunningServer running_{WithMetrics(), kernels::MakeCpuCorrector(1)};
  v1::DeclareRunResponse answer_;
};

constexpr char kOther[] =
    "run 'r' declares token_tis; this batch was corrected by icepop";

TEST_F(DeclareRunTest, IsAnnounced) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running_.channel())
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), Contains("declare_run"));
}

TEST_F(DeclareRunTest, AnotherMethodIsNamedAndCounted) {
  Declare("r", Preset("token_tis"));
  EXPECT_EQ(answer_.method(), "token_tis");
  EXPECT_THAT(answer_.warnings(), IsEmpty());
  EXPECT_THAT(running_.Scrape(), Counted(0));
  EXPECT_THAT(Warnings(Preset("token_tis")), IsEmpty());
  EXPECT_THAT(running_.Scrape(), Counted(0));
  EXPECT_THAT(Warnings(Preset("icepop"), "r", "id"), Contains(kOther));
  EXPECT_THAT(Warnings(Preset("icepop"), "r", "id"), Contains(kOther));
  EXPECT_THAT(running_.Scrape(), Counted(1)) << "a retry counts once";
  EXPECT_THAT(Warnings(Preset("icepop"), "other"), IsEmpty());
  EXPECT_THAT(Warnings(Preset("icepop"), ""), IsEmpty());
  v1::CorrectRequest later_epoch = SmallRequest("", "r");
  *later_epoch.mutable_method() = Preset("icepop");
  later_epoch.set_omit_metrics(true);
  EXPECT_THAT(Correct(later_epoch).warnings(), Contains(kOther));
  EXPECT_THAT(running_.Scrape(), Counted(2));
}

TEST_F(DeclareRunTest, NumbersStay) {
  v1::CorrectRequest request = SmallRequest("id", "r");
  *request.mutable_method() = Preset("icepop");
  v1::CorrectResponse before = Correct(request);
  Declare("r", Preset("token_tis"));
  v1::CorrectResponse after = Correct(request);
  EXPECT_EQ(after.warnings_size(), before.warnings_size() + 1);
  for (v1::CorrectResponse* each : {&before, &after}) {
    each->clear_warnings();
    each->clear_timing();
  }
  EXPECT_EQ(before.DebugString(), after.DebugString());
}

TEST_F(DeclareRunTest, OneMethodInOtherWordsIsNoOther) {
  std::vector<v1::Method> same = {Preset("token_tis"), ConfigOf("token_tis"),
                                  Preset("token_tis", "upper", 2.0)};
  for (const Equivalent& each : EquivalentsOf("token_tis")) {
    if (each.system == "verl" && each.differences.empty()) {
      same.push_back(BlockOf("verl", each.block));
    }
  }
  ASSERT_EQ(same.size(), 4U) << "verl has its block";
  for (const v1::Method& declared : same) {
    Declare("r", declared);
    EXPECT_THAT(answer_.warnings(), Not(Contains(HasSubstr("replaces"))));
    for (const v1::Method& method : same) {
      EXPECT_THAT(Warnings(method), Not(Contains(HasSubstr("declares"))))
          << declared.DebugString() << method.DebugString();
    }
    EXPECT_THAT(Warnings(Preset("icepop")),
                Contains(HasSubstr("was corrected by icepop")));
  }
}

TEST_F(DeclareRunTest, EqualNamesHaveTheirNumbers) {
  Declare("r", Preset("token_tis"));
  EXPECT_THAT(
      Warnings(Preset("token_tis", "upper", 3)),
      ElementsAre(AllOf(HasSubstr("declares token_tis (weight(token"),
                        HasSubstr("[0, 2]"),
                        HasSubstr("corrected by token_tis (weight(token"),
                        HasSubstr("[0, 3]"))));
}

v1::CorrectRequest WithLoss(const v1::Method& method) {
  v1::CorrectRequest request = SmallRequest("", "r");
  *request.mutable_method() = method;
  for (const auto role :
       {v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::TENSOR_ROLE_ADVANTAGES}) {
    v1::Tensor* const added = request.add_tensors();
    *added = request.tensors(1);
    added->set_role(role);
  }
  return request;
}

TEST_F(DeclareRunTest, TheLossCountsUnlessTheBatchOmitsIt) {
  const v1::Method declared = Preset("token_tis_ppo_clip");
  const v1::Method clipped = Preset("token_tis_ppo_clip", "clip_high", 0.5);
  Declare("r", declared);
  EXPECT_THAT(Correct(WithLoss(declared)).warnings(), IsEmpty());
  EXPECT_THAT(Correct(WithLoss(clipped)).warnings(),
              ElementsAre("run 'r' declares token_tis_ppo_clip; this batch was "
                          "corrected by token_tis_ppo_clip with another policy "
                          "loss"));
  EXPECT_THAT(Warnings(Preset("token_tis")),
              Contains(HasSubstr("corrected by token_tis")));
  v1::CorrectRequest first_pass = SmallRequest("", "r");
  *first_pass.mutable_method() = clipped;
  first_pass.set_omit_loss(true);
  EXPECT_THAT(Correct(first_pass).warnings(), IsEmpty());
}

TEST_F(DeclareRunTest, ALaterDeclarationReplaces) {
  Declare("r", Preset("token_tis"));
  Declare("r", Preset("token_tis"));
  EXPECT_THAT(answer_.warnings(), IsEmpty());
  Declare("r", Preset("icepop"));
  EXPECT_THAT(answer_.warnings(),
              ElementsAre("run 'r' declared token_tis before, which this "
                          "declaration replaces by icepop"));
  EXPECT_THAT(Warnings(Preset("icepop")), IsEmpty());
  EXPECT_THAT(Warnings(Preset("token_tis")),
              Contains("run 'r' declares icepop; this batch was corrected "
                       "by token_tis"));
}

TEST_F(DeclareRunTest, LeavesWithItsRun) {
  Declare("r", Preset("token_tis"));
  Declare("second", Preset("token_tis"));
  EXPECT_THAT(running_.Scrape(), HasSubstr("counterweight_drift_runs 2\n"));
  // A client has two places.
  Declare("third", Preset("token_tis"));
  EXPECT_THAT(running_.Scrape(),
              Not(HasSubstr("other_method_total{run=\"r\"}")));
  EXPECT_THAT(Warnings(Preset("icepop")), IsEmpty());
}

TEST_F(DeclareRunTest, EachWrongFieldIsNamed) {
  EXPECT_THAT(FieldsOf({}), ElementsAre("labels.run", "method"));
  v1::DeclareRunRequest request;
  request.set_request_id("two\nlines");
  request.mutable_labels()->set_run("r");
  request.mutable_labels()->set_replica("0");
  request.mutable_labels()->set_step(1);
  request.mutable_labels()->set_policy_version(1);
  *request.mutable_method() = Preset("token_ti");
  EXPECT_THAT(
      FieldsOf(request),
      ElementsAre("request_id", "labels.replica", "labels.policy_version",
                  "labels.step", "method.preset.name"));
  request.Clear();
  request.mutable_labels()->set_run("r");
  *request.mutable_method() = Preset("token_tis", "uper", 2);
  EXPECT_THAT(FieldsOf(request), ElementsAre("method.preset.parameters[uper]"));
  *request.mutable_method() = BlockOf("verl", R"({"no_such_key": 1})");
  EXPECT_THAT(FieldsOf(request),
              ElementsAre("method.dialect.block.no_such_key"));
  EXPECT_THAT(running_.Scrape(), Not(HasSubstr("other_method_total{")));
}

// Their blocks have numbers of a batch, which is not there.
TEST_F(DeclareRunTest, EveryEquivalentCanBeDeclared) {
  for (const kernels::Method& method : kernels::Methods()) {
    Declare("r", Preset(std::string(method.name)));
    EXPECT_EQ(answer_.method(), method.name);
    for (const Equivalent& each : EquivalentsOf(method.name)) {
      Declare("r", BlockOf(std::string(each.system), each.block));
      EXPECT_EQ(answer_.method(), each.system);
    }
  }
}

TEST_F(DeclareRunTest, AServerThatDrainsTakesIt) {
  running_.server().AnnounceDrain();
  running_.server().RefuseNewWork();
  Declare("r", Preset("token_tis"));
  EXPECT_EQ(answer_.method(), "token_tis");
}

TEST_F(DeclareRunTest, StreamsAreComparedToo) {
  Declare("r", Preset("token_tis"));
  for (const char* name : {"token_tis", "icepop"}) {
    v1::CorrectRequest request = SmallRequest("", "r");
    *request.mutable_method() = Preset(name);
    StreamCall call(running_.channel());
    call.SendHeader(request);
    ASSERT_TRUE(call.IsAdmitted());
    call.SendTensors(request);
    call.CloseWriting();
    const bool is_other = std::string_view(name) == "icepop";
    EXPECT_EQ(call.ReadAnswer().warnings_size(), is_other ? 1 : 0) << name;
    EXPECT_TRUE(call.Finish().ok());
  }
  EXPECT_THAT(running_.Scrape(), Counted(1));
}

TEST_F(DeclareRunTest, PublishedBatchesAreComparedToo) {
  Declare("r", Preset("token_tis"));
  v1::PublishRequest request = FullPublication("first", "r");
  EXPECT_THAT(Published(request), IsEmpty()) << "its method is not known";
  *request.mutable_method_of_batch()->mutable_method() = Preset("token_tis");
  request.mutable_method_of_batch()->set_facts(3);
  request.set_request_id("second");
  EXPECT_THAT(Published(request), IsEmpty());
  *request.mutable_method_of_batch()->mutable_method() = Preset("icepop");
  request.set_request_id("third");
  EXPECT_THAT(Published(request), ElementsAre(kOther));
  EXPECT_THAT(Published(request), ElementsAre(kOther));
  EXPECT_THAT(running_.Scrape(), Counted(1));
}

TEST_F(DeclareRunTest, AWrongMethodOfABatchIsNamed) {
  v1::PublishRequest request = FullPublication("id", "r");
  *request.mutable_method() = Preset("token_tis");
  request.mutable_method_of_batch()->set_facts(uint64_t{1} << 40);
  grpc::ClientContext context;
  v1::PublishResponse response;
  const grpc::Status status = v1::CorrectionService::NewStub(running_.channel())
                                  ->Publish(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto detail = DetailOf<google::rpc::BadRequest>(status);
  std::vector<std::string> names;
  for (const auto& each : detail.field_violations()) {
    names.push_back(each.field());
  }
  EXPECT_THAT(names, ElementsAre("method_of_batch", "method_of_batch.method",
                                 "method_of_batch.facts"));
}

TEST_F(DeclareRunTest, ThePageMarksTheRunUntilABatchIsRight) {
  const auto mark = [&] {
    const std::string answer = running_.Get("/page.json?run=r");
    const auto json =
        nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
    return json["runs"][0].contains("other_method");
  };
  Declare("r", Preset("token_tis"));
  EXPECT_FALSE(mark());
  Warnings(Preset("icepop"));
  EXPECT_TRUE(mark());
  Warnings(Preset("token_tis"));
  EXPECT_FALSE(mark());
  Warnings(Preset("icepop"));
  Declare("r", Preset("token_tis"));
  EXPECT_TRUE(mark()) << "the same again changes nothing";
  Declare("r", Preset("icepop"));
  EXPECT_FALSE(mark());
}

}  // namespace
}  // namespace counterweight::server

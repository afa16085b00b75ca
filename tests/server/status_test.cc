#include "server/call/status.h"

#include <iterator>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

google::rpc::BadRequest BadRequestOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  // grpcio-status refuses details with another message.
  EXPECT_EQ(details.message(), status.error_message());
  google::rpc::BadRequest bad_request;
  EXPECT_EQ(details.details_size(), 1);
  EXPECT_TRUE(details.details(0).UnpackTo(&bad_request));
  return bad_request;
}

TEST(InvalidArgument, SaysAllInMessageAndDetails) {
  const grpc::Status status =
      InvalidArgument({{"layout", "is required"}, {"method", "is missing"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "2 violations: layout: is required; method: is missing");
  const auto bad_request = BadRequestOf(status);
  ASSERT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(1).field(), "method");
  EXPECT_EQ(bad_request.field_violations(1).description(), "is missing");
}

TEST(InvalidArgument, OneViolationNeedsNoCount) {
  EXPECT_EQ(InvalidArgument({{"layout", "is required"}}).error_message(),
            "layout: is required");
}

Violations Repeated(int count, const Violation& violation) {
  Violations violations;
  for (int i = 0; i < count; ++i) violations.push_back(violation);
  return violations;
}

TEST(Violations, AppendedOnesCountThoughTheyAreNotKept) {
  Violations violations = Repeated(10, {"first", "is wrong"});
  violations.Append(Repeated(30, {"second", "is wrong"}));
  EXPECT_EQ(violations.size(), 40U);
  EXPECT_EQ(std::distance(violations.begin(), violations.end()), 17);
  EXPECT_EQ(violations[16].field, "second");
}

TEST(InvalidArgument, StopsAtSixteen) {
  const Violations violations = Repeated(40, {"field", "is wrong"});
  // Memory holds only a few, whatever their number.
  EXPECT_EQ(std::distance(violations.begin(), violations.end()), 17);
  const grpc::Status status = InvalidArgument(violations);
  EXPECT_EQ(BadRequestOf(status).field_violations_size(),
            static_cast<int>(kMaxReportedViolations));
  EXPECT_EQ(status.error_message().find("40 violations"), 0U);
}

TEST(InvalidArgument, FitsIntoTrailersWhateverIsInside) {
  // Three bytes each, and percent-encoded nine.
  std::string euros;
  for (int i = 0; i < 5000; ++i) euros += "\xE2\x82\xAC";
  const Violations violations = Repeated(20, {euros, euros});
  const grpc::Status status = InvalidArgument(violations);
  EXPECT_LE(status.error_details().size(), kMaxDetailsBytes);
  EXPECT_LE(status.error_message().size(), kMaxMessageBytes);
  EXPECT_LT(status.error_details().size() * 4 / 3 +
                status.error_message().size() + 200,
            8192U);
  for (const char c : status.error_message()) {
    EXPECT_TRUE(c >= 0x20 && c < 0x7F);
  }
  const auto bad_request = BadRequestOf(status);
  ASSERT_GE(bad_request.field_violations_size(), 4);
  const std::string& cut = bad_request.field_violations(0).description();
  EXPECT_EQ(cut.substr(cut.size() - 6), "\xE2\x82\xAC...")
      << "whole characters";
}

TEST(TryAgain, CarriesTheDelay) {
  const grpc::Status status =
      TryAgain(grpc::StatusCode::UNAVAILABLE, "later", 1.25);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250000000);
}

}  // namespace
}  // namespace counterweight::server

#include "client/cpp/method.h"

#include <gtest/gtest.h>

namespace counterweight::client {
namespace {

TEST(Method, APresetHasNameAndParameters) {
  const v1::Method method = Preset("token_tis", {{"upper", 3.0}});
  EXPECT_EQ(method.preset().name(), "token_tis");
  EXPECT_EQ(method.preset().parameters().at("upper"), 3.0);
}

TEST(Method, ADialectHasTheBlockOfTheJson) {
  v1::Method method;
  ASSERT_TRUE(
      Dialect("verl", R"({"rollout_is": "token", "x": [1, null]})", &method)
          .ok());
  EXPECT_EQ(method.dialect().system(), "verl");
  const auto& fields = method.dialect().block().fields();
  EXPECT_EQ(fields.at("rollout_is").string_value(), "token");
  EXPECT_EQ(fields.at("x").list_value().values(0).number_value(), 1);
}

TEST(Method, ADialectWithoutTextHasNoBlock) {
  v1::Method method;
  ASSERT_TRUE(Dialect("trl", "", &method).ok());
  EXPECT_FALSE(method.dialect().has_block());
}

TEST(Method, ABlockThatIsNoJsonObjectIsRefusedByName) {
  for (const char* text : {"{", "[]", "1", "{'a': }"}) {
    v1::Method method;
    const Status status = Dialect("verl", text, &method);
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << text;
    ASSERT_EQ(status.violations.size(), 1U);
    EXPECT_EQ(status.violations[0].field, "method.dialect.block");
  }
}

}  // namespace
}  // namespace counterweight::client

#include "tests/server/dialects/systems_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialect.h"
#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/system_blocks.h"

namespace counterweight::server {

void PrintTo(const SystemBlock& block, std::ostream* out) {
  *out << block.system;
}

namespace {

std::string Read(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(SystemsPageTest, IsWhatTheDialectsCompute) {
  const std::string expected = SystemsPage();
  if (std::getenv("COUNTERWEIGHT_WRITE_PAGE") != nullptr) {
    std::ofstream(COUNTERWEIGHT_SYSTEMS_PAGE) << expected;
  }
  EXPECT_EQ(Read(COUNTERWEIGHT_SYSTEMS_PAGE), expected)
      << "run this program with COUNTERWEIGHT_WRITE_PAGE=1, and commit "
      << COUNTERWEIGHT_SYSTEMS_PAGE;
}

TEST(SystemBlocksTest, AreOneOfEachDialect) {
  std::vector<std::string_view> dialects, systems;
  for (const Dialect& one : Dialects()) dialects.push_back(one.system);
  for (const SystemBlock& one : SystemBlocks()) systems.push_back(one.system);
  EXPECT_EQ(systems, dialects);
}

class SystemBlockTest : public testing::TestWithParam<SystemBlock> {};

TEST_P(SystemBlockTest, IsAnsweredWithTheWatchedMetrics) {
  const SystemBlock& block = GetParam();
  EXPECT_FALSE(block.watched.empty());
  const Answer answer = AnswerOf(RequestOf(block));
  for (const Violation& violation : answer.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  // Tensors that nothing reads would be no cost of the method.
  EXPECT_THAT(
      answer.warnings,
      testing::Not(testing::Contains(testing::HasSubstr("does not read it"))));
  EXPECT_EQ(answer.response.has_loss(), block.has_loss);
  for (const std::string_view name : block.watched) {
    EXPECT_TRUE(answer.response.metrics().contains(std::string(name))) << name;
  }
}

TEST_P(SystemBlockTest, FunctionIsInTheClient) {
  std::string path(GetParam().function);
  const size_t end = path.rfind('.');
  const std::string name = path.substr(end + 1);
  path.resize(end);
  std::replace(path.begin(), path.end(), '.', '/');
  const std::string module =
      Read(std::string(COUNTERWEIGHT_PYTHON "/") + path + ".py");
  EXPECT_THAT(module, testing::AnyOf(testing::HasSubstr("\ndef " + name + "("),
                                     testing::HasSubstr("\nclass " + name),
                                     testing::HasSubstr("\"" + name + "\"")));
}

INSTANTIATE_TEST_SUITE_P(Systems, SystemBlockTest,
                         testing::ValuesIn(SystemBlocks().begin(),
                                           SystemBlocks().end()),
                         [](const auto& parameter) {
                           return std::string(parameter.param.system);
                         });

}  // namespace
}  // namespace counterweight::server

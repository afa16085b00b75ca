#include "tests/server/dialects/systems_page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace counterweight::server {
namespace {

TEST(SystemsPageTest, IsWhatTheDialectsCompute) {
  const std::string expected = SystemsPage();
  if (std::getenv("COUNTERWEIGHT_WRITE_PAGE") != nullptr) {
    std::ofstream(COUNTERWEIGHT_SYSTEMS_PAGE) << expected;
  }
  std::ifstream stream(COUNTERWEIGHT_SYSTEMS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(page, expected)
      << "run this program with COUNTERWEIGHT_WRITE_PAGE=1, and commit "
      << COUNTERWEIGHT_SYSTEMS_PAGE;
}

}  // namespace
}  // namespace counterweight::server

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

// A temporary folder, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/counterweight-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Config OnSocket(const std::string& path) {
  Config config = TestConfig();
  config.listen = {{.host = "", .port = 0, .path = path}};
  return config;
}

// Returns the error of a server that cannot start with this config.
std::string StartError(const Config& config) {
  std::string error;
  auto server = Server::Start(
      config, std::make_unique<FakeCorrector>(std::make_shared<FakeBackend>()),
      std::make_shared<spdlog::logger>(
          "test", std::make_shared<spdlog::sinks::null_sink_mt>()),
      &error);
  EXPECT_EQ(server, nullptr);
  return error;
}

TEST(Listening, AUnixSocketIsForItsOwnerAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.File("cw.sock");
  {
    RunningServer running(OnSocket(path));
    struct stat found {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U);
    EXPECT_TRUE(running.Correct(SmallRequest()).ok());
    EXPECT_NE(running.Stop().find(R"("peer":"unix")"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Listening, TheUmaskIsAsBefore) {
  const mode_t before = umask(022);
  umask(before);
  const TemporaryFolder folder;
  const RunningServer running(OnSocket(folder.File("cw.sock")));
  const mode_t after = umask(before);
  EXPECT_EQ(after, before);
}

TEST(Listening, ALiveSocketIsNotTakenOver) {
  const TemporaryFolder folder;
  const std::string path = folder.File("cw.sock");
  RunningServer running(OnSocket(path));
  EXPECT_NE(StartError(OnSocket(path)).find("another server"),
            std::string::npos);
  EXPECT_TRUE(running.Correct(SmallRequest()).ok());
}

TEST(Listening, ADeadSocketIsReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder.File("cw.sock");
  ASSERT_EQ(mknod(path.c_str(), S_IFSOCK | 0600, 0), 0);
  RunningServer running(OnSocket(path));
  EXPECT_TRUE(running.Correct(SmallRequest()).ok());
}

TEST(Listening, AFileIsNotReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder.File("precious");
  std::ofstream(path) << "data";
  EXPECT_NE(StartError(OnSocket(path)).find("not a socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Listening, AMissingFolderIsNamed) {
  EXPECT_NE(StartError(OnSocket("/nonexistent/cw.sock")).find("folder"),
            std::string::npos);
}

TEST(Listening, ATakenPortIsNamed) {
  RunningServer running;
  const std::string& taken = running.server().addresses().front();
  Config config = TestConfig();
  config.listen.front() = ParseListenAddress(taken).value();
  EXPECT_NE(StartError(config).find(taken), std::string::npos);
}

TEST(Listening, ATakenMetricsPortIsNamed) {
  RunningServer running;
  const std::string& taken = running.server().addresses().front();
  Config config = TestConfig();
  config.metrics_listen = ParseListenAddress(taken).value();
  EXPECT_NE(StartError(config).find("--metrics_listen=" + taken),
            std::string::npos);
}

TEST(Listening, SeveralAddressesAreServedAtOnce) {
  const TemporaryFolder folder;
  Config config = OnSocket(folder.File("cw.sock"));
  config.listen.push_back({.host = "127.0.0.1", .port = 0, .path = ""});
  RunningServer running(config);
  ASSERT_EQ(running.server().addresses().size(), 2U);
  EXPECT_EQ(running.server().addresses()[0], "unix:" + folder.File("cw.sock"));
  EXPECT_NE(running.server().addresses()[1], "127.0.0.1:0");
}

}  // namespace
}  // namespace counterweight::server

// The socket's file.
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shared_memory/listener.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;

// Returns the error of a listener that cannot start at `path`.
std::string StartError(const std::string& path) {
  Admission admission({.max_requests = 1, .max_bytes = 1, .max_queued = 0});
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  auto options = TestOptions();
  options.path = path;
  std::string error;
  EXPECT_EQ(SharedMemoryListener::Start(options, &admission, &log, &error),
            nullptr);
  return error;
}

TEST(SharedMemorySocket, IsForItsOwnerAlone) {
  const mode_t before = umask(0);
  const RunningListener running;
  EXPECT_EQ(umask(before), 0U);
  struct stat found {};
  ASSERT_EQ(stat(running.path().c_str(), &found), 0);
  EXPECT_TRUE(S_ISSOCK(found.st_mode));
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST(SharedMemorySocket, OfALiveServerIsNotTakenOver) {
  RunningListener running;
  EXPECT_THAT(StartError(running.path()), HasSubstr("another server"));
  SharedMemoryClient client(running.path());
  EXPECT_EQ(client.Release(std::string(16, 'x')).code,
            grpc::StatusCode::NOT_FOUND);
}

TEST(SharedMemorySocket, OfADeadServerIsReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder.File("memory.sock");
  std::string error;
  ListenForPackets(path, &error);  // closed at once
  ASSERT_EQ(error, "");
  ASSERT_TRUE(std::filesystem::exists(path));
  Admission admission({.max_requests = 1, .max_bytes = 1, .max_queued = 0});
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  auto options = TestOptions();
  options.path = path;
  EXPECT_NE(SharedMemoryListener::Start(options, &admission, &log, &error),
            nullptr)
      << error;
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SharedMemorySocket, IsNotMadeWhereItCannotBe) {
  const TemporaryFolder folder;
  const std::string file = folder.File("file");
  std::ofstream(file) << "precious";
  EXPECT_THAT(StartError(file), HasSubstr("not a socket"));
  EXPECT_EQ(std::filesystem::file_size(file), 8U);
  EXPECT_THAT(StartError(folder.File("nowhere/memory.sock")),
              HasSubstr("folder"));
  EXPECT_THAT(StartError(folder.File(std::string(100, 'x'))),
              HasSubstr("107 bytes"));
}

TEST(SharedMemorySocket, OfAnotherServerIsNotRemoved) {
  RunningListener running;
  // An operator removes the file, and another server makes its own.
  ASSERT_EQ(unlink(running.path().c_str()), 0);
  std::ofstream(running.path()) << "another";
  running.Stop();
  EXPECT_TRUE(std::filesystem::exists(running.path()));
}

}  // namespace
}  // namespace counterweight::server

#include "server/log/async_sink.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/log/request_log.h"
#include "spdlog/fmt/fmt.h"
#include "spdlog/logger.h"

namespace counterweight::server {
namespace {

using std::chrono::steady_clock;

// A pipe that holds one page, Linux's minimum.
class SmallPipe {
 public:
  SmallPipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reading_ = FileDescriptor(ends[0]);
    writing_ = FileDescriptor(ends[1]);
    EXPECT_GT(fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
  }

  int writing() const { return writing_.get(); }
  void CloseReading() { reading_ = FileDescriptor(); }

  // Reads until `last` was read as a line, and returns all lines up to it.
  std::vector<std::string> ReadLines(const std::string& last) {
    std::vector<std::string> lines;
    std::string line;
    for (char c = 0; read(reading_.get(), &c, 1) == 1;) {
      if (c != '\n') {
        line.push_back(c);
        continue;
      }
      lines.push_back(line);
      if (line == last) break;
      line.clear();
    }
    return lines;
  }

 private:
  FileDescriptor reading_;
  FileDescriptor writing_;
};

std::shared_ptr<spdlog::logger> LoggerTo(
    const std::shared_ptr<AsyncSink>& sink) {
  return std::make_shared<spdlog::logger>("test", sink);
}

TEST(AsyncSink, APipeThatIsNotReadStopsNoCaller) {
  SmallPipe pipe;
  const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8);
  const auto logger = LoggerTo(sink);
  constexpr int kLines = 2000;
  for (int i = 0; i < kLines; ++i) {
    logger->info(std::string(100, 'x') + std::to_string(i));
  }
  EXPECT_GT(sink->lines_dropped(), kLines / 2);
  EXPECT_EQ(RequestLog(logger).lines_dropped(), sink->lines_dropped());

  // The newest lines are kept, whole and in order, and each line is either read
  // or counted.
  const std::string last = std::string(100, 'x') + std::to_string(kLines - 1);
  const std::vector<std::string> lines = pipe.ReadLines(last);
  logger->flush();
  EXPECT_EQ(static_cast<int64_t>(lines.size()) + sink->lines_dropped(), kLines);
  int before = -1;
  for (const std::string& line : lines) {
    ASSERT_EQ(line.substr(0, 100), std::string(100, 'x'));
    const int number = std::stoi(line.substr(100));
    EXPECT_GT(number, before);
    before = number;
  }
}

TEST(AsyncSink, AFlushAndTheEndTakeAboutASecondWhereNothingIsRead) {
  SmallPipe pipe;
  const auto begin = steady_clock::now();
  {
    const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8192);
    const auto logger = LoggerTo(sink);
    // More than the pipe holds.
    for (int i = 0; i < 100; ++i) logger->info(std::string(100, 'x'));
    logger->flush();
    EXPECT_GE(steady_clock::now() - begin, AsyncSink::kFlushTime);
    logger->info("last");
  }
  // An ample bound for two flushes; a blocked write never ends.
  EXPECT_LT(steady_clock::now() - begin, 10 * AsyncSink::kFlushTime);
  // The remaining thread still writes while the process runs.
  EXPECT_EQ(pipe.ReadLines("last").size(), 101U);
}

TEST(AsyncSink, AFlushWaitsForEveryLine) {
  SmallPipe pipe;
  const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8192);
  const auto logger = LoggerTo(sink);
  std::vector<std::string> lines;
  std::thread reader([&] { lines = pipe.ReadLines("last"); });
  // Several times the pipe's capacity.
  for (int i = 0; i < 1000; ++i) logger->info("line {}", i);
  logger->info("last");
  logger->flush();
  EXPECT_EQ(sink->lines_dropped(), 0);
  reader.join();
  ASSERT_EQ(lines.size(), 1001U);
  EXPECT_EQ(lines.front(), "line 0");
  EXPECT_EQ(lines[999], "line 999");
}

TEST(AsyncSink, LinesOfSeveralThreadsStayWholeAndInTheirOrder) {
  SmallPipe pipe;
  const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8192);
  const auto logger = LoggerTo(sink);
  std::vector<std::string> lines;
  std::thread reader([&] { lines = pipe.ReadLines("last"); });
  std::vector<std::thread> writers;
  writers.reserve(4);
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 200; ++i) {
        logger->info("{} {} {}", writer, i, std::string(300, 'x'));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  logger->info("last");
  reader.join();
  ASSERT_EQ(lines.size(), 801U);
  std::vector<int> next(4);
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const int writer = lines[i].front() - '0';
    EXPECT_EQ(lines[i], fmt::format("{} {} {}", writer, next[writer]++,
                                    std::string(300, 'x')));
  }
}

TEST(AsyncSink, WhatCannotBeWrittenIsCounted) {
  signal(SIGPIPE, SIG_IGN);
  SmallPipe pipe;
  pipe.CloseReading();
  const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8192);
  const auto logger = LoggerTo(sink);
  for (int i = 0; i < 10; ++i) logger->info("line");
  logger->flush();
  EXPECT_EQ(sink->lines_dropped(), 10);
}

TEST(AsyncSink, ANonBlockingDescriptorLosesNothing) {
  SmallPipe pipe;
  ASSERT_EQ(fcntl(pipe.writing(), F_SETFL, O_NONBLOCK), 0);
  const auto sink = std::make_shared<AsyncSink>(pipe.writing(), 8192);
  const auto logger = LoggerTo(sink);
  for (int i = 0; i < 100; ++i) logger->info(std::string(5000, 'x'));
  logger->info("last");
  const std::vector<std::string> lines = pipe.ReadLines("last");
  ASSERT_EQ(lines.size(), 101U);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(lines[i].size(), 5000U);
}

// A limit of the file's size simulates a full disk.
TEST(AsyncSink, ALineAfterAPartOfOneBeginsAnew) {
  signal(SIGXFSZ, SIG_IGN);
  const FileDescriptor file(memfd_create("log", MFD_CLOEXEC));
  const auto sink = std::make_shared<AsyncSink>(file.get(), 8192);
  const auto logger = LoggerTo(sink);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit few{8, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &few);
  logger->info("1234567890");
  logger->flush();
  setrlimit(RLIMIT_FSIZE, &before);
  logger->info("next");
  logger->info("last");
  logger->flush();
  EXPECT_EQ(sink->lines_dropped(), 1);
  std::string text(100, '\0');
  text.resize(pread(file.get(), text.data(), text.size(), 0));
  EXPECT_EQ(text, "12345678\nnext\nlast\n");
}

}  // namespace
}  // namespace counterweight::server

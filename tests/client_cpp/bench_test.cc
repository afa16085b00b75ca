// counterweight-bench as a process: its output and exit codes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/client_cpp/process.h"

namespace counterweight::client {
namespace {

using nlohmann::json;

std::vector<std::string> Bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {COUNTERWEIGHT_BENCH_BINARY};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

// Makes the short run of all tests against `target`.
json RunBench(const std::string& target, std::vector<std::string> arguments) {
  for (const char* argument : {"--json", "--sequences=8", "--length=100",
                               "--duration=0.2", "--warmup=0"}) {
    arguments.emplace_back(argument);
  }
  arguments.push_back("--target=" + target);
  Process bench(Bench(arguments));
  const std::string out = bench.ReadAll();
  EXPECT_EQ(bench.Wait(), 0) << bench.StandardError();
  EXPECT_EQ(bench.StandardError(), "");
  EXPECT_EQ(out.find('\n'), out.size() - 1) << out;
  return json::parse(out, nullptr, /*allow_exceptions=*/false);
}

std::string AfterOn(const std::string& line) {
  const size_t on = line.rfind(" on ");
  EXPECT_NE(on, std::string::npos) << line;
  return line.substr(on + 4);
}

// Checks the numbers of a run without failures.
void ExpectMeasured(const json& report, int64_t positions) {
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["positions"], positions);
  EXPECT_GE(report["requests"], 1);
  EXPECT_TRUE(report["errors"].empty());
  EXPECT_GT(report["seconds"], 0.0);
  EXPECT_NEAR(report["tokens_per_second"].get<double>(),
              report["requests"].get<double>() *
                  static_cast<double>(positions) /
                  report["seconds"].get<double>(),
              1e-6 * report["tokens_per_second"].get<double>());
  const json& latency = report["latency_seconds"];
  EXPECT_GT(latency["p50"], 0.0);
  EXPECT_LE(latency["p50"], latency["p99"]);
  EXPECT_LE(latency["p99"], latency["p99.9"]);
  EXPECT_LE(latency["p99.9"], latency["max"]);
  for (const char* stage :
       {"wait", "queue", "decode", "compute", "encode", "transport"}) {
    EXPECT_GE(report["stage_seconds"][stage], 0.0) << stage;
  }
}

class BenchOfServer : public testing::Test {
 protected:
  BenchOfServer()
      : server_({COUNTERWEIGHT_SERVER_BINARY, "--listen=127.0.0.1:0",
                 "--metrics_listen=", "--threads=1"}),
        target_(AfterOn(server_.ReadLine())) {}

  Process server_;
  const std::string target_;
};

TEST_F(BenchOfServer, MeasuresEveryTransportAndVerifiesItsAnswer) {
  for (const char* transport : {"unary", "stream", "auto"}) {
    const json report = RunBench(
        target_, {"--verify", std::string("--transport=") + transport});
    ExpectMeasured(report, 800);
    EXPECT_EQ(report["verified"], true);
    EXPECT_EQ(report["transport"],
              std::string(transport) == "auto" ? "unary" : transport);
    // Two float32 and a mask up, weights and keep mask down.
    EXPECT_EQ(report["input_bytes"],
              9 * 800 * report["requests"].get<int64_t>());
    EXPECT_EQ(report["output_bytes"],
              5 * 800 * report["requests"].get<int64_t>());
    EXPECT_GT(report["stage_seconds"]["compute"], 0.0);
  }
}

TEST_F(BenchOfServer, TakesLossesDialectsTypesAndLayouts) {
  ExpectMeasured(RunBench(target_, {"--loss", "--dtype=bf16", "--verify",
                                    "--transport=stream", "--chunk_bytes=777"}),
                 800);
  ExpectMeasured(RunBench(target_, {"--dtype=f16", "--concurrency=3",
                                    "--outputs=keep_mask,token_reasons"}),
                 800);
  const json packed =
      RunBench(target_, {"--packed", "--verify", "--dialect=verl",
                         R"(--block={"rollout_is": "token"})", "--seed=3"});
  EXPECT_LT(packed["positions"], 800);
  EXPECT_GE(packed["positions"], 400);
  ExpectMeasured(packed, packed["positions"]);
}

TEST_F(BenchOfServer, KeepsARate) {
  const json report = RunBench(target_, {"--rate=100", "--concurrency=2"});
  ExpectMeasured(report, 800);
  EXPECT_EQ(report["rate"], 100.0);
  // 0.2 s at 100 a second, on any machine.
  EXPECT_EQ(report["requests"], 20);
}

TEST_F(BenchOfServer, AWrongMethodIsOneSentenceAndExitCode1) {
  Process bench(Bench({"--target=" + target_, "--method=magic"}));
  EXPECT_EQ(bench.ReadAll(), "");
  EXPECT_EQ(bench.Wait(), 1);
  EXPECT_NE(bench.StandardError().find("method.preset.name"), std::string::npos)
      << bench.StandardError();
}

TEST(Bench, MeasuresItsEcho) {
  Process echo(Bench({"--serve_echo", "--target=127.0.0.1:0"}));
  const std::string target = AfterOn(echo.ReadLine());
  for (const char* transport : {"unary", "stream"}) {
    const json report =
        RunBench(target, {"--echo", std::string("--transport=") + transport});
    ExpectMeasured(report, 800);
    EXPECT_EQ(report["echo"], true);
    EXPECT_EQ(report["transport"], transport);
    EXPECT_EQ(report["input_bytes"],
              9 * 800 * report["requests"].get<int64_t>());
    EXPECT_EQ(report["output_bytes"],
              5 * 800 * report["requests"].get<int64_t>());
  }
  ExpectMeasured(RunBench(target, {"--echo", "--transport=shared_memory"}),
                 800);
  echo.CloseInput();
  EXPECT_EQ(echo.Wait(), 0);
}

TEST(Bench, NobodyListeningIsExitCode1) {
  Process bench(Bench({"--target=unix:/nonexistent/counterweight.sock"}));
  EXPECT_EQ(bench.Wait(), 1);
  EXPECT_NE(bench.StandardError().find("UNAVAILABLE"), std::string::npos);
}

TEST(Bench, HelpIsExitCode0) {
  Process bench(Bench({"--help"}));
  EXPECT_NE(bench.ReadAll().find("--transport"), std::string::npos);
  EXPECT_EQ(bench.Wait(), 0);
}

TEST(Bench, WrongFlagsAreNamedAndExitCode2) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--transport", "--transport=pigeon"},
      {"--dtype", "--dtype=f64"},
      {"--outputs", "--outputs=weights,loss"},
      {"--concurrency", "--concurrency=0"},
      {"--rate", "--rate=-1"},
      {"--duration", "--duration=nan"},
      {"--block", "--dialect=verl", "--block=nonsense"},
      {"--dialect", "--dialect=verl", "--method=icepop"},
      {"--echo", "--echo", "--serve_echo"},
      {"--verify", "--echo", "--verify"},
      {"--allocate", "--echo", "--allocate", "--transport=shared_memory"},
      {"--sequences", "--sequences=1000000000", "--length=1000000000"},
      {"--speed", "--speed=3"}};
  for (const std::vector<std::string>& row : wrong) {
    std::vector<std::string> arguments(row.begin() + 1, row.end());
    arguments.emplace_back("--target=unix:/nonexistent/counterweight.sock");
    Process bench(Bench(arguments));
    EXPECT_EQ(bench.ReadAll(), "") << row[0];
    EXPECT_EQ(bench.Wait(), 2) << row[0];
    const std::string error = bench.StandardError();
    EXPECT_NE(error.find(row[0]), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), error.size() - 1) << error;
  }
  Process bench(Bench({}));
  EXPECT_EQ(bench.Wait(), 2);
  EXPECT_NE(bench.StandardError().find("--target"), std::string::npos);
}

}  // namespace
}  // namespace counterweight::client

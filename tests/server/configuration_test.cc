// Flags, environment and file together.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/command_line.h"
#include "server/config/config_file.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Configuration : public ::testing::Test {
 protected:
  // Reads a file of this text, with variables and flags beside it.
  CommandLine Read(const std::string& yaml,
                   const std::vector<std::string>& environment = {},
                   std::vector<std::string_view> arguments = {}) {
    std::ofstream(path_) << yaml;
    arguments.insert(arguments.begin(), config_flag_);
    return ParseFlags(arguments, environment);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.File("cw.yaml");
  const std::string config_flag_ = "--config=" + path_;
};

TEST_F(Configuration, FlagsWinOverTheEnvironmentAndThatOverTheFile) {
  const CommandLine line =
      Read("threads: 1\nmax_tokens: 1\nmax_runs: 100\nlog_level: off\n",
           {"COUNTERWEIGHT_THREADS=2", "COUNTERWEIGHT_MAX_TOKENS=2",
            "COUNTERWEIGHT_DRAIN_DELAY=2", "PATH=/bin"},
           {"--threads=3"});
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.config.threads, 3);
  EXPECT_EQ(line.config.max_tokens, 2);
  EXPECT_EQ(line.config.max_runs, 100);
  EXPECT_EQ(line.config.drain_delay_s, 2);
  // In YAML 1.1 this word is a boolean; here it is what was written.
  EXPECT_EQ(line.config.log_level, "off");
}

TEST_F(Configuration, AListOfAStrongerSourceReplacesTheOther) {
  const std::string yaml = "listen: [127.0.0.1:1, 'unix:/run/a.sock']\n";
  const auto addresses = [](const CommandLine& line) {
    std::string joined;
    for (const ListenAddress& each : line.config.listen) {
      joined += each.ToString() + " ";
    }
    return line.error + joined;
  };
  EXPECT_EQ(addresses(Read(yaml)), "127.0.0.1:1 unix:/run/a.sock ");
  const std::vector<std::string> environment = {
      "COUNTERWEIGHT_LISTEN=127.0.0.1:2,127.0.0.1:3"};
  EXPECT_EQ(addresses(Read(yaml, environment)), "127.0.0.1:2 127.0.0.1:3 ");
  EXPECT_EQ(addresses(Read(yaml, environment,
                           {"--listen=127.0.0.1:4", "--listen=[::1]:5"})),
            "127.0.0.1:4 [::1]:5 ");
}

TEST_F(Configuration, TheFileMayBeNamedByTheEnvironment) {
  std::ofstream(path_) << "threads: 5\n";
  const std::vector<std::string> environment = {"COUNTERWEIGHT_CONFIG=" +
                                                path_};
  EXPECT_EQ(ParseFlags({}, environment).config.threads, 5);
  // The flag wins here too.
  const std::string other = folder_.File("other.yaml");
  std::ofstream(other) << "threads: 6\n";
  const std::string flag = "--config=" + other;
  EXPECT_EQ(ParseFlags({flag}, environment).config.threads, 6);
}

TEST_F(Configuration, AnEmptyVariableIsUnsetUnlessItsFlagMayBeEmpty) {
  const CommandLine line =
      Read("threads: 5\nmetrics_listen: 127.0.0.1:1\n",
           {"COUNTERWEIGHT_THREADS=", "COUNTERWEIGHT_MAX_TOKENS=",
            "COUNTERWEIGHT_LOG_LEVEL=", "COUNTERWEIGHT_METRICS_LISTEN="});
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.config.threads, 5);
  EXPECT_EQ(line.config.max_tokens, Config().max_tokens);
  EXPECT_EQ(line.config.log_level, Config().log_level);
  EXPECT_FALSE(line.config.metrics_listen.has_value());
  // On the command line nothing is no number.
  EXPECT_THAT(Read("", {}, {"--threads="}).error, HasSubstr("--threads"));
}

TEST_F(Configuration, AnEmptyFileSaysNothing) {
  for (const char* yaml : {"", "# threads: 4\n", "---\n", "{}\n"}) {
    const CommandLine line = Read(yaml);
    EXPECT_EQ(line.error, "") << yaml;
    EXPECT_EQ(line.config.threads, 0) << yaml;
  }
}

TEST_F(Configuration, AWrongFileIsOneSentenceWithFileLineAndKey) {
  const std::pair<std::string, std::string> cases[] = {
      {"\nthread: 4\n", ":2: unknown key 'thread': did you mean threads?"},
      {"max-tokens: 4\n",
       ":1: unknown key 'max-tokens': did you mean max_tokens?"},
      {"zebra: 4\n", ":1: unknown key 'zebra'; see --help"},
      {"config: a.yaml\n", ":1: unknown key 'config'"},
      {"threads: 1\nthreads: 1\n", ":2: threads comes twice"},
      {"threads: four\n",
       ":1: threads=four: must be an integer from 0 to 4096"},
      {"threads: 1.5\n", ":1: threads=1.5: must be an integer"},
      {"page: yes\n", ":1: page=yes: must be true or false"},
      {"# x\nlog_level: [info]\n", ":2: log_level: must be a single value"},
      {"threads: {a: 1}\n", ":1: threads: must be a single value"},
      {"listen: {a: 1}\n", ":1: listen: must be a single value or a list"},
      {"listen: [[a]]\n", ":1: listen: must be a list of single values"},
      {"listen: []\n", ":1: listen: must not be an empty list"},
      {"threads:\n", ":1: threads: has no value"},
      {"threads: !!binary aGk=\n", ":1: threads: must be a single value"},
      {"[1]: 2\n", ":1: a key must be the name of a flag"},
      {"- threads\n", ":1: must be a mapping of flags to values"},
      {"threads\n", ":1: must be a mapping"},
      {"threads: 1\n---\nthreads: 2\n", ": must be a single document"},
      {"threads: 1\npage: [\n", ": is no YAML: "},
      {"threads: 1\n\tpage: true\n", ":2: is no YAML: "},
      {"threads: *other\n", ": is no YAML: "},
      {"log_level: \"a\\nb\"\n", ":1: log_level=a?b: must be"},
      {std::string(100000, '['), ": is no YAML: "},
      {std::string(size_t{1} << 20, '#') + "\n", ": it has more than 1 MiB"},
  };
  for (const auto& [yaml, expected] : cases) {
    const std::string error = Read(yaml).error;
    EXPECT_THAT(error, HasSubstr(path_)) << yaml.substr(0, 100);
    EXPECT_THAT(error, HasSubstr(expected)) << yaml.substr(0, 100);
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

TEST_F(Configuration, AFileThatCannotBeReadIsAnError) {
  const std::string missing = "--config=" + folder_.File("none.yaml");
  EXPECT_THAT(
      ParseFlags({missing}).error,
      HasSubstr("none.yaml: it cannot be read: No such file or directory"));
  const std::string folder = "--config=" + folder_.path();
  EXPECT_THAT(ParseFlags({folder}).error, HasSubstr("is not a regular file"));
  EXPECT_THAT(ParseFlags({"--config="}).error, HasSubstr("--config="));
}

TEST_F(Configuration, UnknownVariablesAreErrorsWithTheNearestName) {
  const std::pair<std::string, std::string> cases[] = {
      {"COUNTERWEIGHT_THREAD=4",
       "unknown environment variable COUNTERWEIGHT_THREAD: did you mean "
       "COUNTERWEIGHT_THREADS?"},
      {"COUNTERWEIGHT_CONFIGS=a", "did you mean COUNTERWEIGHT_CONFIG?"},
      {"COUNTERWEIGHT_ZEBRA=4", "COUNTERWEIGHT_ZEBRA; see --help"},
      {"COUNTERWEIGHT_PROBE=a:1", "COUNTERWEIGHT_PROBE"},
      // A person's, unlike that of Kubernetes.
      {"COUNTERWEIGHT_METRICS_PORT=9464", "COUNTERWEIGHT_METRICS_PORT"},
      {"COUNTERWEIGHT_threads=4", "did you mean COUNTERWEIGHT_THREADS?"},
      {"COUNTERWEIGHT_THREADS=x",
       "COUNTERWEIGHT_THREADS=x: must be an integer from 0 to 4096"},
  };
  for (const auto& [variable, expected] : cases) {
    EXPECT_THAT(ParseFlags({}, std::vector{variable}).error,
                HasSubstr(expected));
  }
}

TEST_F(Configuration, VariablesOfOthersAreNotOurs) {
  for (const std::string name : {"COUNTERWEIGHT_TARGET",
                                 "COUNTERWEIGHT_RUN",
                                 "COUNTERWEIGHT_TIMEOUT",
                                 "COUNTERWEIGHT_RETRY_SECONDS",
                                 "COUNTERWEIGHT_NON_FINITE",
                                 "COUNTERWEIGHT_METHOD",
                                 "COUNTERWEIGHT_TOKEN_FILE",
                                 "COUNTERWEIGHT_ON_UNAVAILABLE",
                                 "COUNTERWEIGHT_PUBLISH",
                                 "COUNTERWEIGHT_SERVER",
                                 "COUNTERWEIGHT_LIBRARY",
                                 "COUNTERWEIGHT_SERVICE_HOST",
                                 "COUNTERWEIGHT_SERVICE_PORT",
                                 "COUNTERWEIGHT_SERVICE_PORT_GRPC",
                                 "COUNTERWEIGHT_PORT",
                                 "COUNTERWEIGHT_PORT_50051_TCP",
                                 "COUNTERWEIGHT_PORT_50051_TCP_ADDR",
                                 "COUNTERWEIGHT_METRICS_SERVICE_HOST",
                                 "COUNTERWEIGHT_METRICS_PORT",
                                 "MY_COUNTERWEIGHT_ZEBRA",
                                 "counterweight_zebra"}) {
    EXPECT_EQ(ParseFlags({}, std::vector{name + "=tcp://10.0.0.1:1"}).error, "")
        << name;
  }
}

TEST_F(Configuration, UnknownFlagsHaveTheNearestName) {
  EXPECT_EQ(ParseFlags({"--thread=4"}).error,
            "unknown flag --thread: did you mean --threads?");
  EXPECT_EQ(ParseFlags({"--check-config"}).error,
            "unknown flag --check-config: did you mean --check_config?");
  EXPECT_EQ(ParseFlags({"--zebra"}).error, "unknown flag --zebra; see --help");
}

TEST_F(Configuration, WhatContradictsItselfNamesItsOrigins) {
  const CommandLine line =
      Read("max_runs: 10\n", {"COUNTERWEIGHT_MAX_RUNS_PER_CLIENT=20"});
  EXPECT_THAT(line.error, HasSubstr("--max_runs_per_client=20"));
  EXPECT_THAT(line.error, HasSubstr("(--max_runs comes from " + path_ +
                                    ":1, --max_runs_per_client comes from "
                                    "COUNTERWEIGHT_MAX_RUNS_PER_CLIENT)"));
  // No name is taken for a longer one.
  EXPECT_THAT(Read("", {"COUNTERWEIGHT_MAX_RUNS_PER_CLIENT=2000"}).error,
              Not(HasSubstr("--max_runs comes from")));
}

TEST_F(Configuration, WhatAFlagGivesItTakes) {
  const std::vector<std::vector<std::string_view>> lines = {
      {},
      {"--backend=cpu", "--metrics_listen="},
      {"--devices=0", "--shared_memory_socket=/run/\"a\\b # c.sock",
       "--log_level=off", "--max_queue_seconds=0.1"}};
  for (const auto& arguments : lines) {
    const CommandLine first = ParseFlags(arguments);
    ASSERT_EQ(first.error, "");
    for (const Flag& flag : Flags()) {
      Config second;
      EXPECT_EQ(flag.set(flag.get(first.config), &second), "") << flag.name;
      EXPECT_EQ(flag.get(second), flag.get(first.config)) << flag.name;
    }
  }
}

TEST_F(Configuration, AProbeHasTheServersConfiguration) {
  const CommandLine line =
      Read("tls_certificate: a.crt\n", {"COUNTERWEIGHT_TLS_KEY=a.key"},
           {"--probe=127.0.0.1:1"});
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.config.tls_certificate, "a.crt");
  EXPECT_EQ(line.config.tls_key, "a.key");
  EXPECT_THAT(
      Read("", {"COUNTERWEIGHT_TLS_KEY=a.key"}, {"--probe=127.0.0.1:1"}).error,
      HasSubstr("--tls_key"));
  EXPECT_EQ(line.probe.target, "127.0.0.1:1");
  EXPECT_EQ(line.probe.timeout_s, 1);
  for (const std::string_view target :
       {"--probe=unix:/run/a.sock", "--probe=[::1]:50051",
        "--probe=localhost:50051"}) {
    EXPECT_EQ(ParseFlags({target}).error, "") << target;
  }
  for (const std::string_view target :
       {"--probe=", "--probe=localhost", "--probe=:1", "--probe=a:0",
        "--probe=a:65536", "--probe=unix:", "--probe=::1:50051",
        "--probe=http://a:1"}) {
    EXPECT_THAT(ParseFlags({target}).error, HasSubstr("must be host:port"))
        << target;
  }
  for (const std::string_view timeout :
       {"--probe_timeout=0", "--probe_timeout=nan", "--probe_timeout=x",
        "--probe_timeout=-1"}) {
    EXPECT_THAT(ParseFlags({timeout}).error, HasSubstr("number of seconds"))
        << timeout;
  }
}

}  // namespace
}  // namespace counterweight::server

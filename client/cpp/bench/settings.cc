#include "client/cpp/bench/settings.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cpp/method.h"

namespace counterweight::bench {
namespace {

template <typename T>
using Choices = std::vector<std::pair<const char*, T>>;

const Choices<client::Transport> kTransports = {
    {"auto", client::Transport::kAuto},
    {"unary", client::Transport::kUnary},
    {"stream", client::Transport::kStream},
    {"shared_memory", client::Transport::kSharedMemory},
};
const Choices<v1::DType> kDTypes = {
    {"f32", v1::D_TYPE_F32},
    {"bf16", v1::D_TYPE_BF16},
    {"f16", v1::D_TYPE_F16},
};
const Choices<v1::TensorRole> kOutputs = {
    {"weights", v1::TENSOR_ROLE_WEIGHTS},
    {"keep_mask", v1::TENSOR_ROLE_KEEP_MASK},
    {"token_reasons", v1::TENSOR_ROLE_TOKEN_REASONS},
    {"sequence_reasons", v1::TENSOR_ROLE_SEQUENCE_REASONS},
    {"gradient", v1::TENSOR_ROLE_GRADIENT},
};

// "f32, bf16 or f16".
template <typename T>
std::string Names(const Choices<T>& choices) {
  std::string names;
  for (size_t i = 0; i < choices.size(); ++i) {
    names += i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ";
    names += choices[i].first;
  }
  return names;
}

template <typename T>
T Choose(const char* flag, const std::string& name, const Choices<T>& choices) {
  for (const auto& [known, value] : choices) {
    if (name == known) return value;
  }
  throw CLI::ValidationError(
      flag, "must be " + Names(choices) + ", not '" + name + "'");
}

template <typename T>
void AddChoice(CLI::App* app, const char* flag, const Choices<T>& choices,
               T* value, const std::string& help) {
  app->add_option_function<std::string>(
         flag,
         [=, &choices](const std::string& name) {
           *value = Choose(flag, name, choices);
         },
         help + ": " + Names(choices))
      ->type_name("NAME");
}

// Exceeds any machine's memory.
constexpr int64_t kMostPositions = int64_t{1} << 36;

// CLI::Range lets NaN through.
CLI::Validator Number(double low, double high) {
  return {[=](const std::string& text) {
            double value = 0;
            const bool inside = CLI::detail::lexical_cast(text, value) &&
                                value >= low && value <= high;
            return inside ? std::string()
                          : "must be a number from " +
                                CLI::detail::to_string(low) + " to " +
                                CLI::detail::to_string(high);
          },
          "NUMBER"};
}

// Flags that together make the method.
struct MethodFlags {
  std::string preset = "token_tis";
  std::string dialect;
  std::string block;
};

void AddBatchFlags(CLI::App* app, Settings* settings) {
  const CLI::Range positive(int64_t{0}, kMostPositions);
  app->add_option("--sequences", settings->sequences, "Rows of the batch")
      ->check(positive)
      ->capture_default_str();
  app->add_option("--length", settings->length, "Positions of the longest row")
      ->check(positive)
      ->capture_default_str();
  auto* const packed = app->add_flag(
      "--packed", settings->packed,
      "Rows of random lengths (--length/2 to --length), one after the other");
  app->add_flag("--padded{false}", settings->packed,
                "[sequences, length] with random padding (the default)")
      ->excludes(packed);
  AddChoice(app, "--dtype", kDTypes, &settings->dtype,
            "Element type of log-probs and advantages, f32 unless named");
  app->add_option("--seed", settings->seed, "Seed of the batch")
      ->capture_default_str();
}

void AddMethodFlags(CLI::App* app, Settings* settings, MethodFlags* flags) {
  auto* const method =
      app->add_option("--method", flags->preset, "A preset of the server")
          ->capture_default_str();
  auto* const dialect =
      app->add_option("--dialect", flags->dialect,
                      "Another system's block instead: verl, trl, skyrl, "
                      "openrlhf")
          ->excludes(method);
  app->add_option("--block", flags->block, "The block, a JSON object")
      ->needs(dialect);
  app->add_flag("--loss,!--no_loss", settings->loss,
                "Send current log-probs and advantages, and have loss and "
                "gradient computed (a preset without a loss gets PPO's clip)");
  app->add_flag("--metrics,!--no_metrics", settings->metrics,
                "Have metrics computed and returned");
  app->add_option_function<std::vector<std::string>>(
         "--outputs",
         [settings](const std::vector<std::string>& names) {
           settings->outputs.clear();
           for (const std::string& name : names) {
             settings->outputs.push_back(Choose("--outputs", name, kOutputs));
           }
         },
         "Tensors to return, with commas (default: weights,keep_mask; with "
         "--loss gradient too): " +
             Names(kOutputs))
      ->delimiter(',')
      ->type_name("NAMES");
}

void AddLoadFlags(CLI::App* app, Settings* settings) {
  app->add_option("--concurrency", settings->concurrency,
                  "Calls at a time; with --rate, the most")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--rate", settings->rate,
                  "Requests begun per second, whatever the answers take; "
                  "latency counts from the intended begin")
      ->check(Number(1e-3, 1e6));
  app->add_option("--duration", settings->duration_s, "Seconds to measure")
      ->check(Number(1e-3, 86400))
      ->capture_default_str();
  app->add_option("--warmup", settings->warmup_s, "Seconds before that")
      ->check(Number(0, 86400))
      ->capture_default_str();
  app->add_option("--timeout", settings->timeout_s, "Seconds for one call")
      ->check(Number(1e-3, 86400))
      ->capture_default_str();
}

void AddTransportFlags(CLI::App* app, Settings* settings) {
  app->add_option("--target", settings->target,
                  "The server: host:port or unix:path; with --serve_echo, "
                  "where to listen")
      ->required();
  AddChoice(app, "--transport", kTransports, &settings->transport,
            "How the bytes travel; auto, unless named, decides by size and "
            "target");
  app->add_option("--chunk_bytes", settings->chunk_bytes,
                  "Bytes of a stream's chunk, 0 = the server's preference")
      ->check(CLI::Range(size_t{0}, size_t{1} << 30))
      ->capture_default_str();
  const auto add_file = [&](const char* flag,
                            std::string client::TlsFiles::*file,
                            const std::string& help) {
    app->add_option_function<std::string>(
        flag,
        [=](const std::string& path) {
          if (!settings->tls) settings->tls.emplace();
          (*settings->tls).*file = path;
        },
        help);
  };
  add_file("--tls_ca", &client::TlsFiles::root_certificates,
           "Speak TLS, and trust the authorities in this file (PEM)");
  add_file("--tls_certificate", &client::TlsFiles::certificate,
           "Certificate of the client, for a server that requires one");
  add_file("--tls_key", &client::TlsFiles::key, "Key of --tls_certificate");
  add_file("--tls_server_name", &client::TlsFiles::server_name,
           "The name in the server's certificate, unless it is the target's");
  app->add_option("--token_file", settings->token_file,
                  "A file with the token, for a server that requires one");
  app->add_flag("--allocate", settings->allocate,
                "Batch and answer lie in memory that can be shared without a "
                "copy");
  auto* const serve =
      app->add_flag("--serve_echo", settings->serve_echo,
                    "Serve the echo at --target until stdin closes");
  app->add_flag("--echo", settings->echo,
                "The target serves the echo: measure what the transport takes "
                "by itself. With --transport=shared_memory there is no server: "
                "it is the copy in and out")
      ->excludes(serve);
}

// Combines the flags; returns a sentence if they contradict each other.
std::string Finish(const MethodFlags& flags, Settings* settings) {
  if (flags.dialect.empty()) {
    settings->method = client::Preset(flags.preset);
  } else {
    const client::Status status =
        client::Dialect(flags.dialect, flags.block, &settings->method);
    if (!status.ok()) return "--block: " + status.message;
  }
  if (settings->outputs.empty()) {
    settings->outputs = {v1::TENSOR_ROLE_WEIGHTS, v1::TENSOR_ROLE_KEEP_MASK};
    if (settings->loss) {
      settings->outputs.push_back(v1::TENSOR_ROLE_GRADIENT);
    }
  }
  if (settings->echo && settings->verify) {
    return "--verify: an echo has no answer to compare";
  }
  if (settings->echo && settings->allocate &&
      settings->transport == client::Transport::kSharedMemory) {
    return "--allocate: what --echo copies with shared memory lies elsewhere";
  }
  if (settings->length > 0 &&
      settings->sequences > kMostPositions / settings->length) {
    return "--sequences times --length must be at most 2^36 positions";
  }
  return "";
}

}  // namespace

std::optional<int> ParseCommandLine(int argc, char** argv, Settings* settings) {
  CLI::App app(
      "Loads a Counterweight server with batches and measures it: GB/s, "
      "tokens/s, latency, and where the time goes. Exit codes: 0 measured, 1 "
      "some or all calls failed, 2 wrong command line.",
      "counterweight-bench");
  MethodFlags flags;
  AddTransportFlags(&app, settings);
  AddBatchFlags(&app, settings);
  AddMethodFlags(&app, settings, &flags);
  AddLoadFlags(&app, settings);
  app.add_flag("--verify", settings->verify,
               "The first answer must be, byte for byte, a unary call's");
  app.add_flag("--json", settings->json,
               "Print one JSON object instead of text");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "counterweight-bench: %s; see --help\n", error.what());
    return 2;
  }
  const std::string wrong = Finish(flags, settings);
  if (wrong.empty()) return std::nullopt;
  std::fprintf(stderr, "counterweight-bench: %s; see --help\n", wrong.c_str());
  return 2;
}

}  // namespace counterweight::bench

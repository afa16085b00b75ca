#include "client/cpp/bench/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "nlohmann/json.hpp"

namespace counterweight::bench {
namespace {

using Json = nlohmann::ordered_json;

// Per second of the run; 0 if nothing was measured.
double PerSecond(double count, const Measurement& measurement) {
  return measurement.seconds > 0 ? count / measurement.seconds : 0;
}

double GigabytesPerSecond(const Measurement& measurement) {
  return PerSecond(
      static_cast<double>(measurement.input_bytes + measurement.output_bytes) /
          1e9,
      measurement);
}

// Mean over requests.
double Mean(double sum, const Measurement& measurement) {
  return measurement.requests > 0
             ? sum / static_cast<double>(measurement.requests)
             : 0;
}

// Means of one request from the sums.
Stages MeanStages(const Measurement& measurement) {
  Stages stages = measurement.stages;
  for (double* stage : {&stages.wait, &stages.queue, &stages.decode,
                        &stages.compute, &stages.encode, &stages.transport}) {
    *stage = Mean(*stage, measurement);
  }
  return stages;
}

void Append(std::string* text, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

void Append(std::string* text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  *text += line;
}

}  // namespace

std::string JsonReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement) {
  const auto requests = static_cast<double>(measurement.requests);
  const Stages stages = MeanStages(measurement);
  Json errors = Json::object();
  for (const auto& [code, count] : measurement.errors) {
    errors[std::string(client::ToString(code))] = count;
  }
  Json json = {
      {"target", settings.target},
      {"echo", settings.echo},
      {"transport", client::ToString(measurement.transport)},
      {"allocate", settings.allocate},
      {"sequences", settings.sequences},
      {"length", settings.length},
      {"packed", settings.packed},
      {"positions", num_positions},
      {"concurrency", settings.concurrency},
      {"rate", settings.rate ? Json(*settings.rate) : Json(nullptr)},
      {"seconds", measurement.seconds},
      {"requests", measurement.requests},
      {"errors", errors},
      {"first_error", measurement.first_error},
      {"verified", settings.verify},
      {"input_bytes", measurement.input_bytes},
      {"output_bytes", measurement.output_bytes},
      {"gigabytes_per_second", GigabytesPerSecond(measurement)},
      {"tokens_per_second",
       PerSecond(requests * static_cast<double>(num_positions), measurement)},
      {"requests_per_second", PerSecond(requests, measurement)},
      {"latency_seconds",
       {{"p50", measurement.Quantile(0.5)},
        {"p99", measurement.Quantile(0.99)},
        {"p99.9", measurement.Quantile(0.999)},
        {"max", measurement.Quantile(1)}}},
      {"stage_seconds",
       {{"wait", stages.wait},
        {"queue", stages.queue},
        {"decode", stages.decode},
        {"compute", stages.compute},
        {"encode", stages.encode},
        {"transport", stages.transport}}},
  };
  return json.dump() + "\n";
}

std::string TextReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement) {
  const auto requests = static_cast<double>(measurement.requests);
  const Stages stages = MeanStages(measurement);
  std::string text;
  Append(&text, "%s%s, %lld positions, %d at a time: %llu requests in %.2f s\n",
         settings.echo ? "echo, " : "",
         std::string(client::ToString(measurement.transport)).c_str(),
         static_cast<long long>(num_positions), settings.concurrency,
         static_cast<unsigned long long>(measurement.requests),
         measurement.seconds);
  Append(
      &text,
      "  throughput  %.3f GB/s up and down, %.4g tokens/s, %.4g requests/s\n",
      GigabytesPerSecond(measurement),
      PerSecond(requests * static_cast<double>(num_positions), measurement),
      PerSecond(requests, measurement));
  Append(&text, "  latency ms  p50 %.3f, p99 %.3f, p99.9 %.3f, max %.3f\n",
         1e3 * measurement.Quantile(0.5), 1e3 * measurement.Quantile(0.99),
         1e3 * measurement.Quantile(0.999), 1e3 * measurement.Quantile(1));
  Append(&text,
         "  stages ms   wait %.3f, queue %.3f, decode %.3f, compute %.3f, "
         "encode %.3f, transport %.3f (means)\n",
         1e3 * stages.wait, 1e3 * stages.queue, 1e3 * stages.decode,
         1e3 * stages.compute, 1e3 * stages.encode, 1e3 * stages.transport);
  if (settings.verify)
    text += "  verified    the first answer is a unary one's\n";
  for (const auto& [code, count] : measurement.errors) {
    Append(&text, "  failed      %llu with %s\n",
           static_cast<unsigned long long>(count),
           std::string(client::ToString(code)).c_str());
  }
  if (!measurement.first_error.empty()) {
    text += "  first error " + measurement.first_error + "\n";
  }
  return text;
}

}  // namespace counterweight::bench

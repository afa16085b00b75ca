#include "server/observe/page.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/observe/page_html.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using nlohmann::ordered_json;

// Marks the place in page.html where each answer has its own nonce.
constexpr std::string_view kNoncePlace = "NONCE";

std::string RandomNonce() {
  std::random_device random;
  std::string nonce;
  for (int i = 0; i < 4; ++i) nonce += fmt::format("{:08x}", random());
  return nonce;
}

ordered_json Curves(const std::vector<RunPoint>& points) {
  ordered_json gauges = ordered_json::object();
  for (size_t i = 0; i < std::size(kDriftGauges); ++i) {
    bool is_measured = false;
    // NaN becomes null.
    ordered_json values = ordered_json::array();
    for (const RunPoint& point : points) {
      values.push_back(point.gauges[i]);
      is_measured = is_measured || !std::isnan(point.gauges[i]);
    }
    if (is_measured) gauges[kDriftGauges[i].row.name] = std::move(values);
  }
  return gauges;
}

ordered_json ReplicasJson(const std::vector<ReplicaDrift>& drifts) {
  ordered_json replicas = ordered_json::array();
  for (const ReplicaDrift& each : drifts) {
    replicas.push_back({{"name", each.name},
                        {"tokens", each.tokens},
                        {"k3", each.k3},
                        {"share", each.share},
                        {"of_others", each.of_others},
                        {"outlier", each.is_outlier()}});
  }
  return replicas;
}

ordered_json RunJson(std::string_view name,
                     const std::vector<RunPoint>& points) {
  ordered_json times = ordered_json::array();
  for (const RunPoint& point : points) times.push_back(point.unix_milliseconds);
  return {{"name", name},
          {"times", std::move(times)},
          {"gauges", Curves(points)},
          {"edges", LogRatioBuckets()},
          {"histogram",
           points.empty() ? RunPoint().histogram : points.back().histogram}};
}

}  // namespace

WebAnswer Page::Html() const {
  const std::string nonce = RandomNonce();
  std::string body;
  for (std::string_view rest = kPageHtml; !rest.empty();) {
    const size_t place = rest.find(kNoncePlace);
    body += rest.substr(0, place);
    if (place == std::string_view::npos) break;
    body += nonce;
    rest.remove_prefix(place + kNoncePlace.size());
  }
  return {fmt::format("Content-Type: text/html; charset=utf-8\r\n"
                      "Content-Security-Policy: default-src 'none'; "
                      "script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
                      "connect-src 'self'; img-src data:; base-uri 'none'; "
                      "form-action 'none'; frame-ancestors 'none'\r\n",
                      nonce),
          std::move(body)};
}

WebAnswer Page::Data(std::string_view run) const {
  ordered_json runs = ordered_json::array();
  bool shows = false;
  for (const DriftSeries::LastBatch& each : drift_.Runs()) {
    ordered_json one = {{"name", each.run}, {"seconds", each.seconds_ago}};
    // A run without metrics is shown too: it may report steps, or use another
    // method than it declares.
    if (!each.last_step.empty()) one["last_step"] = each.last_step;
    if (each.is_of_other_method) one["other_method"] = true;
    shows = shows || (each.run == run &&
                      (!each.last_step.empty() || each.is_of_other_method ||
                       !each.audit.empty()));
    if (!each.faults.empty()) one["faults"] = each.faults;
    if (!each.why.empty()) one["why"] = each.why;
    if (!each.audit.empty()) one["audit"] = each.audit;
    if (!each.replicas.empty()) one["replicas"] = each.replicas;
    runs.push_back(std::move(one));
  }
  ordered_json json = {{"address", address_}, {"runs", std::move(runs)}};
  const std::vector<RunPoint> points = drift_.LastBatches(run);
  if (!points.empty() || shows) {
    json["run"] = RunJson(run, points);
    json["run"]["replicas"] = ReplicasJson(drift_.Replicas(run));
  }
  return {"Content-Type: application/json\r\n",
          json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)};
}

}  // namespace counterweight::server

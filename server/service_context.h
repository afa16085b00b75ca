// What all RPCs share.
#ifndef COUNTERWEIGHT_SERVER_SERVICE_CONTEXT_H_
#define COUNTERWEIGHT_SERVER_SERVICE_CONTEXT_H_

#include <functional>
#include <string>

#include "kernels/corrector.h"
#include "server/admission.h"
#include "server/arrivals.h"
#include "server/call_clock.h"
#include "server/config.h"
#include "server/drift_series.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/shared_memory/region.h"
#include "server/staging_pool.h"
#include "server/use_count.h"

namespace counterweight::server {

// Pointers to parts that outlive every call; all parts are thread-safe.
struct ServiceContext {
  Config config;
  kernels::Corrector* corrector;
  kernels::BackendInfo backend;  // corrector's
  Admission* admission;
  Arrivals* arrivals;
  CallClock* clock;
  Executor* executor;
  ServingMetrics* metrics;
  DriftSeries* drift;
  RequestLog* log;
  StagingPool* staging;
  // For what outlives its call: all of this is kept until it is unused.
  UseCount* uses;
  // Null: this server shares no memory.
  const Regions* regions;
  // Where clients register it; empty if they cannot.
  std::string shared_memory_socket;
  // Called when a device failed, from any thread, perhaps often.
  std::function<void()> on_device_error;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SERVICE_CONTEXT_H_

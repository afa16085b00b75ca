// The parts of the server that all RPCs share.
#ifndef COUNTERWEIGHT_SERVER_CALL_SERVICE_CONTEXT_H_
#define COUNTERWEIGHT_SERVER_CALL_SERVICE_CONTEXT_H_

#include <functional>
#include <string>

#include "kernels/corrector.h"
#include "server/access/access.h"
#include "server/call/admission.h"
#include "server/call/arrivals.h"
#include "server/call/call_clock.h"
#include "server/call/executor.h"
#include "server/call/resets.h"
#include "server/call/staging_pool.h"
#include "server/call/transport_memory.h"
#include "server/call/use_count.h"
#include "server/config/current_config.h"
#include "server/engine/region.h"
#include "server/log/request_log.h"
#include "server/observe/drift_series.h"
#include "server/observe/metrics.h"
#include "server/trace/span_exporter.h"

namespace counterweight::server {

// Pointers to parts that outlive every call; all parts are thread-safe.
struct ServiceContext {
  const CurrentConfig* config;
  kernels::Corrector* corrector;
  kernels::BackendInfo backend;  // corrector's
  const Access* access;
  Admission* admission;
  Arrivals* arrivals;
  Resets* resets;
  CallClock* clock;
  Executor* executor;
  ServingMetrics* metrics;
  DriftSeries* drift;
  RequestLog* log;
  SpanExporter* spans = nullptr;  // null: no traces
  StagingPool* staging;
  TransportMemory* transport;
  // Counts objects that outlive their call: all of this is kept until it is
  // unused.
  UseCount* uses;
  // Null if the server has no shared memory.
  const Regions* regions;
  // The socket where clients register shared memory; empty if they cannot.
  std::string shared_memory_socket;
  // Called when no device is left that works, from any thread, perhaps often.
  std::function<void()> on_devices_lost;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_SERVICE_CONTEXT_H_

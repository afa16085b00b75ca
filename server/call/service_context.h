// The parts of the server that RPCs use.
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

// For calls that arrive, wait for room and run.
struct AdmitContext {
  const CurrentConfig* config;
  const Access* access;
  Arrivals* arrivals;
  Resets* resets;  // null: kHasOldGrpc is false
  CallClock* clock;
  Admission* admission;
  Executor* executor;
  TransportMemory* transport;
  ServingMetrics* metrics;
  // Counts objects that outlive their call: all of this is kept until it is
  // unused.
  UseCount* uses;
};

// For the work on a batch.
struct ComputeContext {
  const CurrentConfig* config;
  kernels::Corrector* corrector;
  kernels::BackendInfo backend;  // corrector's
  StagingPool* staging;
  // Null if the server has no shared memory.
  const Regions* regions;
  // The socket where clients register shared memory; empty if they cannot.
  std::string shared_memory_socket;
  // Called when no device is left that works, from any thread, perhaps often.
  std::function<void()> on_devices_lost;
};

// For the numbers and lines about a call.
struct ReportContext {
  ServingMetrics* metrics;
  DriftSeries* drift;
  RequestLog* log;
  SpanExporter* spans;  // null: no traces
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_SERVICE_CONTEXT_H_

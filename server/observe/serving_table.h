// Metrics of serving.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_SERVING_TABLE_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_SERVING_TABLE_H_

#include "server/observe/metric_row.h"
#include "server/observe/process_usage.h"

namespace counterweight::server {

// Updated as events happen.
inline constexpr MetricRow kServingTable[] = {
    CounterRow("counterweight_requests_total",
               "Requests answered, by method and gRPC code; requests that gRPC "
               "itself refuses are not seen.",
               "method, code"),
    HistogramRow("counterweight_request_seconds",
                 "Time of a corrected batch, from its message or header "
                 "received to its answer handed to the transport."),
    HistogramRow("counterweight_request_stage_seconds",
                 "Time of a corrected batch in each stage: decode, queue, "
                 "receive (streams only), compute and encode.",
                 "stage"),
    CounterRow("counterweight_request_bytes_total",
               "Bytes of requests of any method, as received."),
    CounterRow("counterweight_response_bytes_total",
               "Bytes of the answers with corrected batches, as sent."),
    CounterRow("counterweight_tokens_total",
               "Tokens that count, of successful requests; a retry counts "
               "again."),
    CounterRow("counterweight_sequences_total",
               "Sequences of successful requests; a retry counts again."),
    CounterRow("counterweight_non_finite_rejections_total",
               "Requests refused by the policy REJECT because a number in them "
               "is not finite."),
    CounterRow("counterweight_device_seconds_total",
               "Seconds that kernels ran on a device, transfers not counted; "
               "the rate is the load that this server puts on the device.",
               "device"),
    CounterRow("counterweight_device_errors_total",
               "Batches that failed because CUDA reported an error.", "device"),
    GaugeRow("counterweight_device_lost",
             "1 after the device is lost, until the process ends; otherwise 0.",
             "device"),
    GaugeRow("counterweight_requests_in_flight",
             "Correction requests that are admitted and not answered."),
    GaugeRow("counterweight_bytes_in_flight",
             "Bytes that admission counts for the correction requests in "
             "flight, without shared memory."),
    GaugeRow("counterweight_ready",
             "1 while health answers SERVING, otherwise 0."),
    GaugeRow("counterweight_build_info",
             "Always 1; the labels identify the build.",
             "version, revision, backend, instruction_set"),
};

// Read at each scrape.
inline constexpr MetricRow kSampleTable[] = {
    GaugeRow("counterweight_requests_queued",
             "Batches that wait for admission."),
    GaugeRow("counterweight_admitted_bytes",
             "Bytes of input, scratch, output and shared memory that are "
             "admitted; autoscale on their ratio to "
             "counterweight_admitted_bytes_limit."),
    GaugeRow("counterweight_admitted_bytes_limit",
             "Largest number of bytes admitted at a time: the flag "
             "--max_bytes_in_flight."),
    GaugeRow("counterweight_waiting_bytes",
             "Bytes that requests hold while they wait for admission; they are "
             "not among the admitted bytes."),
    GaugeRow("counterweight_unparsed_bytes",
             "Bytes of admitted messages that are not parsed yet; the bound of "
             "gRPC's own memory is higher by them."),
    GaugeRow("counterweight_arriving_requests",
             "Calls with a request that has not arrived completely."),
    GaugeRow("counterweight_tasks_waiting",
             "Parts of admitted batches that wait for a worker thread."),
    GaugeRow("counterweight_connections", "Open gRPC connections."),
    CounterRow("counterweight_connections_refused_total",
               "gRPC connections refused because there were too many or "
               "because their address floods the server, and accepts that "
               "failed."),
    GaugeRow("counterweight_staging_used_bytes",
             "Bytes of staging memory that hold the payload of streams."),
    GaugeRow("counterweight_staging_free_bytes",
             "Bytes of staging memory that are kept for reuse."),
    CounterRow("counterweight_log_lines_dropped_total",
               "Log lines that were not written because stderr was not read, "
               "or failed."),
    GaugeRow("counterweight_config_last_reload_success",
             "0 after a SIGHUP at which the configuration was not valid, so "
             "that the one before it stays in force; otherwise 1."),
};

// Read at each scrape where --tls_certificate is set.
inline constexpr MetricRow kTlsTable[] = {
    GaugeRow("counterweight_tls_certificate_expiry_seconds",
             "Unix time at which the certificate that is served ends, or one "
             "of those in its file."),
    GaugeRow(
        "counterweight_tls_files_valid",
        "0 while the files of --tls_certificate, --tls_key and --tls_client_ca "
        "are wrong and the earlier ones are served, otherwise 1."),
};

// Read at each scrape where --tokens is set; the last one also where
// --tls_certificate is.
inline constexpr MetricRow kAccessTable[] = {
    GaugeRow("counterweight_token_file_valid",
             "0 while the file of --tokens is wrong and the earlier one is "
             "used, otherwise 1."),
    CounterRow("counterweight_access_refused_total",
               "Calls and scrapes refused for want of a token or of an allowed "
               "certificate; TLS handshakes that fail are not seen."),
};

// Read at each scrape where traces are sent.
inline constexpr MetricRow kTraceTable[] = {
    CounterRow("counterweight_spans_exported_total",
               "Spans that the OpenTelemetry collector took."),
    CounterRow("counterweight_spans_dropped_total",
               "Spans that are lost: the collector refused them, did not "
               "answer, or was too slow."),
};

// Read at each scrape where --shared_memory_socket is set.
inline constexpr MetricRow kSharedMemoryTable[] = {
    GaugeRow("counterweight_shared_memory_regions",
             "Memory regions that clients share."),
    GaugeRow("counterweight_shared_memory_bytes",
             "Bytes of host memory in the regions that clients share."),
    GaugeRow("counterweight_shared_memory_admitted_bytes",
             "Bytes of counterweight_admitted_bytes that shared memory takes, "
             "at most half of the limit."),
    GaugeRow("counterweight_shared_memory_device_bytes",
             "Bytes of device memory in the regions that clients share."),
    CounterRow("counterweight_shared_memory_errors_total",
               "Connections and registrations of shared memory that were "
               "refused, and accepts that failed."),
};

struct ProcessMetric {
  MetricRow row;
  double ProcessUsage::*field;
};

// Prometheus' own client libraries define these names.
inline constexpr ProcessMetric kProcessTable[] = {
    {GaugeRow("process_resident_memory_bytes",
              "Bytes of resident memory of the process."),
     &ProcessUsage::resident_bytes},
    {GaugeRow("process_virtual_memory_bytes",
              "Bytes of virtual memory of the process."),
     &ProcessUsage::virtual_bytes},
    {CounterRow("process_cpu_seconds_total",
                "User and system CPU time of the process, in seconds."),
     &ProcessUsage::cpu_seconds},
    {GaugeRow("process_open_fds", "Open file descriptors of the process."),
     &ProcessUsage::open_files},
    {GaugeRow("process_max_fds",
              "Largest number of file descriptors that the process may open."),
     &ProcessUsage::max_open_files},
    {GaugeRow("process_start_time_seconds",
              "Start time of the process, in seconds since the Unix epoch."),
     &ProcessUsage::start_time_seconds},
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_SERVING_TABLE_H_

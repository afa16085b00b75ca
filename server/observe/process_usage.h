// Resource use of this process.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_PROCESS_USAGE_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_PROCESS_USAGE_H_

namespace counterweight::server {

struct ProcessUsage {
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double cpu_seconds = 0;  // user and system
  double open_files = 0;
  double max_open_files = 0;
  double start_time_seconds = 0;  // since the Unix epoch
};

// Reads /proc; what cannot be read stays 0.
ProcessUsage ReadProcessUsage();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_PROCESS_USAGE_H_

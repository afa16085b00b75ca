// The ceiling of shared memory: the time to copy a batch in and its answer out.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_MEMORY_COPY_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_MEMORY_COPY_H_

#include <cstddef>
#include <map>
#include <vector>

#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"

namespace counterweight::bench {

class MemoryCopy {
 public:
  // A region for each request. kResourceExhausted if there is no memory.
  client::Status Make(const std::vector<client::Request>& requests);

  // Copies the inputs into the request's region, and as many bytes as its
  // outputs have out of it. `request` is one of Make's; one call at a time for
  // each.
  client::Status Run(const client::Request& request,
                     client::Response* response) const;

 private:
  std::map<const client::Request*, client::SharedBuffer> regions_;
};

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_MEMORY_COPY_H_

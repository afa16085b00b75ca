// A PublishRequest with every part.
#ifndef COUNTERWEIGHT_TESTS_SERVER_PUBLICATIONS_H_
#define COUNTERWEIGHT_TESTS_SERVER_PUBLICATIONS_H_

#include <string>

#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::server {

// Nine sequences, seven of them with 100 tokens; two rules, loss, KL penalty
// and staleness. Every number is another one.
v1::PublishRequest FullPublication(const std::string& request_id = "id",
                                   const std::string& run = "run");

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_PUBLICATIONS_H_

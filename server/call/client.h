// The owner of a request.
#ifndef COUNTERWEIGHT_SERVER_CALL_CLIENT_H_
#define COUNTERWEIGHT_SERVER_CALL_CLIENT_H_

#include <string>

namespace counterweight::server {

// The owner of a request's share. `peer` is the identity that the server sees,
// and shares are counted by it; `name` is the client's own claim, by which
// clients of one peer take turns.
struct Client {
  std::string peer;
  std::string name;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CLIENT_H_

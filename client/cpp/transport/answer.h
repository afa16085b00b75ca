// Addresses for an answer's tensors.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ANSWER_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ANSWER_H_

#include <string>

#include "client/cpp/response.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {

// kInternal: the server's answer breaks the contract.
Status BrokenAnswer(const std::string& what);

// Fills response->outputs for the tensors of response->message: addresses from
// the request, else memory of the response. kInternal if the answer has other
// tensors than the request.
Status PlaceOutputs(const PreparedRequest& request, Response* response);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ANSWER_H_
